"""Malicious programs whose text is not checked: the kernel keeps them from every resource."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from movlr_jax.sandbox import confine
from movlr_jax.sandbox.confine import ARCHITECTURES, TRACER, WORKER
from movlr_jax.sandbox.probe import Probe
from movlr_jax.sandbox.vet import Sandbox

pytestmark = pytest.mark.skipif(bool(confine.missing()), reason="this kernel cannot confine a process")
SECRET = "sk-attackers-want-this"
SOUND = 'WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return {"a": state.q("knee")}\n'


@pytest.fixture(scope="module")
def box(probe: Probe) -> Iterator[Sandbox]:
    """Accepts any text, and gives programs all of Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", SECRET)
        sandbox = Sandbox(probe, deadline_s=2.0, check_text=False)
        sandbox.start()
        yield sandbox
    sandbox.close()


def attack(*lines: str) -> str:
    """A program that does this when it is traced, and says through its failure what came of it."""
    body = "\n".join(f"    {line}" for line in lines)
    return (
        'WEIGHTS = {"a": 1.0}\nimport os, sys, ctypes, socket, signal, threading, subprocess, resource\n'
        f"libc = ctypes.CDLL(None, use_errno=True)\ndef reward(state, action):\n{body}\n"
        '    return {"a": state.q("knee")}\n'
    )


SAID = "assert False, 'reached ' + str({})"
# what is tried -> code that ends in `reached ...` only where the attack works
REACHING = {
    "file": SAID.format("open('/etc/passwd').read()[:20]"),
    "listing": SAID.format("os.listdir('/')"),
    "own environment": SAID.format("[v for v in os.environ.values() if 'sk-' in v][0]"),
    "parent's environment": SAID.format("open(f'/proc/{os.getppid()}/environ').read()"),
    "parent's memory": SAID.format("open(f'/proc/{os.getppid()}/mem', 'rb')"),
    "own proc": SAID.format("open('/proc/self/maps').read()[:9]"),
    "write": SAID.format("open('/tmp/movlr_attack', 'w').write('x')"),
    "unlink": SAID.format("os.unlink(os.environ.get('VICTIM', '/tmp/movlr_victim'))"),
    "socket": SAID.format("socket.socket()"),
    "unix socket": SAID.format("socket.socket(socket.AF_UNIX)"),
    "socketpair": SAID.format("socket.socketpair()"),
    "fork": SAID.format("os.fork()"),
    "exec": SAID.format("os.execv('/bin/sh', ['sh', '-c', 'true'])"),
    "system": SAID.format("subprocess.run(['/bin/true'])"),
    "thread": SAID.format("threading.Thread(target=print).start()"),
    "kill the parent": SAID.format("os.kill(os.getppid(), 0)"),
    "kill all": SAID.format("os.kill(-1, 0)"),
    "kill the group": SAID.format("os.killpg(0, 0)"),
    "new session": SAID.format("os.setsid()"),
    "dup": SAID.format("os.dup(4)"),
    "pipe": SAID.format("os.pipe()"),
    "memfd": SAID.format("os.memfd_create('x')"),
    "raise its limits": SAID.format("resource.setrlimit(resource.RLIMIT_CPU, (10**6, 10**6))"),
    "limit the parent": SAID.format("resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)"),
    "run what it wrote": SAID.format("1 / (1 + libc.mmap(0, 4096, 5, 34, -1, 0))"),
    "chdir": SAID.format("os.chdir('/tmp')"),
    "nice": SAID.format("os.nice(1)"),
}
# calls by number on x86_64, which must fail: ptrace, process_vm_readv, bpf, io_uring_setup, userfaultfd, keyctl,
# unshare, mount, kill, tkill, tgkill of the parent, fcntl(F_SETOWN), pidfd_open, setns, perf_event_open, clone
CALLS = {
    "ptrace": "101, 16, os.getppid(), 0, 0",
    "process_vm_readv": "310, os.getppid(), 0, 0, 0, 0, 0",
    "bpf": "321, 0, 0, 0",
    "io_uring": "425, 1, 0",
    "userfaultfd": "323, 0",
    "keyctl": "250, 0, 0",
    "unshare": "272, 0x10000000",
    "mount": "165, 0, 0, 0, 0, 0",
    "kill": "62, os.getppid(), 0",
    "tkill": "200, os.getppid(), 0",
    "tgkill": "234, os.getppid(), os.getppid(), 0",
    "fcntl F_SETOWN": "72, 4, 8, os.getppid()",
    "pidfd_open": "434, os.getppid(), 0",
    "perf": "298, 0, 0, -1, -1, 0",
    "clone": "56, 17, 0, 0, 0, 0",
    "clone3": "435, 0, 0",
    "prctl": "157, 4, 1, 0, 0, 0",
    "seccomp": "317, 0, 0, 0",
}


