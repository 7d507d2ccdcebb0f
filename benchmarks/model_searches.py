"""What searches with a language and a vision model found, cost and agreed on, from their run directories.

    python benchmarks/model_searches.py RUN_DIR ... [--starts 8] [--seed 301] [--out benchmarks/results]

Writes model_searches.json, and term_weights.png with the weights of the searches of three or more generations;
searches that are not named stay as they are in the file. Best programs of searches of the same task run in one batch,
from the same fresh starts, with the settings of the first of these searches; --starts 0 leaves that out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()

import numpy as np  # noqa: E402
import record  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from quick import read_options, searched  # noqa: E402

from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.control.build import build_optimizer  # noqa: E402
from movlr_jax.engine.tasks import task_of  # noqa: E402
from movlr_jax.evolution.evaluation import evaluate, make_probe  # noqa: E402
from movlr_jax.evolution.pairwise import meetings  # noqa: E402
from movlr_jax.records import Comparison  # noqa: E402
from movlr_jax.report.data import Run, read_run, weight_shares  # noqa: E402
from movlr_jax.sandbox.vet import Sandbox  # noqa: E402
from movlr_jax.storage.archive import Archive  # noqa: E402
from movlr_jax.tasks import Task  # noqa: E402

SAID = "the judge answered "  # how the record of an overruled comparison begins


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN_DIR")
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=301)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = read_options(parser, starts=1, out=None)
    if arguments.runs:
        read(arguments.runs, range(arguments.seed, arguments.seed + arguments.starts), arguments.out)
    elif arguments.quick:  # one without models
        with tempfile.TemporaryDirectory() as folder:
            read([searched(Path(folder))], range(arguments.seed, arguments.seed + 1), None)
    else:
        parser.error("RUN_DIR or --quick is needed")


def read(runs: Sequence[Path], seeds: range, out: Path | None) -> None:
    """Print a row per run, and add them to the file in `out`."""
    rows, batches = [], {}
    for path in runs:
        config = compose([f"resume={path}"])
        task = task_of(config)
        with Archive.open(path, write=False) as archive:
            run, calls = read_run(archive), archive.calls()
            source = (path / "best.py").read_text(encoding="utf-8")
        row = {
            "name": path.parent.name if path.name == "run" else path.name,
            "task": task.name,
            "words": config.instruction or "",
            "method": config.method.name,
            "models": f"llm={config.llm.name} vlm={config.vlm.name}",
            "candidates": config.candidates,
            "generations": config.generations,
            "seed": config.seed,
            **found(run),
            **cost(calls),
            **judged(run, None if config.instruction else task),
        }
        rows.append(row)
        key = (task.name, config.model, config.instruction, config.episode_s)
        batches.setdefault(key, (config, task, []))[2].append((row, source))
    for config, task, members in batches.values() if seeds else ():
        fresh(config, task, members, seeds)
    if out:
        write(rows, out)
    for row in rows:
        print(json.dumps(row, default=float))


def write(rows: list[dict[str, Any]], out: Path) -> None:
    """Put the rows into model_searches.json, in the place of those with the same names."""
    path = out / "model_searches.json"
    before = json.loads(path.read_text())["searches"] if path.exists() else []
    known = {row["name"]: row for row in (*before, *rows)}
    record.write(path, {**record.circumstances(), "searches": list(known.values())})
    if long := [row for row in known.values() if len(row.get("stages", ())) > 2]:
        draw(long, out / "term_weights.png")


def found(run: Run) -> dict[str, Any]:
    """Return the best candidate, its measures in the search and those of the first."""
    assert run.best
    return {
        "best": run.best.name,
        "best_metrics": dict(run.best.metrics),
        "first_metrics": dict(run.candidates["g00k00"].metrics) if "g00k00" in run.candidates else {},
        "weights": {name: dict(c.weights) for name, c in run.candidates.items()},
        "stages": [
            {"generation": g, "best": c.name, "shares": weight_shares(c.weights)} for g, c in run.stages if c.weights
        ],
        "failed": sum(c.failed for c in run.candidates.values()),
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the share of each term's weight in the best program after each generation, a row of cells per term."""
    figure = Figure(figsize=(4.6 * len(rows), 4.2), layout="constrained")
    for axes, row in zip(figure.subplots(1, len(rows), squeeze=False)[0], rows, strict=True):
        stages = [stage["shares"] for stage in row["stages"]]
        terms = list(dict.fromkeys(term for shares in stages for term in shares))
        cells = np.array([[shares.get(term, np.nan) for shares in stages] for term in terms])
        axes.imshow(cells, cmap="Blues", vmin=0.0, vmax=np.nanmax(cells) * 1.4, aspect="auto")
        for (i, g), share in np.ndenumerate(cells):
            if np.isfinite(share):
                axes.text(g, i, f"{share:.0%}", ha="center", va="center", fontsize=8)
        axes.set_xticks(range(len(stages)), [stage["generation"] + 1 for stage in row["stages"]])
        axes.set_yticks(range(len(terms)), terms)
        axes.set_xlabel("generation")
        axes.set_title(row["name"])
    figure.savefig(path, dpi=150)


