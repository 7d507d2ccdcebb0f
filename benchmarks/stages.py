"""Where the time goes: the stages of a replan of K candidates or of a batch of K trainings in ms, or pictures/s.

Each stage waits for the device, so that its time is its own; `unbroken_ms` is the same without waiting in between.
With --kernels, JAX's profiler then lists what the device does in one more run, and how long it is busy at all.
The last line of stdout is one JSON object.

    python benchmarks/stages.py replan --model ms_human_700_legs --k 8 --samples 128 --kernels
    python benchmarks/stages.py training --model ms_human_700_legs --k 1 --envs 128 --physics warp
    python benchmarks/stages.py film --model full700
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()
environment.prepare_physics("mjx")

import jax  # noqa: E402
import numpy as np  # noqa: E402
from quick import read_options  # noqa: E402
from record import circumstances, longest, write  # noqa: E402
from workload import rewards, starts, workload  # noqa: E402

from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.control.build import build_planner  # noqa: E402
from movlr_jax.control.ppo.build import build_ppo  # noqa: E402
from movlr_jax.control.ppo.training import CurveRecorder  # noqa: E402
from movlr_jax.control.settings import PpoSettings  # noqa: E402
from movlr_jax.errors import UserError  # noqa: E402
from movlr_jax.film.captions import Caption  # noqa: E402
from movlr_jax.film.clips import FULL, Clip, frames  # noqa: E402
from movlr_jax.film.renderer import renderer  # noqa: E402
from movlr_jax.physics.choose import GRAPHS  # noqa: E402

SHOWN = 40  # kernels in the result
Stage = tuple[Any, str, str]  # object, name of its function, name of the stage


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def spent_in(stages: Sequence[Stage], run: Callable[[], Any]) -> dict[str, float]:
    """Run once. Returns the time in each stage, less that of stages inside it, and in none of them, ms."""
    spent, inside = defaultdict[str, float](float), [0.0]  # inside: time of the stages within the present one

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            inside.append(0.0)
            begun = time.perf_counter()
            result = jax.block_until_ready(function(*arguments, **named))
            took = time.perf_counter() - begun
            spent[name] += took - inside.pop()
            inside[-1] += took
            return result

        return call

    kept = [(of, attribute, getattr(of, attribute)) for of, attribute, _ in stages]
    for (of, attribute, function), (*_, name) in zip(kept, stages, strict=True):
        setattr(of, attribute, timed(name, function))
    begun = time.perf_counter()
    try:
        jax.block_until_ready(run())
    finally:
        for of, attribute, function in kept:
            setattr(of, attribute, function)
    spent["the rest"] = time.perf_counter() - begun - inside[0]
    return {name: 1e3 * s for name, s in spent.items()}


def profiled(run: Callable[[], Any]) -> dict[str, Any]:
    """Run once under JAX's profiler. Return what the devices do, and how long they are busy.

    Without a device, these are XLA's operations on the CPU, one inside the other, and `busy_ms` is the time in which
    any of its threads works.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with jax.profiler.trace(folder, profiler_options=options):
            jax.block_until_ready(run())
            took = time.perf_counter() - begun
        file = next(Path(folder).rglob("*.xplane.pb"))
        planes = list(jax.profiler.ProfileData.from_file(str(file)).planes)
    devices = [plane for plane in planes if plane.name.startswith("/device:")]
    lines = [line for plane in devices or planes for line in plane.lines]
    # streams of a device, or threads of XLA; other lines repeat their events
    lines = [line for line in lines if line.name.startswith("Stream" if devices else "tf_XLA")]
    events = [e for line in lines for e in line.events if e.duration_ns and not e.name.startswith("end: ")]
    return {
        "profiled_ms": round(1e3 * took, 1),
        "busy_ms": round(_union([(e.start_ns, e.start_ns + e.duration_ns) for e in events]) / 1e6, 1),
        "kernels": longest(((e.name, e.duration_ns / 1e6) for e in events), 1, SHOWN),
    }


