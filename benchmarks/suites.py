"""What a search adds on environments that nobody here made: their own code measures, their reward is the yardstick.

For each environment and seed, searches by several methods run with the same budget of programs. Then the program that
each announced, the first one and the environment's own reward run in the same 16 trials that no search has seen. Rows
are kept as soon as they are measured, and a second call goes on.

    python benchmarks/suites.py --screen     # which environments are tasks, by the rule of `fits`; before any search
    nice python benchmarks/suites.py [--task Hopper-v5 ...] [--method feedback best_of_n] [--seeds 5] [--truth 16]
    python benchmarks/suites.py --report     # the table, from all rows so far

Scores are normalised between random controls (0) and the environment's own reward under the same planner (1), success
rates by that of the hand-written reward. Means over tasks and seeds are interquartile means, with 95 % intervals by a
bootstrap of the seeds within tasks; the probability of improvement is that a search of one method beats one of the
other on a task drawn at random (Agarwal et al., arXiv 2108.13264).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()

import gymnasium  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from quick import read_options  # noqa: E402
from record import RESULTS, circumstances, commit, locked, write  # noqa: E402
from scipy.stats import trim_mean  # noqa: E402
from search_claims import measured, searched  # noqa: E402

from movlr_jax._util.intervals import rate_interval  # noqa: E402
from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.config.schema import Config  # noqa: E402
from movlr_jax.control.episode import episode_of  # noqa: E402
from movlr_jax.engine.parts import sized  # noqa: E402
from movlr_jax.engine.tasks import task_of  # noqa: E402
from movlr_jax.language.clients.replay import write_recording  # noqa: E402
from movlr_jax.physics.native import NativePhysics  # noqa: E402
from movlr_jax.types import Step  # noqa: E402

OUT = RESULTS / "suites.json"
TASKS: Mapping[str, Sequence[str]] = {
    **{
        f"{name}-v5": ["+task=gymnasium", f"env={name}-v5", "episode_s=2"]
        for name in (
            "HalfCheetah", "Ant", "Swimmer", "Pusher", "Hopper", "Walker2d", "Humanoid", "HumanoidStandup", "Reacher",
            "InvertedDoublePendulum",
        )
    },
    **{
        f"myo{name}-v0": ["+task=myosuite", f"env=myo{name}-v0", "episode_s=1.5"]
        for name in (
            "ElbowPose1D6MRandom", "FingerPoseRandom", "FingerReachRandom", "HandPoseFixed", "HandPoseRandom",
            "HandReachFixed", "HandReachRandom", "HandObjHoldFixed", "HandObjHoldRandom", "ArmReachRandom",
            "TorsoPoseFixed",
        )
    },
    **{
        name: ["+task=playground", f"env={name}", "episode_s=2"]
        for name in (
            "CheetahRun", "WalkerRun", "WalkerWalk", "HopperHop", "HopperStand", "HumanoidStand", "HumanoidWalk",
            "FishSwim", "SwimmerSwimmer6", "AcrobotSwingup", "CartpoleSwingup", "PointMass", "PendulumSwingup",
        )
    },
    "bottle_pour": ["+task=bottle_pour"],  # of this package; the hand-written program is the yardstick
}  # fmt: skip
ONCE = ["candidates=12", "generations=1"]
# a language model writes, numbers are the feedback; measured with --settings trials=8 confirm=4
# optimizer.mppi.samples=32, for bottle_pour trials=4 confirm=4 optimizer.mppi.samples=8
MODEL = ["llm=manual"]
METHODS: Mapping[str, Sequence[str]] = {
    "feedback": [],  # 3 generations of 4 programs
    "best_of_n": ONCE,  # by the same writer
    "model_feedback": [*MODEL, "method=eureka_adapted"],  # statistics of the terms of the best program
    "model_critique": MODEL,  # the defaults: a critique of the best, and why the others of its generation lost
    "model_best_of_n": [*MODEL, "method=eureka_adapted", *ONCE],
    "model_edits_of_n": [*MODEL, *ONCE],  # of the first program
}
PAIRS = (  # the first should be better than the second
    ("feedback", "best_of_n"),
    ("model_feedback", "model_best_of_n"),
    ("model_critique", "model_edits_of_n"),
    ("model_critique", "model_best_of_n"),
    # no longer a method: six programs, then six whose writer saw the best three with the course of their trials
    ("model_varied", "model_edits_of_n"),
    ("model_varied", "model_best_of_n"),
    ("model_varied", "model_critique"),
    ("model_varied", "model_feedback"),
    ("model_best_of_n", "best_of_n"),
    ("model_feedback", "feedback"),
)
RECORDED = Path(__file__).parent.parent / "examples" / "recorded" / "suites"
FIRST, SUITE, NO_ACTION = "first program", "environment's reward", "no action"
DRAWS = 2000  # of a bootstrap


def row_of(
    task: str, method: str, seed: int, root: Path, truth: int, further: Sequence[str], known: Mapping[str, Any]
) -> dict[str, Any]:
    """Search, and return the fresh trials of the announced program, of the first one and of the suite's reward.

    known: a row of another method with the same task and seed, whose first program and trials are the same.
    """
    words = [*TASKS[task], *METHODS[method], "films=false", f"seed={seed}", *further]
    config = compose([*words, f"run_dir={root}"])
    found = searched(config, root)
    if "llm=manual" in METHODS[method]:
        write_recording(root, RECORDED / root.name)
    programs, same = {method: found["programs"][found["announced"]]}, known.get("samples") == found["samples"]
    if not same:
        programs[FIRST] = found["programs"][found["first"]]
        task_made = task_of(config)
        own = task_made.rewards.environment or task_made.rewards.human
        programs |= {SUITE: own} if own else {}
    named = measured(config, {**found, "programs": programs, "announced": method}, truth, 0)["truth"]

    def column(of: int, name: str) -> dict[str, Any]:
        values = {program: [trial[of] for trial in trials] for program, trials in named.items()}
        kept = known[name] if same else {}
        return values | {program: kept[program] for program in (FIRST, SUITE) if program in kept}

    return {
        "task": task, "method": method, "seed": seed, "samples": found["samples"], "trials": found["trials"],
        "minutes": found["minutes"], "improved": found["improved"],
        "scores": column(2, "scores"), "successes": column(1, "successes"),
    }  # fmt: skip


def screened(task: str, further: Sequence[str], trials: int) -> dict[str, list[float]]:
    """Return the scores of the first program, the environment's reward and no action, in trials of no search."""
    config = compose([*TASKS[task], "seed=50", *further])
    own = task_of(config)
    config = sized(config, own, 1, lambda _: None)
    programs = {FIRST: own.rewards.initial} | ({SUITE: own.rewards.environment} if own.rewards.environment else {})
    found = {"programs": programs, "announced": FIRST, "samples": None}
    truth = measured(config, found, trials, 0)["truth"]
    scores = {name: [trial[2] for trial in of] for name, of in truth.items()}
    return {**scores, NO_ACTION: played(task, further, trials, 0.0)}


