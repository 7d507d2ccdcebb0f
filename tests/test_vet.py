"""The child process that programs are tried in: what it says, what it survives, and what it never sees."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from movlr_jax.errors import UserError
from movlr_jax.rewards.program import Scorer
from movlr_jax.sandbox import vet
from movlr_jax.sandbox.source import load, parse
from movlr_jax.sandbox.trial import Probe
from movlr_jax.sandbox.vet import Sandbox

SOUND = '''"""Bend the knee."""

WEIGHTS = {"bend": 2.0, "high": 1.0}


def reward(state, action):
    return {"bend": -jnp.square(state.q("knee") - 1.0), "high": state.pos("pelvis")[2]}
'''
SECRET = "sk-never-to-be-seen"


@pytest.fixture(scope="module")
def probe(tiny) -> Probe:
    """Six steps of four simulations under random controls."""
    start = tiny.physics.start(*tiny.states(4))
    controls = np.random.default_rng(0).uniform(0, 1, (4, tiny.model.nu)).astype(np.float32)
    rollout = tiny.physics.rollout(start, lambda p, view, key: p, controls, steps=6, key=jax.random.key(0))
    return Probe(
        tiny.layout, tiny.goals, *jax.tree.map(np.asarray, (rollout.steps, rollout.actions, start.step))
    )


@pytest.fixture(scope="module")
def sandbox(probe: Probe) -> Iterator[Sandbox]:
    """One for all tests, as in a search; keys are set where it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "SOMETHING_ELSE"):
            patch.setenv(name, SECRET)
        box = Sandbox(probe, deadline_s=3.0)
        yield box
    box.close()


