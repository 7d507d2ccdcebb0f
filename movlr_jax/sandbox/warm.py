"""The main process's handle to the warm process, from which the children of all its sandboxes are forked."""

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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from movlr_jax.errors import UserError
from movlr_jax.sandbox import confine
from movlr_jax.sandbox.zygote import receive, send

_START_S = 120.0  # timeout of its start, and of its first program of a task
_ANSWER_S = 10.0  # s without an answer before it counts as lost
_ENDS_S = 5.0  # timeout of its end


def memory_file(data: bytes = b"") -> IO[bytes]:
    """Return a file without a name that holds `data`, in memory where the system can: a folder may be missing."""
    named = os.memfd_create("movlr_jax") if hasattr(os, "memfd_create") else None
    file = tempfile.TemporaryFile() if named is None else os.fdopen(named, "w+b")  # noqa: SIM115 - returned
    file.write(data)
    file.flush()
    file.seek(0)  # whoever gets the descriptor shares this offset
    return file


class Lost(Exception):
    """The warm process and its children are gone. `during`: whether a program was running in it."""

    def __init__(self, during: bool):
        super().__init__(during)
        self.during = during


class Warm:
    """One warm process. It ends with this process. Raises UserError if it cannot start."""

    def __init__(self) -> None:
        lacks = confine.low_limits()
        if lacks:
            raise UserError(f"the sandbox cannot run programs: {'; '.join(lacks)}; raise the limit and start again")
        self._lock = threading.Lock()  # one request at a time
        self._owner, self._paths = os.getpid(), _paths()
        self._log = memory_file()
        ours, theirs = socket.socketpair()
        self._control = Connection(ours.detach())
        # -I ignores PYTHONPATH, the user's site-packages and the working folder; where the parent finds its packages,
        # the child looks last
        package = str(Path(__file__).resolve().parents[2])
        code = (
            f"import sys; sys.path[:0] = {[package]!r}; sys.path += {self._paths!r}; "
            "from movlr_jax.sandbox.zygote import main; main()"
        )
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", code, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                env=_environment(),
                cwd="/",
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    @property
    def serves(self) -> bool:
        """Whether it serves this process, and finds its packages where this process does now."""
        return self._owner == os.getpid() and self._paths == _paths() and self.process.poll() is None

    def register(self, name: str, settings: bytes) -> None:
        """Make it ready for the programs of the sandbox `name`. Raises UserError if it is not."""
        with memory_file(settings) as file:
            answer = self._exchange({"register": name}, [file.fileno()], _START_S)
        if answer is None:
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").strip().splitlines() or ["no message"]
            self.stop()
            raise UserError(f"the sandbox process does not start: {lines[-1]}")

    def fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        """Fork a child that handles `request` and return its process id. Raises Lost; UserError if it cannot fork."""
        answer = self._ask(request, descriptors, during=False)
        if "closed" in answer:
            raise Lost(during=False)
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

    def forget(self, name: str) -> None:
        """End the children of the sandbox `name`."""
        with contextlib.suppress(Lost):
            self._ask({"forget": name}, [], during=False)

    def stop(self) -> None:
        """End the warm process and its children; may be called twice."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._control.fileno())) as control:
            control.shutdown(socket.SHUT_RDWR)  # the process then ends its children and exits
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        with self._lock:  # a request that another thread is waiting for has failed by now
            self._control.close()
        self._log.close()

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int], during: bool) -> dict[str, Any]:
        answer = self._exchange(request, descriptors, _ANSWER_S)
        if answer is None:
            self.stop()
            raise Lost(during)
        return answer

    def _exchange(self, request: dict[str, Any], descriptors: Sequence[int], wait_s: float) -> dict[str, Any] | None:
        """Return the answer to a request, None if the process is gone or does not answer in time."""
        # on macOS, a descriptor that is not acknowledged is a RuntimeError
        with self._lock, contextlib.suppress(OSError, EOFError, RuntimeError):
            send(self._control, request, descriptors)
            if self._control.poll(wait_s):
                return receive(self._control)[0]
        return None


_SHARED: list[Warm] = []  # at most one
_STARTS = threading.Lock()


def registered(name: str, settings: bytes) -> Warm:
    """Return the warm process of all sandboxes of this process, ready for one of them. Raises UserError."""
    with _STARTS:
        before = list(_SHARED)
        try:
            warm = _current()
            warm.register(name, settings)
        except UserError:
            if before != _SHARED:
                raise
            _SHARED.clear()  # it has just ended
            warm = _current()
            warm.register(name, settings)
        return warm


def start_ahead() -> None:
    """Start the warm process: its imports then run while the command builds its task."""
    if not confine.low_limits():
        with _STARTS:
            _current()


def _current() -> Warm:
    """Return the shared warm process; start it if there is none. Raises UserError."""
    if not (_SHARED and _SHARED[0].serves):
        _SHARED[:] = [Warm()]
    return _SHARED[0]


def _paths() -> list[str]:
    """Return where this process finds its packages, without its working folder."""
    return [path for path in sys.path if Path(path).is_absolute() and Path(path) != Path.cwd()]


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