def fits(scores: Mapping[str, Sequence[float]]) -> bool:
    """Return whether an environment says what a search adds.

    Its reward is worth more than the first program and than no action, each with P >= 0.85, and the first program
    closes less than nine tenths of the way from no action to it.
    """
    if SUITE not in scores:
        return False
    best = np.asarray(scores[SUITE])
    for name in (FIRST, NO_ACTION):
        gain = best - np.asarray(scores[name])
        if gain.mean() <= 1.04 * gain.std(ddof=1) / np.sqrt(len(gain)):
            return False
    low = float(np.mean(scores[NO_ACTION]))
    return (float(np.mean(scores[FIRST])) - low) < 0.9 * (float(best.mean()) - low)


def played(task: str, further: Sequence[str], episodes: int, share: float = 1.0) -> list[float]:
    """Return what the environment itself returns for each episode under random actions, times `share`."""
    config = compose([*TASKS[task], *(word for word in further if not word.startswith("llm."))])
    assert config.episode_s
    if config.task.name == "playground":
        return moved(config, episodes, share)
    if config.task.name == "myosuite":
        import myosuite  # noqa: F401  # pyright: ignore[reportMissingImports]
    world, returns = gymnasium.make(config.task.settings["env"]).unwrapped, []
    for seed in range(episodes):
        world.reset(seed=seed)
        world.action_space.seed(seed)
        returns.append(0.0)
        for _ in range(round(config.episode_s / world.dt)):  # pyright: ignore[reportAttributeAccessIssue]
            _, reward, ended, _, _ = world.step(share * world.action_space.sample())
            returns[-1] += float(reward)
            if ended:
                break
    return returns


