"""The process that candidates are forked from: what it is sent, what becomes of programs when it dies or stops."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from movlr_jax.sandbox import confine, warm
from movlr_jax.sandbox.probe import Probe
from movlr_jax.sandbox.vet import Sandbox

SOUND = 'WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return {"a": state.q("knee")}\n'
SECRET = "sk-never-to-be-seen"
NAME = "process" if confine.missing() else "confined"


@pytest.fixture(scope="module")
def weak(probe: Probe) -> Iterator[Sandbox]:
    """The weaker sandbox, whose programs have all of Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", SECRET)
        patch.setenv("XLA_FLAGS", f"--xla_dump_hlo_module_re={SECRET} {os.environ.get('XLA_FLAGS', '')}")
        patch.setenv("LC_ALL", SECRET)
        sandbox = Sandbox(probe, name="process", deadline_s=6.0, check_text=False)
        sandbox.start()
    yield sandbox
    sandbox.close()


def attack(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return (
        f'WEIGHTS = {{"a": 1.0}}\nimport os\ndef reward(state, action):\n{body}\n'
        '    return {"a": state.q("knee")}\n'
    )


def pid_of(sandbox: Sandbox) -> int:
    return sandbox.start().process.pid


def output_of(script: str, *words: str, given: object = None, **environment: str) -> str:
    """Run a script in a process of its own, with `given` pickled as its input. Return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        input=pickle.dumps(given),
        capture_output=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )
    return (done.stdout or done.stderr).decode()


def test_sandbox_needs_no_temporary_folder(probe: Probe, monkeypatch: pytest.MonkeyPatch):
    """As in a container that may only be read."""

    def nowhere(*_: object, **__: object) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", nowhere)
    sandbox = Sandbox(probe, name=NAME, deadline_s=6.0)
    assert sandbox.vet(SOUND).message is None
    sandbox.close()


def test_deadline_does_not_include_the_start_of_the_process(probe: Probe):
    """A program has its deadline from when its child runs; the process takes about as long to start."""
    sandbox = Sandbox(probe, name=NAME, deadline_s=1.0)
    os.kill(pid_of(sandbox), signal.SIGKILL)
    verdict = sandbox.vet(SOUND)
    assert verdict.accepted, verdict.message
    sandbox.close()


def test_process_sandbox_has_an_empty_environment(weak: Sandbox):
    for found in ("dict(os.environ)", "open('/proc/self/environ').read()"):
        message = str(weak.vet(attack(f"assert False, 'found ' + str({found})")).message)
        assert ("found {}" if "dict" in found else "found") in message
        assert SECRET not in message


def test_programs_survive_one_that_kills_the_warm_process(weak: Sandbox):
    """Each that was under way is tried again, by itself; what kills its process each time is what is to blame."""
    verdicts = weak.vet_all([SOUND, attack("os.kill(os.getppid(), 9)"), SOUND])
    assert [v.stage for v in verdicts] == ["probe", "crash", "probe"]
    assert [v.accepted for v in verdicts] == [True, False, True]


# which of the processes above it have a file in /proc that a process can open
CLIMB = """
import os
def opened(name):
    pid, found = os.getppid(), []
    while pid > 1:
        try:
            open(f"/proc/{pid}/{name}", "rb").close()
            found.append(pid)
        except OSError:
            pass
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return found
"""
ASKER = """
import pickle, sys
from movlr_jax.sandbox.vet import Sandbox
probe, source = pickle.load(sys.stdin.buffer)
box = Sandbox(probe, name="process", check_text=False)
print(box.vet(source).message)
box.close()
"""
HIDDEN = """
import ctypes, os, sys
from movlr_jax.sandbox import confine
if os.getuid() == 0 and sys.argv[1] == "user":
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a user's process that was not root before
asker = os.getpid()
if os.fork() == 0:
    before = opened("environ"), opened("mem")
    if sys.argv[1] == "container":
        confine._NEW_USER_NAMESPACE = 0
    confine.hide_processes()
    confine.weak(confine.Limits(5, confine.GIB), asker)
    print(asker in before[0], asker in before[1], opened("environ"), opened("mem"), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /proc")
def test_process_sandbox_cannot_read_its_parents_environment(probe: Probe):
    source = CLIMB + attack("assert False, 'opened ' + str(opened('environ'))")
    assert "opened []" in output_of(ASKER, given=(probe, source), OPENAI_API_KEY=SECRET)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /proc")
@pytest.mark.parametrize("who", ["user", "root", "container"])
def test_other_processes_are_hidden_from_users_and_from_root(who: str):
    """In a container that forbids namespaces, only from root."""
    if who != "user" and os.getuid():
        pytest.skip("it is not root")
    assert output_of(CLIMB + HIDDEN, who) == "True True [] []\n"


LIMITED = """
import pickle, resource, sys
from movlr_jax.errors import UserError
from movlr_jax.sandbox.vet import Sandbox
probe, name, source = pickle.load(sys.stdin.buffer)
for limit, value in ((resource.RLIMIT_NOFILE, 16), (resource.RLIMIT_AS, 2 << 30), (resource.RLIMIT_NOFILE, 32)):
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (value, before[1]))
    try:
        box = Sandbox(probe, name=name)
        verdict = box.vet(source)
        said = f"{verdict.stage} {verdict.message}"
        box.close()
    except UserError as error:
        said = f"machine {error}"
    resource.setrlimit(limit, before)
    print(said, flush=True)
"""


def test_low_limit_of_the_machine_is_reported_as_such(probe: Probe):
    files, space, enough = output_of(LIMITED, given=(probe, NAME, SOUND)).strip().splitlines()[-3:]
    for said, limit in ((files, "ulimit -n"), (space, "ulimit -v")):
        assert said.startswith("machine"), said
        assert limit in said
    assert enough == "probe None"


def test_process_started_ahead_serves_all_sandboxes(probe: Probe, tmp_path: Path, monkeypatch):
    """It finds its packages where this process does, but not in the working folder."""
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(tmp_path) in warm._paths()
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) not in warm._paths()
    monkeypatch.setattr(warm, "_SHARED", [])
    warm.start_ahead()
    (ahead,) = warm._SHARED
    boxes = [Sandbox(probe, name=NAME) for _ in range(2)]
    assert [pid_of(box) for box in boxes] == [ahead.process.pid] * 2
    boxes[0].close()
    assert boxes[1].vet(SOUND).accepted, "the other one is not affected"
    os.kill(ahead.process.pid, signal.SIGKILL)
    assert boxes[0].vet(SOUND).accepted
    assert boxes[1].vet(SOUND).accepted
    assert pid_of(boxes[0]) == pid_of(boxes[1]) != ahead.process.pid
    warm._SHARED[0].stop()


FORKED = """
import os, pickle, sys
from movlr_jax.sandbox import warm
from movlr_jax.sandbox.vet import Sandbox
probe, name, source = pickle.load(sys.stdin.buffer)
def vetted():
    box = Sandbox(probe, name=name)
    said = box.vet(source).accepted, warm._SHARED[0].process.pid
    box.close()
    return said
first = vetted()
if os.fork() == 0:
    own = vetted()
    print(own[0], own[1] != first[1], flush=True)
    os._exit(0)
os.wait()
print(vetted() == first, flush=True)
"""


def test_forked_process_has_its_own_warm_process(probe: Probe):
    assert output_of(FORKED, given=(probe, NAME, SOUND)) == "True True\nTrue\n"


def test_compiling_child_uses_two_cores_of_many(monkeypatch: pytest.MonkeyPatch):
    """Met on 16 cores: JAX started 65 threads there, whose address space went beyond the limit of every program."""
    chosen: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: chosen.append(cores), raising=False)
    for process in (21, 22, 24):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        confine.few_cores()
    assert chosen == [{10, 11}, {12, 13}, {0, 1}]
