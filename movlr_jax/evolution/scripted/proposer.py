"""The default proposer: seeded mutation and crossover of programs. No language model.

It is also a baseline: a language model is worth its cost only if it beats this proposer at equal K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from movlr_jax._util.parts import service
from movlr_jax.errors import ProgramError
from movlr_jax.evolution.gates import poorer
from movlr_jax.evolution.scripted.metrics import advise
from movlr_jax.evolution.scripted.terms import Term, library, reading
from movlr_jax.language.base import Evaluation, ProposalRequest, TermAdvice
from movlr_jax.records import candidate_name
from movlr_jax.sandbox.genome import Genome, genome_of
from movlr_jax.sandbox.source import parse, with_weights

_LEAST, _MOST = 0.01, 500.0  # weights
_SCALES = 1.5  # standard deviation of the logarithm of how weights are scaled: by 4.5 up or down
_FAR = (1.0, 3.5)  # bounds of that logarithm in the first generation
_RESTRAINTS = ("height", "upright", "straight", "balance", "steady", "economy")  # kinds of terms
_SPARE = 0.2  # probability that an added term is a spare one


@dataclass(frozen=True)
class ScriptedProposer:
    """Edits the most promising program by seed: it follows the critic's advice, then makes random edits."""

    say: Callable[[str], object] = service(lambda text: None)
    name = "scripted proposer (no language model)"

    def propose(self, request: ProposalRequest, n: int) -> list[str]:
        """Return n programs; equal requests give equal programs. The first program follows all of the advice."""
        parent = request.parent.source if request.parent else request.task.rewards.initial
        terms = library(request.task)
        advice = request.critique.advice if request.critique else _on_the_first(request)
        others = [e for e in request.history if not e.failed]
        tried = {e.source for e in request.history}
        sources: list[str] = []
        # as long as none is better than the first program, programs are as different as possible
        explores = request.parent is None or request.parent.name == candidate_name(0, 0)
        if request.generation == 0 and (text := reading(request.task)):
            self.say(f"  {text}")
        for i in range(n):
            rng = np.random.default_rng([request.seed, request.generation, i])
            try:
                genome = genome_of(parent)
            except ProgramError:
                sources.append(_reweighted(parent, rng))
                continue
            child = _follow(genome, advice, terms, rng, share=1.0 if i == 0 else 0.6)
            if explores and (i > 0 or not advice):
                for _ in range(int(rng.integers(1, 4))):
                    child = _add(child, terms, rng)
                if i > 0:
                    child = _rescale(child, terms, rng, 1 if i % 2 == 0 else -1)
            elif i > 0 or not advice:
                for _ in range(int(rng.integers(1, 3))):
                    child = _random_edit(child, terms, others, rng)
            source = _written(child, request)
            while not _differs(child, genome, terms) or source in tried or source in sources:
                child = _reweight(child, rng) if len(child.terms) > 1 else _add(child, terms, rng)
                source = _written(child, request)
            sources.append(source)
        return sources


def _on_the_first(request: ProposalRequest) -> list[TermAdvice]:
    """Return advice on the first program, by one of its poorer trials before the search; none without trials."""
    ran, task = request.trials, request.task
    if not ran:
        return []
    needs = task.scoring.diagnose(dict(poorer(ran).metrics))
    return advise(task, needs, parse(task.rewards.initial).weights)


def _differs(child: Genome, parent: Genome, terms: dict[str, Term]) -> bool:
    """Whether two programs can order motions differently.

    The weight of a single term changes no order, so another term is needed, unless there is none.
    """
    alone = len(child.terms) == 1 and {*terms} - {*child.terms}
    if alone and [*child.terms] == [*parent.terms]:
        return any(child.terms[name][1] != text for name, (_, text) in parent.terms.items())
    return child.terms != parent.terms


