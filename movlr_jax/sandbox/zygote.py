"""The warm process, from which candidates are forked. It has one thread, no initialised backend and no secrets.

It gets the pickled probe of each sandbox from the main process, never the other way, then requests with two
descriptors each: the text to read and the pipe for the answer.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import importlib.metadata
import json
import os
import pickle
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

CONFINED, FAILED = b"+", b"-"  # the first byte of an answer
# Modules that JAX imports only when it first compiles. Without this, each child would import them again.
_LATE = [
    "jax.experimental.multihost_utils",
    *(f"jaxlib.mlir.dialects.{name}" for name in ("mhlo", "builtin", "stablehlo", "chlo", "func", "sdy")),
]
_LARGEST = 16 << 20  # bytes of a message
_WARM = """WEIGHTS = {"a": 1.0}
def reward(state, action):
    x = jnp.linalg.norm(jnp.stack([action[0], 1.0])) + jnp.clip(action, 0.0, 1.0).mean()
    x = x + jnp.where(action > 0, 1.0, action).sum() + jnp.array([1.0, 2.0])[0] + jax.nn.relu(x) + jax.nn.softplus(x)
    y = jnp.sum(jnp.square(state.qvel)) + jnp.exp(-jnp.abs(state.qpos)).max() + jax.nn.sigmoid(x) + jnp.tanh(x) ** 2
    z = shaping.tolerance(x) + jnp.maximum(x, y) + jnp.dot(action, action)
    return {"a": x + y + z + jax.lax.fori_loop(0, 2, lambda i, c: c + i * 1.0, 0.0)}
"""
_BROKEN = """WEIGHTS = {"a": 1.0}
def reward(state, action):
    return {"a": unknown}