def moved(config: Config, episodes: int, share: float) -> list[float]:
    """Return what an environment of Playground returns for episodes in our physics under random controls."""
    assert config.episode_s
    task, times, rng = task_of(config), config.optimizer, np.random.default_rng(0)
    low, high = share * task.model.actuator_ctrlrange.T
    steps = round(config.episode_s / times.ctrl_dt)
    physics = NativePhysics(task.model, task.layout, sim_dt=times.sim_dt, ctrl_dt=times.ctrl_dt)
    returns = []
    for seed in range(episodes):
        begun = physics.start(*task.start(np.random.default_rng(seed), 1))
        controls = rng.uniform(low, high, (1, steps, task.model.nu)).astype(np.float32)
        params = controls, np.full(1, times.ctrl_dt, np.float32)
        found = physics.rollout(begun, following, params, steps=steps, key=jax.random.key(0))
        returns.append(task.scoring.score(task.scoring.measure(episode_of(found, 0, steps), task)))
    physics.close()
    return returns


def following(params: tuple[jax.Array, jax.Array], view: Step, key: jax.Array) -> jax.Array:
    """Return the control [nu] of the present control step, of those of all steps [T, nu] and their length."""
    controls, ctrl_dt = params
    return controls[jnp.round(view.time / ctrl_dt).astype(int)]


def normalised(rows: Sequence[Mapping[str, Any]], random: Mapping[str, float]) -> dict[str, dict[str, list[float]]]:
    """Return the mean normalised score of each search, or its success rate, by method and task."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if SUITE not in row["scores"]:
            continue
        known = of_environment(row["task"])
        values, low = (row["scores"], random[row["task"]]) if known else (row["successes"], 0.0)
        high = float(np.mean(values[SUITE]))
        for name in (row["method"], FIRST):
            value = (float(np.mean(values[name])) - low) / max(abs(high - low), 1e-9)
            found.setdefault(name, {}).setdefault(row["task"], []).append(value)
    return found


def with_interval(groups: Sequence[Sequence[float]], of: Callable[[list[np.ndarray]], float]) -> list[float]:
    """Return `of` the groups, and its 95 % interval when their values are drawn again."""
    rng, arrays = np.random.default_rng(0), [np.asarray(group) for group in groups]
    again = [of([rng.choice(values, len(values)) for values in arrays]) for _ in range(DRAWS)]
    return [round(float(v), 3) for v in (of(arrays), *np.quantile(again, [0.025, 0.975]))]


def interquartile_mean(groups: Sequence[np.ndarray]) -> float:
    """Return the mean of the middle half of all values."""
    return float(trim_mean(np.concatenate(groups), 0.25))


def improvement(groups: Sequence[np.ndarray]) -> float:
    """Return the probability of improvement: groups are those of one method by task, then those of the other."""
    half = len(groups) // 2
    wins = [np.sign(x[:, None] - y[None]) for x, y in zip(groups[:half], groups[half:], strict=True)]
    return float(np.mean([(1 + w).mean() / 2 for w in wins]))


def of_environment(task: str) -> bool:
    """Whether a task is an environment, whose return is the score; the others are scored by their successes."""
    return any(word.startswith("env=") for word in TASKS[task])


def gains(rows: Sequence[Mapping[str, Any]], one: str, other: str) -> list[float]:
    """Return how much more the program of one method is worth in the same fresh trials, by task and seed."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        values = row["scores" if of_environment(row["task"]) else "successes"][row["method"]]
        found.setdefault((row["task"], row["seed"]), {})[row["method"]] = float(np.mean(values))
    return [of[one] - of[other] for of in found.values() if one in of and other in of]


