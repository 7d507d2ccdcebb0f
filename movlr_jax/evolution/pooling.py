"""Values of the terms of many programs at the price of few: programs share terms, and a shared term is scored once.

The distinct terms of all programs with the same preamble and helpers make one program, which is vetted and compiled
once. The reward of a program is a sum over its terms, r = w . r, so no program is compiled for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from movlr_jax.errors import ProgramError
from movlr_jax.evolution.bank import Bank, weighted
from movlr_jax.evolution.context import Reuse, SearchContext
from movlr_jax.evolution.vetting import out_of_range, vet_all
from movlr_jax.language.settings import NO_PROGRAM
from movlr_jax.sandbox.genome import Genome, genome_of
from movlr_jax.sandbox.source import parse

_MOST = 24  # terms of one pool
_DIGITS = 6  # of a value: what differs less is equal, whichever terms are computed together

Term = tuple[str, str, str]  # preamble, helpers, expression


def term_values(
    context: SearchContext, reuse: Reuse, bank: Bank, sources: Sequence[str]
) -> list[dict[str, np.ndarray] | str]:
    """Return, for each program, term -> [S] its unweighted value at every state, or why it cannot be scored."""
    refused = {source: reason for source in sources if (reason := _refused(context, source))}
    genomes = {source: _read(source)[1] for source in sources if source not in refused}
    values: dict[Term, np.ndarray] = {}
    pools = list(_pools(terms for genome in genomes.values() if genome for terms in _terms(genome).values()))
    for pool, scored in zip(pools, _scored(context, reuse, bank, [_written(p) for p in pools]), strict=True):
        if not isinstance(scored, str):
            values |= {term: scored[f"t{i}"] for i, term in enumerate(pool)}
    # programs that cannot be taken apart, and those with a term of a pool that was rejected
    alone = [s for s, g in genomes.items() if not g or any(term not in values for term in _terms(g).values())]
    found = refused | dict(zip(alone, _scored(context, reuse, bank, alone), strict=True))
    found |= {
        source: {name: values[term] for name, term in _terms(genome).items()}
        for source, genome in genomes.items()
        if genome and source not in found
    }
    return [found[source] for source in sources]


def program_values(
    context: SearchContext, reuse: Reuse, bank: Bank, sources: Sequence[str]
) -> list[np.ndarray | str]:
    """Return, for each program, [S] its reward of every state, r = w . r, or why it cannot be scored."""
    found: list[np.ndarray | str] = []
    for source, terms in zip(sources, term_values(context, reuse, bank, sources), strict=True):
        weights, _ = _read(source)
        if isinstance(terms, str) or isinstance(weights, str):
            found.append(str(terms))
        else:
            found.append(weighted(terms, weights))
    return found


def _refused(context: SearchContext, source: str) -> str:
    """Return why a program cannot be used, as far as its text says; else an empty string."""
    if source.startswith(NO_PROGRAM):
        return f"no program was written: {source.removeprefix(NO_PROGRAM).strip()}"
    weights, _ = _read(source)
    return weights if isinstance(weights, str) else out_of_range(context, source, weights)


@lru_cache(4096)
def _read(source: str) -> tuple[Mapping[str, float] | str, Genome | None]:
    """Return the weights of a program, or why it cannot be parsed, and its genome if it has one."""
    try:
        genome = genome_of(source)
        return {name: weight for name, (weight, _) in genome.terms.items()}, genome
    except ProgramError:
        try:
            return parse(source).weights, None
        except ProgramError as error:
            return str(error), None


def _terms(genome: Genome) -> dict[str, Term]:
    return {name: (genome.preamble, genome.helpers, text) for name, (_, text) in genome.terms.items()}


def _pools(terms: Iterable[Term]) -> Iterator[list[Term]]:
    """Yield the distinct terms in pools of at most `_MOST` terms with the same preamble and helpers."""
    kinds: dict[tuple[str, str], list[Term]] = {}
    for term in sorted(set(terms)):  # the same programs give the same pools, also in a resumed search
        kinds.setdefault(term[:2], []).append(term)
    for members in kinds.values():
        for begin in range(0, len(members), _MOST):
            yield members[begin : begin + _MOST]


def _written(pool: Sequence[Term]) -> str:
    """Return a program with the terms t0, t1, ..."""
    (preamble, helpers, _), *_ = pool
    terms = {f"t{i}": (1.0, text) for i, (*_, text) in enumerate(pool)}
    return Genome(terms, preamble, "Terms of several programs.", helpers).source()


def _scored(
    context: SearchContext, reuse: Reuse, bank: Bank, sources: Sequence[str]
) -> list[dict[str, np.ndarray] | str]:
    """Vet programs and score them as they are. Return the values of their terms, or why one was rejected."""
    verdicts = vet_all(context, sources)
    programs = [v.program for v in verdicts if v.program]
    values = iter(bank.term_values(reuse.scorer, programs))
    found: list[dict[str, np.ndarray] | str] = []
    for verdict in verdicts:
        if verdict.program is None:
            found.append(str(verdict.message))
            continue
        scored = {name: _rounded(v) for name, v in next(values).items()}
        found.append(reuse.scorer.late.get(verdict.program.structure) or scored)
    return found


def _rounded(values: np.ndarray) -> np.ndarray:
    """Return values [S] rounded to some digits of the largest."""
    largest = float(np.abs(values).max(initial=0.0))
    digits = _DIGITS - 1 - int(np.floor(np.log10(largest))) if largest > 0 else 0
    return np.round(values, digits)