"""


def main() -> None:
    """Import the packages, then serve requests until the main process is gone."""
    control = Connection(int(sys.argv[1]))
    # JAX searches all packages for plugins when a backend starts; only the CPU backend is needed here
    importlib.metadata.entry_points = lambda **_: importlib.metadata.EntryPoints()
    import jax

    from movlr_jax.sandbox import graph, inputs, probe, trace  # noqa: F401

    for name in _LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # filtering reads paths, which a tracer is not allowed to
    jax.config.update("jax_traceback_filtering", "off")
    _Server(control).serve()


def _ready(settings: dict[str, Any]) -> dict[str, Any]:
    """Trace a first program and a broken one, so that children need not, and return `settings`."""
    import jax

    from movlr_jax.rewards.state import rotation
    from movlr_jax.sandbox import graph, trace
    from movlr_jax.sandbox.inputs import inputs
    from movlr_jax.sandbox.source import Rejected

    layout = settings["probe"].layout
    graph.read(trace.document(_WARM, layout), ["a"], inputs(layout))
    jax.eval_shape(rotation, jax.ShapeDtypeStruct((4,), "float32"))
    with contextlib.suppress(Rejected):
        trace.document(_BROKEN, layout)
    threads = len(list(Path("/proc/self/task").iterdir())) if sys.platform.startswith("linux") else 1
    if threads != 1:
        raise SystemExit(
            f"the sandbox process has {threads} threads before its first program, expected 1; "
            "set OPENBLAS_NUM_THREADS=1"
        )
    gc.collect()
    gc.freeze()
    return settings


class _Server:
    """Answers the requests of the main process, one at a time."""

    def __init__(self, control: Connection):
        self._control = control
        self._sandboxes: dict[str, dict[str, Any]] = {}  # name -> settings
        self._children: dict[int, str] = {}  # process id -> name of its sandbox

    def serve(self) -> None:
        while True:
            try:
                request, descriptors = receive(self._control)
            except (EOFError, OSError):  # the main process is gone
                return self._kill(self._children)
            if "register" in request:
                with open(descriptors[0], "rb", closefd=False) as file:
                    self._sandboxes[request["register"]] = _ready(pickle.load(file))
                answer: dict[str, Any] = {"ready": True}
            elif "forget" in request:
                self._sandboxes.pop(request["forget"], None)
                self._kill([pid for pid, name in self._children.items() if name == request["forget"]])
                answer = {}
            elif "reap" in request:
                answer = self._reap(request["reap"])
            else:
                answer = self._fork(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            send(self._control, answer)

    def _kill(self, children: Iterable[int]) -> None:
        for pid in children:
            os.kill(pid, signal.SIGKILL)

    def _reap(self, pid: int) -> dict[str, Any]:
        status, cpu_s = 0, 0.0
        with contextlib.suppress(ChildProcessError):
            _, status, used = os.wait4(pid, 0)
            cpu_s = used.ru_utime + used.ru_stime
        self._children.pop(pid, None)
        return {"status": status, "cpu_s": cpu_s}

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        zygote, name = os.getpid(), request["sandbox"]
        if name not in self._sandboxes:
            return {"closed": True}
        try:
            pid = os.fork()
        except OSError as error:
            return {"error": error.strerror or str(error)}
        if pid == 0:
            try:
                _child(request, descriptors, zygote, self._sandboxes[name])
            finally:
                os._exit(1)
        self._children[pid] = name
        return {"pid": pid}


def _job(text: bytes, what: Any, request: dict[str, Any]) -> str:
    """Trace or probe a program, and return the answer for the main process."""
    from movlr_jax.rewards.cost import Cost
    from movlr_jax.sandbox import probe, trace
    from movlr_jax.sandbox.source import Rejected

    if request["job"] == "probe":
        cost = Cost(*request["cost"])
        found = probe.examine(text, request["terms"], request["weights"], what, cost, request["batch"])
        return json.dumps(found)
    try:
        return trace.document(text.decode(), what.layout, request["checked"])
    except Rejected as rejected:
        stage, message = rejected.args
        return json.dumps({"stage": stage, "message": message})


def _child(request: dict[str, Any], descriptors: list[int], zygote: int, settings: dict[str, Any]) -> None:
    """Confine this process, then read the untrusted text and write the answer."""
    from movlr_jax.sandbox import confine

    gc.disable()
    os.setpgid(0, 0)
    text, answer = _only(descriptors)
    traces, confined = request["job"] == "trace", settings["confined"]
    limits = replace(confine.TRACING if traces else confine.PROBING, cpu_s=request["cpu_s"])
    os.environ.clear()
    if not traces:
        confine.few_cores()
        # not visible to the program, which ran in another child
        os.environ["XLA_FLAGS"] = settings["xla_flags"]
    try:
        paths = [] if traces or not confined else confine.worker_paths()
        if not confined:
            confine.hide_processes()
        confine.weak(limits, zygote)
        if confined:
            confine.confine_tracer() if traces else confine.confine_worker(paths)
    except Exception as error:
        os.write(answer, FAILED + str(error).encode())
        return
    os.write(answer, CONFINED)
    with open(text, "rb") as file:
        data = file.read()
    try:
        result = _job(data, settings["probe"], request).encode()
    except Exception as error:  # errors of XLA or a lack of memory; `_job` reports those of the program
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        result = json.dumps({"error": text[:300]}).encode()
    while result:
        result = result[os.write(answer, result) :]
    os._exit(0)


def _only(descriptors: list[int]) -> tuple[int, int]:
    """Close all descriptors except these two, which become 3 and 4; 0, 1 and 2 become /dev/null."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 5) for fd in descriptors]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(nowhere, target)
    for target, fd in enumerate(high, start=3):
        os.dup2(fd, target)
    os.closerange(5, 65536)
    return 3, 4


def send(to: Connection, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message, which is JSON. Raises OSError if the other side is gone."""
    to.send_bytes(json.dumps({**message, "descriptors": len(descriptors)}).encode())
    for descriptor in descriptors:
        reduction.send_handle(to, descriptor, None)


def receive(sender: Connection) -> tuple[dict[str, Any], list[int]]:
    """Return the next message and its descriptors. Raises EOFError or OSError if the other side is gone."""
    message = json.loads(sender.recv_bytes(_LARGEST))
    return message, [reduction.recv_handle(sender) for _ in range(message.pop("descriptors"))]
