"""Parsing of the answers of sandboxed child processes: untrusted data, turned into messages and reward programs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from movlr_jax._util.keys import redact
from movlr_jax.rewards.cost import Cost
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.rewards.state import parts
from movlr_jax.sandbox.graph import Graph, run
from movlr_jax.sandbox.inputs import flat
from movlr_jax.sandbox.source import ParsedReward

DOWN = "the program crashed its process; it may need too much memory"
_STAGES = ("parse", "load", "trace")


class Rejected(Exception):
    """A rejected program; its arguments are (stage, message)."""


def rebuild(
    graph: Graph, text: bytes, weights: Mapping[str, float], cost: Cost, source: str = "", description: str = ""
) -> RewardProgram:
    """Return the reward program of a checked graph and its document `text`."""
    terms = tuple(weights)

    def reward(state: Any, action: Any) -> dict[str, Any]:
        step, initial, goals = parts(state)
        values = [jnp.asarray(v, jnp.float32) for v in flat(step, action, initial, goals)]
        return dict(zip(terms, run(graph, values), strict=True))

    document = json.loads(text)
    same = json.dumps(_without_lines(document), sort_keys=True)
    return RewardProgram(
        source=source,
        description=description,
        weights=weights,
        reward=reward,
        structure=hashlib.sha256(same.encode()).hexdigest()[:16],
        cost=cost,
        document=text,
    )


def _without_lines(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_lines(v) for k, v in value.items() if k != "l"}
    return [_without_lines(v) for v in value] if isinstance(value, list) else value


def judge(parsed: ParsedReward, counts: dict[str, Any]) -> list[str]:
    """Return notes on the prober's counts. Raises Rejected for a term without finite values."""
    notes = []
    for name, count in counts.items():
        where = parsed.where(name)
        if count["bad"] == count["states"]:
            raise Rejected(
                "probe",
                f"{where}term {name!r} is not finite at any of {count['states']} states of this task; look for "
                "a division by zero, a log or square root of a negative number, or an exp that overflows",
            )
        if count["constant"]:
            notes.append(f"{where}term {name!r} has the same value at every state, so it has no effect")
        if count["bad"]:
            notes.append(
                f"{where}term {name!r} is not finite at {count['bad']} of {count['states']} states of this task; "
                "such values are replaced by the worst one seen"
            )
        elif count["far"]:
            notes.append(
                f"{where}term {name!r} is not finite at {count['far']} of {count['extremes']} extreme states; such "
                "values are replaced by the worst one seen"
            )
    return notes


def counts_of(answer: bytes, terms: list[str]) -> tuple[dict[str, Any], int, float]:
    """Return (term -> counts, states, processor time in s) of the prober. Raises Rejected."""
    try:
        found = json.loads(answer)
        if isinstance(found.get("error"), str):
            raise Rejected("probe", f"the program cannot be compiled or run: {_one_line(found['error'])}")
        counts, states, cpu_s = found["terms"], int(found["states"]), float(found["cpu_s"])
        for term in terms:
            for name in ("states", "bad", "extremes", "far", "constant"):
                counts[term][name] = int(counts[term][name])
        return {term: counts[term] for term in terms}, states, cpu_s
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Rejected("crash", DOWN) from None


def rejection(answer: bytes) -> tuple[str, str]:
    """Return (stage, message) of a tracer's answer, cleaned for a log."""
    try:
        fields = json.loads(answer)
        stage, message = fields["stage"], fields["message"]
        if stage in _STAGES and isinstance(message, str) and message:
            return stage, _one_line(message)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return "crash", "the program's process returned a malformed answer"


def _one_line(text: str) -> str:
    """Return a child's text on one printable line without API keys, for a log, a terminal and the next prompt."""
    return "".join(c if c.isprintable() else "?" for c in redact(" ".join(text.split()))[:1000])
