"""Read what trials came to from the events of a run, which may be from an untrusted source."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from movlr_jax.evolution.trials import Claim
from movlr_jax.language.base import Evaluation
from movlr_jax.storage.events import numbers

_DIGITS = 6  # of the number of a trial


@dataclass(frozen=True)
class Confirmation:
    """What the champion, the first and the hand-written program came to in trials that no choice has seen."""

    champion: str
    first: str
    claims: Mapping[str, Claim]  # by the name of the program, the champion first
    text: str = ""  # the claims in one line
    verdict: str = ""  # whether a better program than the first was found, without a full stop


def read_trials(numbered: Mapping[str, Any]) -> dict[int, Evaluation]:
    """Return number -> trial of one program in one event."""
    return {
        int(number): Evaluation.read(0, 0, data)
        for number, data in numbered.items()
        if number.isdecimal() and len(number) <= _DIGITS and data is not None
    }


def read_confirmation(data: Mapping[str, Any]) -> Confirmation | None:
    """Return what a `confirmed` event says; None if it says nothing of its champion."""
    champion, first = str(data.get("champion") or ""), str(data.get("first") or "")
    claims = {name: _claim(mapping(claim)) for name, claim in mapping(data.get("claims")).items()}
    if champion not in claims:
        return None
    ordered = sorted(claims, key=lambda name: (name != champion, name != first))
    return Confirmation(
        champion,
        first,
        {name: claims[name] for name in ordered},
        str(data.get("text") or ""),
        str(data.get("verdict") or ""),
    )


def _claim(data: Mapping[str, Any]) -> Claim:
    """Return a recorded claim. Counts that cannot be are made 0."""
    n, failed = (max(0, int(_count(data.get(key)))) for key in ("n", "failed"))
    successes, metrics = data.get("successes"), mapping(data.get("metrics"))
    known = None if successes is None else min(n, max(0, int(_count(successes))))
    return Claim(n, known, failed, dict(zip(metrics, numbers(list(metrics.values())), strict=True)))


def _count(value: Any) -> float:
    return value if isinstance(value, int | float) and math.isfinite(value) else 0


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}
