"""What vetting costs, and what a rebuilt reward costs beside the program it was traced from.

Seconds of a static rejection, of a rejection by the tracer, of an acceptance (one at a time, and several at once),
of the start of the warm process; what 100 acceptances leave behind; values, run time and compile time of a rebuilt
program against the Python it came from. The last line of stdout is one JSON object.

    nice python benchmarks/sandbox.py [--repeats 30] [--leak 100]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from movlr_jax.config.compose import compose
from movlr_jax.engine import environment

environment.prepare_environment()

import jax  # noqa: E402
import numpy as np  # noqa: E402
from quick import read_options  # noqa: E402
from record import circumstances  # noqa: E402

from movlr_jax._util.machine import cores  # noqa: E402
from movlr_jax.engine.tasks import task_of  # noqa: E402
from movlr_jax.evolution.evaluation import make_probe  # noqa: E402
from movlr_jax.physics.native import NativePhysics  # noqa: E402
from movlr_jax.rewards.program import RewardFn  # noqa: E402
from movlr_jax.rewards.state import State  # noqa: E402
from movlr_jax.sandbox.graph import read, run  # noqa: E402
from movlr_jax.sandbox.inputs import flat, inputs, pack  # noqa: E402
from movlr_jax.sandbox.source import parse  # noqa: E402
from movlr_jax.sandbox.trace import document, load  # noqa: E402
from movlr_jax.sandbox.vet import Sandbox  # noqa: E402

STATIC = 'WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return {"a": jnp.sigmoid(action[0])}\n'
TRACED = 'WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return {"a": actions[0]}\n'
SOUND = """WEIGHTS = {"near": 10.0, "calm": 0.1, "still": 1.0}


def reward(state, action):
    offset = state.pos("bottle") - state.goal("object_pos")
    speed = jnp.linalg.norm(state.vel("bottle"))
    grip = sum(jnp.tanh(state.touch(finger) / 5.0) for finger in ("index", "middle"))
    return {
        "near": jnp.exp(-5.0 * jnp.linalg.norm(offset)),
        "calm": 0.1 * grip - jnp.mean(jnp.square(action)) - jnp.mean(jnp.abs(action - state.prev_action)),
        "still": jax.nn.softplus(-speed) * jnp.where(state.time > 0.5, 1.0, 0.5),
    }
