"""A body that moves freely, and what a description asks of it: words, terms, measures, and a search that moves it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
from bodies import BODIES, WHEELED
from moving import CRAWLER, HOPPER, PAGE, block, episode_of
from vetting import refusals

import movlr_jax as mj
from movlr_jax.cli.search import main as search
from movlr_jax.evolution.rank import no_gradient
from movlr_jax.evolution.scripted.metrics import MetricsJudge
from movlr_jax.evolution.scripted.proposer import ScriptedProposer
from movlr_jax.evolution.scripted.terms import library, reading
from movlr_jax.language.base import Evaluation, ProposalRequest
from movlr_jax.records import Trial
from movlr_jax.sandbox.genome import Genome
from movlr_jax.tasks import Task, simple_task
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.words.sentence import Sentence

X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
BACK, RIGHT = (-1.0, 0.0, 0.0), (0.0, -1.0, 0.0)


def made(description: str, xml: str = CRAWLER, **more: object) -> Task:
    spec = mujoco.MjSpec.from_string(xml)
    return simple_task(name="moving", model=spec, description=description, **more)  # pyright: ignore


def motion(description: str, xml: str = CRAWLER, **more: object) -> Sentence:
    found = made(description, xml, **more).scoring.motion
    assert found
    return found


# Words.


def test_a_body_on_wheels_is_upright_if_it_is_high_or_the_words_say_so():
    """By hand: the box has its centre of mass 0.4 m above the ground, or 0.09 m if it is below the axle."""
    low = WHEELED.replace('pos="0 0 .3"', 'pos="0 0 -.01"').replace('size=".05 .1 .3"', 'size=".05 .1 .03"')
    assert motion("balance", low).balance
    assert motion("stay upright and drive forward", low).balance
    assert not motion("drive forward", low).balance
    assert motion("drive forward", WHEELED).balance
    task = made("balance", WHEELED)
    assert task.scoring.motion
    for degrees, part in (([0, 50, 70, 80, 85], 0.5), ([0, 50, 55, 50, -55], 1.0)):
        tilted = np.repeat(task.model.qpos0[None], 5, axis=0)
        half = np.deg2rad(degrees) / 2
        tilted[:, 3], tilted[:, 5] = np.cos(half), np.sin(half)
        assert task.scoring.motion.measure(episode(task, tilted, 1.0))["upright_fraction"] == part


def test_speeds_are_said_or_follow_from_the_height():
    """Froude number 0.25 for a walk: v = 0.5 sqrt(9.81 h), with the hub 0.45 m high."""
    speeds = {}
    for words in ("walk", "run", "walk slowly", "walk fast", "walk at about 1.5 m/s", "walk at 3.6 km/h"):
        travel = motion(words).travel
        assert travel
        speeds[words] = travel["speed"]
    assert speeds["walk"] == pytest.approx(0.5 * np.sqrt(9.81 * 0.45), abs=0.05)
    assert speeds["run"] == pytest.approx(np.sqrt(9.81 * 0.45), abs=0.05)
    assert speeds["walk slowly"] < speeds["walk"] < speeds["walk fast"]
    assert (speeds["walk at about 1.5 m/s"], speeds["walk at 3.6 km/h"]) == (1.5, 1.0)
    assert not motion("crawl").balance


@pytest.mark.parametrize(("words", "bounded"), [("walk slowly", True), ("walk at 0.5 m/s", True), ("walk", False)])
def test_a_speed_that_should_not_be_exceeded_is_best_where_it_is_asked_for(words: str, bounded: bool):
    task = made(words)
    travel, data, first = motion(words).travel, mujoco.MjData(task.model), mujoco.MjData(task.model)
    mujoco.mj_forward(task.model, first)
    assert travel
    totals = []
    for share in (0.5, 1.0, 2.0):
        data.qvel[:3] = share * travel["speed"] * np.asarray(travel["way"])
        mujoco.mj_forward(task.model, data)
        totals.append(float(mj.load_reward(task.rewards.initial, task)(data, data.ctrl, first)[0]))
    assert totals[0] < totals[1] - 0.5
    assert (totals[2] < totals[1] - 0.5) is bounded


def test_a_velocity_among_the_goals_goes_before_words():
    travel = motion("walk", goals={"velocity": (0.0, -2.0, 0.0)}).travel
    assert travel
    assert (travel["way"], travel["speed"], travel["exact"]) == (RIGHT, 2.0, True)
    assert motion("wander", goals={"velocity": (0.0, 0.0, 0.0)}).text() == "stay in place, upright"


def test_where_a_place_is_to_be_reached_words_say_nothing():
    assert made("walk to the mark", goals={"hub_pos": (1.0, 0.0, 0.4)}).scoring.motion is None


# Terms, and what is said of them.


SENTENCES = {
    "crawler": (
        "walk", "jump and turn right", "turn right by 45 degrees", "make a full turn in place",
        "walk at 0.5 m/s, facing forward", "turn left by 90 degrees, then walk forward 1 m, then jump",
        "walk in a circle without jumping", "walk forward, then backward", "play the piano",
    ),
    "hopper": (
        "move along -z", "squat and stand up", "stand", "bend the knee",
        "bend the knee by 40 degrees over 3 seconds, then straighten it within 1 s",
    ),
    "person": (
        "walk to the red ball, then kick it with the right foot", "march in place and wave three times",
        "raise both arms sideways with bent knees", "lie down", "walk around the red ball, then bump into it",
        "raise both arms within 2 seconds and keep the left leg still",
    ),
    "panda": (
        "pick up the cube and put it on the red ball", "rotate joint1 by 30 degrees, then release the cube",
    ),
    "drone": ("climb by 1 m, then hover for 2 s",),
    "lying": ("stand up",),
}  # fmt: skip


@pytest.mark.parametrize("body", SENTENCES)
def test_every_term_runs(body: str):
    """On the states of the task with most goals, each term once, up to 20 in a program."""
    tasks = [made(words, BODIES[body]) for words in SENTENCES[body]]
    most = max(tasks, key=lambda task: len(task.goals))
    assert all(task.goals.keys() <= most.goals.keys() for task in tasks)
    terms = list({term.expression: term for task in tasks for term in library(task).values()}.values())
    parts = 1 + len(terms) // 20
    programs = [
        Genome({f"t{i}": (term.weight, term.expression) for i, term in enumerate(terms[part::parts])}).source()
        for part in range(parts)
    ]
    assert refusals(most, *{task.rewards.initial for task in tasks}, *programs) == []


def test_the_library_is_made_from_the_model():
    free, planar = library(made("play")), library(made("play", HOPPER))
    assert {"along_x", "along_minus_x", "along_y", "along_z", "height", "level", "posture"} <= set(free)
    assert {"along_x", "along_z"} <= set(planar)
    assert "along_y" not in planar
    assert {"knee_high", "knee_low", "knee_fast", "knee_calm", "sole_down", "sole_off"} <= set(planar)
    floating = re.sub('<geom name="floor".*?/>', "", HOPPER).replace(
        "<worldbody>", '<option gravity="0 0 0"/><worldbody>'
    )
    floating = floating.replace("<geom friction", '<geom contype="2" friction')
    assert not {"sole_down", "sole_off"} & set(library(made("play", floating))), "there is nothing to touch"
    assert library(made("bend the knee", HOPPER))["knee_low"].kind == "joint"
    assert "hip_low" not in library(made("bend the knee", HOPPER))
    assert library(made("walk"))["calm"].weight < library(made("play"))["calm"].weight


def test_places_that_the_description_names_have_distances():
    task = made("scratch sole, trunk, thigh", HOPPER)
    terms = library(task)
    assert {"sole_to_trunk", "sole_to_trunk_near", "trunk_to_thigh", "sole_to_thigh"} <= set(terms)
    assert 'state.pos("trunk")' in terms["sole_to_trunk"].expression
    assert reading(task) == (
        "the scripted proposer tries what the description names: distances between sole and trunk and thigh"
    )
    assert not any("_to_" in name for name in library(made("scratch the sole", HOPPER))), "one place alone"


@pytest.mark.parametrize(
    ("description", "xml", "said"),
    [
        ("hop forward", HOPPER, "reads the description as: move forward at about 1.7 m/s, leave the ground, upright"),
        ("play the piano", HOPPER, "knows no term for 'play the piano' and tries what the model can do, at random; "
         "use llm=..., or in a task of your own write a reward program (reward= of simple_task) or set a goal"),
        ("hop forward past the sole", HOPPER, "reads the description as: move forward at about 1.7 m/s, leave the "
         "ground, upright; it has no term for 'past'"),
        ("shake the knee", HOPPER, "tries what the description names: angles and speeds of the joints knee"),
    ],
)  # fmt: skip
def test_what_is_made_of_a_description_is_said(description: str, xml: str, said: str):
    heard: list[str] = []
    ScriptedProposer(say=heard.append).propose(request(made(description, xml)), 2)
    assert heard == [f"  {reading(made(description, xml))}"]
    assert heard[0].startswith(f"  the scripted proposer {said}")
    assert reading(made("reach", HOPPER, goals={"sole_pos": (1.0, 0.0, 0.0)})) == ""
    own = {"goals": {"post": (1.0, 0.0, 0.0)}}
    assert "no term for 'post'" in reading(made("hop forward", HOPPER, **own))
    program = made("hop", HOPPER).rewards.initial.replace("return {", 'place = state.goal("post")\n    return {')
    assert "post" not in reading(made("hop forward", HOPPER, reward=program, **own))


def request(task: Task) -> ProposalRequest:
    return ProposalRequest(0, task, None, None, (), 0)


def test_programs_do_not_depend_on_the_hidden_measure():
    plain = made("walk")
    hidden = made("walk", measure=lambda episode: {"height_m": 3.0}, success=lambda m: True, score=lambda m: 1.0)
    assert ScriptedProposer().propose(request(plain), 6) == ScriptedProposer().propose(request(hidden), 6)


# Measures.


def episode(task: Task, qpos: np.ndarray, seconds: float) -> Readout:
    """The model at each of `qpos` [T, nq]."""
    return Readout(task.layout, episode_of(task, list(qpos), seconds / (len(qpos) - 1)).steps)


def test_the_way_is_measured_until_a_fall():
    task = made("walk at 1 m/s", HOPPER)
    qpos = np.zeros((101, task.model.nq))
    qpos[:, 0] = np.linspace(0.0, 2.0, 101)
    assert task.scoring.motion
    whole = task.scoring.motion.measure(episode(task, qpos, 2.0))
    assert whole == pytest.approx(
        {"upright_fraction": 1.0, "fell": 0.0, "distance_m": 2.0, "progress_m_s": 1.0}, rel=1e-5
    )
    qpos[50:, 1] = -0.6
    fallen = task.scoring.motion.measure(episode(task, qpos, 2.0))
    assert fallen == pytest.approx(
        {"upright_fraction": 0.5, "fell": 1.0, "time_to_fall_s": 1.0, "distance_m": 1.0, "progress_m_s": 0.5},
        rel=1e-5,
    )
    assert task.scoring.score(whole) > task.scoring.score(fallen)
    assert task.scoring.score(whole) > task.scoring.score({**whole, "progress_m_s": 1.5}), "1 m/s was asked for"
    assert [need.kind for need in task.scoring.diagnose(fallen)] == ["height", "upright", "forward"]
    assert task.scoring.diagnose(whole) == []


def test_turn_that_misses_its_angle_is_diagnosed_and_scores_less():
    for words, turned in (("turn right by 200 degrees", 4.0), ("turn left by 1 rad", -4.0)):
        task, measured = made(words), {"upright_fraction": 1.0, "fell": 0.0, "turned_rad": turned}
        assert [need.kind for need in task.scoring.diagnose(measured)] == ["turning"]
        assert task.scoring.score(measured) < task.scoring.score(measured | {"turned_rad": np.sign(turned) * 3.8})


@pytest.mark.parametrize(
    ("words", "wanted", "apart"),
    [("turn left by 90 degrees", 90, 180), ("turn right by 140 degrees", -140, 0), ("face forward", 0, 180)],
)
def test_the_heading_term_is_greatest_where_the_words_ask_for(words: str, wanted: int, apart: int):
    """For a body whose own frame lies on its side. The error grows up to half a turn away."""
    task = made(words, CRAWLER.replace('pos="0 0 0.45"', 'pos="0 0 0.45" quat="1 1 0 0"'))
    reward, model = mj.load_reward(task.rewards.initial, task), task.model
    first, data = mujoco.MjData(model), mujoco.MjData(model)
    mujoco.mj_forward(model, first)
    terms = {}
    for degrees in {wanted, wanted - 20, wanted + 20, apart}:
        half = np.deg2rad(degrees) / 2
        mujoco.mju_mulQuat(data.qpos[3:7], np.array([np.cos(half), 0, 0, np.sin(half)]), first.qpos[3:7])
        mujoco.mj_forward(model, data)
        terms[degrees] = float(reward(data, data.ctrl, first)[1]["heading"])
    assert terms[wanted] == pytest.approx(0.0, abs=1e-5)
    assert terms[wanted - 20] == pytest.approx(terms[wanted + 20], abs=1e-5)
    smooth = np.sqrt(np.deg2rad(20) ** 2 + 0.1**2) - 0.1
    assert terms[wanted - 20] == pytest.approx(-smooth, abs=1e-5)
    assert terms[apart] < terms[wanted - 20]


def test_half_a_turn_goes_to_the_side_that_was_asked_for():
    """The heading that is asked for moves: after 1 s it is 1.5 rad on the way."""
    for words, side in (("turn around", 1), ("make half a turn to the right", -1)):
        task = made(words)
        reward, data, first = (
            mj.load_reward(task.rewards.initial, task),
            mujoco.MjData(task.model),
            mujoco.MjData(task.model),
        )
        mujoco.mj_forward(task.model, first)
        for time, angle, expected in ((1.0, 1.5, 0.0), (1.0, -1.5, -2.9), (9.0, np.pi, 0.0), (9.0, -np.pi, 0.0)):
            data.time, data.qpos[3], data.qpos[6] = time, np.cos(angle / 2), side * np.sin(angle / 2)
            mujoco.mj_forward(task.model, data)
            assert float(reward(data, data.ctrl, first)[1]["heading"]) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("words", "failed", "nearer", "done"),
    [
        ("jump", {"rise_m": 0.0}, {"rise_m": 0.05}, {"rise_m": 0.2}),
        ("walk at 1 m/s", {"progress_m_s": 0.1}, {"progress_m_s": 0.5}, {"progress_m_s": 1.0}),
        ("walk at 1 m/s", {"progress_m_s": 3.0}, {"progress_m_s": 2.0}, {"progress_m_s": 1.05}),
        ("stand still", {"drift_error_m": 2.0}, {"drift_error_m": 1.0}, {"drift_error_m": 0.1}),
        ("turn left by 2 rad", {"turned_rad": -1.5}, {"turned_rad": 1.0}, {"turned_rad": 2.1}),
        ("play the piano", {"success": 0.0, "key_error_m": 0.2}, {"success": 0.0, "key_error_m": 0.1},
         {"success": 1.0, "key_error_m": 0.0}),
        ("play the piano", {"success": 0.0, "key_error_m": 40.0}, {"success": 0.0, "key_error_m": 20.0},
         {"success": 1.0, "key_error_m": 0.0}),
    ],
)  # fmt: skip
def test_effort_orders_successes_alone_and_the_nearest_failure_leads(
    words: str, failed: dict[str, float], nearer: dict[str, float], done: dict[str, float]
):
    task, judge = made(words), MetricsJudge()

    def compare(*measured: tuple[dict[str, float], float]) -> str:
        first, second = (Evaluation(0, 0, "", metrics=m | {"effort": effort}) for m, effort in measured)
        return judge.compare(task, first, second).winner

    assert compare((failed, 0.9), (failed, 0.0)) == "tie"
    assert compare((nearer, 0.9), (nearer, 0.0)) == "tie"
    assert compare((nearer, 0.9), (failed, 0.0)) == "first"
    assert compare((done, 0.9), (nearer, 0.0)) == "first"
    assert compare((done, 0.9), (done, 0.0)) == "second"


def test_errors_without_a_measure_of_success_are_not_outweighed_by_effort():
    task = made("play the piano")
    near, far = {"key_error_m": 0.01, "effort": 0.5}, {"key_error_m": 0.02, "effort": 0.0}
    assert task.scoring.score(near) == pytest.approx(-1)
    assert task.scoring.score(near) > task.scoring.score(far)


LIFT = """<mujoco><worldbody><geom type="plane" size="2 2 0.1"/>
<body name="arm" pos="0 0 0.4"><joint name="shoulder" axis="0 1 0" range="-90 90" damping="1"/>
  <geom type="capsule" fromto="0.05 0 0 0.25 0 0" size="0.03"/></body>
