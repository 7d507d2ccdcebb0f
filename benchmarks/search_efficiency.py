"""What a search gains from the rollouts and comparisons so far: search=plain against the parts of search=bank.

All searches of a task have the same simulated seconds and the same limit of comparisons. The proposer is scripted;
the judge reads the metrics of the task, and gives a share of wrong answers. The best program after each generation is
evaluated on start states and noise that no search has seen. Seeds are paired: a search with a part has the seed of
the plain one. Results are kept after every seed, and a second call continues.

    nice python benchmarks/search_efficiency.py --task touch_ball --seeds 20 [--wrong 0.2] [--arms plain screen all]
    python benchmarks/search_efficiency.py --report     # the table and the figure, from all results so far
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from quick import read_options
from record import RESULTS, circumstances
from rich.console import Console

from movlr_jax.commands.session import build_context, task_of, to_yaml
from movlr_jax.config.compose import compose
from movlr_jax.config.schema import Config
from movlr_jax.control.base import Optimizer
from movlr_jax.control.build import build_optimizer, trains
from movlr_jax.errors import ProgramError
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.evaluation import evaluate, make_probe
from movlr_jax.evolution.gates import score_of
from movlr_jax.evolution.loop import evolve
from movlr_jax.language.base import Evaluation, Judge, Preference
from movlr_jax.language.judges.metrics import MetricsJudge
from movlr_jax.language.proposers.terms import library
from movlr_jax.progress import Reporter
from movlr_jax.rewards.program import RewardProgram, Scorer
from movlr_jax.sandbox.genome import Genome, genome_of
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.sandbox.vet import Sandbox, Verdict
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import Task

HELD_OUT = (90_001, 90_002)  # seeds of start states and noise that no search uses
STARTS = 16  # for the final score under a planner
ARM_STARTS = 4  # an arm costs ten times as much
_PAGE = Path(__file__).parent.parent / "docs" / "write_a_task.md"

# Every arm simulates four rows per generation: four programs, or two with a variant of their weights each.
BANK = ["search=bank", "proposals=4"]
ARMS: Mapping[str, Sequence[str]] = {
    "plain": [],
    "pooled": BANK,
    "screen": ["search=bank"],
    "parents": [*BANK, "parents=sampled", "islands=2"],
    "random weights": ["candidates=2", "inner_weights=1"],
    "fitted weights": [
        "search=bank",
        "proposals=2",
        "variants=comparisons",
        "candidates=2",
        "inner_weights=1",
    ],
    "all": ["search=bank", "parents=sampled", "islands=2"],
    "two starts": ["candidates=2", "starts=2"],
    "screen, two starts": ["search=bank", "candidates=2", "starts=2"],
}
SHORT = [
    "candidates=4", "generations=4", "films=false", "comparisons=16", "physics=native", "optimizer=mppi",
    "optimizer.ctrl_dt=0.02", "optimizer.sim_dt=0.005", "optimizer.plan_dt=0.01", "optimizer.horizon_s=0.4",
    "optimizer.knots=4", "optimizer.mppi.samples=12", "optimizer.replan_every=4",
]  # fmt: skip
SETTLE = ["optimizer.mppi.adapt=0.3", "optimizer.mppi.sigma_min=0.01"]  # for a limb that comes to rest
ARM = [
    "candidates=4", "generations=3", "films=false", "comparisons=16", "physics=native", "optimizer.mppi.samples=8",
    "episode_s=1.6",
]  # fmt: skip
ARM_TASKS = ("bottle_pour", "cube_rotate")
TRAINED = [
    "candidates=4", "generations=3", "films=false", "comparisons=16", "optimizer=ppo",
    "optimizer.ppo.env_steps=98304", "optimizer.ppo.unrolls=2",
]  # fmt: skip
TASKS: Mapping[str, Sequence[str]] = {
    "touch_ball": [*SHORT, *SETTLE, "episode_s=2"],
    "reacher": ["+task=playground", "env=ReacherEasy", *SHORT, *SETTLE, "episode_s=2"],
    "cartpole_swingup": [
        "+task=playground",
        "env=CartpoleSwingup",
        *SHORT,
        *SETTLE,
        "episode_s=4",
        "optimizer.horizon_s=0.8",
    ],
    "walker_walk": ["+task=playground", "env=WalkerWalk", *SHORT, "episode_s=1.6"],
    **{name: [f"+task={name}", *ARM] for name in ARM_TASKS},
    "straight_leg": ["+task=humanoid_straight_leg", "optimizer.ppo.init=humanoid_walk", *TRAINED],
    "flat_walk": ["+task=flat_walk", "model=ms_human_700_legs", *TRAINED],
}


@dataclass(frozen=True)
class WrongJudge:
    """The metrics judge, which gives the opposite of a share of its answers; always the same ones."""

    wrong: float
    seed: int
    name: str = "metrics judge with wrong answers (no vision model)"

    def compare(self, task: Task, a: Evaluation, b: Evaluation) -> Preference:
        answer = MetricsJudge().compare(task, a, b)
        key = [self.seed, a.generation, a.candidate, b.generation, b.candidate]
        if np.random.default_rng(key).random() >= self.wrong or answer.winner not in ("first", "second"):
            return answer
        return replace(answer, winner="second" if answer.winner == "first" else "first")


class SharedScorer(Scorer):
    """Scores every scripted program as one program with all terms of the library, so that nothing compiles again.

    The totals are those of the programs: absent terms have weight 0. It only makes this benchmark quicker.
    """

    def __init__(self, task: Task):
        super().__init__(task.layout, task.data)
        texts = [term.expression for term in library(task).values()]
        texts += [text for _, text in genome_of(task.initial_reward).terms.values()]
        self._texts = sorted({_plain(text) for text in texts})
        genome = Genome({f"t{i}": (1.0, text) for i, text in enumerate(self._texts)})
        self._all = load(parse(genome.source()))

    def _shared(self, program: RewardProgram) -> tuple[RewardProgram, list[int]] | None:
        """Return the program over all terms, and where its own are; None if it has a term of its own."""
        texts = _texts(program.source)
        if not set(texts.values()) <= set(self._texts):
            return None
        weights = dict.fromkeys(self._all.terms, 0.0)
        places = [self._texts.index(texts[name]) for name in program.terms]
        for name, place in zip(program.terms, places, strict=True):
            weights[f"t{place}"] += program.weights[name]
        return replace(self._all, weights=weights), places

    def prepare(self, programs: Sequence[RewardProgram]) -> None:
        pass

    def close(self) -> None:
        """Stay open: all searches of a task use it."""

    def on_device(self, programs: Sequence[RewardProgram], each: Any) -> Any:
        shared = [self._shared(program) for program in programs]
        used = [s[0] if s else program for s, program in zip(shared, programs, strict=True)]
        totals, terms, counts = super().on_device(used, each)
        for k, found in enumerate(shared):
            if found:
                terms[k], counts[k] = (x[k][np.array(found[1])] for x in (terms, counts))
        return totals, terms, counts


@cache
def _texts(source: str) -> dict[str, str]:
    """Return the expression of each term of a program without other statements; empty texts for another program."""
    genome = genome_of(source)
    alone = not genome.preamble and not genome.helpers
    return {name: _plain(text) if alone else "" for name, (_, text) in genome.terms.items()}


def _plain(text: str) -> str:
    """Return an expression as Python writes it, so that equal ones have the same text."""
    return ast.unparse(ast.parse(text, mode="eval"))


class Trusting(Sandbox):
    """Loads programs in this process: those of the scripted proposer need no confinement."""

    def vet(self, source: str) -> Verdict:
        try:
            return Verdict("probe", None, 0.0, load(parse(source)))
        except ProgramError as error:
            return Verdict("parse", str(error), 0.0)


def settings_of(name: str, folder: Path) -> list[str]:
    """Return the settings of a task; the files of the task of the documentation are written to `folder`."""
    if name != "touch_ball":
        return list(TASKS[name])
    section = _PAGE.read_text(encoding="utf-8").partition("## An arm that touches a ball")[2]
    for language, file in (("xml", "arm.xml"), ("python", "touch_ball.py")):
        found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
        assert found
        (folder / file).write_text(found[1], encoding="utf-8")
    return [f"+task={folder / 'touch_ball.py'}", *TASKS[name]]


@contextlib.contextmanager
def context_of(
    config: Config, task: Task, optimizer: Optimizer, judge: Judge
) -> Iterator[tuple[SearchContext, Archive]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        open("/dev/null", "w") as nothing,
        Archive.create(Path(folder) / "run", to_yaml(config)) as archive,
    ):
        context = build_context(config, task, optimizer, archive, Reporter(Console(file=nothing)))
        if context.reuse:
            context.reuse = replace(context.reuse, scorer=optimizer.scorer)
        context.judge, context.sandbox = judge, Trusting(make_probe(task, optimizer.sim_physics, config.seed))
        try:
            yield context, archive
        finally:
            context.close()


def searched(config: Config, task: Task, optimizer: Optimizer, wrong: float) -> dict[str, Any]:
    """Run one search. Return the best program after each generation, its simulated seconds, and its own time."""
    judge = WrongJudge(wrong, config.seed) if wrong else MetricsJudge()
    began, steps = time.monotonic(), optimizer.steps_done
    with context_of(config, task, optimizer, judge) as (context, archive):
        evolve(context)
        sources = {
            f"g{e.generation:02d}k{e.candidate:02d}": e.data["source"] for e in archive.events("evaluated")
        }
        rankings = [e.data for e in archive.events("ranked")]
        timing = [e.data for e in archive.events("timing")]
    return {
        "best": [sources[r["best"]] for r in rankings],
        "comparisons": sum(len(r["comparisons"]) for r in rankings),
        "steps": optimizer.steps_done - steps,
        "seconds": {stage: round(sum(t.get(stage, 0.0) for t in timing), 3) for stage in timing[0]},
        "wall_s": round(time.monotonic() - began, 2),
    }


def held_out(sources: Sequence[str], config: Config, task: Task, optimizer: Optimizer) -> dict[str, float]:
    """Return the mean score of each program over start states and noise that no search has seen.

    A planner runs each program from 16 start states, on an arm from 4. An optimizer that trains does so twice per
    program and evaluates each policy from two start states.
    """
    unique, k = list(dict.fromkeys(sources)), config.candidates
    scores: dict[str, list[float]] = {source: [] for source in unique}
    planned = ARM_STARTS if task.name in ARM_TASKS else STARTS
    seeds, starts = (HELD_OUT, 2) if trains(config.optimizer) else (HELD_OUT[:1], planned)
    with context_of(config, task, optimizer, MetricsJudge()) as (context, _):
        verdicts = dict(zip(unique, context.sandbox.vet_all(unique), strict=True))
        for begin in range(0, len(unique), k):
            batch = (unique[begin : begin + k] * k)[
                :k
            ]  # as many rows as in the search: nothing compiles again
            for seed in seeds:
                rows = evaluate(optimizer, task, [verdicts[s] for s in batch], seed, starts=starts)
                for source, row in dict(zip(batch, rows, strict=True)).items():
                    found = row.starts or [score_of(task, row)]
                    scores[source] += [-np.inf if score is None else score for score in found]
    return {source: float(np.mean(values)) for source, values in scores.items()}


def run(name: str, arms: Sequence[str], seeds: int, wrong: float, quick: bool, out: Path) -> Path:
    """Run the searches of a task that are not in its file yet. Return the file."""
    path = out / "search_efficiency" / f"{name}_{round(100 * wrong)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {"task": name, "wrong": wrong, "runs": {}}
    with tempfile.TemporaryDirectory() as folder:
        given = settings_of(name, Path(folder))
        given += ["generations=2", "episode_s=0.2"] if quick else []
        plain = compose(given)
        task = task_of(plain)
        optimizer = build_optimizer(plain.optimizer, task, plain.physics)
        optimizer.scorer = SharedScorer(task)
        for seed in range(seeds):
            runs = kept["runs"].setdefault(str(seed), {})
            for arm in [a for a in arms if a not in runs]:
                config = compose([*given, *ARMS[arm], f"seed={seed}"])
                runs[arm] = searched(config, task, optimizer, wrong)
                print(f"{name} wrong {wrong:g} seed {seed} {arm}: {runs[arm]['wall_s']} s", flush=True)
            new = [r for r in runs.values() if "scores" not in r]
            scores = held_out([s for r in new for s in r["best"]], plain, task, optimizer)
            for r in new:
                r["scores"] = [round(scores[s], 4) for s in r.pop("best")]
            kept |= {"settings": given[1:], **circumstances()}
            path.write_text(json.dumps(kept) + "\n")
    return path


def summary(runs: Mapping[str, Mapping[str, Any]], arm: str, draws: int = 10_000) -> dict[str, Any]:
    """Compare the final held-out scores of an arm with those of plain, paired by seed."""
    pairs = [(r["plain"], r[arm]) for r in runs.values() if arm in r and "plain" in r and "scores" in r[arm]]
    final = np.array([(p["scores"][-1], a["scores"][-1]) for p, a in pairs])
    gain = final[:, 1] - final[:, 0]
    picked = np.random.default_rng(0).integers(0, len(gain), (draws, len(gain)))
    low, high = np.quantile(np.median(gain[picked], axis=1), [0.025, 0.975])
    # generations until the score that plain ends with, as a share of plain's; none: it never gets there
    needed = [
        next((g + 1 for g, s in enumerate(a["scores"]) if s >= p["scores"][-1]), np.inf) / len(p["scores"])
        for p, a in pairs
    ]
    seconds = [a["seconds"] for _, a in pairs]
    share = sum(s.get("screen", 0.0) for s in seconds) / max(sum(sum(s.values()) for s in seconds), 1e-9)
    return {
        "arm": arm,
        "seeds": len(pairs),
        "plain_median": round(float(np.median(final[:, 0])), 3),
        "median": round(float(np.median(final[:, 1])), 3),
        "median_gain": round(float(np.median(gain)), 3),
        "interval": [round(float(low), 3), round(float(high), 3)],
        "better": round(float(((gain > 1e-9) + 0.5 * (abs(gain) <= 1e-9)).mean()), 3),
        "share_of_plain_seconds": round(float(np.median(needed)), 2)
        if np.isfinite(np.median(needed))
        else None,
        "comparisons": round(float(np.mean([a["comparisons"] for _, a in pairs])), 1),
        "steps_ratio": round(float(np.mean([a["steps"] / p["steps"] for p, a in pairs])), 3),
        "screen_share": round(share, 4),
    }


def report() -> None:
    """Write the summary of all results, and a figure of the best score so far over simulated generations."""
    files = sorted((RESULTS / "search_efficiency").glob("*_*.json"))
    found = [json.loads(path.read_text()) for path in files]
    table, lines = [], {}
    across, down = 4, -(-len(found) // 4)
    figure = Figure(figsize=(3 * across, 2.8 * down + 0.6), layout="constrained")
    for i, data in enumerate(found):
        runs = {seed: r for seed, r in data["runs"].items() if all("scores" in x for x in r.values())}
        axes = figure.add_subplot(down, across, i + 1)
        axes.set_title(
            f"{data['task'].replace('_', ' ')}, {100 * data['wrong']:.0f} % wrong answers", fontsize=9
        )
        arms = [arm for arm in ARMS if any(arm in r for r in runs.values())]
        for arm in arms:
            scores = np.array([r[arm]["scores"] for r in runs.values() if arm in r])
            (lines[arm],) = axes.plot(
                np.arange(scores.shape[1]) + 1, np.median(scores, axis=0), marker=".", label=arm,
                color="black" if arm == "plain" else f"C{list(ARMS).index(arm)}",
                lw=2 if arm in ("plain", "all") else 1,
            )  # fmt: skip
        axes.set_xlabel("generations (equal simulated seconds)", fontsize=8)
        if i % across == 0:
            axes.set_ylabel("median held-out score", fontsize=8)
        axes.tick_params(labelsize=7)
        table += [
            {"task": data["task"], "wrong": data["wrong"], **summary(runs, arm)}
            for arm in arms
            if arm != "plain"
        ]
    figure.legend(handles=list(lines.values()), loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(RESULTS / "search_efficiency.png", dpi=130)
    about = {"benchmark": "search_efficiency", "held_out": HELD_OUT, "summary": table, "runs": found}
    (RESULTS / "search_efficiency.json").write_text(json.dumps(about) + "\n")
    for row in table:
        print(json.dumps(row))


def main() -> None:
    parser = argparse.ArgumentParser(description="search=plain against the parts of search=bank")
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--wrong", type=float, default=0.0)
    parser.add_argument("--report", action="store_true")
    given = read_options(parser, task="touch_ball", seeds=1, arms=["plain", "all"])
    if given.quick:
        with tempfile.TemporaryDirectory() as folder:
            run(given.task, given.arms, given.seeds, given.wrong, True, Path(folder))
    elif given.task:
        run(given.task, given.arms, given.seeds, given.wrong, False, RESULTS)
    if given.report:
        report()


if __name__ == "__main__":
    main()
