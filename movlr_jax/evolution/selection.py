"""The contest of a generation: trials for its programs and the champion, and who is the champion after them.

Everybody gets a few trials, the better half more, and as long as it is open whether the best challenger is better
than the champion, these two get more. A challenger becomes the champion only if it is better with enough probability.
A judge of films sees films of the same trial; other searches compare the scores.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from movlr_jax.config.ranking import calls_needed
from movlr_jax.errors import UserError
from movlr_jax.evolution.context import SearchContext, once, timed
from movlr_jax.evolution.gates import by_gates, gated, score_of
from movlr_jax.evolution.ranking import BUDGET, Comparison, decided, flip_rate, rank, unanswered
from movlr_jax.evolution.scripted.metrics import MetricsJudge
from movlr_jax.evolution.standing import Standing
from movlr_jax.evolution.trials import Claim, TrialPlan, Trials, believed, recorded_trials, run_trials
from movlr_jax.evolution.worth import (
    Posterior,
    final_choice,
    from_answers,
    halving,
    next_champion,
    undecided,
)
from movlr_jax.language.base import BatchJudge, Evaluation, Preference
from movlr_jax.language.clients.call import Retracted
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.tasks.base import SHARED

NOT_ASKED = "the judge was not asked"  # where gates decide before people are


@dataclass
class Standings:
    """All programs of a search that ran, with their trials, and the champion."""

    programs: dict[str, Evaluation] = field(default_factory=dict)  # in the order of their first trials
    trials: dict[str, list[Evaluation]] = field(default_factory=dict)
    champion: str | None = None

    @property
    def names(self) -> list[str]:
        return list(self.programs)

    def add(self, name: str, trials: Sequence[Evaluation]) -> None:
        """Add trials of a program, each once."""
        known = self.trials.setdefault(name, [])
        seeds, program = {trial.seed for trial in known}, self.programs[name]
        own = {f: getattr(program, f) for f in ("generation", "candidate", "source", "parent")}
        known += [replace(trial, **own) for trial in trials if trial.seed not in seeds]


@dataclass
class Contest:
    """The contest of generation g.

    verdicts: of the entrants: the champion, the program that may be better than it, and those of this generation that
    were accepted. In the final: the champion and those that may be better.
    """

    context: SearchContext
    g: int
    plan: TrialPlan
    standings: Standings
    verdicts: Mapping[str, Verdict]
    new: list[Comparison] = field(default_factory=list)
    of_trial: list[int] = field(default_factory=list)  # seed of the trial of each of `new`
    winner: str | None = None  # of rankings that name one: ranking=paper and knockout

    @property
    def scored(self) -> bool:
        """Whether the scores of the task decide, as no judge watches films."""
        return isinstance(self.context.judge, MetricsJudge)

    def run(self) -> Posterior:
        """Run all trials of the generation. Return what is believed of all programs of the search after them."""
        plan, entrants, done = self.plan, list(self.verdicts), self.plan.first
        paper = self.context.config.ranking in ("paper", "knockout") and not self.scored
        belief = self._round(entrants, range(done)) if done else known(self.context, self.g, self.standings)
        if plan.more and len(entrants) > 1 and not paper:
            belief = self._round(self._further(belief, entrants), range(done, done := done + plan.more))
        while done < plan.most and not paper and (both := self._undecided(belief, entrants)):
            belief = self._round(both, range(done, done := done + 1))
        return belief

    def _round(self, entrants: Sequence[str], numbers: range) -> Posterior:
        """Give the entrants their trials; a judge compares the films of the first of these trials."""
        ran = run_trials(self.context, self.g, {name: self.verdicts[name] for name in entrants}, numbers)
        for name, trials in ran.items():
            self.standings.add(name, trials)
        first = {name: trials[0].seed for name, trials in ran.items()}
        names = self.standings.names
        if self.scored:
            return believed(self.context.task, self.standings.trials, names)
        shown = {n: t for n in ran for t in self.standings.trials[n] if t.seed == first[n] and not t.failed}
        with timed(self.context, "rank"):
            new = self._asked(shown)
        self.new += new
        self.of_trial += [next(iter(first.values())) or 0] * len(new)
        answers = [*earlier_answers(self.context, self.g, names), *self._answers()]
        return from_answers(len(names), answers)

    def _asked(self, shown: Mapping[str, Evaluation]) -> list[Comparison]:
        """Return the judge's comparisons of the motions `shown`, all of one trial, among them alone."""
        context, config, names = self.context, self.context.config, list(shown)
        everyone, items = self.standings.names, list(shown.values())
        at = {everyone.index(name): i for i, name in enumerate(names)}
        known = [
            replace(c, first=at[c.first], second=at[c.second])
            for c in [*earlier(context, self.g, everyone), *self.new]
            if {c.first, c.second} <= at.keys()
        ]
        times = Counter((c.first, c.second) for c in known)
        least = calls_needed(config.ranking, len(names), context.showing.orders)
        left = config.comparisons and config.comparisons - len(self.new)  # of the generation
        silent = bool(self.new) and not any(map(decided, self.new))
        if silent or (left is not None and left < least):
            return []
        if self.new:  # one look at another trial says more than a second one at the same
            known, left = [], least
        budget = BUDGET * len(names) if left is None else left

        def ask(pairs: Sequence[tuple[int, int]]) -> list[Preference]:
            samples = []
            for pair in pairs:
                samples.append(times[pair])
                times[pair] += 1
            return compare_all(context, [(items[i], items[j]) for i, j in pairs], samples)

        def watch(new: Sequence[Comparison]) -> None:
            standing = Standing(names, range(len(names)), known, tuple(new), budget, context.showing)
            context.watch(self.g, standing)

        result = rank(
            len(names), ask, config.ranking, left, known=known, showing=context.showing, watch=watch
        )
        self.winner = None if result.winner is None else names[result.winner]
        back = {i: index for index, i in at.items()}
        return [replace(c, first=back[c.first], second=back[c.second]) for c in result.comparisons]

    def _answers(self) -> list[tuple[int, int, int, str]]:
        return [
            (c.first, c.second, seed, c.preference.winner)
            for c, seed in zip(self.new, self.of_trial, strict=True)
            if decided(c)
        ]

    def _further(self, belief: Posterior, entrants: Sequence[str]) -> list[str]:
        """Return who gets further trials: the champion and the better half of the others."""
        names, champion = self.standings.names, self._leader(belief, entrants)
        return [names[i] for i in halving(belief, [names.index(n) for n in entrants], names.index(champion))]

    def _undecided(self, belief: Posterior, entrants: Sequence[str]) -> list[str]:
        names, champion = self.standings.names, self._leader(belief, entrants)
        certainty = self.context.config.certainty
        both = undecided(belief, [names.index(n) for n in entrants], names.index(champion), certainty)
        return [names[i] for i in both]

    def _leader(self, belief: Posterior, entrants: Sequence[str]) -> str:
        """Return the champion; where there is none yet, the best of the entrants."""
        names = self.standings.names
        if self.standings.champion in entrants:
            return str(self.standings.champion)
        return max(entrants, key=lambda name: (belief.mean[names.index(name)], -names.index(name)))

    def crowned(self, belief: Posterior) -> str:
        """Return the champion after the contest."""
        entrants = list(self.verdicts)
        if self.winner is not None and self.context.config.ranking in ("paper", "knockout"):
            return self.winner
        names, champion = self.standings.names, self._leader(belief, entrants)
        if self.new and not any(map(decided, self.new)):
            return champion
        certainty = self.context.config.certainty
        if self.plan.first:
            at = [names.index(name) for name in entrants]
            return names[next_champion(belief, at, names.index(champion), certainty)]
        return names[final_choice(belief, range(len(names)), names.index(champion), 0, certainty)]


