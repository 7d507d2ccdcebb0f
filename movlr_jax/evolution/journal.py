"""The record of a search's stages: a recorded stage never runs again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from movlr_jax.records import Comparison, Proposal, Ranking, Trial, candidate_name
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.events import KINDS, read, written
from movlr_jax.storage.layout import trial_stem

R = TypeVar("R")
CONFIRM = -1  # in place of a generation: trials that no choice has seen
_EVENTS = {"propose": "proposed", "rank": "ranked", "describe": "described", "criticise": "criticised"}


@dataclass
class Journal:
    """Runs the stages of a search and records what they return, with their times."""

    archive: Archive
    seconds: dict[str, float] = field(default_factory=dict)  # of the current generation, by stage

    def begin(self, g: int, *, final: bool = False) -> None:
        """Begin or continue generation g, the final in its place, or the confirmation."""
        if not final and self.archive.get("ranked", g) and not self.archive.get("proposed", g):
            for kind in ("ranked", "trials", "timing"):  # the final of a search that had fewer generations
                self.archive.forget(kind, g)
        self.seconds = dict(self.archive.get("timing", g) or {})

    def end(self, g: int) -> None:
        """Record the times of the stages of generation g."""
        self.archive.record("timing", self.seconds, g)

    def stage(self, name: str, g: int, work: Callable[[], R]) -> R:
        """Return the recorded result of a stage of generation g. Without one, run `work` and record its result."""
        kind = _EVENTS[name]
        if (data := self.archive.get(kind, g)) is not None:
            return read(KINDS[kind], data)
        with self.timed(name):
            result = work()
        self.archive.record(kind, written(result), g)
        return result

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the wall time of a block to the times of the generation, less that of the stages inside it."""
        started, before = time.monotonic(), sum(self.seconds.values())
        yield
        inside = sum(self.seconds.values()) - before
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - started - inside

    def trials(self, g: int) -> dict[str, dict[int, Trial]]:
        """Return name -> number -> trial of all recorded trials of generation g."""
        found: dict[str, dict[int, Trial]] = {}
        for event in self.archive.events("trials"):
            if event.generation == g:
                for name, numbered in event.data["programs"].items():
                    trials = {int(n): read(Trial, data) for n, data in numbered.items()}
                    found.setdefault(name, {}).update(trials)
        return found

    def record_trials(self, g: int, ran: Mapping[str, Sequence[Trial]], numbers: Sequence[int]) -> None:
        """Record trials with their trajectories. Each program has one of each of the `numbers`."""
        data: dict[str, dict[str, Any]] = {}
        for name, row in ran.items():
            data[name] = {}
            for n, trial in zip(numbers, row, strict=True):
                stem = trial_stem(g, name, n)
                if trial.states:
                    self.archive.put(f"{stem}.npz", trial.states)
                data[name][str(n)] = written(replace(trial, stem=stem if trial.states else ""))
        rounds = sum(event.generation == g for event in self.archive.events("trials"))
        self.archive.record("trials", {"programs": data}, g, rounds)

    def notes(self) -> dict[str, str]:
        """Return candidate -> what its writer said of it."""
        proposed = [(event.generation, read(Proposal, event.data)) for event in self.archive.events("proposed")]
        return {candidate_name(g, k): note for g, made in proposed for k, note in enumerate(made.notes) if note}

    def rankings(self) -> list[tuple[int, Ranking]]:
        """Return the recorded rankings with their generations."""
        return [(event.generation, read(Ranking, event.data)) for event in self.archive.events("ranked")]

    def comparisons(self, before: int) -> list[Comparison]:
        """Return the recorded comparisons of the generations before one, the earliest first."""
        return [c for g, ranking in self.rankings() if g < before for c in ranking.comparisons]
