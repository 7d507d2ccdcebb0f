"""Votes of people. A vote is recorded as the answered call of a judge, with the rater as the version of the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from movlr_jax.errors import UserError, printable

Winner = Literal["first", "second", "tie"]
WINNERS: tuple[Winner, ...] = ("first", "second", "tie")
PROVIDER, MODEL = "person", "person"  # of the recorded calls
ACTIONS = ("add", "strengthen", "weaken", "reshape", "remove")
_MOST_NAME, _MOST_REASON = 40, 2000  # characters
_MOST_ITEMS = 50


@dataclass(frozen=True)
class Vote:
    """One person's answer to `which of these two motions is better?`."""

    key: str  # of the recorded call
    rater: str
    first: str  # name of the candidate shown first, on the left
    second: str
    winner: Winner
    reason: str = ""

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.first, self.second))

    @property
    def preferred(self) -> str | None:
        """Name of the preferred candidate, None for a tie."""
        return {"first": self.first, "second": self.second, "tie": None}[self.winner]

    @property
    def answer(self) -> str:
        """The answer in the form of every judge's; a person does not describe the motions."""
        form = {"first_motion": "", "second_motion": "", "winner": self.winner, "reason": self.reason}
        return json.dumps(form)


def votes_of(calls: Sequence[Mapping[str, Any]]) -> list[Vote]:
    """Return the votes among the recorded calls of a run, in order of time."""
    found = []
    for call in calls:
        if (call.get("purpose"), call.get("provider"), call.get("state")) != ("judge", PROVIDER, "answered"):
            continue
        try:
            form = json.loads(call["answer"])
            first, second = str(call["about"]).split(" ")
            winner, reason = form["winner"], str(form.get("reason") or "")
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        if winner in WINNERS:
            rater = printable(str(call.get("model_version") or ""))
            found.append(Vote(str(call.get("key")), rater, first, second, winner, printable(reason)))
    return found


def agreement(votes: Sequence[Vote]) -> tuple[int, int]:
    """Return (same, both): `both` pairs of votes are by two people on the same two motions, `same` of them agree.

    Two ties agree; a tie and a preference do not.
    """
    met: dict[frozenset[str], list[Vote]] = {}
    for vote in votes:
        met.setdefault(vote.pair, []).append(vote)
    both = [
        a.preferred == b.preferred for same in met.values() for a, b in combinations(same, 2) if a.rater != b.rater
    ]
    return sum(both), len(both)


def rater_name(text: Any) -> str:
    """Return the name of a rater as it is recorded. Raises UserError."""
    name = " ".join(printable(text).split()) if isinstance(text, str) else ""
    if not 0 < len(name) <= _MOST_NAME:
        raise UserError(f"the name has {len(name)} characters, expected 1 to {_MOST_NAME}; type a shorter one")
    return name


def sentence(text: Any) -> str:
    """Return a reason as it is recorded. Raises UserError."""
    if not isinstance(text, str) or len(text) > _MOST_REASON:
        raise UserError(f"a reason is a text of at most {_MOST_REASON:,} characters; shorten it")
    return printable(text.strip())


def chosen(text: Any) -> Winner:
    """Return the winner that the page sent. Raises UserError."""
    if text in WINNERS:
        return text
    raise UserError(f"winner={text!r:.40}: expected first, second or tie")


def critique_form(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a critique from the page in the form of every critic's. Raises UserError."""
    advice = []
    for item in _listed(values.get("advice")):
        term = sentence(item.get("term")) if isinstance(item, Mapping) else ""
        if not term or item.get("action") not in ACTIONS:
            raise UserError(f"advice has a term, and as its action one of {', '.join(ACTIONS)}")
        reason = sentence(item.get("reason", "")) or "a person asked for it after watching the film"
        advice.append({"action": item["action"], "term": term, "reason": reason, "weight": None})
    return {
        "observation": sentence(values.get("observation", "")),
        "success": values.get("success") is True,
        "problems": [text for problem in _listed(values.get("problems")) if (text := sentence(problem))],
        "advice": advice,
    }


def _listed(value: Any) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) > _MOST_ITEMS:
        raise UserError(f"problems and advice are lists of at most {_MOST_ITEMS} items")
    return value
