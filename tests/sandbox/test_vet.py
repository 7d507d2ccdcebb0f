"""Vetting in child processes: messages, what they survive, and what they never see."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from movlr_jax.errors import UserError
from movlr_jax.rewards.program import Scorer
from movlr_jax.sandbox import confine, vet
from movlr_jax.sandbox import warm as warm_process
from movlr_jax.sandbox.probe import Probe
from movlr_jax.sandbox.source import Rejected, parse
from movlr_jax.sandbox.trace import load
from movlr_jax.sandbox.vet import Sandbox

SOUND = '''"""Bend the knee."""

WEIGHTS = {"bend": 2.0, "high": 1.0}


def reward(state, action):
    return {"bend": -jnp.square(state.q("knee") - 1.0), "high": state.pos("pelvis")[2]}
'''
SECRET = "sk-never-to-be-seen"


@pytest.fixture(scope="module")
def sandbox(probe: Probe) -> Iterator[Sandbox]:
    """One for all tests, as in a search; keys are set where it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "SOMETHING_ELSE"):
            patch.setenv(name, SECRET)
        box = Sandbox(probe, deadline_s=15.0)
        yield box
    box.close()


def children(pid: int | None = None) -> set[int]:
    """Processes of this one, or of another, that are not only waiting to be reaped."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == (pid or os.getpid()) and state != "Z":
                found.add(int(path.parent.name))
    return found


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> None:
    until = time.monotonic() + 10.0
    while running(pid):
        assert time.monotonic() < until, f"process {pid} does not end"
        time.sleep(0.05)


def program(*body: str, weights: str = '{"a": 1.0}', before: str = "") -> str:
    """A program whose WEIGHTS stand in line 1, `before` in line 2, and its body from line 4 on."""
    lines = "\n".join(f"    {line}" for line in body)
    return f"WEIGHTS = {weights}\n{before}\ndef reward(state, action):\n{lines}\n"


def test_accepted_program_computes_what_its_text_does(sandbox: Sandbox, probe: Probe):
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


def test_constant_that_changes_is_refused(sandbox: Sandbox):
    source = program('return {"a": KEPT[0] * state.q("knee")}', before="KEPT = [jnp.float32(2.0)]")
    assert sandbox.vet(source).accepted
    changing = program(
        "KEPT[0] = KEPT[0] + 1.0", 'return {"a": KEPT[0] * state.q("knee")}', before="KEPT = [jnp.float32(2.0)]"
    )
    message = sandbox.vet(changing).message
    assert message == "a value of one step is kept for another step; a reward sees one step at a time"
    broken = sandbox.vet(program('return {"a": state.q("knee")}', before="C = jnp.ones(3) @ jnp.ones(4)"))
    assert broken.message
    assert (broken.stage, broken.message[:8]) == ("load", "line 2: ")


def test_many_terms_are_vetted_within_the_deadline(sandbox: Sandbox):
    """The text is read once; once a term, it would take longer than the deadline."""
    names = [f"t{i}" for i in range(300)]
    weights = "{" + ", ".join(f'"{n}": 1.0' for n in names) + "}"
    terms = ", ".join(f'"{n}": action[0] * {i}.0' for i, n in enumerate(names))
    verdict = sandbox.vet(program(f"return {{{terms}}}", weights=weights))
    assert verdict.accepted, verdict.message
    assert verdict.notes == ["line 4: term 't0' has the same value at every state, so it has no effect"]


BROKEN = {
    "import": ("import os", "parse", "line 4: `import os`"),
    "raise error": ('raise ValueError("no such", 2)', "trace", "line 4: ValueError: no such 2"),
    "match": ("match action:\n        case _: pass", "trace", "line 4: match needs a Python value, but this one is"),
    "spin": ("while True: pass", "trace", "line 4: Python loops and calls take more than 50,000 steps"),
    "deleted": ('x = 1; del x; y = x', "trace", "line 4: the variable 'x' has no value here"),
    "assert": ('assert False, "no"', "trace", "line 4: AssertionError: no"),
    "body": ('x = state.pos("tigh")', "trace", "line 4: there is no body 'tigh'; did you mean 'thigh'?"),
    "float": ('x = float(state.q("knee"))', "trace", "line 4: a value that is only known at run time is used "
              "where Python needs a constant; write jnp.asarray(x, jnp.float32) in place of float(x)"),
    "name": ("x = actions", "trace", "line 4: there is no name 'actions'; did you mean 'action'"),
    "if": ('if state.q("knee") > 0: pass', "trace", "line 4: a Python `if`"),
    "mask": ('x = state.qpos[state.qpos > 0]', "trace", "line 4: an array is indexed by a condition"),
    "dimensions": ('x = jnp.dot(state.pos("thigh"), jnp.ones(4))', "trace", "line 4: incompatible shapes: "),
    "division": ("x = 1 / 0", "trace", "line 4: ZeroDivisionError"),
    "power": ("x = 9 ** 9 ** 9 ** 9", "trace", "line 4: an integer has more than 1024 bits"),
    "loop": ('x = lax.fori_loop(0, 10**7, lambda i, c: c + i, 0.0)', "check",
             "line 4: a loop has 10,000,000 iterations, the limit is 1,024"),
    "while": ('x = lax.fori_loop(0, jnp.int32(state.time), lambda i, c: c + 1.0, 0.0)', "trace",
              "line 4: a loop's number of iterations is only known at run time"),
    "array": ('x = jnp.zeros((100000, 100000)).sum()', "check", "line 4: an array of 100000x100000 has 10,000"),
    "work": ('x = lax.fori_loop(0, 1000, lambda i, c: lax.fori_loop(0, 1000, lambda j, d: d * jnp.sin(d), c), '
             'state.qpos)', "check", "line 4: the program computes more than 4,000,000 numbers per step"),
    "half": ('x = action.astype("float16")', "trace", "line 4: the program computes with float16 values"),
    "factors": ("x = jnp.linalg.det(jnp.outer(action[:1], jnp.ones(5)) + jnp.ones((5, 5)))", "trace", "line 4: "),
    "vector": ('return {"a": state.pos("thigh")}', "trace", "line 4: term 'a' has shape (3,), expected a scalar"),
    "complex": ('return {"a": (-1.0) ** 0.5}', "trace", "line 4: term 'a' is complex"),
    "text": ('return {"a": "x"}', "trace", "line 4: term 'a' is a str, expected one number"),
    "not a dict": ('return state.q("knee")', "trace", "reward returned an array of shape (), expected a dict"),
    "nothing": ("pass", "trace", "reward returned None, expected a dict"),
    "no weight": ('return {"b": state.q("knee")}', "trace", "line 4: term 'b' has no weight"),
    "NaN": ('return {"a": jnp.log(-1.0 - jnp.square(action[0]))}', "probe", "line 4: term 'a' is not finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_program_is_rejected_with_its_line(sandbox: Sandbox, name: str):
    statement, stage, message = BROKEN[name]
    body = [statement] if statement.startswith("return") else [statement, 'return {"a": state.q("hip")}']
    verdict = sandbox.vet(program(*(["pass"] if name == "nothing" else body)))
    assert verdict.message
    assert (verdict.stage, verdict.message[: len(message)]) == (stage, message)
    assert not verdict.accepted
    assert verdict.program is None
    assert "\n" not in verdict.message
    assert " at 0x" not in verdict.message, "an address would make the record of each run another"


WHOLE = {
    "missing term": (
        program('return {"a": state.q("knee")}', weights='{"a": 1.0, "aa": 1.0}'),
        "WEIGHTS names a term that reward does not return: there is no term 'aa'; did you mean 'a'?",
    ),
    "recursion": (
        program('return {"a": f(state)}', before="def f(s): return f(s)"),
        "line 2: infinite recursion: a function calls itself without end",
    ),
    "count": (
        program("KEPT.append(1.0)", 'return {"a": state.q("knee") * len(KEPT)}', before="KEPT = []"),
        "the program changes each time it is run; a reward must depend on state and action alone",
    ),
    "loading": (
        program('return {"a": state.q("knee")}', before="X = [i for i in range(10**12)]"),
        "line 2: a range has 1,000,000,000,000 entries, the limit is 10,000: a Python loop is unrolled when it is "
        "traced; use jax.lax.fori_loop or arrays",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_broken_program_is_rejected_with_the_whole_sentence(sandbox: Sandbox, name: str):
    source, message = WHOLE[name]
    assert sandbox.vet(source).message == message
    assert sandbox.vet(SOUND).accepted


ENDLESS = program("for i in range(9999): x = sorted(range(9999), reverse=True)", 'return {"a": state.q("knee")}')


def test_endless_program_costs_its_deadline_only(probe: Probe):
    box = Sandbox(probe, deadline_s=1.0)
    assert box.vet(program("x = = 1")).stage == "parse"
    zygote = warm(box)
    began = time.monotonic()
    verdict = box.vet(ENDLESS)
    assert time.monotonic() - began < 10.0
    assert verdict.stage == "deadline"
    assert verdict.message == (
        "the program was not ready after 1 s: it runs or compiles for too long; make it smaller"
    )
    assert warm(box) == zygote, "the warm process is not what hung"
    assert children(zygote) == set()
    box.close()


def warm(sandbox: Sandbox) -> int:
    """The process that candidates are forked from."""
    return sandbox.start().process.pid


def test_programs_vetted_together_keep_their_order(sandbox: Sandbox):
    sources = [SOUND, program("x = knee"), program('return {"a": 1.0}'), "x = = 1", SOUND]
    seen = []
    verdicts = sandbox.vet_all(sources, lambda done, total: seen.append((done, total)))
    assert [v.stage for v in verdicts] == ["probe", "trace", "probe", "parse", "probe"]
    assert [v.accepted for v in verdicts] == [True, False, True, False, True]
    assert seen == [(n, 5) for n in range(1, 6)]


def test_constant_or_overflowing_term_is_noted(sandbox: Sandbox):
    (note,) = sandbox.vet(program('return {"a": 1.0}')).notes
    assert note == "line 4: term 'a' has the same value at every state, so it has no effect"
    (note,) = sandbox.vet(program('return {"a": jnp.exp(jnp.abs(state.qvel).sum())}')).notes
    assert note.startswith("line 4: term 'a' is not finite at 4 of 42 extreme states")
    assert sandbox.vet(SOUND).notes == []


def test_child_has_no_keys(sandbox: Sandbox):
    assert os.environ["OPENAI_API_KEY"] == SECRET
    assert sandbox.vet(SOUND).accepted
    child = warm(sandbox)
    environment = Path(f"/proc/{child}/environ").read_text()
    assert "JAX_PLATFORMS=cpu" in environment
    assert SECRET not in environment
    assert "API_KEY" not in environment
    assert SECRET not in Path(f"/proc/{child}/cmdline").read_text()


def test_key_in_an_answer_of_a_child_is_redacted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    answer = json.dumps({"stage": "trace", "message": f"line 4: KeyError: {SECRET}"}).encode()
    assert vet.rejection(answer) == ("trace", "line 4: KeyError: [key]")
    with pytest.raises(Rejected, match=r"run: \[key\]"):
        vet.counts_of(json.dumps({"error": SECRET}).encode(), ["a"])


def test_text_that_is_refused_starts_no_child(probe: Probe):
    before = children()
    box = Sandbox(probe)
    assert box.vet("x = = 1").stage == "parse"
    assert children() == before
    box.close()


def test_closed_sandbox_leaves_no_process_and_no_file(probe: Probe):
    warm_process.start_ahead()  # it stays for the next sandbox
    before, descriptors = children(), len(list(Path("/proc/self/fd").iterdir()))
    box = Sandbox(probe)
    for _ in range(5):
        assert box.vet(SOUND).accepted
    assert children(warm(box)) == set()
    box.close()
    assert children() == before
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors
    box.close()  # twice is no mistake


def test_killed_main_process_takes_its_children_along(probe: Probe, tmp_path: Path):
    """The process that asked is killed while a program that does not end is being traced."""
    (tmp_path / "probe").write_bytes(pickle.dumps(probe))
    (tmp_path / "endless.py").write_text(ENDLESS)
    script = """
