"""Who is the best so far: every comparison of a run counts, in whichever generation it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from movlr_jax.engine import Engine, once
from movlr_jax.errors import UserError
from movlr_jax.gates import gated
from movlr_jax.ranking import Comparison, Ranking, rank
from movlr_jax.types import Evaluation, Preference


def choose(
    engine: Engine,
    g: int,
    latest: Sequence[Evaluation],
    history: Sequence[Evaluation],
    best: Evaluation | None,
) -> Evaluation:
    """Ranks all of `history` after the generation `latest` met the best so far; the winner is the best now."""
    items = [e for e in history if not e.failed]
    if not items:
        reasons = "; ".join(f"{e.name}: {e.reason}" for e in latest)
        raise UserError(f"every program of generation {g} failed, there is nothing to go on from. {reasons}")
    names = [e.name for e in items]
    entrants = [names.index(e.name) for e in ([best] if best else []) + list(latest) if not e.failed]

    def work() -> dict[str, Any]:
        known = earlier(engine, g, names)
        shown = Counter((c.first, c.second) for c in known)

        def ask(pairs: Sequence[tuple[int, int]]) -> list[Preference]:
            samples = []
            for pair in pairs:
                samples.append(shown[pair])
                shown[pair] += 1
            return compare_all(engine, [(items[i], items[j]) for i, j in pairs], samples)

        config = engine.config
        result = rank(len(items), ask, config.ranking, config.comparisons, known=known, entrants=entrants)
        return _record(names, result)

    data = once(engine, "ranked", g, "rank", work)
    if strange := sorted({*data["names"]} ^ {*names}):
        raise UserError(
            f"{engine.archive.root}: the ranking of generation {g} and its programs do not agree on {strange[0]}; "
            "the run cannot be continued"
        )
    p_best = data["p_best"][data["names"].index(data["best"])]
    overruled = sum("overruled" in c for c in data["comparisons"])
    engine.reporter.say(
        f"  rank: {data['best']} is the best with P = {p_best:.2f}; {len(data['comparisons'])} "
        f"comparisons, flip rate {100 * data['flip_rate']:.0f} %, {overruled} overruled by gates"
    )
    return items[names.index(data["best"])]


def compare_all(
    engine: Engine, pairs: Sequence[tuple[Evaluation, Evaluation]], samples: Sequence[int]
) -> list[Preference]:
    """The judge's answers, overruled where the task's numbers know better; a model is asked all at once.

    samples: how often each pair was shown before, so that it is asked anew.
    """
    at_once = getattr(engine.judge, "compare_all", None)
    if at_once is None:
        return [engine.judge.compare(engine.task, a, b) for a, b in pairs]
    said = at_once(engine.task, pairs, samples)
    if not engine.config.gates:
        return said
    return [gated(preference, a, b) for preference, (a, b) in zip(said, pairs, strict=True)]


def earlier(engine: Engine, g: int, names: Sequence[str]) -> list[Comparison]:
    """All comparisons of the generations before g, by index in `names`."""
    at = {name: i for i, name in enumerate(names)}
    return [
        Comparison(
            at[c["first"]], at[c["second"]], Preference(c["winner"], c["reason"], c.get("overruled", ""))
        )
        for event in engine.archive.events("ranked")
        if event.generation < g
        for c in event.data["comparisons"]
    ]


def ranked(engine: Engine, g: int) -> list[str]:
    """Names of all that generation g ranked, the strongest first."""
    data = engine.archive.get("ranked", g) or {"names": [], "strengths": []}
    order = sorted(range(len(data["names"])), key=lambda i: (-round(data["strengths"][i], 9), i))
    return [data["names"][i] for i in order]


def _record(names: Sequence[str], result: Ranking) -> dict[str, Any]:
    return {
        "names": list(names),
        "strengths": result.strengths.tolist(),
        "deviation": result.deviation.tolist(),
        "p_best": result.p_best.tolist(),
        "flip_rate": result.flip_rate,
        "best": names[result.order[0]],
        "comparisons": [
            {
                "first": names[c.first],
                "second": names[c.second],
                "winner": c.preference.winner,
                "reason": c.preference.reason,
                **({"overruled": c.preference.overruled} if c.preference.overruled else {}),
            }
            for c in result.comparisons
        ],
    }
