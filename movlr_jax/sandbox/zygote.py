"""The warm process, from which candidates are forked. It has one thread, no initialised backend and no secrets.

`warm` starts a process that imports the packages, and asks it for a warm process by sending a socket and a log. It
forks one for each request, so only the first waits for imports. The warm process gets a pickled probe over its socket
(always from the main process to this one), then requests with two descriptors each: the text to read and the pipe for
the answer.
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
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from movlr_jax.sandbox.wire import receive, receive_block, send

CONFINED, FAILED = b"+", b"-"  # the first byte of an answer
# Modules that JAX imports only when it first compiles. Without this, each child would import them again.
_LATE = [
    "jax.experimental.multihost_utils",
    *(f"jaxlib.mlir.dialects.{name}" for name in ("mhlo", "builtin", "stablehlo", "chlo", "func", "sdy")),
]
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
    """Import the packages, then fork a warm process per request until the main process is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # JAX searches all packages for plugins when a backend starts; only the CPU backend is needed here
    importlib.metadata.entry_points = lambda **_: importlib.metadata.EntryPoints()
    import jax

    from movlr_jax.sandbox import graph, inputs, probe, trace  # noqa: F401

    for name in _LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    jax.config.update(
        "jax_traceback_filtering", "off"
    )  # filtering reads paths, which a tracer is not allowed to
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the warm processes
    while True:
        request, descriptors = _next(control)
        if request is None:
            return
        if not request["forks"]:
            send(control, {"pid": os.getpid()})
            break
        try:
            pid = os.fork()
        except OSError as error:
            answer: dict[str, Any] = {"error": error.strerror or str(error)}
        else:
            if pid == 0:
                os.setsid()
                break
            answer = {"pid": pid}
        for descriptor in descriptors:
            os.close(descriptor)
        send(control, answer)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control.close()
    own, log = descriptors
    os.dup2(log, 2)
    control = socket.socket(fileno=own)
    _warm(control, pickle.loads(receive_block(control)))


def _next(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next request and its descriptors; None if the main process is gone."""
    try:
        return receive(control, 2)
    except OSError:
        return None, []


def _warm(control: socket.socket, settings: dict[str, Any]) -> None:
    """Trace a first program, then serve requests for candidates."""
    import jax

    from movlr_jax.rewards.cost import Cost
    from movlr_jax.rewards.state import rotation
    from movlr_jax.sandbox import graph, trace
    from movlr_jax.sandbox import probe as prober
    from movlr_jax.sandbox.inputs import inputs

    what = settings["probe"]
    graph.read(trace.document(_WARM, what.layout), ["a"], inputs(what.layout))
    jax.eval_shape(rotation, jax.ShapeDtypeStruct((4,), "float32"))
    with contextlib.suppress(trace.Rejection):
        trace.document(_BROKEN, what.layout)
    jobs = {
        "trace": lambda text, o: _trace(trace, text.decode(), what, o),
        "probe": lambda text, o: json.dumps(
            prober.examine(text, o["terms"], o["weights"], what, Cost(*o["cost"]), o["batch"])
        ),
    }
    threads = len(list(Path("/proc/self/task").iterdir())) if sys.platform.startswith("linux") else 1
    if threads != 1:
        raise SystemExit(
            f"the sandbox process has {threads} threads before its first program, expected 1; "
            "set OPENBLAS_NUM_THREADS=1"
        )
    gc.collect()
    gc.freeze()
    send(control, {"ready": True})
    _serve(control, jobs, settings)


def _trace(trace: Any, source: str, what: Any, options: dict[str, Any]) -> str:
    try:
        return trace.document(source, what.layout, options["checked"])
    except trace.Rejection as rejection:
        return json.dumps({"stage": rejection.args[0], "message": rejection.args[1]})


def _serve(control: socket.socket, jobs: dict[str, Any], settings: dict[str, Any]) -> None:
    """Serve requests until the main process is gone."""
    children: set[int] = set()
    while True:
        request, descriptors = _next(control)
        if request is None:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            return
        if "reap" in request:
            status, cpu_s = 0, 0.0
            with contextlib.suppress(ChildProcessError):  # a child of an earlier warm process
                _, status, used = os.wait4(request["reap"], 0)
                cpu_s = used.ru_utime + used.ru_stime
            children.discard(request["reap"])
            send(control, {"status": status, "cpu_s": cpu_s})
            continue
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            answer = {"error": error.strerror or str(error)}
        else:
            if pid == 0:
                try:
                    _child(jobs[request["job"]], request, descriptors, zygote, settings)
                finally:
                    os._exit(1)
            children.add(pid)
            answer = {"pid": pid}
        for descriptor in descriptors:
            os.close(descriptor)
        send(control, answer)


def _child(
    job: Any, request: dict[str, Any], descriptors: list[int], zygote: int, settings: dict[str, Any]
) -> None:
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
        result = job(data, request).encode()
    except Exception as error:  # errors of XLA or a lack of memory; `_trace` reports those of the program
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


if __name__ == "__main__":
    main()