def cost(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many calls were made, how many programs were valid at the first try, and seconds per answer."""
    made = Counter(c["purpose"] for c in calls if c["state"] == "answered")
    repaired = {int(c["sample"]) % 1000 for c in calls if c["purpose"] == "repair"}
    seconds = {
        purpose: round(float(np.mean([c["seconds"] for c in calls if c["purpose"] == purpose])), 1)
        for purpose in made
    }
    return {
        "calls": dict(made),
        "programs": made["propose"],
        "repaired": len(repaired),
        "seconds_per_answer": seconds,
        "characters": sum(len(c["answer"] or "") for c in calls),
    }


def judged(run: Run, task: Task | None) -> dict[str, Any]:
    """Return how often the judge changed its mind with the order, was overruled, and agreed with the task score."""
    comparisons = [c for g in run.generations if g.ranking for c in g.ranking.comparisons]
    own = [(c, _own_answer(c)) for c in comparisons]
    decided = [(c.first, c.second, getattr(c, answer)) for c, answer in own if answer in ("first", "second")]
    both = meetings([(first, second) for first, second, _ in decided])
    agreed = []
    for c, answer in own:
        first, second = (run.candidates[getattr(c, place)] for place in ("first", "second"))
        if task is None or answer not in ("first", "second") or first.failed or second.failed:
            continue
        better = task.scoring.score(dict(first.metrics)) - task.scoring.score(dict(second.metrics))
        if abs(better) > 1e-9:
            agreed.append(bool((better > 0) == (answer == "first")))
    return {
        "comparisons": len(comparisons),
        "overruled": sum(bool(c.overruled) for c in comparisons),
        "pairs": len({frozenset((first, second)) for first, second, _ in decided}),
        "flipped": sum(decided[i][2] != decided[j][2] for i, j in both),
        "agrees_with_score": [sum(agreed), len(agreed)],
    }


def _own_answer(comparison: Comparison) -> str:
    """Return what the judge itself answered: first, second, tie or none."""
    said = comparison.overruled
    return said.removeprefix(SAID).split(":")[0] if said.startswith(SAID) else comparison.winner


def fresh(config: Any, task: Task, members: list[tuple[dict[str, Any], str]], seeds: range) -> None:
    """Evaluate the best programs of one task from fresh starts, and add the measures to their rows."""
    optimizer = build_optimizer(config.optimizer, task, config.physics, print)
    sandbox = Sandbox(make_probe(task, optimizer.sim_physics, config.seed))
    try:
        verdicts = [sandbox.vet(source) for _, source in members]
    finally:
        sandbox.close()
    for seed in seeds:
        for (row, _), (result,) in zip(members, evaluate(optimizer, task, verdicts, [seed]), strict=True):
            row.setdefault("fresh", []).append(dict(result.metrics))
            print(seed, row["name"], {k: round(v, 3) for k, v in result.metrics.items()}, flush=True)


if __name__ == "__main__":
    main()
