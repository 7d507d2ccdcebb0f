"""Select the best candidate so far from all comparisons of a run."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.evolution.context import SearchContext, once
from movlr_jax.evolution.gates import by_gates, gated
from movlr_jax.evolution.ranking import BUDGET, Comparison, Ranking, decided, rank, unanswered
from movlr_jax.evolution.standing import Standing
from movlr_jax.language.base import BatchJudge, Evaluation, Preference
from movlr_jax.language.clients.call import Retracted
from movlr_jax.language.judges.metrics import MetricsJudge
from movlr_jax.tasks.base import SHARED

NOT_ASKED = "the judge was not asked"  # where gates decide before people are


def choose(
    context: SearchContext,
    g: int,
    latest: Sequence[Evaluation],
    history: Sequence[Evaluation],
    best: Evaluation | None,
) -> Evaluation:
    """Compare the generation `latest` with the best so far, rank all of `history`, and return the new best."""
    items = [e for e in history if not e.failed]
    if not items:
        reasons = "; ".join(f"{e.name}: {e.reason}" for e in latest)
        raise UserError(f"every program of generation {g} failed, so the search cannot continue. {reasons}")
    names = [e.name for e in items]
    entrants = [names.index(e.name) for e in ([best] if best else []) + list(latest) if not e.failed]

    def work() -> dict[str, Any]:
        while True:  # a person took a vote back: the votes before it are recorded and not asked again
            with contextlib.suppress(Retracted):
                return attempt()

    def attempt() -> dict[str, Any]:
        known = earlier(context, g, names)
        shown = Counter((c.first, c.second) for c in known)

        def ask(pairs: Sequence[tuple[int, int]]) -> list[Preference]:
            samples = []
            for pair in pairs:
                samples.append(shown[pair])
                shown[pair] += 1
            return compare_all(context, [(items[i], items[j]) for i, j in pairs], samples)

        def watch(new: Sequence[Comparison]) -> None:
            context.watch(g, Standing(names, entrants, known, tuple(new), budget, context.showing))

        config = context.config
        budget = config.comparisons or BUDGET * len(entrants)
        result = rank(
            len(items), ask, config.ranking, config.comparisons, known=known, entrants=entrants,
            showing=context.showing, watch=watch,
        )  # fmt: skip
        return ranking_record(names, result)

    data = once(context, "ranked", g, "rank", work)
    if differing := sorted({*data["names"]} ^ {*names}):
        raise UserError(
            f"{context.archive.root}: the ranking of generation {g} and its programs disagree on {differing[0]}; "
            "the run cannot be continued"
        )
    context.reporter.say(f"  rank: {_ranking_line(data, context.judge.name, bool(best))}")
    if isinstance(context.judge, MetricsJudge) and (
        hint := no_gradient(items, data["comparisons"], bool(context.config.instruction))
    ):
        context.reporter.say(f"  rank: {hint}")
    return items[names.index(data["best"])]


def _ranking_line(data: Mapping[str, Any], judge: str, kept: bool) -> str:
    """Return a ranking in one line. Unanswered comparisons are reported first."""
    asked, silent = len(data["comparisons"]), unanswered(data["comparisons"])
    overruled = sum("overruled" in c for c in data["comparisons"])
    name = data["best"]
    warning = f"WARNING: {silent} of {asked} comparisons were not answered by {judge}; " if silent else ""
    if data["flip_rate"] is None:
        because = "it was the previous best" if kept else "it is the first that ran"
        return f"{warning}this generation is not ranked, and {name} is kept only because {because}"
    if asked and all(c["winner"] == "tie" for c in data["comparisons"]):
        return f"{name} is kept, because all {asked} comparisons are ties"
    at = data["names"].index(name)
    p_best = data["p_best"][at]
    confidence = "because no answer contradicts it" if p_best is None else f"with P = {p_best:.2f}"
    clear = p_best is None or p_best >= max(p for p in data["p_best"] if p is not None)
    first = "is the best" if clear else "leads, though others may be better,"
    return (
        f"{warning}{name} {first} {confidence}; {asked} comparisons, "
        f"flip rate {100 * data['flip_rate']:.0f} %, {overruled} overruled by gates"
    )


def no_gradient(
    items: Sequence[Evaluation], comparisons: Sequence[Mapping[str, str]], words_alone: bool = False
) -> str:
    """Return a hint if all candidates tie in the score of the task and none is a success, else an empty string.

    words_alone: the task is an instruction, so it has only the scores that its words give.
    """
    tied = comparisons and all(c["winner"] == "tie" for c in comparisons)
    if not tied or any(e.metrics.get("success", 0.0) for e in items):
        return ""
    if words_alone:
        return (
            "all programs have almost the same score, because the words of the instruction name little that can be "
            "measured, so their order means nothing; let a judge watch the films: method=movlr with vlm=gemini, "
            "openai_compatible, person or manual, or write a task with a goal (docs/write_a_task.md)"
        )
    task_metrics = [name for name in items[0].metrics if name not in ("success", *SHARED)]
    example = (
        f"m[{task_metrics[0]!r}], negated if less is better"
        if task_metrics
        else "... with a metric that `measure` returns"
    )
    become = "fail with" if any("success" in e.metrics for e in items) else "have"
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


def ranking_record(names: Sequence[str], result: Ranking) -> dict[str, Any]:
    """Return the JSON record of a ranking. Values without an answered comparison are null."""

    def known(values: np.ndarray) -> list[float | None]:
        return [None if i in result.unranked else float(v) for i, v in enumerate(values)]

    unanswered_all = result.comparisons and not any(map(decided, result.comparisons))
    return {
        "names": list(names),
        "strengths": known(result.strengths),
        "deviation": known(result.deviation),
        "p_best": known(result.p_best),
        "flip_rate": None if unanswered_all else result.flip_rate,
        "best": names[result.order[0]],
        "comparisons": [
            {
                "first": names[c.first],
                "second": names[c.second],
                "winner": c.preference.winner,
                "reason": c.preference.reason,
                **({"overruled": c.preference.overruled} if c.preference.overruled else {}),
                **({} if c.preference.answered else {"answered": False}),
            }
            for c in result.comparisons
        ],
    }