def _follow(
    genome: Genome, advice: Sequence[TermAdvice], terms: dict[str, Term], rng: np.random.Generator, share: float
) -> Genome:
    """Apply each piece of advice with probability `share`."""
    for item in advice:
        if rng.random() >= share:
            continue
        known = item.term in genome.terms
        if item.action == "add" and not known and item.term in terms:
            term = terms[item.term]
            genome = genome.with_term(term.name, _bounded(item.weight or term.weight), term.expression)
        elif item.action in ("strengthen", "add") and known:
            weight = item.weight or 2.0 * genome.terms[item.term][0]
            genome = genome.with_weight(item.term, _bounded(weight))
        elif item.action == "weaken" and known:
            genome = genome.with_weight(item.term, _bounded(0.5 * genome.terms[item.term][0]))
        elif item.action == "remove" and known and len(genome.terms) > 1:
            genome = genome.without(item.term)
    return genome


def _random_edit(
    genome: Genome, terms: dict[str, Term], others: Sequence[Evaluation], rng: np.random.Generator
) -> Genome:
    """Apply one of: change weights, add a term, drop a term, copy a term from another program."""
    choice = rng.choice(["rescale", "add", "reweight", "drop", "cross"], p=[0.4, 0.2, 0.15, 0.1, 0.15])
    if choice == "rescale":
        return _rescale(genome, terms, rng)
    if choice == "add":
        return _add(genome, terms, rng)
    if choice == "drop" and len(genome.terms) > 2:
        return genome.without(list(genome.terms)[int(rng.integers(len(genome.terms)))])
    if choice == "cross" and others:
        other = others[int(rng.integers(len(others)))]
        shared = [name for name in other.weights if name in terms]
        if shared:
            name = shared[rng.integers(len(shared))]
            return genome.with_term(name, _bounded(other.weights[name]), terms[name].expression)
    return _reweight(genome, rng)


def _add(genome: Genome, terms: dict[str, Term], rng: np.random.Generator) -> Genome:
    """Add a library term with a weight near its default; change a weight if all terms are in use."""
    absent = [term for term in terms.values() if term.name not in genome.terms]
    spare = [term for term in absent if term.kind == "spare"]
    if spare:
        tried = rng.random() < _SPARE or len(spare) == len(absent)
        absent = spare if tried else [term for term in absent if term.kind != "spare"]
    if not absent:
        return _reweight(genome, rng)
    term = absent[int(rng.integers(len(absent)))]
    return genome.with_term(term.name, _bounded(term.weight * _jitter(rng)), term.expression)


def _rescale(genome: Genome, terms: dict[str, Term], rng: np.random.Generator, sign: int = 0) -> Genome:
    """Scale the weight of a term, or of all that restrains the motion, often by an order of magnitude.

    sign: 1 for much more restraint, -1 for much less; 0 for any change.
    """
    names = [name for name in genome.terms if name in terms and terms[name].kind in _RESTRAINTS]
    if not sign and (rng.random() < 0.5 or not names):
        names = [str(rng.choice(list(genome.terms)))]
    factor = np.exp(sign * rng.uniform(*_FAR) if sign else rng.normal(0.0, _SCALES))
    for name in names:
        genome = genome.with_weight(name, _bounded(genome.terms[name][0] * factor))
    return genome


def _reweight(genome: Genome, rng: np.random.Generator) -> Genome:
    name = list(genome.terms)[rng.integers(len(genome.terms))]
    return genome.with_weight(name, _bounded(genome.terms[name][0] * _jitter(rng)))


def _reweighted(source: str, rng: np.random.Generator) -> str:
    weights = parse(source).weights
    return with_weights(source, {name: _bounded(w * _jitter(rng)) for name, w in weights.items()})


def _jitter(rng: np.random.Generator) -> float:
    return float(np.exp(rng.normal(0.0, 0.6)))


def _bounded(weight: float) -> float:
    return float(f"{np.sign(weight or 1.0) * np.clip(abs(weight), _LEAST, _MOST):.3g}")


def _written(genome: Genome, request: ProposalRequest) -> str:
    """Return the source of a genome, with the task's description as its docstring."""
    description = request.task.description
    return replace(genome, description=f"{description[0].upper()}{description[1:]}.").source()
