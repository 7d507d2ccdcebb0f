"""Vets reward programs in a child process with a deadline, before the main process touches them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from movlr_jax.errors import ProgramError, UserError
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox.source import load, parse
from movlr_jax.sandbox.trial import Probe

START_DEADLINE_S, PROGRAM_DEADLINE_S = 120.0, 30.0
_PING_DEADLINE_S = 5.0
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "XLA_FLAGS")  # nothing with keys in it


@dataclass(frozen=True)
class Verdict:
    """What vetting found. `message` is None exactly when the program was accepted."""

    stage: str  # parse, load, trace, probe, deadline or crash: where it ended
    message: str | None
    seconds: float
    program: RewardProgram | None = None

    @property
    def accepted(self) -> bool:
        return self.message is None


class Sandbox:
    """A warm child process that tries programs; a program that hangs or crashes costs a new child."""

    name = "process"

    def __init__(self, probe: Probe, *, deadline_s: float = PROGRAM_DEADLINE_S):
        self._probe, self._deadline_s = pickle.dumps(probe), deadline_s
        self._child: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the sandbox

    def vet(self, source: str) -> Verdict:
        """Tries one program. Never raises for what the program does."""
        started = time.monotonic()
        try:
            parsed = parse(source)  # cheap, and most mistakes are found here
        except ProgramError as error:
            return Verdict("parse", str(error), time.monotonic() - started)
        child = self._running()
        asked = time.monotonic()
        answer = self._ask(child, source, self._deadline_s)
        seconds = time.monotonic() - started
        if not isinstance(answer, list):
            late = time.monotonic() - asked >= self._deadline_s
            self.close()
            message = (
                f"the program was not ready after {self._deadline_s:g} s: it loops or compiles for too long; "
                "make it smaller"
                if late
                else "the program took its process down; it may need too much memory"
            )
            return Verdict("deadline" if late else "crash", message, seconds)
        stage, message = answer
        if message is not None:
            return Verdict(stage, str(message), seconds)
        return Verdict(stage, None, seconds, load(parsed))

    def close(self) -> None:
        """Ends the child; the next program gets a new one."""
        if self._child:
            if self._child.poll() is None:
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.communicate()
            self._child = None

    def _running(self) -> subprocess.Popen[bytes]:
        # Asked whether it is there, for a child that died meanwhile must not be the next program's fault.
        if self._child and self._ask(self._child, None, _PING_DEADLINE_S) == "ready":
            return self._child
        self.close()
        package = str(Path(__file__).resolve().parents[2])
        environment = {k: os.environ[k] for k in _KEPT if k in os.environ}
        environment |= {"PYTHONPATH": package, "JAX_PLATFORMS": "cpu", "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "movlr_jax.sandbox.worker", str(math.ceil(self._deadline_s) + 2)]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        with contextlib.suppress(BrokenPipeError):
            assert self._child.stdin
            self._child.stdin.write(self._probe)
            self._child.stdin.flush()
        if self._answer(self._child, START_DEADLINE_S) != "ready":
            self.close()
            self._log.seek(0)
            tail = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
            raise UserError(f"the sandbox process does not start: {tail[0] if tail else 'no message'}")
        return self._child

    def _ask(self, child: subprocess.Popen[bytes], request: str | None, deadline_s: float) -> object:
        """The answer to a program, or to None (is it there?); None when it is late or gone."""
        with contextlib.suppress(BrokenPipeError):  # it is gone, as the missing answer says too
            assert child.stdin
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
        return self._answer(child, deadline_s)

    @staticmethod
    def _answer(child: subprocess.Popen[bytes], deadline_s: float) -> object:
        """One line of JSON from the child, or None when it is late, gone or speaks otherwise."""
        assert child.stdout
        line, end = b"", time.monotonic() + deadline_s
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                return None
            chunk = os.read(child.stdout.fileno(), 65536)
            if not chunk:
                return None
            line += chunk
        try:
            return json.loads(line)
        except ValueError:
            return None