"""


def spread(seconds: list[float]) -> dict[str, float]:
    """Median and 95th percentile in ms."""
    return {
        "median_ms": round(1e3 * statistics.median(seconds), 2),
        "p95_ms": round(1e3 * float(np.percentile(seconds, 95)), 2),
        "n": len(seconds),
    }


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def different(i: int) -> str:
    """A program that nobody has compiled yet."""
    return SOUND.replace("5.0 *", f"{5 + i / 1000:.3f} *")


def held() -> dict[str, float]:
    """What this process and its children hold now."""
    pids = [str(os.getpid())]
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = path.read_text().rpartition(")")[2].split()
        if fields[1] == pids[0]:
            pids.append(path.parent.name)
    return {
        "processes": len(pids),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "zygote_MiB": sum(_resident(p) for p in pids[1:]),
        "main_MiB": _resident(pids[0]),
    }


def _resident(pid: str) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def against_native(task: Any, source: str, repeats: int) -> dict[str, Any]:
    """A rebuilt program beside the Python, at [512, 64] states: bits, and processor time to run and to compile."""
    layout, parsed = task.layout, parse(source)
    terms = list(parsed.weights)
    text = document(source, layout)
    began = time.perf_counter()
    graph = read(text, terms, inputs(layout))
    check_s = time.perf_counter() - began
    native: RewardFn = load(parsed).reward
    goals = {name: np.asarray(v, np.float32) for name, v in task.goals.items()}
    rng = np.random.default_rng(0)
    shapes = [s.shape for s in inputs(layout)][: len(inputs(layout)) - len(goals)]
    values = [rng.normal(size=(512, 64, *shape)).astype(np.float32) for shape in shapes]

    def python(*x: Any) -> list[jax.Array]:
        step, action, initial, found = pack(layout, [*x, *(goals[n] for n in sorted(goals))])
        result = native(State(layout, step, found, initial), action)
        return [jax.numpy.asarray(result[t], jax.numpy.float32) for t in terms]

    def rebuilt(*x: Any) -> list[jax.Array]:
        step, action, initial, found = pack(layout, [*x, *(goals[n] for n in sorted(goals))])
        return run(graph, flat(step, action, initial, found))

    # the flat list is packed and unpacked on both sides: the difference is the program
    compiled, compile_s = {}, {}
    for name, function in (("python", python), ("rebuilt", rebuilt)) * 3:
        batched = jax.jit(jax.vmap(jax.vmap(lambda *x, f=function: f(*x))))
        began = time.process_time()  # over all threads: what else runs here does not count
        compiled[name] = batched.lower(*values).compile()
        compile_s.setdefault(name, []).append(time.process_time() - began)
    device = [jax.device_put(v) for v in values]
    run_s: dict[str, list[float]] = {"python": [], "rebuilt": []}
    outs = {}
    for _ in range(repeats):
        for name in run_s:
            began = time.process_time()
            outs[name] = jax.block_until_ready(compiled[name](*device))
            run_s[name].append(time.process_time() - began)
    pairs = zip(outs["python"], outs["rebuilt"], strict=True)
    ratio = [b / a for a, b in zip(run_s["python"], run_s["rebuilt"], strict=True)]
    return {
        "equations": len(graph.equations),
        "check_ms": round(1e3 * check_s, 2),
        "bitwise_equal": all(
            np.array_equal(np.asarray(a).view(np.int32), np.asarray(b).view(np.int32)) for a, b in pairs
        ),
        "run_cpu_ms": round(1e3 * statistics.median(run_s["rebuilt"]), 3),
        "run_ratio": round(statistics.median(ratio), 3),
        "compile_cpu_ms": round(1e3 * min(compile_s["rebuilt"]), 1),
        "compile_ratio": round(min(compile_s["rebuilt"]) / min(compile_s["python"]), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What vetting costs")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--leak", type=int, default=100)
    options = read_options(parser, repeats=2, leak=4)
    task = task_of(compose(["+task=bottle_pour"]))
    physics = NativePhysics(task.model, task.layout, sim_dt=0.002, ctrl_dt=0.016)
    probe = make_probe(task, physics, seed=0)
    starts = []
    for _ in range(5):
        box = Sandbox(probe)
        starts.append(timed(box.start))
        box.close()
    box = Sandbox(probe)
    box.start()
    vet = box.vet
    assert vet(SOUND).accepted, vet(SOUND).message
    n = options.repeats
    static = [timed(lambda: vet(STATIC)) for _ in range(n)]
    traced = [timed(lambda: vet(TRACED)) for _ in range(n)]
    spent = box.cpu_s
    accepted = [timed(lambda i=i: vet(different(i))) for i in range(n)]
    spent = (box.cpu_s - spent) / n
    before = held()
    many = timed(lambda: [vet(different(1000 + i)) for i in range(options.leak)])
    after = held()
    at_once = timed(lambda: box.vet_all([different(5000 + i) for i in range(4 * cores())]))
    result = {
        "static_rejection": spread(static),
        "rejection_by_tracer": spread(traced),
        "acceptance": spread(accepted) | {"children_cpu_ms": round(1e3 * spent, 1)},
        "zygote_start": spread(starts),
        "accepted_in_a_row": {"programs": options.leak, "seconds": round(many, 1), "before": before, "after": after},
        "at_once": {"programs": 4 * cores(), "seconds_each": round(at_once / (4 * cores()), 3)},
        "rebuilt_against_python": against_native(task, SOUND, n),
        "sandbox": box.description,
        "load_average": round(os.getloadavg()[0], 1),
        **circumstances(),
    }
    box.close()
    physics.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