def table(rows: Sequence[Mapping[str, Any]], random: Mapping[str, float]) -> dict[str, Any]:
    """Return interquartile means, probability of improvement, and how many tasks reach the suite's reward."""
    scores = normalised(rows, random)
    made: dict[str, Any] = {"tasks": {}, "interquartile_mean": {}}
    for name, tasks in scores.items():
        made["interquartile_mean"][name] = with_interval(list(tasks.values()), interquartile_mean)
        reached = [float(np.mean(values)) >= 1 for values in tasks.values()]
        made.setdefault("at_least_the_suites_reward", {})[name] = [sum(reached), len(reached)]
        for task, values in tasks.items():
            made["tasks"].setdefault(task, {})[name] = [round(float(np.mean(values)), 2), len(values)]
    for one, other in PAIRS:
        both = [task for task in scores.get(one, {}) if task in scores.get(other, {})]
        if both:
            groups = [scores[name][task] for name in (one, other) for task in both]
            made.setdefault("improvement", {})[f"{one} over {other}"] = with_interval(groups, improvement)
            wins = [gain > 0 for gain in gains(rows, one, other)]
            won = [sum(wins), len(wins), *rate_interval(sum(wins), len(wins))]
            made.setdefault("pairs", {})[f"{one} over {other}"] = won
    for task in {row["task"]: None for row in rows}:
        for name in (*METHODS, FIRST, SUITE):
            of = [s for row in rows if row["task"] == task for s in row["successes"].get(name, ()) if s is not None]
            if of:
                low, high = rate_interval(sum(of), len(of))
                made["tasks"].setdefault(task, {})[f"{name}, successes"] = [sum(of), len(of), low, high]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--method", nargs="+", choices=METHODS, default=["feedback", "best_of_n"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--begin", type=int, default=100, help="the first seed; the proposer was changed on others")
    parser.add_argument("--truth", type=int, default=16)
    parser.add_argument("--screen", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--settings", nargs="*", default=[], help="further settings of the searches")
    given = read_options(
        parser, task=["Pusher-v5"], seeds=1, truth=2,
        settings=["episode_s=0.2", "optimizer.mppi.samples=4", "trials=1", "confirm=1"],
    )  # fmt: skip
    work = Path(os.environ.get("CLAIMS_WORK") or tempfile.mkdtemp())
    at = commit()  # at the start: the folder may move on meanwhile
    data: dict[str, Any] = {"random": {}, "screen": {}, "rows": []}
    if not given.quick:
        data = kept()
    for task in given.task if given.screen else []:
        if task not in data["screen"]:
            data = kept(screen={task: screened(task, given.settings, 8)})
        means = {name: round(float(np.mean(of)), 1) for name, of in data["screen"][task].items()}
        print(task, json.dumps(means), "fits" if fits(data["screen"][task]) else "does not fit", flush=True)
    for seed in [] if given.report or given.screen else range(given.begin, given.begin + given.seeds):
        for task, method in itertools.product(given.task, given.method):
            if any((row["task"], row["method"], row["seed"]) == (task, method, seed) for row in data["rows"]):
                continue
            root = work / f"{task}_{method}_{seed}"
            known = next((row for row in data["rows"] if (row["task"], row["seed"]) == (task, seed)), {})
            row = {**row_of(task, method, seed, root, given.truth, given.settings, known), "commit": at}
            by_return = of_environment(task)
            random = {task: float(np.mean(played(task, given.settings, given.truth)))} if by_return else {}
            data = {"random": random, "rows": [row]} if given.quick else kept(random=random, rows=[row])
            shutil.rmtree(root)
            means = {name: round(float(np.mean(of)), 1) for name, of in row["scores"].items()}
            print(task, method, seed, json.dumps(means), flush=True)
    print(json.dumps(table(data["rows"], data["random"])))


def kept(**more: Any) -> dict[str, Any]:
    """Add to the file of results, which several of these processes may write, and return all of it."""
    with locked("movlr_suites"):
        data = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
        data = {name: data.get(name, empty) for name, empty in (("random", {}), ("screen", {}), ("rows", []))}
        for name, new in more.items():
            data[name] = data[name] + new if isinstance(new, list) else {**new, **data[name]}
        if more:
            write(OUT, {"benchmark": "suites", **circumstances(), **data})
    return data


if __name__ == "__main__":
    main()