def children() -> set[int]:
    """Processes of this one that are not only waiting to be reaped."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it ended meanwhile
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.add(int(path.parent.name))
    return found


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int, within_s: float = 10.0) -> float:
    """Seconds until a process has ended."""
    began = time.monotonic()
    while running(pid):
        assert time.monotonic() - began < within_s, f"process {pid} does not end"
        time.sleep(0.05)
    return time.monotonic() - began


def program(*body: str, weights: str = '{"a": 1.0}', before: str = "") -> str:
    """A program whose WEIGHTS stand in line 1, `before` in line 2, and its body from line 4 on."""
    lines = "\n".join(f"    {line}" for line in body)
    return f"WEIGHTS = {weights}\n{before}\ndef reward(state, action):\n{lines}\n"


def test_an_accepted_program_is_the_program(sandbox: Sandbox, probe: Probe):
    verdict = sandbox.vet(SOUND)
    assert (verdict.accepted, verdict.stage, verdict.message) == (True, "probe", None)
    assert verdict.program
    direct = load(parse(SOUND))
    assert verdict.program.source == SOUND
    assert verdict.program.description == "Bend the knee."
    assert verdict.program.weights == direct.weights == {"bend": 2.0, "high": 1.0}
    batch = jax.tree.map(lambda x: np.asarray(x)[None], (probe.steps, probe.actions, probe.initial))
    scorer = Scorer(probe.layout, probe.goals)
    totals = [scorer([p], *batch).totals for p in (verdict.program, direct)]
    np.testing.assert_array_equal(*totals)
    knee, layout = probe.steps.qpos[..., 2], probe.layout
    height = probe.steps.sensors[..., layout.blocks["pos"] + 3 * layout.bodies["pelvis"] + 2]
    np.testing.assert_allclose(totals[0][0], -2 * (knee - 1) ** 2 + height, rtol=1e-5)


def test_what_is_accepted_has_a_verdict_without_a_message(sandbox: Sandbox):
    for source in (
        program('return {"a": state.q("knee") > 0}'),
        program('return {"a": 1}'),
        program('return {"a": jnp.log(state.q("knee") - 0.5)}'),  # finite at some states: guarded at run time
    ):
        verdict = sandbox.vet(source)
        assert verdict.accepted, verdict.message
        assert verdict.program


BROKEN = {
    "not Python": ("x = = 1", "parse", "the program is not Python: line 4: "),
    "import": ("import os", "parse", "line 4: `import os`"),
    "exit": ("exit()", "parse", "line 4: 'exit' is not available"),
    "sys.exit": ("sys.exit(3)", "trace", "line 4: NameError: name 'sys' is not defined"),
    "raise": ("raise SystemExit", "parse", "line 4: Raise is not part of a reward program"),
    "assert": ('assert False, "no"', "trace", "line 4: AssertionError: no"),
    "body": ('x = state.pos("tigh")', "trace", "line 4: there is no body 'tigh'; did you mean 'thigh'?"),
    "call": ("x = state.poss", "trace", "line 4: state has no 'poss'"),
    "name": ("x = knee", "trace", "line 4: NameError: name 'knee' is not defined"),
    "if": ('if state.q("knee") > 0: pass', "trace", "line 4: a Python `if`"),
    "and": ('x = state.q("knee") > 0 and 1.0', "trace", "line 4: a Python `if`, `and`"),
    "int": ('x = int(state.q("knee"))', "trace", "line 4: a value that is only known at run time"),
    "dimensions": ('x = jnp.dot(state.pos("thigh"), jnp.ones(4))', "trace", "line 4: TypeError: dot_general"),
    "division": ("x = 1 / 0", "trace", "line 4: ZeroDivisionError"),
    "vector": ('return {"a": state.pos("thigh")}', "trace", "line 4: term 'a' has shape (3,), a term is a scalar"),
    "complex": ('return {"a": (-1.0) ** 0.5}', "trace", "line 4: term 'a' is complex"),
    "text": ('return {"a": "x"}', "trace", "line 4: term 'a' is a str, a term is one number"),
    "function": ('return {"a": lambda: 1}', "trace", "line 4: term 'a' is a function, a term is one number"),
    "None": ('return {"a": None}', "trace", "line 4: term 'a' is None"),
    "state": ('return {"a": state}', "trace", "line 4: term 'a' is a State"),
    "not a dict": ('return state.q("knee")', "trace", "reward returns an array of shape (), expected a dict"),
    "nothing": ("pass", "trace", "reward returns None, expected a dict"),
    "no weight": ('return {"b": state.q("knee")}', "trace", "line 4: term 'b' has no weight"),
    "NaN": ('return {"a": jnp.log(-1.0 - jnp.square(action[0]))}', "probe", "line 4: term 'a' is not finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_comes_back_with_a_sentence(sandbox: Sandbox, name: str):
    statement, stage, message = BROKEN[name]
    body = [statement] if statement.startswith("return") else [statement, 'return {"a": state.q("hip")}']
    verdict = sandbox.vet(program(*(["pass"] if name == "nothing" else body)))
    assert verdict.message
    assert (verdict.stage, verdict.message[: len(message)]) == (stage, message)
    assert not verdict.accepted
    assert verdict.program is None
    assert "\n" not in verdict.message
    assert " at 0x" not in verdict.message, "an address would make the record of each run another"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            program('return {"a": state.q("knee")}', weights='{"a": 1.0, "aa": 1.0}'),
            "WEIGHTS names a term that reward does not return: there is no term 'aa'; did you mean 'a'?",
        ),
        (
            program('return {"a": f(state)}', before="def f(s): return f(s)"),
            "line 2: the program calls itself without end",
        ),
        (
            program('KEPT.append(state.q("knee"))', 'return {"a": KEPT[0]}', before="KEPT = []"),
            "a value of one step is kept for another; a reward sees one step at a time",
        ),
        (
            program("x = [0] * 10**10", 'return {"a": state.q("knee") * len(x)}'),
            "line 4: the program needs too much memory; a reward is a few small vectors a step",
        ),
        (
            program(
                'x = jnp.cumsum(jnp.ones((200000, 40000)) * state.q("knee"), axis=0)',
                'return {"a": jnp.sum(jnp.sort(x))}',
            ),
            "the program needs too much memory; a reward is a few small vectors a step",
        ),
    ],
    ids=["missing term", "recursion", "leak", "list bomb", "array bomb"],
)
def test_what_else_is_broken(sandbox: Sandbox, source: str, message: str):
    verdict = sandbox.vet(source)
    assert verdict.message == message
    assert sandbox.vet(SOUND).accepted


@pytest.mark.parametrize(
    "source",
    [
        program("for i in range(10**12): pass", 'return {"a": state.q("knee")}'),
        program('return {"a": state.q("knee")}', before="X = [i for i in range(10**12)]"),
        program(
            'return {"a": lax.fori_loop(0, 2000000000, lambda i, x: x * 1.0000001, state.q("knee"))}',
        ),
        program(
            'x = state.q("knee")',
            "for i in range(6000):",
            "    x = jnp.sin(x) + jnp.sort(jnp.stack([x, x * i, jnp.cos(x)]))[i % 3]",
            'return {"a": x}',
        ),
    ],
    ids=["tracing", "loading", "running", "compiling"],
)
def test_a_program_that_does_not_end_costs_its_deadline_and_no_more(sandbox: Sandbox, source: str):
    assert sandbox.vet(SOUND).accepted
    (before,) = children()
    began = time.monotonic()
    verdict = sandbox.vet(source)
    assert time.monotonic() - began < 6.0
    assert verdict.stage == "deadline"
    assert verdict.message == (
        "the program was not ready after 3 s: it loops or compiles for too long; make it smaller"
    )
    assert before not in children()
    assert sandbox.vet(SOUND).accepted
    (after,) = children()
    assert after != before


def test_a_child_that_dies_is_said_to_have_died(sandbox: Sandbox):
    """What the kernel does to a process that takes all memory, done to it here while it is busy."""
    assert sandbox.vet(SOUND).accepted
    (child,) = children()
    killer = threading.Timer(0.5, os.kill, (child, signal.SIGKILL))
    killer.start()
    verdict = sandbox.vet(program("for i in range(10**12): pass", 'return {"a": state.q("knee")}'))
    killer.join()
    assert verdict.stage == "crash"
    assert verdict.message == "the program took its process down; it may need too much memory"
    assert verdict.seconds < 2.5
    assert sandbox.vet(SOUND).accepted


def test_a_child_that_died_between_two_programs_is_replaced(sandbox: Sandbox):
    assert sandbox.vet(SOUND).accepted
    (child,) = children()
    os.kill(child, signal.SIGKILL)
    ends(child)
    assert sandbox.vet(SOUND).accepted
    assert child not in children()


def test_the_child_knows_no_keys(sandbox: Sandbox):
    assert os.environ["OPENAI_API_KEY"] == SECRET
    assert sandbox.vet(SOUND).accepted
    (child,) = children()
    environment = Path(f"/proc/{child}/environ").read_text()
    assert "JAX_PLATFORMS=cpu" in environment
    assert SECRET not in environment
    assert "API_KEY" not in environment
    assert SECRET not in Path(f"/proc/{child}/cmdline").read_text()


def test_a_mistake_in_the_text_starts_no_child(probe: Probe):
    before = children()
    box = Sandbox(probe)
    assert box.vet("x = = 1").stage == "parse"
    assert children() == before
    box.close()


def test_closed_it_leaves_nothing_behind(probe: Probe):
    before = children()
    box = Sandbox(probe, deadline_s=3.0)
    assert box.vet(SOUND).accepted
    (child,) = children() - before
    box.close()
    assert children() == before
    assert not Path(f"/proc/{child}").exists()
    box.close()  # twice is no mistake


def test_a_hanging_child_ends_itself_when_nobody_is_left_to_end_it(probe: Probe, tmp_path: Path):
    """The process that asked is killed while its child is busy with a program that does not end."""
    (tmp_path / "probe").write_bytes(pickle.dumps(probe))
    (tmp_path / "sound.py").write_text(SOUND)
    (tmp_path / "endless.py").write_text(program("for i in range(10**12): pass", 'return {"a": action[0]}'))
    script = """
import pickle, sys
from pathlib import Path
from movlr_jax.sandbox.vet import Sandbox
folder = Path(sys.argv[1])
box = Sandbox(pickle.loads((folder / "probe").read_bytes()), deadline_s=2.0)
assert box.vet((folder / "sound.py").read_text()).accepted
print(box._child.pid, flush=True)
box.vet((folder / "endless.py").read_text())
"""
    asker = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert asker.stdout
    child = int(asker.stdout.readline())
    time.sleep(0.5)
    asker.kill()
    asker.communicate()
    time.sleep(1.0)
    assert running(child), "its input has ended, but it is busy"
    assert ends(child) < 5.0


def test_a_child_that_cannot_start_is_a_sentence(probe: Probe, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vet.sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="the sandbox process does not start"):
        Sandbox(probe).vet(SOUND)
