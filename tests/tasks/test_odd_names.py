"""Programs for models whose names have quotes, backslashes, slashes, tags and line ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from vetting import refusals, with_every_term

import movlr_jax as mj
from movlr_jax.evolution.scripted.terms import library
from movlr_jax.rewards.term import identifier, quoted
from movlr_jax.sandbox.genome import genome_of
from movlr_jax.sandbox.source import with_weights

BODY = """<mujoco><worldbody><geom type="plane" size="9 9 1"/>
<body name="root {a} 100%s" pos="0 0 0.9"><freejoint/><geom size="0.2"/>
<body name="5&quot; left hand" pos="0 0.2 0.2"><joint name="say &quot;elbow&quot;\\" axis="0 1 0" range="-90 90"/>
<geom size="0.05" pos="0.3 0 0"/><site name="tip's\\end"/></body>
<body name="robot/&lt;/script&gt;right hand" pos="0 -0.2 0.2"><joint name="line&#10;end" axis="0 1 0" range="-90 90"/>
<geom size="0.05" pos="0.3 0 0"/></body>
<body name="left foot$x" pos="0 0.1 -0.8"><joint name="&quot;&quot;&quot;" axis="0 1 0" range="-90 90"/>
<geom size="0.1"/></body>
<body name="right foot`x`" pos="0 -0.1 -0.8"><joint name="#" axis="0 1 0" range="-90 90"/><geom size="0.1"/></body>
</body></worldbody><actuator>
<motor name="a&quot;" joint="say &quot;elbow&quot;\\"/><motor joint="line&#10;end"/>
<motor joint="&quot;&quot;&quot;"/><motor joint="#"/>
</actuator></mujoco>"""


@pytest.mark.parametrize(
    "instruction", ["raise the right hand above the left hand", "walk forward, then turn left, then jump"]
)
def test_every_program_for_a_model_with_any_names_is_valid(instruction: str, tmp_path: Path):
    path = tmp_path / "it's.xml"
    path.write_text(BODY)
    task = mj.load_task(model=str(path), instruction=instruction)
    (every,) = with_every_term(task)
    changed = with_weights(every, dict.fromkeys(library(task), 2.0))
    assert refusals(task, task.rewards.initial, every, genome_of(every).source(), changed) == []


@pytest.mark.parametrize("name", ["it's", "back\\slash", "line\nend", "\u2028", "Überknie", "\x00", '"""'])
def test_a_quoted_name_is_the_name_in_python(name: str):
    assert eval(quoted(name)) == name
    assert quoted("elbow") == '"elbow"'


@pytest.mark.parametrize(
    ("name", "expected"), [("left knee", "left_knee"), ('5" hand', "_5__hand"), ("a/b", "a_b"), ("x" * 99, "x" * 48)]
)
def test_the_name_of_a_term_is_an_identifier(name: str, expected: str):
    assert identifier(name) == expected
    assert identifier(name).isidentifier()


NUMBERED = """<mujoco><worldbody><geom type="plane" size="9 9 1"/>
<body name="trunk" pos="0 0 0.9"><freejoint/><geom size="0.2"/>
<body name="foot_1" pos="0 0.1 -0.8"><joint name="a" axis="0 1 0" range="-90 90"/><geom size="0.1"/></body>
<body name="foot_2" pos="0 -0.1 -0.8"><joint name="b" axis="0 1 0" range="-90 90"/><geom size="0.1"/></body>
</body></worldbody><actuator><motor joint="a" ctrlrange="-1 1"/><motor joint="b" ctrlrange="-1 1"/></actuator>
</mujoco>"""


def test_a_side_that_neither_numbers_nor_places_of_parts_tell_is_an_error(tmp_path: Path):
    file = tmp_path / "numbered.xml"
    file.write_text(NUMBERED)
    found = mj.load_task(model=str(file), instruction="raise the right foot").scoring.motion
    assert found
    assert [part.place for part in found.parts] == ["foot_2"], "where it is tells its side"
    file.write_text(NUMBERED.replace('pos="0 0.1', 'pos="0.1 0').replace('pos="0 -0.1', 'pos="-0.1 0'))
    refused = mj.load_task(model=str(file), instruction="raise the right foot").scoring.motion
    assert refused
    assert re.search(r"names the right foot.*it has: foot1 \(foot_1\), foot2 \(foot_2\)", refused.problem)
    motion = mj.load_task(model=str(file), instruction="raise both feet and jump").scoring.motion
    assert motion
    assert [part.place for part in motion.parts] == ["foot_1", "foot_2"]
