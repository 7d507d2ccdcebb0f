"""Whether what a search announces is true: whole searches, and every program that they tried in fresh trials.

For each family and seed one search with its defaults runs, then all its programs run in the same 16 trials that the
search has not seen, and the announced one in 64 more. Rows are kept as soon as they are measured, with the commit; a
second call at this commit goes on.

    nice python benchmarks/search_claims.py [--family hop touch_ball ...] [--seeds 10] [--truth 16] [--more 64]
    python benchmarks/search_claims.py --report     # the table, from all rows so far
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()

import numpy as np  # noqa: E402
from quick import read_options  # noqa: E402
from record import RESULTS, circumstances, commit, write  # noqa: E402

from movlr_jax._util.intervals import rate_interval  # noqa: E402
from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.config.schema import Config  # noqa: E402
from movlr_jax.control.build import acting, build_optimizer, close, scored_at_once, with_samples  # noqa: E402
from movlr_jax.control.settings import PlanningSettings  # noqa: E402
from movlr_jax.engine.search import run_search  # noqa: E402
from movlr_jax.engine.tasks import task_of  # noqa: E402
from movlr_jax.evolution.evaluation import evaluate, make_probe  # noqa: E402
from movlr_jax.evolution.gates import fault, score_of  # noqa: E402
from movlr_jax.evolution.trials import trial_seed  # noqa: E402
from movlr_jax.evolution.worth import TrialScore, trial_values  # noqa: E402
from movlr_jax.records import Trial  # noqa: E402
from movlr_jax.sandbox.vet import Sandbox  # noqa: E402
from movlr_jax.storage.archive import Archive  # noqa: E402
from movlr_jax.tasks import Task  # noqa: E402
from movlr_jax.tasks.words.sentence import achieved  # noqa: E402

OUT = RESULTS / "search_claims.json"
TRUTH, MORE = 1_000_001, 1_000_002  # in place of a generation in the seeds of trials; no search has as many
_PAGE = Path(__file__).parent.parent / "docs" / "write_a_task.md"
_WRITTEN = {
    "An arm that touches a ball": ("arm.xml", "touch_ball.py"),
    "A body that moves": ("hopper.xml", "hop.py"),
}  # by the section of the page

SHORT = [
    "physics=native", "optimizer=mppi", "optimizer.ctrl_dt=0.02", "optimizer.sim_dt=0.005", "optimizer.plan_dt=0.01",
    "optimizer.horizon_s=0.4", "optimizer.knots=4", "optimizer.replan_every=4",
]  # fmt: skip
PLAYGROUND = ("+task=playground", "task.settings.measured_by=task")
FAMILIES: Mapping[str, Sequence[str]] = {
    "hop": ["+task={page}/hop.py"],
    "touch_ball": ["+task={page}/touch_ball.py"],
    "reacher": [*PLAYGROUND, "env=ReacherEasy", *SHORT, "episode_s=2"],
    "walker_walk": [*PLAYGROUND, "env=WalkerWalk", *SHORT, "episode_s=1.6"],
    "cartpole_swingup": [
        *PLAYGROUND, "env=CartpoleSwingup", *SHORT, "episode_s=4", "optimizer.horizon_s=1",
        "optimizer.mppi.samples=64",
    ],
    "ant_walk": ["model={gymnasium}/ant.xml", "instruction=walk", "episode_s=4"],
    "half_cheetah": ["+task=gymnasium", "env=HalfCheetah-v5", "episode_s=2"],
    "swimmer": ["+task=gymnasium", "env=Swimmer-v5", "episode_s=2"],
    "straight_leg": [
        "+task=humanoid_straight_leg", "optimizer=ppo", "optimizer.ppo.init=humanoid_walk",
        "optimizer.ppo.env_steps=98304", "optimizer.ppo.unrolls=2",
    ],
    "bottle_pour": ["+task=bottle_pour", "optimizer.mppi.samples=8"],
    "cube_rotate": ["+task=cube_rotate", "optimizer.mppi.samples=8", "episode_s=1.6"],
}  # fmt: skip


def settings_of(family: str, folder: Path) -> list[str]:
    """Return the settings of a family. The tasks of the documentation are written to `folder`."""
    text, gymnasium = _PAGE.read_text(encoding="utf-8"), ""
    for title, files in _WRITTEN.items():
        section = text.partition(f"## {title}")[2]
        for language, file in zip(("xml", "python"), files, strict=True):
            found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
            assert found, f"no {language} below {title} in {_PAGE}"
            (folder / file).write_text(found[1], encoding="utf-8")
    if family == "ant_walk":
        import gymnasium as package

        gymnasium = str(Path(str(package.__file__)).parent / "envs" / "mujoco" / "assets")
    return [setting.format(page=folder, gymnasium=gymnasium) for setting in FAMILIES[family]]


def searched(config: Config, root: Path) -> dict[str, Any]:
    """Run the search, unless `root` has it. Return what it announced, and its programs."""
    done = (root / "run.db").exists()
    run_search(compose([f"resume={root}"]) if done else config)
    with Archive.open(root, write=False) as archive:
        ranked = sorted((e.generation, e.data["best"]) for e in archive.events("ranked"))
        begun, confirmed = archive.get("run") or {}, archive.get("confirmed") or {}
        timing = [event.data for event in archive.events("timing")]
        trials = sum(len(of) for event in archive.events("trials") for of in event.data["programs"].values())
        programs = {e.data["name"]: e.data["source"] for e in archive.events("evaluated") if not e.data["reason"]}
    return {
        "announced": confirmed["champion"],
        "first": confirmed["first"],
        "improved": confirmed["improved"],
        "p_better": confirmed["p_better"],
        "claims": {
            name: {key: claim.get(key) for key in ("n", "successes", "interval")}
            for name, claim in confirmed["claims"].items()
        },
        "champions": [name for _, name in ranked],
        "samples": begun["settings"].get("optimizer.mppi.samples"),
        "trials": trials,
        "minutes": round(sum(sum(seconds.values()) for seconds in timing) / 60, 2),
        "programs": programs,
    }


def trial(task: Task, e: Trial) -> TrialScore:
    """Return a trial as a search sees it."""
    success = achieved(task.scoring.motion, dict(e.metrics))
    return TrialScore(fault(e)[0], None if success is None else bool(success), score_of(task, e))


def measured(
    config: Config, found: dict[str, Any], truth: int, more: int, given: Task | None = None
) -> dict[str, Any]:
    """Return the fresh trials of all programs of a search, and more of the announced one.

    given: the task, if it is not that of the settings.
    """
    if found["samples"] and isinstance(config.optimizer, PlanningSettings):
        config = Config(**{**vars(config), "optimizer": with_samples(config.optimizer, found["samples"])})
    task = acting(config.optimizer, given or task_of(config))
    optimizer = build_optimizer(config.optimizer, task, config.physics)
    names = list(found["programs"])
    probe = make_probe(task, optimizer.sim_physics, config.seed)
    with contextlib.closing(Sandbox(probe, name="process", batch=scored_at_once(config.optimizer, task))) as sandbox:
        verdicts = {name: sandbox.vet(source) for name, source in found["programs"].items()}
    seeds = [trial_seed(config.seed, TRUTH, n) for n in range(truth)]
    rows = {}
    for name in names:  # one at a time: plans of all programs at once may not fit into memory
        rows[name] = [trial(task, e) for e in evaluate(optimizer, task, [verdicts[name]], seeds)[0]]
    seeds = [trial_seed(config.seed, MORE, n) for n in range(more)]
    name, again = found["announced"], []
    for begin in range(0, more, truth):
        part = evaluate(optimizer, task, [verdicts[name]], seeds[begin : begin + truth])[0]
        again += [trial(task, e) for e in part]
    close(optimizer)
    return {
        "truth": {name: [list(vars(t).values()) for t in row] for name, row in rows.items()},
        "more": [list(vars(t).values()) for t in again],
    }


def judged(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a search was worth: all values are means of the same fresh trials."""
    names, truth = list(row["truth"]), len(next(iter(row["truth"].values())))
    trials = [TrialScore(*values) for name in names for values in row["truth"][name]]
    values = trial_values(trials).reshape(len(names), truth)
    worth = dict(zip(names, values.mean(axis=1), strict=True))
    first, mine = worth[row["first"]], worth[row["announced"]]
    paired = values[names.index(row["announced"])] - values[names.index(row["first"])]
    error = paired.std(ddof=1) / np.sqrt(truth) if truth > 1 else 0.0
    best, claim = max(worth.values()), row["claims"][row["announced"]]
    rate = [t[1] for t in row["more"]]
    covered = None
    if claim["successes"] is not None and rate and rate[0] is not None:
        low, high = rate_interval(claim["successes"], claim["n"])
        covered = bool(low <= np.mean(rate) <= high)
    span = max(best - first, 1e-12)
    return {
        "worse": bool(mine < first - 1e-9),
        "clearly_worse": bool(mine + 2 * error < first),
        "share": 1.0 if best <= first else float((mine - first) / span),
        "of_best": float(mine / best) if best > 0 else None,
        "path": [float((worth[name] - first) / span) for name in row["champions"]],
        "covered": covered,
        "successes": {name: sum(bool(t[1]) for t in row["truth"][name]) for name in names},
    }


