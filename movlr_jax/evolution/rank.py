"""Rank: which programs are better, by the scores of their trials or by a judge's answers about films of one trial.

A challenger becomes the champion only if it is better with enough probability.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from movlr_jax._util.parts import worked
from movlr_jax._util.quantities import chance_of
from movlr_jax.config.ranking import calls_needed
from movlr_jax.evolution import pairwise
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.gates import by_gates, gated, score_of
from movlr_jax.evolution.population import Population, Trials
from movlr_jax.evolution.trials import believed, claim_of
from movlr_jax.evolution.worth import Posterior, final_choice, from_answers, next_champion
from movlr_jax.language.base import BatchJudge
from movlr_jax.records import Comparison, Evaluation, Preference, Ranking
from movlr_jax.tasks.base import SHARED

NOT_ASKED = "the judge was not asked"  # where gates decide before people are
_NAMING = ("paper", "knockout")  # rankings that name the winner themselves


@dataclass(frozen=True)
class Answers:
    """What the judge answered in a generation so far."""

    comparisons: Sequence[Comparison] = ()
    winner: str | None = None  # named by ranking=paper and knockout

    @property
    def silent(self) -> bool:
        """Whether the judge was asked and answered nothing."""
        return bool(self.comparisons) and not any(c.decided for c in self.comparisons)


def names_winner(context: SearchContext) -> bool:
    """Whether the ranking itself names the champion, by comparisons of one motion of each program."""
    return context.config.ranking in _NAMING and not context.scored


def ask_judge(context: SearchContext, g: int, population: Population, trials: Trials, before: Answers) -> Answers:
    """Return the judge's answers with those about the first of these trials, which is the same for all programs.

    Where the scores of the task decide, nobody is asked. trials: of the programs that are compared, those of this
    round; before: the answers of the rounds before.
    """
    if context.scored:
        return before
    shown = {name: population.shown(name, of[0]) for name, of in trials.items() if not of[0].failed}
    config, names, showing = context.config, list(shown), context.roles.showing
    earlier = [
        c
        for c in [*context.journal.comparisons(before=g), *before.comparisons]
        if c.first in shown and c.second in shown
    ]
    times = Counter((c.first, c.second) for c in earlier)
    least = calls_needed(config.ranking, len(names), showing.orders)
    left = config.comparisons and config.comparisons - len(before.comparisons)  # of the generation
    if before.silent or (left is not None and left < least):
        return before
    if before.comparisons:  # one look at another trial says more than a second one at the same
        earlier, left = [], least
    budget = pairwise.BUDGET * len(names) if left is None else left

    def ask(pairs: Sequence[tuple[str, str]]) -> list[Preference]:
        samples = []
        for pair in pairs:
            samples.append(times[pair])
            times[pair] += 1
        return compare_all(context, [(shown[a], shown[b]) for a, b in pairs], samples)

    def watch(new: Sequence[Comparison]) -> None:
        context.roles.watch(g, pairwise.RankingProgress(names, earlier, tuple(new), budget, showing))

    result = pairwise.rank(names, ask, config.ranking, left, earlier=earlier, presentation=showing, watch=watch)
    seed = next(iter(trials.values()))[0].seed or 0
    new = [replace(c, trial=seed) for c in result.comparisons]
    return Answers([*before.comparisons, *new], result.winner)


def believe(context: SearchContext, g: int, population: Population, answers: Answers = Answers()) -> Posterior:
    """Return what is believed of the worth of all programs. answers: those of the judge in generation g."""
    names = population.names
    if context.scored:
        return believed(context.task, population.trials, names)
    at = {name: i for i, name in enumerate(names)}
    decided = [c for c in [*context.journal.comparisons(before=g), *answers.comparisons] if c.decided]
    return from_answers(len(names), [(at[c.first], at[c.second], c.trial, c.winner) for c in decided])


def may_be_better(context: SearchContext, g: int, population: Population) -> list[str]:
    """Return the programs of which it is open before generation g whether they are better than the champion.

    The best of them enters the next contest again, so that it is not thrown away for having had few trials.
    """
    names, belief = population.names, believe(context, g, population)
    champion, least = names.index(str(population.champion)), 1 - context.config.certainty
    found = [i for i in range(len(names)) if i != champion and least < belief.p_better(i, champion)]
    return [names[i] for i in sorted(found, key=lambda i: -belief.mean[i])]


def most_promising(context: SearchContext, g: int, population: Population) -> str:
    """Return the program with the highest expected worth before generation g: it is edited next.

    To be announced, a program must be better than the champion with enough probability. To be edited it need not be:
    as long as nothing is certain, edits of the champion alone would begin where the search began.
    """
    champion = str(population.champion)
    if context.config.ranking in _NAMING:
        return champion
    belief = believe(context, g, population)
    worth = {
        name: float(mean)
        for name, mean in zip(population.names, belief.mean, strict=True)
        if name == champion or not all(trial.failed for trial in population.trials[name])
    }
    best = max(worth, key=worth.__getitem__)
    return best if worth[best] > worth[champion] else champion


def leader(population: Population, belief: Posterior, entrants: Sequence[str]) -> str:
    """Return the champion; where there is none yet, the best of the entrants."""
    names = population.names
    if population.champion in entrants:
        return str(population.champion)
    return max(entrants, key=lambda name: (belief.mean[names.index(name)], -names.index(name)))


def champion_of(
    context: SearchContext, population: Population, belief: Posterior, entrants: Sequence[str], answers: Answers,
    final: bool,
) -> str:  # fmt: skip
    """Return the champion after a generation, or after the final."""
    if answers.winner is not None and context.config.ranking in _NAMING:
        return answers.winner
    names, before, certainty = population.names, leader(population, belief, entrants), context.config.certainty
    if answers.silent:
        return before
    if final:
        return names[final_choice(belief, range(len(names)), names.index(before), 0, certainty)]
    return names[next_champion(belief, [names.index(n) for n in entrants], names.index(before), certainty)]


def ranking_of(
    context: SearchContext, g: int, population: Population, belief: Posterior, entrants: Sequence[str],
    answers: Answers, champion: str,
) -> Ranking:  # fmt: skip
    """Return the ranking of generation g. `population` has the champion before it."""
    names, before = population.names, population.champion
    compared = [c for c in [*context.journal.comparisons(before=g), *answers.comparisons] if c.decided]
    known = {*names} if context.scored else {name for c in compared for name in (c.first, c.second)}

    def of(values: np.ndarray) -> list[float | None]:
        return [float(f"{v:.6g}") if name in known else None for name, v in zip(names, values, strict=True)]

    at = {name: i for i, name in enumerate(names)}
    others = [name for name in entrants if name not in (before, champion)]
    rival = champion if champion != before else max(others, key=lambda n: belief.mean[at[n]], default=None)
    contested = before in at and rival is not None
    return Ranking(
        names=names,
        strengths=of(belief.mean),
        deviation=of(belief.covariance.diagonal() ** 0.5),
        p_best=of(belief.p_best),
        noise=float(f"{belief.noise:.6g}"),
        flip_rate=None if answers.silent else pairwise.flip_rate(answers.comparisons),
        best=champion,
        rival=rival,
        p_better=belief.p_better(at[str(rival)], at[str(before)]) if contested else None,
        comparisons=answers.comparisons,
    )


def decision(context: SearchContext, population: Population, ranking: Ranking) -> str:
    """Return what a ranking decided, in a line. Unanswered comparisons are reported first.

    population: With the trials of the generation, and the champion before it.
    """
    count, silent, before = len(ranking.comparisons), ranking.unanswered, population.champion
    name, rival, p, warning = ranking.best, ranking.rival, ranking.p_better, ""
    if silent:
        warning = f"WARNING: {silent} of {count} comparisons were not answered by {context.roles.judge.name}; "
    if ranking.flip_rate is None:
        because = "it was the previous champion" if before else "it is the first that ran"
        return f"{warning}this generation is not ranked, and {name} is kept only because {because}"
    claims = {
        n: claim_of(context.task.scoring.motion, population.trials[n]).text() for n in (name, before, rival) if n
    }
    if before is None:
        text = f"{name} is the first champion: {claims[name]}"
    elif name != before:
        chance = f" with P = {chance_of(p)}" if p is not None else ""
        text = f"{name} is better than {before}{chance} and the new champion: {claims[name]}"
        text += f" ({before}: {claims[before]})"
    elif rival is None:
        text = f"{name} stays the champion: {claims[name]}"
    else:
        text = f"{name} stays the champion: {claims[name]}; {rival} is better with P = {chance_of(p or 0.0)} only"
        text += f" ({claims[rival]})"
    if count:
        overruled = sum(bool(c.overruled) for c in ranking.comparisons)
        text += f"; {count} comparisons, flip rate {100 * ranking.flip_rate:.0f} %, {overruled} overruled by gates"
    return warning + text


def no_gradient(context: SearchContext, trials: Trials) -> str:
    """Return a hint if all programs come to the same score of the task and none succeeds, else an empty string."""
    task, ran = context.task, [[t for t in of if not t.failed] for of in trials.values()]
    scores = [statistics.fmean(score_of(task, t) for t in of) for of in ran if of]
    measured = [t.metrics for of in ran for t in of]
    succeeds = any(metrics.get("success", 0.0) for metrics in measured)
    if len(scores) < 2 or succeeds or not max(scores) - min(scores) <= task.scoring.tie:
        return ""
    if context.config.instruction:  # it has only the scores that its words give
        return (
            "all programs have almost the same score, because the words of the instruction name little that can be "
            "measured, so their order means nothing; let a judge watch the films: method=movlr with vlm=gemini, "
            "openai_compatible, person or manual, or write a task with a goal (docs/write_a_task.md)"
        )
    own = [name for name in measured[0] if name not in ("success", *SHARED)]
    example = f"m[{own[0]!r}], negated if less is better" if own else "... with a metric that `measure` returns"
    become = "fail with" if any("success" in metrics for metrics in measured) else "have"
    return (
        f"all programs {become} almost the same score, so their order means nothing; in a task of your own, "
        f"give simple_task a score that grows as the goal gets nearer, as in score=lambda m: {example}"
    )


def compare_all(
    context: SearchContext, pairs: Sequence[tuple[Evaluation, Evaluation]], samples: Sequence[int]
) -> list[Preference]:
    """Return the answers of the judge, corrected by the gates. A batch judge gets all pairs at once.

    samples: how often each pair was shown before, so that the judge is asked again instead of reusing its answer.
    """
    gates = context.config.gates
    if gates and context.roles.showing.gates_first:
        decisions = [(found := by_gates(a, b)) and replace(found, overruled=NOT_ASKED) for a, b in pairs]
        left = [i for i, decided in enumerate(decisions) if decided is None]
        answers = iter(_ask(context, [pairs[i] for i in left], [samples[i] for i in left]))
        return [decided or next(answers) for decided in decisions]
    answers = _ask(context, pairs, samples)
    return [
        gated(preference, a, b) if gates else preference for preference, (a, b) in zip(answers, pairs, strict=True)
    ]


def _ask(
    context: SearchContext, pairs: Sequence[tuple[Evaluation, Evaluation]], samples: Sequence[int]
) -> list[Preference]:
    judge = context.roles.judge
    if isinstance(judge, BatchJudge):
        asked = partial(judge.compare_all, context.task, pairs, samples)
        return worked(f"{judge.name}, comparing {len(pairs)} pairs,", judge, asked, list)
    answers = []
    for a, b in pairs:
        asked = partial(judge.compare, context.task, a, b)
        answers.append(worked(f"{judge.name}, comparing {a.name} and {b.name},", judge, asked, Preference))
    return answers


def strongest_first(ranking: Ranking) -> list[str]:
    """Return the names of a ranking from strongest to weakest; those without a strength are last."""
    known = [(-math.inf if s is None or math.isnan(s) else s, i) for i, s in enumerate(ranking.strengths)]
    return [ranking.names[i] for _, i in sorted(known, key=lambda pair: (-round(pair[0], 9), pair[1]))]


def nothing_answered(rankings: Sequence[Ranking]) -> bool:
    """Whether the rankings of a run have comparisons, none of which the judge answered."""
    return 0 < sum(len(r.comparisons) for r in rankings) == sum(r.unanswered for r in rankings)


def silence(rankings: Sequence[Ranking]) -> str | None:
    """Return a warning if the rankings of a run have unanswered comparisons, else None."""
    silent = sum(ranking.unanswered for ranking in rankings)
    if not silent:
        return None
    unranked = sum(bool(ranking.comparisons) and ranking.flip_rate is None for ranking in rankings)
    count = f"the judge did not answer {silent} of {sum(len(r.comparisons) for r in rankings)} comparisons"
    if not unranked:
        return f"{count}; these are ignored"
    kept = "the first program that ran" if unranked == len(rankings) else "the previous best"
    return f"{count}, so {unranked} of {len(rankings)} generations are not ranked; {kept} was kept by default"