def contained(box: Sandbox, source: str) -> str:
    """What became of an attack: the sentence, after which everything still works."""
    began = time.monotonic()
    zygote = box.start().process.pid
    verdict = box.vet(source)
    assert time.monotonic() - began < 8.0
    assert box.vet(SOUND).accepted, "the next program does not notice"
    assert box.start().process.pid == zygote, "nor does the process it was forked from"
    assert verdict.message is not None
    assert "\n" not in verdict.message
    assert SECRET not in verdict.message
    return verdict.message


ESCAPES = [json.loads(line) for line in (Path(__file__).parent / "escapes.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def weak(probe: Probe) -> Iterator[Sandbox]:
    """The sandbox that the kernel does not hold: there the text is all that stands in the way."""
    sandbox = Sandbox(probe, name="process")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module", params=["process", pytest.param("confined", marks=pytest.mark.slow)])
def impatient(request: pytest.FixtureRequest, probe: Probe) -> Iterator[Sandbox]:
    """As above, where there is not much time."""
    sandbox = Sandbox(probe, name=request.param, deadline_s=1.5)
    sandbox.start()
    yield sandbox
    sandbox.close()


BOMBS = [json.loads(line) for line in (Path(__file__).parent / "bombs.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("entry", BOMBS, ids=lambda entry: entry["name"])
def test_bomb_of_permitted_parts_is_refused_in_time(impatient: Sandbox, entry: dict[str, str]):
    """What they are made of is permitted, so their text passes; a sentence comes back, without control codes."""
    message = contained(impatient, entry["code"])
    assert message.isprintable()


# refused while they are traced, by what the facade puts in the place of operators and attributes
GUARDED = [json.loads(line) for line in (Path(__file__).parent / "guarded.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("entry", GUARDED, ids=lambda entry: entry["name"])
def test_attack_that_shows_at_run_time_is_refused_by_a_guard(weak: Sandbox, entry: dict[str, str]):
    verdict = weak.vet(entry["code"])
    assert verdict.stage in ("load", "trace"), verdict.message
    assert entry["says"] in str(verdict.message)
    assert verdict.seconds < 10.0, "not until the deadline, whatever else runs here"


@pytest.mark.parametrize("entry", ESCAPES, ids=lambda entry: entry["name"])
def test_escape_is_refused_by_its_text(weak: Sandbox, entry: dict[str, str]):
    verdict = weak.vet(entry["code"])
    assert not verdict.accepted
    assert verdict.stage == "parse" or "% formatting of strings" in str(verdict.message), verdict.message


def test_attack_runs_at_all(box: Sandbox):
    assert contained(box, attack("assert False, 'it ran ' + str(os.getpid() > 0)")).endswith("it ran True")


@pytest.mark.parametrize("name", REACHING)
def test_attack_on_a_resource_fails(box: Sandbox, name: str):
    message = contained(box, attack(REACHING[name]))
    assert "reached" not in message, message
    assert not Path("/tmp/movlr_attack").exists()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of x86_64")
def test_system_calls_by_number_fail(box: Sandbox):
    lines = [f"assert libc.syscall({arguments}) == -1, {name!r}" for name, arguments in CALLS.items()]
    lines.append("assert ctypes.get_errno() == 1, 'another error'")
    message = contained(box, attack(*lines, "assert False, 'all failed'"))
    assert message.endswith("AssertionError: all failed")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the ABI is that of x86_64")
def test_another_abi_ends_the_process(box: Sandbox):
    assert "crashed its process" in contained(box, attack("libc.syscall(0x40000000 + 39)"))


@pytest.mark.parametrize(
    "lines",
    [
        ("libc.sleep(1000)",),
        ("x = threading.Lock()", "x.acquire()", "x.acquire()"),
        ("os.write(4, b'{' * 1000)", "while True: pass"),
        ("for s in range(1, 32):", "    try: signal.signal(s, signal.SIG_IGN)", "    except Exception: pass",
         "while True: pass"),
    ],
    ids=["sleep", "wait", "half an answer", "deaf"],
)  # fmt: skip
def test_endless_attack_is_ended(box: Sandbox, lines: tuple[str, ...]):
    message = contained(box, attack(*lines))
    assert "not ready after 2 s" in message or "PermissionError" in message or "outside itself" in message


@pytest.mark.parametrize(
    "lines",
    [
        ("x = bytearray(8 << 30)",),
        ("x = []", "while True: x.append(bytearray(1 << 24))"),
        ("libc.mmap.restype = ctypes.c_void_p",
         "assert libc.mmap(0, ctypes.c_size_t(8 << 30), 3, 34, -1, 0) == 2**64 - 1", "assert False, 'refused'"),
        ("ctypes.string_at(0)",),
        ("os.abort()",),
        ("os._exit(0)",),
        ("sys.exit(0)",),
        ("sys.setrecursionlimit(10**9)", "f = lambda x: f(x) + 1", "f(0)"),
        ("while True: os.open('/dev/null', 0)",),
        ("for i in range(10**5):", "    try: threading.Thread(target=print).start()", "    except Exception: pass",
         "assert False, 'no thread'"),
        ("for i in range(10**5):", "    try: os.fork()", "    except Exception: pass", "assert False, 'no fork'"),
    ],
    ids=["memory", "slowly", "mapped", "segfault", "abort", "exit", "sys.exit", "stack", "fds", "threads", "forks"],
)  # fmt: skip
def test_bomb_harms_no_other_program(box: Sandbox, lines: tuple[str, ...]):
    contained(box, attack(*lines))


FORGED = [
    b"",
    b'{"version":1}',
    b'{"version":1,"terms":["a"],"main":{"in":0,"consts":[],"eqns":[],"out":[]}}',
    b'{"version":1,"terms":["a"],"main":null}',
    b'{"stage":"trace","message":null}',
    b'{"stage":"accept","message":"fine"}',
    b'{"stage":"trace","message":"two\\nlines\\u001b[31m"}',
    b"[" * 100_000,
    b'{"version":' + b"9" * 5000 + b"}",
    b"A" * (8 << 20),
    b"-no confinement",
    b"\x80\x04cposix\nsystem\n",
]


@pytest.mark.parametrize("answer", FORGED, ids=lambda a: a[:24].decode("latin1"))
def test_forged_answer_is_rejected(box: Sandbox, answer: bytes):
    code = f"b = {answer[:1]!r} * {len(answer)}" if len(set(answer)) == 1 else f"b = {answer!r}"
    message = contained(box, attack(code, "while b: b = b[os.write(4, b):]", "os._exit(0)"))
    assert "\x1b" not in message


def test_forged_document_is_checked_and_probed_like_any(box: Sandbox, probe: Probe):
    """A document for a constant, written by hand: what it says is all it can do; NaN does not get through."""
    n = 14 + len(probe.goals) - 1
    for literal, accepted in (("0000803f", True), ("0000c07f", False)):
        main = {"in": n, "consts": [], "eqns": [], "out": [["float32", literal]]}
        answer = json.dumps({"version": 1, "terms": ["a"], "main": main}, separators=(",", ":")).encode()
        verdict = box.vet(attack(f"os.write(4, {answer!r})", "os._exit(0)"))
        assert verdict.accepted == accepted, verdict.message


def test_filter_is_small_and_ends_in_refusal():
    for machine, (audit, table) in ARCHITECTURES.items():
        assert len(set(table.values())) == len(table)
        for allowed in (TRACER, WORKER):
            steps = confine.filter_program(allowed, machine, 1234)
            assert len(steps) < 4096
            assert steps[1] == (0x15, 1, 0, audit)
            assert steps[-1] == (0x06, 0, 0, 0x00050001)
            assert not allowed.keys() & {"execve", "ptrace", "socket", "kill", "fork", "vfork", "setsid"}
            assert all(max(jt, jf) < 256 for _, jt, jf, _ in steps)


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", HEADERS)
def test_call_numbers_are_those_of_the_kernel(machine: str):
    if not HEADERS[machine].exists():
        pytest.skip("no kernel headers here")
    words = [line.split() for line in HEADERS[machine].read_text().splitlines() if line.startswith("#define __NR")]
    numbers = {
        w[1].replace("__NR3264_", "").replace("__NR_", ""): w[2] for w in words if len(w) >= 3 and w[2].isdigit()
    }
    for name, number in ARCHITECTURES[machine][1].items():
        kernel = {"newfstatat": "fstatat"}.get(name, name) if machine == "aarch64" else name
        assert numbers[kernel] == str(number), name


def test_confinement_works_for_an_ordinary_user():
    """In a child that gives up root first, where this is root: a filter and Landlock need no rights."""
    if os.getuid() != 0:
        pytest.skip("these tests are an ordinary user's already")
    script = """
import os, socket, sys
from movlr_jax.sandbox import confine
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
confine.weak(confine.Limits(5, 4 * confine.GIB, space=1 << 46), os.getppid())
confine.confine_tracer()
status = 1
try:
    socket.socket()
except PermissionError:
    status = 0
os._exit(status)
"""  # a process of its own: a fork of this one, which has threads, may hang or fail
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
