"""What the page shows next, and where its answers go, while a search waits for people."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from movlr_jax.errors import UserError
from movlr_jax.voting.votes import Vote, Winner, agreement

_CLAIM_S = 15.0  # a page that has not asked for this long has been left


class Questions(Protocol):
    """What the server needs. All methods may raise UserError, whose text the page shows."""

    def state(self, rater: str, further: bool) -> dict[str, Any]:
        """Return what this rater sees now. further: also when the ranking is sure."""
        ...

    def film(self, name: str) -> bytes | None: ...

    def vote(self, rater: str, question: str, winner: Winner, reason: str) -> None: ...

    def criticise(self, rater: str, question: str, form: Mapping[str, Any]) -> None: ...

    def undo(self, rater: str) -> None: ...


class Progress(Protocol):
    """A ranking in progress: `evolution.pairwise.RankingProgress`."""

    def record(self) -> dict[str, Any]: ...


def film_name(data: bytes) -> str:
    """Return the name of a film on the page. It says nothing about the candidate."""
    return hashlib.sha256(data).hexdigest()[:24]


def people(votes: Sequence[Vote]) -> dict[str, Any]:
    """Return the raters with their numbers of votes, and how often two of them agree."""
    counts = Counter(vote.rater for vote in votes)
    same, both = agreement(votes)
    return {
        "raters": [{"name": name, "votes": n} for name, n in counts.items()],
        "agreement": {"same": same, "both": both},
    }


def cameras(about: Mapping[str, Any]) -> list[str]:
    """Return what each camera of a run shows, from the record of the run; empty where that is not known."""
    names = [str(shows).partition(",")[0].removeprefix("the ") for shows in about.get("cameras") or []]
    return [name or "whole scene" for name in names] if any(names) else []


@dataclass
class Asked:
    """A question of the search that waits for a person."""

    key: str
    about: tuple[str, ...]  # names of the motions, in the order they are shown
    card: Mapping[str, Any]  # what the page shows
    films: Mapping[str, bytes]
    answer: Vote | Mapping[str, Any] | None = None
    rater: str = ""  # who gave the critique in `answer`
    taken_back: str = ""  # key of an earlier vote that is taken back instead
    claimed: tuple[str, float] = ("", -math.inf)  # who looks at it, and when that page last asked
    done: threading.Event = field(default_factory=threading.Event)


class SearchQuestions:
    """The questions of a running search. The search asks from its thread, the page answers from the server's."""

    def __init__(self, raters: int, votes: Sequence[Vote], now: Callable[[], float] = time.monotonic):
        self._raters, self._now = raters, now
        self._votes = list(votes)
        self._open: dict[str, Asked] = {}
        self._round: list[str] = []  # keys of the votes that can be taken back, in order of time
        self._generation = -1
        self._progress: Progress | None = None
        self._lock = threading.Lock()

    def ask(self, asked: Asked) -> Asked:
        """Show a question. `asked.done` is set when it is answered or taken back."""
        with self._lock:
            self._open[asked.key] = asked
        return asked

    def withdraw(self, asked: Asked) -> None:
        """Remove a question that is answered, or that the search no longer asks."""
        with self._lock:
            self._open.pop(asked.key, None)

    def watch(self, generation: int, progress: Progress) -> None:
        """Show how far the ranking of a generation is."""
        with self._lock:
            if generation != self._generation:
                self._generation, self._round = generation, []
            self._progress = progress

    def state(self, rater: str, further: bool) -> dict[str, Any]:
        with self._lock:
            asked = self._question_for(rater)
            if asked:
                asked.claimed = (rater, self._now())
            waiting = self._unanswered()
            progress, votes = self._progress, list(self._votes)
            undo = bool(waiting) and any(self._vote(key).rater == rater for key in self._round)
        return {
            "mode": "search",
            "question": dict(asked.card) if asked else None,
            "waiting_for": "others" if waiting and not asked else "search",
            "needs_raters": self._raters,
            "standing": progress.record() if progress else None,
            "undo": undo,
            **people(votes),
        }

    def film(self, name: str) -> bytes | None:
        with self._lock:
            return next((a.films[name] for a in self._open.values() if name in a.films), None)

    def vote(self, rater: str, question: str, winner: Winner, reason: str) -> None:
        with self._lock:
            asked = self._waiting(question)
            if not self._may(rater, asked):
                raise UserError("you have voted on this pair; another person votes on it next")
            first, second = asked.about
            vote = Vote(asked.key, rater, first, second, winner, reason)
            self._votes.append(vote)
            self._round.append(vote.key)
            asked.answer = vote
            asked.done.set()

    def criticise(self, rater: str, question: str, form: Mapping[str, Any]) -> None:
        with self._lock:
            asked = self._waiting(question)
            asked.answer, asked.rater = form, rater
            asked.done.set()

    def undo(self, rater: str) -> None:
        with self._lock:
            waiting = self._unanswered()
            key = next((key for key in reversed(self._round) if self._vote(key).rater == rater), None)
            if key is None or not waiting:
                raise UserError("the search has used your last vote, so it cannot be taken back")
            # later votes stay recorded: where they are asked for again, they count again
            self._round.remove(key)
            self._votes = [vote for vote in self._votes if vote.key != key]
            for asked in waiting:
                asked.taken_back = key
                asked.done.set()

    def _vote(self, key: str) -> Vote:
        return next(vote for vote in self._votes if vote.key == key)

    def _waiting(self, question: str) -> Asked:
        asked = next((a for a in self._unanswered() if a.card["id"] == question), None)
        if asked is None:
            raise UserError("this question is answered already; here is the next one")
        return asked

    def _unanswered(self) -> list[Asked]:
        return [asked for asked in self._open.values() if not asked.done.is_set()]

    def _question_for(self, rater: str) -> Asked | None:
        """Return the question that this rater looks at, or else one that nobody looks at."""
        free = [a for a in self._unanswered() if self._may(rater, a)]
        now = self._now()
        mine = [a for a in free if a.claimed[0] == rater]
        left = [a for a in free if now - a.claimed[1] > _CLAIM_S]
        return next(iter(mine + left), None)

    def _may(self, rater: str, asked: Asked) -> bool:
        """Return whether this is the rater's turn: nobody votes twice on a pair before all others have."""
        if len(asked.about) != 2:
            return True
        votes = [vote.rater for vote in self._votes if vote.pair == frozenset(asked.about)]
        return votes.count(rater) * self._raters <= len(votes)