import pickle, sys
from pathlib import Path
from movlr_jax.sandbox.vet import Sandbox
folder = Path(sys.argv[1])
box = Sandbox(pickle.loads((folder / "probe").read_bytes()), deadline_s=60.0)
print(box.start().process.pid, flush=True)
box.vet((folder / "endless.py").read_text())
"""
    asker = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert asker.stdout
    zygote = int(asker.stdout.readline())
    until = time.monotonic() + 10.0
    while not children(zygote) and time.monotonic() < until:
        time.sleep(0.02)
    (tracer,) = children(zygote)
    asker.kill()
    asker.communicate()
    ends(zygote)
    ends(tracer)


def test_child_that_cannot_start_is_reported(probe: Probe, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(warm_process, "_SHARED", [])
    monkeypatch.setattr(warm_process.sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="the sandbox process does not start"):
        Sandbox(probe).vet(SOUND)


def test_kernel_without_confinement_is_reported(probe: Probe, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(confine, "landlock_abi", lambda: 0)
    with pytest.raises(UserError, match=r"lacks: Landlock \(Linux 5\.13.*sandbox=process uses") as told:
        Sandbox(probe)
    assert "\n" not in str(told.value)
    box = Sandbox(probe, name="process")
    assert "WEAKER" in box.description
    assert box.vet(SOUND).accepted
    assert box.vet(program("x = knee")).stage == "trace"
    box.close()
