"""`doctor judge RUN_DIR`: the votes of people next to the judge of the run and the metrics."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from movlr_jax.config.compose import compose
from movlr_jax.config.trust import TASK
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.evolution.calibration import (
    JudgedPair,
    Verdicts,
    agreed,
    asked_verdicts,
    judged_pairs,
    recorded_verdicts,
)
from movlr_jax.evolution.scripted.metrics import MetricsJudge
from movlr_jax.report.data import Run, read_run
from movlr_jax.storage.archive import Archive
from movlr_jax.voting.votes import PROVIDER, agreement, votes_of

METRICS = "metrics"


def check_votes(run_dir: Path, console: Console) -> int:
    """Print each pair that people voted on with the verdicts, and who agrees. Return 0. Raises UserError."""
    with Archive.open(run_dir, write=False) as archive:
        votes, run = votes_of(archive.calls()), read_run(archive)
    if not votes:
        raise UserError(f"{run_dir} has no votes of people; give movlr-jax vote {run_dir}, or search with vlm=person")
    judges: dict[str, Verdicts] = {}
    judge = str((run.about.get("backends") or {}).get("judge") or "")
    if judge and not judge.startswith((PROVIDER, METRICS)):  # else the votes, or the column of the metrics
        judges[judge] = recorded_verdicts(g.ranking for g in run.generations if g.ranking)
    try:
        judges[METRICS] = _by_metrics(run, {vote.pair for vote in votes})
    except UserError as error:
        console.print(f"no column for the metrics: {error}", markup=False, soft_wrap=True)
    pairs = judged_pairs(votes, judges)
    _print(pairs, list(judges), console)
    same, both = agreement(votes)
    raters = sorted({vote.rater for vote in votes})
    people = f"; two people agree in {same} of {both} pairs of votes" if both else ""
    console.print(f"{len(votes)} votes of {', '.join(raters)}{people}", markup=False, soft_wrap=True)
    for name in judges:
        right, judged = agreed(pairs, name)
        console.print(
            f"{name} prefers what most people prefer in {right} of {judged} pairs", markup=False, soft_wrap=True
        )
    return 0


def _by_metrics(run: Run, pairs: set[frozenset[str]]) -> Verdicts:
    """Return what the metrics judge prefers. Raises UserError if the task cannot be built."""
    task, judge, known = task_of(compose([f"resume={run.root}"], parts=TASK)), MetricsJudge(), run.candidates
    judged = [pair for pair in pairs if pair <= known.keys()]
    return asked_verdicts(judged, lambda a, b: judge.compare(task, known[a], known[b]).winner)


def _print(pairs: list[JudgedPair], judges: list[str], console: Console) -> None:
    table = Table(title="pairs that people voted on", title_justify="left")
    for heading in ("pair", "votes", "people", *judges):
        table.add_column(heading, overflow="fold")
    for pair in pairs:
        a, b = pair.names
        ties = f", {pair.votes[None]} ties" if pair.votes.get(None) else ""
        cells = [Text(f"{pair.votes.get(a, 0)} to {pair.votes.get(b, 0)}{ties}"), Text(pair.people or "tie")]
        for judge in judges:
            said = pair.verdicts.get(judge, "not asked")
            agrees = said == pair.people
            cells.append(Text(said or "tie", "green" if agrees else "red" if judge in pair.verdicts else "dim"))
        table.add_row(Text(f"{a} {b}"), *cells)
    console.print(table)
