"""Candidates per minute, beside the usual way: ours, one program per candidate, one process per candidate.

A candidate's turn is one episode under a sampling planner: `--plans` plans of `--samples` rollouts, each acted on for
one step of replanning. (a) ours: K candidates in one batch, physics compiled once for `--generations` generations of
new rewards. (b) inline: the same planner and physics with the reward inside the scan, one jitted MJX program per
candidate, one after the other. (c) process: (b), each in a Python of its own, as many at a time as there are cores.
Every way starts cold: nothing is taken from a compilation cache. (b) and (c) do not depend on K: they are measured on
`--inline` and `--process` candidates. The last line of stdout is one JSON object.

    nice python benchmarks/candidate_throughput.py --physics native --model myoarm_r
    nice python benchmarks/candidate_throughput.py --physics mjx --model humanoid
    python benchmarks/candidate_throughput.py --physics warp --model ms_human_700_legs --samples 128
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

os.environ[environment.CACHE_SWITCH] = "off"
environment.prepare_environment()
environment.prepare_physics("mjx")  # the usual way is MJX, whatever ours is

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from quick import read_options  # noqa: E402
from record import circumstances, write  # noqa: E402
from workload import rates, rewards, starts, workload  # noqa: E402

from movlr_jax._util.machine import cores  # noqa: E402
from movlr_jax.control.build import build_planner  # noqa: E402
from movlr_jax.control.mpc.planner import PlannedControllers  # noqa: E402
from movlr_jax.errors import UserError  # noqa: E402
from movlr_jax.rewards.state import State  # noqa: E402
from movlr_jax.types import Array, SimState, Step  # noqa: E402

KS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Inline(PlannedControllers):
    """One candidate the usual way: its reward is summed up inside the scan over physics, in a program of its own."""

    compiled: dict[str, Any] = field(default_factory=dict)

    def costs(
        self, plans: Array, state: SimState, initial: Step, key: jax.Array, owners: np.ndarray | None = None
    ) -> Array:
        p, physics, (program,) = self.planner, self.planner.physics, self.programs
        params = p.space.params(physics, state, plans)
        start, first = p.spread(state, plans.shape[1]), p.spread(initial, plans.shape[1])
        if not self.compiled:
            simulator, layout = physics.simulator(len(start.time)), physics.layout  # pyright: ignore
            goals = {name: jnp.asarray(value, jnp.float32) for name, value in p.scorer.goals.items()}

            def one(start: SimState, first: Step, params: Any) -> jax.Array:
                def advance(state: SimState, _: None) -> tuple[SimState, Any]:
                    action = p.plan_policy(params, state.step, key)
                    state, step = simulator.control_step(state, action)
                    terms = program.reward(State(layout, step, goals, first), action)
                    return state, sum(program.weights[k] * terms[k] for k in terms)

                final, totals = jax.lax.scan(advance, start, length=p.horizon)
                return jnp.where(final.diverged, jnp.inf, -totals.mean())

            self.compiled["costs"] = jax.jit(jax.vmap(one))
        return self.compiled["costs"](start, first, params).reshape(plans.shape[:2])


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    physics: str
    model: str
    samples: int
    plans: int
    horizon_s: float | None


def build(setting: Setting, physics: str) -> tuple[Any, Any]:
    config, task = workload(setting.model, setting.samples, setting.horizon_s)
    return task, build_planner(config.optimizer, task, physics, lambda text: print(text, file=sys.stderr))


def ours(setting: Setting, k: int, generations: int) -> tuple[dict[str, Any], Any, Any]:
    """`generations` of K candidates: seconds of all, and of each generation until its first rollouts are scored.

    Also the task and the planner that they ran with.
    """
    task = workload(setting.model, setting.samples, setting.horizon_s)[1]
    programs = [rewards(task, g, k) for g in range(generations)]  # vetted: what comes before is the same for all
    begun, worked = time.perf_counter(), time.process_time()
    task, planner = build(setting, setting.physics)
    start, key = starts(planner, task, k), jax.random.key(0)
    steps, first_scored, scoring, whole = setting.plans * planner.config.replan_every, [], [], []
    scored = planner.scorer.on_device
    for g in range(generations):
        asked, times = time.perf_counter(), []

        def timed(*given: Any, times: list[float] = times) -> Any:
            called = time.perf_counter()
            result = scored(*given)
            if not times:
                jax.block_until_ready(result)
                times += [time.perf_counter(), called]
            return result

        planner.scorer.on_device = timed  # the same work, with a clock beside it
        planner.optimise(programs[g], key).rollout(start, steps=steps, key=key)
        first_scored.append(times[0] - asked)
        scoring.append(times[0] - times[1])
        whole.append(time.perf_counter() - asked)
    seconds = time.perf_counter() - begun
    planner.scorer.on_device = scored
    physics = planner.physics
    compiled = {what: n for what, n in physics.traces.items() if what.startswith(("rollout", "policy"))}
    result = {
        "k": k,
        "generations": generations,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(time.process_time() - worked, 2),  # what a shared machine does not blur
        "candidates_per_min": round(60 * k * generations / seconds, 2),
        "candidates_per_min_later": round(60 * k * (generations - 1) / sum(whole[1:]), 2)
        if generations > 1
        else None,
        "physics_compile_s": round(sum(getattr(physics, "compile_s", {}).values()), 2),
        "first_scored_s": [round(s, 3) for s in first_scored],
        "of_it_rewards_s": [round(s, 3) for s in scoring],  # tracing, compiling, and what of the rollout it waits for
        "physics_traces": max(compiled.values()),
        "planner_traces": max(planner.traces.values()),
        "reward_traces": planner.scorer.traces // k,  # of one candidate's place: one program per generation
        "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }
    return result, task, planner


def inline(setting: Setting, count: int, first: int = 0) -> dict[str, Any]:
    """`count` candidates the usual way: seconds of each, and what of them is compiling."""
    task, planner = build(setting, "warp" if setting.physics == "warp" else "mjx")
    start, key = starts(planner, task, 1), jax.random.key(0)
    each, worked, compiling = [], [], []
    held = planner.space.held(start)
    plan = planner.init(held)
    planner.space.params(planner.physics, start, jnp.asarray(planner.sample(plan, held, held, jax.random.key(0), 0)))
    for program in rewards(task, 7, first + count)[first:]:
        controllers = Inline(planner, (program,))
        begun, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(controllers.replan(plan, start, start.step, held, key, key).mean)
        once = time.perf_counter()
        jax.block_until_ready(controllers.replan(plan, start, start.step, held, key, key).mean)
        again = time.perf_counter() - once
        steps = (setting.plans - 2) * planner.config.replan_every
        controllers.rollout(start, steps=max(steps, 1), key=key)
        each.append(time.perf_counter() - begun)
        worked.append(time.process_time() - cpu)
        compiling.append(max(0.0, once - begun - again))
    return {"seconds": each, "cpu_seconds": worked, "compile_s": compiling}


def processes(setting: Setting, count: int) -> float:
    """Seconds per candidate when each has a process of its own, as many at a time as there are cores."""
    at_once = min(count, cores())
    begun = time.perf_counter()
    for i in range(0, count, at_once):
        running = [_spawn(setting, i + j) for j in range(min(at_once, count - i))]
        for process in running:
            if process.wait():
                raise UserError("a candidate's process failed; what it said is above")
    return (time.perf_counter() - begun) / count


def _spawn(setting: Setting, number: int) -> subprocess.Popen[bytes]:
    arguments = ["--physics", setting.physics, "--model", setting.model, "--samples", str(setting.samples)]
    arguments += ["--plans", str(setting.plans), "--one", str(number)]
    arguments += ["--horizon-s", str(setting.horizon_s)] if setting.horizon_s else []
    return subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.DEVNULL)


def plot(result: dict[str, Any], path: Path) -> None:
    """Candidates per minute over K."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    ks = [run["k"] for run in result["runs"]]
    axes.plot(ks, [run["candidates_per_min"] for run in result["runs"]], "o-", label="ours, compiling included")
    for name, label in (("inline", "one program per candidate"), ("process", "one process per candidate")):
        if result[f"{name}_candidates_per_min"]:
            axes.axhline(result[f"{name}_candidates_per_min"], ls="--", color="C1" if name == "inline" else "C2",
                         label=label)  # fmt: skip
    title = f"{result['model']}, physics={result['physics']}, {result['generations']} generations"
    axes.set(xscale="log", yscale="log", xlabel="K, candidates per generation", ylabel="candidates per minute")
    axes.set_title(title)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--physics", default="native", choices=("native", "mjx", "warp"))
    parser.add_argument("--model", default="myoarm_r", help="a model's name, humanoid, or an MJCF file")
    parser.add_argument("--k", type=int, nargs="+", default=list(KS))
    parser.add_argument("--generations", type=int, default=3)
    parser.add_argument("--samples", type=int, default=32, help="N, rollouts per plan and candidate")
    parser.add_argument("--plans", type=int, default=10, help="plans per candidate's episode")
    parser.add_argument(
        "--horizon-s", type=float, default=None, help="of a plan, s; the optimiser's own if not given"
    )
    parser.add_argument("--inline", type=int, default=2, help="candidates measured the usual way; 0: none")
    parser.add_argument("--process", type=int, default=2, help="candidates measured as processes; 0: none")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of steps/s")
    parser.add_argument("--out", type=Path, help="folder for the JSON and the plot")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = read_options(
        parser,
        model=str(Path(__file__).with_name("cartpole.xml")),
        k=[2],
        samples=4,
        plans=3,
        horizon_s=0.032,
        inline=1,
        process=0,
        repeats=1,
    )
    setting = Setting(given.physics, given.model, given.samples, given.plans, given.horizon_s)
    try:
        if given.one is not None:
            inline(setting, 1, given.one)
            return 0
        result = measure(setting, given)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    if given.out:
        stem = given.out / f"candidate_throughput_{given.physics}_{Path(given.model).stem}"
        write(stem.with_suffix(".json"), result)
        plot(result, stem.with_suffix(".png"))
    print(json.dumps(result), flush=True)
    return 0


