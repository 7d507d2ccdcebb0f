"""Optimise: control is sought under all programs at once, in trials that are the same for all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.trials import trial_seed
from movlr_jax.records import Trial
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.storage.layout import stage_folder


def optimise(
    context: SearchContext, g: int, entrants: Mapping[str, Verdict], numbers: Sequence[int]
) -> dict[str, list[Trial]]:
    """Return the trials `numbers` of generation g of each entrant, the recorded ones as they are.

    Those that lack one run in one batch, and are recorded with their trajectories. A rejected program gets trials
    with the reason.
    """
    recorded = context.journal.trials(g)
    missing = [n for n in numbers if any(n not in recorded.get(name, {}) for name in entrants)]
    lacking = {
        name: verdict for name, verdict in entrants.items() if any(n not in recorded.get(name, {}) for n in missing)
    }
    if missing:
        context.journal.record_trials(g, simulated(context, g, lacking, missing), missing)
        recorded = context.journal.trials(g)
    return {name: [recorded[name][n] for n in numbers] for name in entrants}


def simulated(
    context: SearchContext, g: int, entrants: Mapping[str, Verdict], numbers: Sequence[int]
) -> dict[str, list[Trial]]:
    """Run the trials `numbers` of generation g of all entrants in one batch."""
    seeds = [trial_seed(context.config.seed, g, n) for n in numbers]
    folder = context.archive.root / stage_folder(g) if context.config.optimizer.trains else None
    workers, started, before = context.workers, time.monotonic(), context.workers.steps_done

    def rate() -> str:
        return f"{(workers.steps_done - before) / (time.monotonic() - started):,.0f} steps/s"

    with context.journal.timed("optimise"), context.reporter.stage("optimise", rate) as tick:
        rows = workers.evaluate(list(entrants.values()), seeds, tick, folder)
    return dict(zip(entrants, rows, strict=True))