def known(context: SearchContext, g: int, standings: Standings) -> Posterior:
    """Return what is believed of all programs before generation g."""
    if isinstance(context.judge, MetricsJudge):
        return believed(context.task, standings.trials, standings.names)
    return from_answers(len(standings.names), earlier_answers(context, g, standings.names))


def may_be_better(context: SearchContext, g: int, standings: Standings) -> list[str]:
    """Return the programs of which it is open before generation g whether they are better than the champion.

    The best of them enters the next contest again, so that it is not thrown away for having had few trials.
    """
    names, belief = standings.names, known(context, g, standings)
    champion, least = names.index(str(standings.champion)), 1 - context.config.certainty
    found = [i for i in range(len(names)) if i != champion and least < belief.p_better(i, champion)]
    return [names[i] for i in sorted(found, key=lambda i: -belief.mean[i])]


def contest(
    context: SearchContext, g: int, plan: TrialPlan, standings: Standings, verdicts: Mapping[str, Verdict]
) -> dict[str, Any]:
    """Run the contest of generation g, add its trials to `standings`, and crown. Return its record."""
    ran = Contest(context, g, plan, standings, verdicts)

    def work() -> dict[str, Any]:
        while True:  # a person took a vote back: the votes before it are recorded and not asked again
            ran.new, ran.of_trial = [], []
            with contextlib.suppress(Retracted):
                belief = ran.run()
                return _record(ran, belief, ran.crowned(belief))

    recorded = context.archive.get("ranked", g)
    data = once(context, "ranked", g, "rank", work)
    if recorded:  # the trials are recorded, too
        _replay(ran)
    if differing := sorted({*data["names"]} ^ {*standings.names}):
        raise UserError(
            f"{context.archive.root}: the ranking of generation {g} and its programs disagree on {differing[0]}; "
            "the run cannot be continued"
        )
    before, standings.champion = standings.champion, data["best"]
    for line in _lines(context, standings, data, before):
        context.reporter.say(f"  rank: {line}")
    if ran.scored and (hint := no_gradient(context, {n: standings.trials[n] for n in verdicts})):
        context.reporter.say(f"  rank: {hint}")
    return data


