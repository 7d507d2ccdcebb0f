"""Propose: the programs of a generation, written from the best one so far and its critique."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from movlr_jax._util.parts import worked
from movlr_jax._util.quantities import RETURNS, counted
from movlr_jax.control.settings import PlanningSettings
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.gates import poorest_first, score_of
from movlr_jax.evolution.population import Population
from movlr_jax.evolution.trials import claim_of
from movlr_jax.evolution.vet import start_program, vet_one
from movlr_jax.language.base import AnnotatingProposer, Loss, ProposalRequest
from movlr_jax.records import Critique, Evaluation, Proposal, Trial, candidate_name

_TOLD = 16  # other programs that a request tells of


@dataclass(frozen=True)
class Brief:
    """What a search has found before a generation, and what comes of it."""

    parent: Evaluation | None = None  # whose program is edited
    critique: Critique | None = None  # of the parent
    history: Sequence[Evaluation] = ()  # all candidates

    def next(self, parent: Evaluation, critique: Critique, candidates: Sequence[Evaluation]) -> Brief:
        """Return the brief after a generation with these candidates."""
        return Brief(parent, critique, [*self.history, *candidates])

    def candidate(self, name: str | None) -> Evaluation:
        """Return the candidate of this name."""
        return next(e for e in self.history if e.name == name)


def starts_with_a_program(context: SearchContext) -> bool:
    """Whether the first candidate is a program of the task; otherwise all programs are written."""
    return context.config.method.start != "nothing"


def propose(context: SearchContext, g: int, brief: Brief, population: Population) -> Proposal:
    """Return K programs. Those of generation 0 include the start program of the method."""
    start, optimizer, parent = start_program(context), context.config.optimizer, brief.parent
    given = [start] if g == 0 and starts_with_a_program(context) else []
    looked = [*context.journal.trials(0).get(candidate_name(0, 0), {}).values()] if given else []
    known = population.trials.get(parent.name, ()) if parent else looked
    request = ProposalRequest(
        generation=g,
        task=context.task.replace(initial=start),  # the first edits start from it
        parent=parent,
        critique=brief.critique,
        history=tuple(brief.history),
        seed=context.config.seed,
        vet=lambda source: vet_one(context, source).message,
        losses=losses(context, g, parent, brief, population) if parent else (),
        result=results(context, known),
        trials=poorest_first(context.task, known) if context.scored else (),
        weights=context.weights,
        looks_ahead_s=optimizer.horizon_s if isinstance(optimizer, PlanningSettings) else None,
        control_s=optimizer.ctrl_dt,
    )
    proposer = context.roles.proposer
    asked = partial(proposer.propose, request, context.config.candidates - len(given))
    sources = worked(f"{proposer.name}, writing the programs of generation {g},", proposer, asked, list)
    origin = parent.name if parent else candidate_name(0, 0) if given else None
    notes = proposer.notes if isinstance(proposer, AnnotatingProposer) else ()
    return Proposal(
        sources=[*given, *sources],
        parents=[*(None for _ in given), *(origin for _ in sources)],
        notes=[*("" for _ in given), *notes],
    )


def losses(context: SearchContext, g: int, parent: Evaluation, brief: Brief, population: Population) -> list[Loss]:
    """Return the latest programs before generation g that are not the parent, the last one first, and why each lost.

    The reason is why it failed, its degenerate pattern or what the judge said when it lost a comparison, and what its
    trials came to.
    """
    comparisons, notes = context.journal.comparisons(before=g), context.journal.notes()
    found = []
    for candidate in [e for e in reversed(brief.history) if e.name != parent.name][:_TOLD]:
        lost = [
            f"as the {place} motion it lost against the {other}: {c.reason}"
            for c in comparisons
            for place, other in (("first", "second"), ("second", "first"))
            if getattr(c, place) == candidate.name and c.winner == other
        ]
        why = [*filter(None, [candidate.reason or "", *candidate.faults.values(), *lost])][:1]
        told = results(context, population.trials.get(candidate.name, ()))
        why += [f"it had {told}"] if told else []
        reason = "; ".join(why) or "it is not the best program"
        found.append(Loss(candidate, reason, notes.get(candidate.name, "")))
    return found


def results(context: SearchContext, trials: Sequence[Trial]) -> str:
    """Return what the trials of a program came to, and the poorest and the best; empty where nothing is measured."""
    motion, ran = context.task.scoring.motion, poorest_first(context.task, trials)
    if not context.scored or not ran:
        return ""
    text = f"{counted(len(trials), 'trial')}: {claim_of(motion, trials).text()}"
    if len(ran) > 1 and any(name in ran[0].metrics for name in RETURNS):
        error = statistics.stdev(score_of(context.task, trial) for trial in ran) / math.sqrt(len(ran))
        text += f" (standard error of the return {error:.2g})"
    ends = {"poorest": ran[0], "best": ran[-1]} if len(trials) > 1 else {}
    return "; ".join([text, *(f"the {which}: {claim_of(motion, [one]).text()}" for which, one in ends.items())])
