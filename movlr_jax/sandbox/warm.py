"""The main process's handle to the warm process, from which candidates are forked."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from movlr_jax.errors import UserError
from movlr_jax.sandbox import confine
from movlr_jax.sandbox.wire import receive, send

_START_S = 120.0  # timeout of its start
_STOPPED_S, _ANSWER_S = 1.0, 10.0  # s without an answer before SIGCONT is sent, and before it counts as lost
_ENDS_S = 5.0  # timeout of its end


class Lost(Exception):
    """The warm process and its children are gone. `during`: whether a program was running in it."""

    def __init__(self, during: bool):
        super().__init__(during)
        self.during = during


class _Process:
    """The process, which imports its packages and then waits for its settings on stdin."""

    def __init__(self) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - it stays open as long as the process runs
        self.control, theirs = socket.socketpair()
        # -I ignores PYTHONPATH, the user's site-packages and the working folder; where the parent finds its packages,
        # the child looks last
        package = str(Path(__file__).resolve().parents[2])
        code = (
            f"import sys; sys.path[:0] = {[package]!r}; sys.path += {_paths()!r}; "
            "from movlr_jax.sandbox.zygote import main; main()"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", code, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.log,
            env=_environment(),
            cwd="/",
            start_new_session=True,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()


_AHEAD: list[_Process] = []  # at most one


def start_ahead() -> None:
    """Start the process of the next `Warm` now: its imports then run while the command builds its task.

    It ends with this process if no `Warm` takes it.
    """
    if not _AHEAD and not confine.low_limits():
        _AHEAD.append(_Process())


def _paths() -> list[str]:
    """Return where this process finds its packages, without its working folder."""
    return [path for path in sys.path if Path(path).is_absolute() and Path(path) != Path.cwd()]


class Warm:
    """One warm process. Raises UserError if it does not start."""

    def __init__(self, settings: bytes):
        lacks = confine.low_limits()
        if lacks:
            raise UserError(
                f"the sandbox cannot run programs: {'; '.join(lacks)}; raise the limit and start again"
            )
        self._lock = threading.Lock()  # one request at a time
        started = _AHEAD.pop() if _AHEAD and _AHEAD[0].process.poll() is None else _Process()
        self._log, self._control, self.process = started.log, started.control, started.process
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(settings)
            self.process.stdin.close()
        self._control.settimeout(_START_S)
        try:
            ready, _ = receive(self._control)
        except OSError:
            ready = None
        if ready is None:
            reason = self.last_log_line()
            self.stop()
            raise UserError(f"the sandbox process does not start: {reason}")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        """Fork a child that handles `request` and return its process id. Raises Lost; UserError if it cannot fork."""
        answer = self._ask(request, descriptors, during=False)
        if "error" in answer:
            raise UserError(
                f"the sandbox cannot start a child process: {answer['error']}; the limit of processes (ulimit -u) or "
                "of memory is reached, raise it or end other processes"
            )
        return answer["pid"]

    def reap(self, pid: int) -> tuple[int, float]:
        """Wait for a child and return its exit status and processor time in s. Raises Lost."""
        ended = self._ask({"reap": pid}, [], during=True)
        return ended["status"], ended["cpu_s"]

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int], during: bool) -> dict[str, Any]:
        answer = None
        with self._lock, contextlib.suppress(OSError):
            self._control.settimeout(_ANSWER_S)
            send(self._control, request, descriptors)
            self._wait()
            answer, _ = receive(self._control)
        if answer is None:
            self.stop()
            raise Lost(during)
        return answer

    def _wait(self) -> None:
        """Wait for an answer; if it is late, send SIGCONT in case the process was stopped. Raises OSError."""
        self._control.settimeout(_STOPPED_S)
        try:
            self._control.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            self.process.send_signal(signal.SIGCONT)
        self._control.settimeout(_ANSWER_S)

    def last_log_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"

    def stop(self) -> None:
        """End the warm process and its children; may be called twice."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # the process then ends its children and exits
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._control.close()
        self._log.close()


def _environment() -> dict[str, str]:
    """Return the environment of the warm process; only the library path is the user's."""
    path = os.environ.get("LD_LIBRARY_PATH")
    return {
        "JAX_PLATFORMS": "cpu",
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": "/usr/bin:/bin",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **({"LD_LIBRARY_PATH": path} if path else {}),
    }