def _replay(ran: Contest) -> None:
    """Add the recorded trials of a generation to the standings."""
    for name, trials in recorded_trials(ran.context, ran.g).items():
        if name in ran.verdicts:
            ran.standings.add(name, [trial for _, trial in sorted(trials.items())])


def _record(ran: Contest, belief: Posterior, champion: str) -> dict[str, Any]:
    """Return the JSON record of a contest. Without an answer of the judge, the flip rate is null."""
    names, standings = ran.standings.names, ran.standings
    judged = {
        i for c in [*earlier(ran.context, ran.g, names), *ran.new] if decided(c) for i in (c.first, c.second)
    }
    known = set(range(len(names))) if ran.scored else judged

    def of(values: np.ndarray) -> list[float | None]:
        return [float(f"{v:.6g}") if i in known else None for i, v in enumerate(values)]

    before = standings.champion
    others = [name for name in ran.verdicts if name not in (before, champion)]
    at = {name: i for i, name in enumerate(names)}
    rival = champion if champion != before else max(others, key=lambda n: belief.mean[at[n]], default=None)
    beaten = bool(before) and before in at and rival is not None
    return {
        "names": names,
        "strengths": of(belief.mean),
        "deviation": of(belief.covariance.diagonal() ** 0.5),
        "p_best": of(belief.p_best),
        "noise": float(f"{belief.noise:.6g}"),
        "flip_rate": None if ran.new and not any(map(decided, ran.new)) else flip_rate(ran.new),
        "best": champion,
        "rival": rival,
        "p_better": belief.p_better(at[str(rival)], at[str(before)]) if beaten else None,
        "comparisons": [
            {**comparison_record(names, c), "trial": seed}
            for c, seed in zip(ran.new, ran.of_trial, strict=True)
        ],
    }


def comparison_record(names: Sequence[str], c: Comparison) -> dict[str, Any]:
    """Return the JSON record of a comparison."""
    return {
        "first": names[c.first],
        "second": names[c.second],
        "winner": c.preference.winner,
        "reason": c.preference.reason,
        **({"overruled": c.preference.overruled} if c.preference.overruled else {}),
        **({} if c.preference.answered else {"answered": False}),
    }


