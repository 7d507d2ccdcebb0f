"""Vets reward programs in confined children, before the main process touches more of them than their text.

A tracer runs the Python and hands back a document; the main process checks it and rebuilds a function; a prober,
another child that gets the document alone, runs that on states. Neither child is ever believed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from movlr_jax.errors import ProgramError, UserError
from movlr_jax.machine import cores
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox import confine
from movlr_jax.sandbox.answers import DOWN, Rejected, counts_of, judge, rebuild, told
from movlr_jax.sandbox.graph import MAX_DOCUMENT, read
from movlr_jax.sandbox.inputs import inputs
from movlr_jax.sandbox.probe import Probe
from movlr_jax.sandbox.source import ParsedReward, parse, unchecked
from movlr_jax.sandbox.zygote import CONFINED, READY

START_DEADLINE_S, PROGRAM_DEADLINE_S = 120.0, 30.0
_KEPT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "XLA_FLAGS")  # nothing with keys in it
_TOO_LATE = "the program was not ready after {:g} s: it loops or compiles for too long; make it smaller"


@dataclass(frozen=True)
class Verdict:
    """What vetting found. `message` is None exactly when the program was accepted."""

    stage: str  # parse, load, trace, check, probe, deadline or crash: where it ended
    message: str | None
    seconds: float
    program: RewardProgram | None = None
    notes: Sequence[str] = ()  # of an accepted program: what its writer should know

    @property
    def accepted(self) -> bool:
        return self.message is None


class Sandbox:
    """A pool of confined children, forked from one warm process. Safe to use from several threads.

    name: `confined` (the kernel holds the program) or `process` (a child with limits and a deadline, which an
    ill-meaning program can leave). Raises UserError where the kernel cannot do what `confined` needs.
    """

    def __init__(
        self,
        probe: Probe,
        *,
        name: str = "confined",
        gradients: bool = False,
        deadline_s: float = PROGRAM_DEADLINE_S,
        check_text: bool = True,  # False in tests of the confinement alone
    ):
        self.name, self._gradients, self._deadline_s, self._check_text = (
            name,
            gradients,
            deadline_s,
            check_text,
        )
        if name == "confined":
            require_confinement()
        self.cpu_s = 0.0  # processor time of all children so far
        self._layout = probe.layout
        self._settings = pickle.dumps({"probe": probe, "confined": name == "confined"})
        self._zygote: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._lock = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the sandbox

    @property
    def description(self) -> str:
        return describe(self.name)

    def vet(self, source: str) -> Verdict:
        """Tries one program. Never raises for what the program does."""
        began = time.monotonic()
        try:
            parsed = parse(source) if self._check_text else unchecked(source)
            program, notes = self._vet(parsed, began)
        except ProgramError as error:
            return Verdict("parse", str(error), time.monotonic() - began)
        except Rejected as rejected:
            stage, message = rejected.args
            return Verdict(stage, message, time.monotonic() - began)
        return Verdict("probe", None, time.monotonic() - began, program, notes)

    def vet_all(
        self, sources: Sequence[str], done: Callable[[int, int], None] | None = None
    ) -> list[Verdict]:
        """Verdicts in the order of the programs, as many at a time as there are cores."""
        verdicts: dict[int, Verdict] = {}
        pool = ThreadPoolExecutor(max_workers=cores())
        try:
            work = {pool.submit(self.vet, source): i for i, source in enumerate(sources)}
            for future in as_completed(work):
                verdicts[work[future]] = future.result()
                if done:
                    done(len(verdicts), len(sources))
        except BaseException:  # Ctrl-C among them: nobody waits for what is under way
            pool.shutdown(wait=False, cancel_futures=True)
            self.close()
            raise
        finally:
            pool.shutdown()
        return [verdicts[i] for i in range(len(sources))]

    def _vet(self, parsed: ParsedReward, began: float) -> tuple[RewardProgram, list[str]]:
        terms, weights = list(parsed.weights), list(parsed.weights.values())
        end = time.monotonic() + self._deadline_s
        text = self._ask("trace", parsed.source.encode(), {"checked": self._check_text}, end)
        if not text.startswith(b'{"version"'):
            raise Rejected(*told(text))
        try:
            graph = read(text, terms, inputs(self._layout))
        except ProgramError as error:
            raise Rejected("check", str(error)) from None
        options = {"terms": terms, "weights": weights, "gradients": self._gradients}
        counts = counts_of(self._ask("probe", text, options, end), terms)
        notes = judge(parsed.source, counts)
        return rebuild(parsed, graph, text, self._layout), notes

    def start(self) -> None:
        """Starts the warm process, which the first program would else wait for. Raises UserError."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """Ends all children; the next program gets new ones."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._zygote:
            process, control = self._zygote
            self._zygote = None
            control.close()  # it ends its children, and itself
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _ask(self, job: str, text: bytes, options: dict[str, Any], end: float) -> bytes:
        """What a new child answers to `text`. Raises Rejected when it is late or dies, UserError when it cannot."""
        reading, writing = os.pipe()
        request = {"job": job, "cpu_s": int(self._deadline_s) + 2, **options}
        try:
            with tempfile.TemporaryFile() as file:
                file.write(text)
                file.flush()
                file.seek(0)
                # the descriptor of the child's shares this offset; nobody else reads it
                pid = self._command(request, [file.fileno(), writing])["pid"]
            os.close(writing)
            writing = -1
            answer, late = _read(reading, end)
        finally:
            os.close(reading)
            if writing >= 0:
                os.close(writing)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)  # before it made a group of its own
        ended = self._command({"reap": pid}, [])
        status, self.cpu_s = ended["status"], self.cpu_s + ended["cpu_s"]
        if answer[:1] != CONFINED:
            if answer:
                raise UserError(
                    f"the sandbox cannot confine its child: {answer[1:].decode(errors='replace')}"
                )
            raise Rejected("crash", DOWN)
        if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
            raise Rejected("deadline", _TOO_LATE.format(self._deadline_s))
        if len(answer) == 1 or len(answer) > MAX_DOCUMENT:
            raise Rejected("crash", DOWN)
        return answer[1:]

    def _command(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """One request to the warm process, and its answer; it is started anew where it has died."""
        with self._lock:
            for attempt in (1, 2):
                if "reap" in request and (not self._zygote or self._zygote[0].poll() is not None):
                    return {"status": 0, "cpu_s": 0.0}  # it went with its children
                _, control = self._running()
                try:
                    socket.send_fds(control, [json.dumps(request).encode()], descriptors)
                    answer = control.recv(4096)
                except OSError:
                    answer = b""
                if answer:
                    return json.loads(answer)
                self._stop()
                if attempt == 2:
                    raise UserError(f"the sandbox process ends at once: {self._last_words()}")
        raise AssertionError

    def _running(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        if self._zygote and self._zygote[0].poll() is None:
            return self._zygote
        self._stop()
        package = str(Path(__file__).resolve().parents[2])
        environment = {k: os.environ[k] for k in _KEPT if k in os.environ}
        environment |= {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        environment |= {"PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "2"}
        ours, theirs = socket.socketpair()
        # -I: no user's site-packages, no folder of the caller's; what this process can import is named instead
        code = f"import sys; sys.path[:0] = {[package]!r}; from movlr_jax.sandbox.zygote import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", code, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env=environment,
            cwd="/",
            start_new_session=True,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._zygote = process, ours
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(self._settings)
            process.stdin.close()
        ours.settimeout(START_DEADLINE_S)
        try:
            said = ours.recv(64)
        except OSError:
            said = b""
        if said != READY:
            self._stop()
            raise UserError(f"the sandbox process does not start: {self._last_words()}")
        return self._zygote

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"


def require_confinement() -> None:
    """Raises UserError where this machine cannot confine a process, with what is missing and what accepts less."""
    lacks = confine.missing()
    if lacks:
        raise UserError(
            f"this machine cannot confine generated programs, it lacks: {'; '.join(lacks)}. sandbox=process accepts "
            "a child process with limits and a deadline, which an ill-meaning program can leave; the run will say so"
        )


def describe(name: str) -> str:
    """What a sandbox of this name is, for the record, the report and doctor."""
    if name == "confined":
        return f"confined: {confine.describe()}"
    return "process: WEAKER, a child process with limits and a deadline, not held by the kernel"


def _read(pipe: int, end: float) -> tuple[bytes, bool]:
    """All that comes through a pipe, and whether time ran out first; too much is cut off."""
    data = b""
    while len(data) <= MAX_DOCUMENT:
        left = end - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return data, True
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            break
        data += chunk
    return data, False
