"""The stages of search=bank: what the rollouts and comparisons so far say about programs without physics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from movlr_jax.evolution.bank import Bank, bank_of, read_bank
from movlr_jax.evolution.context import Reuse, SearchContext, once, timed
from movlr_jax.evolution.gates import fault
from movlr_jax.evolution.parents import drawn_parents
from movlr_jax.evolution.pooling import program_values, term_values
from movlr_jax.evolution.preferences import FittedWeights, Pairs, agreeing, fit_weights
from movlr_jax.evolution.screening import OTHER, expected_worth, represent, screen
from movlr_jax.language.base import Evaluation, ProposalRequest, Screened
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import candidate_name

_CROSSED = 0.3  # probability that a program is crossed with one of another kind


def pairs_of(archive: Archive, bank: Bank, before: int | None = None) -> Pairs:
    """Return the comparisons of the generations before `before`, or of all, as indices of motions of the bank."""
    at = {name: i for i, name in enumerate(bank.names)}
    share = {"first": 1.0, "second": 0.0, "tie": 0.5}
    found = [
        (at[c["first"]], at[c["second"]], share[c["winner"]])
        for event in archive.events("ranked")
        if before is None or event.generation < before
        for c in event.data["comparisons"]
        if c["winner"] in share and c["first"] in at and c["second"] in at
    ]
    first, second, shares = zip(*found, strict=True) if found else ((), (), ())
    return Pairs(np.array(first, int), np.array(second, int), np.array(shares, float))


def ranked_before(archive: Archive, g: int) -> tuple[list[str], np.ndarray]:
    """Return the sources of the programs in the ranking of the generation before g, and their strengths."""
    ranking = archive.get("ranked", g - 1) or {}
    sources = {e.data["name"]: e.data["source"] for e in archive.events("evaluated")}
    found = [
        (sources[name], strength)
        for name, strength in zip(ranking.get("names", []), ranking.get("strengths", []), strict=True)
        if strength is not None
    ]
    return [source for source, _ in found], np.array([strength for _, strength in found])


def screened(
    context: SearchContext, reuse: Reuse, g: int, proposed: dict[str, Any], given: int
) -> dict[str, Any]:
    """Return the K proposals to simulate, and the others under `screened`, each with the reason.

    The first `given` are always simulated. A program that cannot be scored is among the K only if too few can be: it
    is then vetted like any other, and counts as a failed candidate.
    """
    sources, notes, k = proposed["sources"], proposed["notes"], context.config.candidates
    with timed(context, "screen"), context.reporter.stage("screen"):
        bank = read_bank(context.archive, context.task.layout, g)
        pairs, unknown = pairs_of(context.archive, bank, g), not len(bank)
        bank = bank_of(reuse.probe) if unknown else bank
        simulated, strengths = ranked_before(context.archive, g)
        scored = program_values(context, reuse, bank, [*simulated, *sources])
        before, found = scored[: len(simulated)], scored[len(simulated) :]
        reasons = {i: reason for i, reason in enumerate(found) if isinstance(reason, str)}
        values = {i: v for i, v in enumerate(found) if not isinstance(v, str)}
        at = list(values)
        kept = [n for n, i in enumerate(at) if i < given]
        k = max(k - (given - len(kept)), 1)  # the first are simulated even if they cannot be scored
        rewards = np.array(list(values.values())).reshape(len(at), len(bank.owner))
        known = [i for i, v in enumerate(before) if not isinstance(v, str)]
        worth = (
            expected_worth(rewards, np.array([before[i] for i in known]), strengths[known]) if known else None
        )
        choice = (
            represent(rewards, k, kept)
            if unknown
            else screen(rewards, bank.returns(rewards), k, pairs, bank.graves, worth, kept)
        )
    order = dict.fromkeys([*range(given), *(at[n] for n in choice.chosen), *reasons, *at])
    chosen = list(order)[: context.config.candidates]
    for n, reason in enumerate(choice.reasons):
        other = at[choice.beside[n]] if n in choice.beside else at[n]
        name = candidate_name(g, chosen.index(other)) if other in chosen else "another one"
        reasons[at[n]] = reason.replace(OTHER, name)
    return {
        **{name: [proposed[name][i] for i in chosen] for name in ("sources", "parents")},
        "notes": [notes[i] for i in chosen] if len(notes) == len(sources) else [],
        "chosen": [reasons[i] for i in chosen],
        "screened": [
            {"source": source, "reason": reasons[i]} for i, source in enumerate(sources) if i not in chosen
        ],
    }


def pooled(
    context: SearchContext, reuse: Reuse, g: int, motions: Sequence[Evaluation], ranking: dict[str, Any]
) -> dict[str, Any]:
    """Return the ranking of `motions` with the expected worth of each, and the program of the most as the best.

    One film shows one start and one draw of noise. So a program is judged by the motions of all programs that reward
    almost the same, not by its own alone. A motion with a fault is the best only if all have faults as grave.
    """
    with timed(context, "screen"):
        bank = read_bank(context.archive, context.task.layout, g + 1)
        values = program_values(context, reuse, bank, [e.source for e in motions])
        known = [
            i for i, s in enumerate(ranking["strengths"]) if s is not None and not isinstance(values[i], str)
        ]
        if not known:
            return ranking
        rewards = np.array([values[i] for i in known])
        found = expected_worth(rewards, rewards, np.array([ranking["strengths"][i] for i in known], float))
    worth = dict(zip(known, found.round(6).tolist(), strict=True))
    grave = {i: fault(motions[i])[0] for i in known}
    best = min(known, key=lambda i: (grave[i], -worth[i], -ranking["strengths"][i]))
    return {**ranking, "worth": [worth.get(i) for i in range(len(motions))], "best": motions[best].name}


def with_memory(context: SearchContext, reuse: Reuse, request: ProposalRequest, n: int) -> ProposalRequest:
    """Add to the request for n programs what was screened out in the last generation, and their parents and mates."""
    g = request.generation
    rejected = [Screened(**s) for s in (context.archive.get("proposed", g - 1) or {}).get("screened", [])]
    parents, mates = [], []
    if g and (reuse.parents == "sampled" or reuse.islands > 1):
        rng = np.random.default_rng([request.seed, g])
        ranking = context.archive.get("ranked", g - 1) or {"names": [], "p_best": [], "strengths": []}
        parents = drawn_parents(request.history, ranking, n, reuse.islands, rng)
        # each from the island after that of the parent
        others = drawn_parents(request.history, ranking, n + 1, max(2, reuse.islands), rng)[1:]
        mates = [
            other if rng.random() < _CROSSED and other is not parent else None
            for parent, other in zip(parents, others, strict=True)
        ]
    return replace(request, screened=rejected, parents=parents, mates=mates)


def fitted(context: SearchContext, g: int, verdicts: Sequence[Verdict]) -> list[FittedWeights | None]:
    """Return weights fitted to all comparisons so far for each program; None if it failed or nothing is known."""
    reuse = context.reuse
    if not reuse or reuse.variants == "random" or not context.config.inner_weights:
        return [None] * len(verdicts)
    bank = read_bank(context.archive, context.task.layout, g)
    pairs = pairs_of(context.archive, bank, g)
    if not len(pairs):
        return [None] * len(verdicts)
    programs = [v.program for v in verdicts if v.program]
    scored = iter(term_values(context, reuse, bank, [program.source for program in programs]))
    fits: list[FittedWeights | None] = []
    for k, verdict in enumerate(verdicts):
        terms = next(scored) if verdict.program else ""
        if not verdict.program or isinstance(terms, str):
            fits.append(None)
            continue
        means = {name: bank.returns(values) for name, values in terms.items()}
        rng, draws = np.random.default_rng([context.config.seed, g, k]), context.config.inner_weights - 1
        fits.append(fit_weights(means, verdict.program.weights, pairs, rng, draws))
    return fits


def record_returns(context: SearchContext, g: int, best: Evaluation) -> None:
    """Record the returns of the best program on all motions so far, for the report."""

    def work() -> dict[str, Any]:
        assert context.reuse
        bank = read_bank(context.archive, context.task.layout, g + 1)
        pairs = pairs_of(context.archive, bank, g + 1)
        (values,) = program_values(context, context.reuse, bank, [best.source])
        if isinstance(values, str):
            return {"program": best.name, "motions": [], "returns": [], "agree": 0, "decided": 0}
        returns = bank.returns(values)
        return {
            "program": best.name,
            "motions": list(bank.names),
            "returns": [float(f"{v:.6g}") for v in returns],
            "agree": int(agreeing(returns[None], pairs)[0]),
            "decided": int((pairs.share != 0.5).sum()),
        }

    if context.reuse:
        once(context, "returns", g, "screen", work)
