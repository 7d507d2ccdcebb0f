"""The main process's handle to the warm process, from which candidates are forked."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from movlr_jax.errors import UserError
from movlr_jax.sandbox import confine
from movlr_jax.sandbox.wire import receive, send, send_block

_START_S = 120.0  # timeout of its start
_STOPPED_S, _ANSWER_S = 1.0, 10.0  # s without an answer before SIGCONT is sent, and before it counts as lost
_ENDS_S = 5.0  # timeout of its end


def memory_file() -> IO[bytes]:
    """Return a file without a name, in memory where the system can: a machine may have no temporary folder."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("movlr_jax"), "w+b")
    return tempfile.TemporaryFile()


class Lost(Exception):
    """The warm process and its children are gone. `during`: whether a program was running in it."""

    def __init__(self, during: bool):
        super().__init__(during)
        self.during = during


class _Source:
    """A process that has imported its packages, and from which warm processes are forked.

    Where those could not be watched, it becomes the one warm process itself.
    """

    def __init__(self) -> None:
        self.owner, self.paths = os.getpid(), _paths()
        self.control, theirs = socket.socketpair()
        # -I ignores PYTHONPATH, the user's site-packages and the working folder; where the parent finds its packages,
        # the child looks last
        package = str(Path(__file__).resolve().parents[2])
        code = (
            f"import sys; sys.path[:0] = {[package]!r}; sys.path += {self.paths!r}; "
            "from movlr_jax.sandbox.zygote import main; main()"
        )
        self.log = memory_file()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", code, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.log,
            env=_environment(),
            cwd="/",
            start_new_session=True,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    @property
    def serves(self) -> bool:
        """Whether it can start another warm process for this process, as its packages are found now."""
        return self.owner == os.getpid() and self.paths == _paths() and self.process.poll() is None

    def start(self, descriptors: Sequence[int]) -> subprocess.Popen[bytes] | _Forked:
        """Return a new warm process, which gets its socket and log. Raises UserError."""
        answer = None
        with contextlib.suppress(OSError):
            self.control.settimeout(_START_S)
            send(self.control, {"forks": _FORKS}, descriptors)
            answer, _ = receive(self.control)
        if answer is None or "error" in answer:
            self.control.close()
            self.process.kill()
            self.process.wait()
            raise UserError(
                f"the sandbox process does not start: {answer['error'] if answer else _last_line(self.log)}"
            )
        return _Forked(answer["pid"]) if _FORKS else self.process


class _Forked:
    """A process that is not a child of this one, with what `subprocess.Popen` has for those. Raises OSError."""

    def __init__(self, pid: int):
        self.pid, self._file = pid, os.pidfd_open(pid)
        weakref.finalize(self, os.close, self._file)

    def poll(self) -> int | None:
        """Return None while it runs; its status is not known."""
        return -1 if self._ended(0) else None

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._file, number)

    def wait(self, timeout: float | None = None) -> None:
        if not self._ended(None if timeout is None else 1000 * timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)

    def _ended(self, timeout_ms: float | None) -> bool:
        ended = select.poll()  # one object cannot be used by several threads at once
        ended.register(self._file, select.POLLIN)
        return bool(ended.poll(timeout_ms))


def _can_watch() -> bool:
    """Return whether a process that is not a child of this one can be watched here (Linux 5.3)."""
    try:
        file = os.pidfd_open(os.getpid())
        signal.pidfd_send_signal(file, 0)
    except (AttributeError, OSError):
        return False
    os.close(file)
    return True


_FORKS = _can_watch()
_SOURCES: list[_Source] = []  # at most one
_STARTS = threading.Lock()  # one start at a time


def _source() -> _Source:
    """Return the process of which warm processes are forked; start it if there is none."""
    if not (_SOURCES and _SOURCES[0].serves):
        for old in _SOURCES:
            old.control.close()  # ends the process, unless another one holds it, too
        _SOURCES[:] = [_Source()]
    return _SOURCES[0]


def _started(descriptors: Sequence[int]) -> subprocess.Popen[bytes] | _Forked:
    """Return a new warm process, from another source if the one that there is has just ended. Raises UserError."""
    before = list(_SOURCES)
    try:
        process = _source().start(descriptors)
    except UserError:
        if before != _SOURCES:  # it was a new one
            raise
        process = _source().start(descriptors)
    if not _FORKS:
        _SOURCES.clear()
    return process


def start_ahead() -> None:
    """Start what warm processes are forked from: its imports then run while the command builds its task.

    It ends with this process.
    """
    if not confine.low_limits():
        with _STARTS:
            _source()


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
        self._log = memory_file()
        self._control, theirs = socket.socketpair()
        with theirs, _STARTS:
            self.process = _started([theirs.fileno(), self._log.fileno()])
        self._control.settimeout(_START_S)
        try:
            send_block(self._control, settings)
            ready, _ = receive(self._control)
        except OSError:
            ready = None
        if ready is None:
            reason = _last_line(self._log)
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


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"


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