def table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per commit and family: how often the announced program is worse, and what a search gains."""
    families = defaultdict[tuple[str, str], list[dict[str, Any]]](list)
    for row in rows:
        families[row["commit"], row["family"]].append({**row, **judged(row)})
    made = []
    for (at, family), of in families.items():
        paths = [row["path"] for row in of]
        longest = max(map(len, paths))
        padded = np.array([path + [path[-1]] * (longest - len(path)) for path in paths])
        known = [row["covered"] for row in of if row["covered"] is not None]
        made.append(
            {
                "commit": at,
                "family": family,
                "searches": len(of),
                "worse": sum(row["worse"] for row in of),
                "clearly_worse": sum(row["clearly_worse"] for row in of),
                "median_of_best": round(float(np.median([row["of_best"] for row in of if row["of_best"]])), 2),
                "median_share": round(float(np.median([row["share"] for row in of])), 2),
                "improved": sum(row["improved"] for row in of),
                "median_path": [round(float(v), 2) for v in np.median(padded, axis=0)],
                "covered": f"{sum(known)} of {len(known)}",
                "first_success": round(
                    float(np.mean([np.mean([bool(t[1]) for t in r["truth"][r["first"]]]) for r in of])), 2
                ),
                "announced_success": round(
                    float(np.mean([np.mean([bool(t[1]) for t in r["truth"][r["announced"]]]) for r in of])), 2
                ),
                "median_trials": float(np.median([row["trials"] for row in of])),
                "median_minutes": round(float(np.median([row["minutes"] for row in of])), 1),
            }
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--begin", type=int, default=0, help="the first seed")
    parser.add_argument("--truth", type=int, default=16)
    parser.add_argument("--more", type=int, default=64)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--settings", nargs="*", default=[], help="further settings of the searches")
    given = read_options(
        parser, family=["touch_ball"], seeds=1, truth=2, more=2,
        settings=["candidates=2", "generations=1", "episode_s=0.4", "optimizer.mppi.samples=4", "confirm=2"],
    )  # fmt: skip
    data = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() and not given.quick else {"rows": []}
    rows, work = data["rows"], Path(os.environ.get("CLAIMS_WORK") or tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    at = commit()  # at the start: the folder may move on meanwhile
    for seed in [] if given.report else range(given.begin, given.begin + given.seeds):
        for family in given.family:
            if any((row["family"], row["seed"], row["commit"]) == (family, seed, at) for row in rows):
                continue
            root = work / f"{family}_{seed}"
            words = [*settings_of(family, work), "films=false", f"seed={seed}", *given.settings]
            config = compose([*words, f"run_dir={root}"])
            found = searched(config, root)
            new = {
                "commit": at,
                "family": family,
                "seed": seed,
                **found,
                **measured(config, found, given.truth, given.more),
            }
            new["programs"] = len(found["programs"])
            rows.append(new)
            shutil.rmtree(root)
            if not given.quick:
                write(OUT, {"benchmark": "search_claims", **circumstances(), "rows": rows})
            said = {key: value for key, value in judged(new).items() if key != "successes"}
            print(family, seed, json.dumps(said), flush=True)
    for line in table(rows):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
