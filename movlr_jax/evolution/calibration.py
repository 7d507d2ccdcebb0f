"""Votes of people next to what the judge of a run and the metrics say about the same pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from movlr_jax.records import Ranking
from movlr_jax.voting.votes import Vote

Preferred = str | None  # name of the candidate that wins a pair; None: a tie
Verdicts = Mapping[frozenset[str], Preferred]


@dataclass(frozen=True)
class JudgedPair:
    """One pair that people voted on. A verdict that is missing was not asked for."""

    names: tuple[str, str]
    votes: Mapping[Preferred, int]  # number of votes for each candidate, and of ties
    verdicts: Mapping[str, Preferred]  # by the name of the judge

    @property
    def people(self) -> Preferred:
        """What most people preferred; None if as many preferred the other, or more called it a tie."""
        return _majority(self.votes, self.names)


def judged_pairs(votes: Sequence[Vote], judges: Mapping[str, Verdicts]) -> list[JudgedPair]:
    """Return the pairs of `votes` with the verdicts of the judges, in order of the first vote."""
    counted: dict[frozenset[str], Counter[Preferred]] = {}
    for vote in votes:
        counted.setdefault(vote.pair, Counter())[vote.preferred] += 1
    return [
        JudgedPair(
            names=(min(pair), max(pair)),
            votes=count,
            verdicts={judge: said[pair] for judge, said in judges.items() if pair in said},
        )
        for pair, count in counted.items()
    ]


def recorded_verdicts(rankings: Iterable[Ranking]) -> Verdicts:
    """Return what the judge of a run preferred in each pair, by its rankings.

    The answer of the judge counts, also where a gate overruled it with another winner: then it is not known and left
    out.
    """
    counted: dict[frozenset[str], Counter[Preferred]] = {}
    for ranking in rankings:
        for c in ranking.comparisons:
            if c.decided and c.answered and not c.overruled:
                counted.setdefault(frozenset((c.first, c.second)), Counter())[c.preferred] += 1
    return {pair: _majority(count, tuple(pair)) for pair, count in counted.items() if len(pair) == 2}


def asked_verdicts(pairs: Iterable[frozenset[str]], compare: Callable[[str, str], str]) -> Verdicts:
    """Return the verdicts of a judge that is asked now. compare: takes two names, returns first, second or tie."""
    found: dict[frozenset[str], Preferred] = {}
    for pair in pairs:
        a, b = sorted(pair)
        found[pair] = {"first": a, "second": b}.get(compare(a, b))
    return found


def agreed(pairs: Sequence[JudgedPair], judge: str) -> tuple[int, int]:
    """Return in how many pairs a judge prefers what most people prefer, and of how many that it judged."""
    judged = [pair for pair in pairs if judge in pair.verdicts]
    return sum(pair.verdicts[judge] == pair.people for pair in judged), len(judged)


def _majority(count: Mapping[Preferred, int], names: Sequence[str]) -> Preferred:
    """Return the name with more votes than the other and no fewer than the ties."""
    worse, better = sorted(names, key=lambda name: count.get(name, 0))
    least = max(count.get(worse, 0) + 1, count.get(None, 0))
    return better if count.get(better, 0) >= least else None