def measure(setting: Setting, given: argparse.Namespace) -> dict[str, Any]:
    runs, main_k = [], 8 if 8 in given.k else given.k[-1]
    shown: dict[str, Any] = {}
    speed, horizon = {}, 0
    for k in given.k:
        run, task, planner = ours(setting, k, given.generations)
        print(json.dumps(run), file=sys.stderr)
        if k == main_k:
            shown, horizon = run, planner.horizon
            speed = rates(planner, task, k * setting.samples, given.repeats)
        runs.append(run)
    one = inline(setting, given.inline) if given.inline else None
    usual = float(np.mean(one["seconds"])) if one else None
    apart = processes(setting, given.process) if given.process else None
    return {
        "benchmark": "candidate_throughput",
        **circumstances(),
        "physics": setting.physics,
        "model": setting.model,
        **shown,
        "samples": setting.samples,
        "plans": setting.plans,
        "horizon_steps": horizon,
        "inline_candidates_per_min": round(60 / usual, 3) if usual else None,
        "inline_candidates_measured": given.inline,
        "inline_compile_s": [round(s, 2) for s in one["compile_s"]] if one else None,
        "inline_seconds": [round(s, 2) for s in one["seconds"]] if one else None,
        "inline_cpu_seconds": [round(s, 2) for s in one["cpu_seconds"]] if one else None,
        "process_candidates_per_min": round(60 / apart, 3) if apart else None,
        "process_candidates_measured": given.process,
        "ratio_inline": round(shown["candidates_per_min"] * usual / 60, 2) if usual else None,
        "ratio_inline_cpu": _ratio(shown, float(np.mean(one["cpu_seconds"]))) if one else None,
        "ratio_process": round(shown["candidates_per_min"] * apart / 60, 2) if apart else None,
        **speed,
        "runs": runs,
    }


def _ratio(run: dict[str, Any], usual_cpu_s: float) -> float:
    """CPU seconds per candidate, the usual way over ours."""
    return round(usual_cpu_s * run["k"] * run["generations"] / run["cpu_seconds"], 2)


if __name__ == "__main__":
    sys.exit(main())