def _lines(
    context: SearchContext, standings: Standings, data: Mapping[str, Any], before: str | None
) -> list[str]:
    """Return what a contest decided, in one line or two. Unanswered comparisons are reported first."""
    asked, silent = len(data["comparisons"]), unanswered(data["comparisons"])
    name, rival, p = data["best"], data.get("rival"), data.get("p_better")
    warning = (
        f"WARNING: {silent} of {asked} comparisons were not answered by {context.judge.name}; "
        if silent
        else ""
    )
    if data["flip_rate"] is None:
        because = "it was the previous champion" if before else "it is the first that ran"
        return [f"{warning}this generation is not ranked, and {name} is kept only because {because}"]
    told = {n: Claim.of(context.task.motion, standings.trials[n]).text() for n in (name, before, rival) if n}
    if before is None:
        text = f"{name} is the first champion: {told[name]}"
    elif name != before:
        chance = f" with P = {p:.2f}" if p is not None else ""
        text = f"{name} is better than {before}{chance} and the new champion: {told[name]} ({before}: {told[before]})"
    elif rival is None:
        text = f"{name} stays the champion: {told[name]}"
    else:
        text = f"{name} stays the champion: {told[name]}; {rival} is better with P = {p:.2f} only ({told[rival]})"
    if asked:
        overruled = sum("overruled" in c for c in data["comparisons"])
        text += f"; {asked} comparisons, flip rate {100 * data['flip_rate']:.0f} %, {overruled} overruled by gates"
    return [warning + text]


def no_gradient(context: SearchContext, trials: Trials) -> str:
    """Return a hint if all programs come to the same score of the task and none succeeds, else an empty string."""
    task, ran = context.task, [[t for t in of if not t.failed] for of in trials.values()]
    scores = [statistics.fmean(score_of(task, t) for t in of) for of in ran if of]
    measured = [t.metrics for of in ran for t in of]
    succeeds = any(metrics.get("success", 0.0) for metrics in measured)
    if len(scores) < 2 or succeeds or not max(scores) - min(scores) <= task.tie:
        return ""
    if context.config.instruction:  # it has only the scores that its words give
        return (
            "all programs have almost the same score, because the words of the instruction name little that can be "
            "measured, so their order means nothing; let a judge watch the films: method=movlr with vlm=gemini, "
            "openai_compatible, person or manual, or write a task with a goal (docs/write_a_task.md)"
        )
    own = [name for name in measured[0] if name not in ("success", *SHARED)]
    example = (
        f"m[{own[0]!r}], negated if less is better" if own else "... with a metric that `measure` returns"
    )
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
    if gates and context.showing.gates_first:
        decisions = [(found := by_gates(a, b)) and replace(found, overruled=NOT_ASKED) for a, b in pairs]
        left = [i for i, decision in enumerate(decisions) if decision is None]
        answers = iter(_ask(context, [pairs[i] for i in left], [samples[i] for i in left]))
        return [decision or next(answers) for decision in decisions]
    answers = _ask(context, pairs, samples)
    return [
        gated(preference, a, b) if gates else preference
        for preference, (a, b) in zip(answers, pairs, strict=True)
    ]


def _ask(
    context: SearchContext, pairs: Sequence[tuple[Evaluation, Evaluation]], samples: Sequence[int]
) -> list[Preference]:
    judge = context.judge
    if isinstance(judge, BatchJudge):
        return judge.compare_all(context.task, pairs, samples)
    return [judge.compare(context.task, a, b) for a, b in pairs]


def earlier_answers(context: SearchContext, g: int, names: Sequence[str]) -> list[tuple[int, int, int, str]]:
    """Return the answers of the generations before g for `from_answers`; an old one is of a trial of its own."""
    at = {name: i for i, name in enumerate(names)}
    return [
        (at[c["first"]], at[c["second"]], c.get("trial") or -event.generation, c["winner"])
        for event in context.archive.events("ranked")
        if event.generation < g
        for c in event.data["comparisons"]
        if c["winner"] != "none"
    ]


def earlier(context: SearchContext, g: int, names: Sequence[str]) -> list[Comparison]:
    """Return all comparisons of the generations before g, with indices into `names`."""
    at = {name: i for i, name in enumerate(names)}
    return [
        Comparison(
            at[c["first"]],
            at[c["second"]],
            Preference(c["winner"], c["reason"], c.get("overruled", ""), c.get("answered", True)),
        )
        for event in context.archive.events("ranked")
        if event.generation < g
        for c in event.data["comparisons"]
    ]


def ranked(context: SearchContext, g: int) -> list[str]:
    """Return the names in the ranking of generation g, from strongest to weakest."""
    data = context.archive.get("ranked", g) or {"names": [], "strengths": []}
    known = [(-math.inf if s is None else s, i) for i, s in enumerate(data["strengths"])]
    return [data["names"][i] for _, i in sorted(known, key=lambda pair: (-round(pair[0], 9), pair[1]))]