<body name="cube" pos="0.9 0 0.02"><freejoint/><geom type="box" size="0.02 0.02 0.02" mass="0.1"/></body>
</worldbody><actuator><motor joint="shoulder" ctrlrange="-5 5"/></actuator></mujoco>"""


def test_a_search_in_which_nothing_succeeds_names_no_probable_best(
    elsewhere: Path, capfd: pytest.CaptureFixture[str]
):
    """The cube is out of reach: each program moves the arm with another effort, and lifts nothing."""
    Path("lift.xml").write_text(LIFT)
    quick = ["candidates=3", "generations=1", "episode_s=0.4", "optimizer.mppi.samples=3", "trials=2", "films=false"]
    assert search(["model=lift.xml", "instruction=lift the cube by 10 cm", *quick, "run_dir=run"]) == 0
    said = capfd.readouterr().err
    assert {*re.findall(r"P = (\S+)", said)} == {"0.50"}
    assert re.search(r"rank: g00k00 stays the champion: 0 of \d+ succeed, cube up by 10.0 cm: ", said)
    assert "rank: all programs have almost the same score" in said
    assert re.search(
        r"^no better program than the first was found\ng00k00 from 8 fresh starts: 0 of 8 succeed ", said, re.M
    )


def test_doing_nothing_is_no_better_than_another_failure():
    task = made("play the piano", success=lambda m: False)
    assert task.scoring.score({"success": 0.0, "effort": 0.0}) == task.scoring.score({"success": 0.0, "effort": 0.5})
    assert task.scoring.score({"success": 1.0, "effort": 0.0}) > task.scoring.score({"success": 1.0, "effort": 0.5})
    assert [need.kind for need in task.scoring.diagnose({"success": 0.0})] == ["unknown"], (
        "to be calm is no way there"
    )


def test_a_body_whose_success_is_out_of_reach_scores_more_the_farther_it_walks():
    task = made("walk", success=lambda m: m["distance_m"] > 99)
    still, slow, fast = ({"success": 0.0, "progress_m_s": v, "distance_m": 2 * v} for v in (0.0, 0.3, 0.6))
    assert task.scoring.score(fast) > task.scoring.score(slow) > task.scoring.score(still)


@pytest.mark.parametrize(
    ("instruction", "success", "said"),
    [
        (None, {"success": 0.0}, "all programs fail with .*score=lambda m: m.'distance_m'., negated if less"),
        (None, {}, "all programs have almost the same score, so their order means nothing; in a task of your own"),
        ("play the piano", {}, "the words .* name little that can be measured.*method=movlr with vlm=gemini"),
    ],
)
def test_programs_that_nothing_tells_apart_ask_for_a_score_or_a_judge(
    instruction: str | None, success: dict[str, float], said: str
):
    task, trial = made("play the piano"), Trial(seed=0, metrics=success | {"distance_m": 1.0})
    context: Any = SimpleNamespace(task=task, config=SimpleNamespace(instruction=instruction))
    same: Any = {"g00k00": [trial], "g00k01": [trial]}
    assert re.search(said, no_gradient(context, same))
    assert no_gradient(context, {"g00k00": [trial]}) == "", "one alone"  # pyright: ignore


def test_the_page_moves_its_leg(elsewhere: Path, capfd: pytest.CaptureFixture[str]):
    Path("hopper.xml").write_text(HOPPER, encoding="utf-8")
    Path("hop.py").write_text(block("python"), encoding="utf-8")
    quick = ["candidates=2", "generations=1", "films=false", "episode_s=1.5", "trials=1", "confirm=0"]
    assert search(["+task=hop.py", *quick, "optimizer.mppi.samples=64"]) == 0
    said = capfd.readouterr().err
    moved = re.search(r"^best, not confirmed: .* moved (\S+) m", said, re.M)
    assert moved, said
    assert float(moved[1].replace("−", "-")) > 0.3, "a body that keeps its start posture stays where it is"
    shown = re.search(r"^  the scripted proposer reads .*", PAGE, re.M)
    assert shown
    assert shown.group() in said