def _union(spans: list[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    length, end = 0.0, -float("inf")
    for first, last in sorted(spans):
        length += max(0.0, last - max(first, end))
        end = max(end, last)
    return length


def medians(stages: Sequence[Stage], run: Callable[[], Any], given: argparse.Namespace) -> dict[str, Any]:
    """Return the median times of each stage and of the whole without waiting in between, after a first run."""
    begun = time.perf_counter()
    jax.block_until_ready(run())
    first, rows, unbroken = time.perf_counter() - begun, list[dict[str, float]](), list[float]()
    for _ in range(given.repeats):
        rows.append(spent_in(stages, run))
        begun = time.perf_counter()
        jax.block_until_ready(run())
        unbroken.append(1e3 * (time.perf_counter() - begun))
    return {
        "first_s": round(first, 1),
        "stages_ms": {name: round(statistics.median(row[name] for row in rows), 2) for name in rows[0]},
        "unbroken_ms": round(statistics.median(unbroken), 1),
        **(profiled(run) if given.kernels else {}),
    }


def replan(given: argparse.Namespace) -> dict[str, Any]:
    """Time a replan and the control steps of the episode until the next one. Raises UserError."""
    config, task = workload(given.model, given.samples)
    p = build_planner(replace(config.optimizer, warp_graph=given.warp_graph), task, given.physics, say)
    start, key, number = starts(p, task, given.k), jax.random.key(0), 0
    controllers = p.optimise(rewards(task, 0, given.k), key)
    home = p.space.held(start)
    plan = p.init(home)

    def once() -> Any:
        nonlocal number
        number += 1
        # another posture each time, so that nothing that belongs to a posture is known already
        moved = start.replace(qpos=np.asarray(start.qpos) + 1e-9 * number)
        again = jax.random.fold_in(key, number)
        new = controllers.replan(plan, moved, start.step, home, again, again)
        params = p.space.params(p.sim_physics, moved, np.asarray(new.mean)[:, None])
        return p.sim_physics.rollout(
            moved, p.sim_policy, params, steps=p.config.replan_every, key=key, candidates=given.k
        ).final

    stages: list[Stage] = [
        (p, "sample", "samples"),
        (p.space, "params", "targets"),
        (p.physics, "rollout", "rollouts"),
        (p, "apart", "arrangement"),
        (p.scorer, "on_device", "scores"),
        (p, "update", "update"),
    ]
    if hasattr(p.space, "_hold"):
        stages += [(p.space, "_hold", "static feed-forward"), (p.space, "_moments", "moment arms")]
    if p.sim_physics is not p.physics:
        stages.append((p.sim_physics, "rollout", "episode"))
    return {
        "samples": given.samples,
        "control_steps": p.horizon,
        "substeps": getattr(p.physics, "substeps"),  # noqa: B009
        **medians(stages, once, given),
        "compile_s": dict(getattr(p.physics, "compile_s", {})),
    }


def training(given: argparse.Namespace) -> dict[str, Any]:
    """Time a batch of K trainings. Raises UserError."""
    task = workload(given.model, 1)[1]
    config = compose(
        ["task=flat_walk", "optimizer=ppo", f"optimizer.ppo.envs={given.envs}", "tuned=false", "films=false"]
    )
    assert isinstance(config.optimizer, PpoSettings)
    ppo = build_ppo(replace(config.optimizer, warp_graph=given.warp_graph), task, given.physics, say)
    programs, key = rewards(task, 0, given.k), jax.random.key(0)
    state = ppo.begin(given.k, key)
    recorder = CurveRecorder(programs, ppo.config.batch, ppo.physics.ctrl_dt)

    def once() -> Any:
        nonlocal state
        state = ppo.step(programs, state, jax.random.fold_in(key, recorder.batches), recorder)
        return state[0]

    stages: list[Stage] = [(ppo, "collect", "collect"), (ppo, "relabel", "relabel"), (ppo, "_update", "update")]
    found, steps = medians(stages, once, given), given.k * ppo.config.batch
    return {
        "envs": given.envs,
        "control_steps": steps,
        "substeps": getattr(ppo.physics, "substeps"),  # noqa: B009
        **found,
        "control_steps_per_s": round(1e3 * steps / found["unbroken_ms"]),
        "compile_s": dict(getattr(ppo.physics, "compile_s", {})),
    }


def film(given: argparse.Namespace) -> dict[str, Any]:
    """Draw the pictures of a film of two seconds. Raises UserError if nothing can be drawn here."""
    task = workload(given.model, 1)[1]
    qpos, times = task.start(np.random.default_rng(0), 1)[0], np.linspace(0.0, 2.0, 51)
    clip = Clip(task, np.repeat(qpos, len(times), axis=0), times, Caption(""))
    taken = list[tuple[float, int]]()
    for _ in range(1 + given.repeats):
        begun = time.perf_counter()
        count = sum(1 for _ in frames(clip, captions=False))
        taken.append((time.perf_counter() - begun, count))
    return {
        "renderer": renderer().name,
        "size": FULL.size,
        "cameras": len(task.view.cameras),
        "pictures_per_s": round(statistics.median(count / s for s, count in taken[1:]), 1),
    }


def captures() -> dict[str, int] | None:
    """Return how many CUDA graphs Warp holds for each of its calls in JAX; None where Warp does not say.

    More than two or three for a call: XLA moves its buffers, and Warp captures the step anew.
    """
    try:
        from warp._src.jax import ffi  # pyright: ignore[reportMissingImports]

        calls = ffi._FFI_CALLABLE_REGISTRY.values()
        return {call.name.rsplit(".", 1)[-1]: len(call.captures) for call in calls if call.captures}
    except (ImportError, AttributeError):
        return None


MEASURES = {"replan": replan, "training": training, "film": film}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", default="replan", choices=MEASURES)
    parser.add_argument("--physics", default="native", choices=("native", "mjx", "warp"))
    parser.add_argument("--model", default="ms_human_700_legs", help="as in scaling.py")
    parser.add_argument("--k", type=int, default=8, help="candidates")
    parser.add_argument("--samples", type=int, default=128, help="plans per candidate of a replan")
    parser.add_argument("--envs", type=int, default=128, help="simulations per candidate of a training")
    parser.add_argument("--warp-graph", default="auto", choices=GRAPHS, help="as optimizer.warp_graph")
    parser.add_argument("--kernels", action="store_true", help="list what the device does in one run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for the JSON")
    given = read_options(parser, model="tiny_muscle", k=2, samples=4, envs=4, repeats=1)
    try:
        found = MEASURES[given.what](given)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    result = {
        "benchmark": "stages",
        "what": given.what,
        **circumstances(),
        "physics": given.physics,
        "model": given.model,
        "warp_graph": given.warp_graph,
        "k": given.k,
        **found,
        "graphs": captures() if given.physics == "warp" else None,
    }
    if given.out:
        graph = "" if given.warp_graph == "auto" else f"_{given.warp_graph}"
        stem = f"stages_{given.what}_{given.physics}_{given.model}{graph}"
        write(given.out / f"{stem}.json", result)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
