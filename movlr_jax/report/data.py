"""Read the events of a run for the report. The run may be unfinished: any prefix of its events is valid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from movlr_jax._util.quantities import RETURNS, leading
from movlr_jax.errors import printable
from movlr_jax.evolution.journal import CONFIRM
from movlr_jax.evolution.trials import claim_of
from movlr_jax.records import Claim, Confirmation, Evaluation, FinalTraining, Generation, Program, Ranking, Trial
from movlr_jax.storage.archive import Archive, Event
from movlr_jax.storage.events import KINDS, numbers, read
from movlr_jax.tasks.words.sentence import Sentence, achieved

FIRST = "g00k00"  # the first program of every run
_DIGITS = 6  # of the number of a trial


@dataclass(frozen=True)
class Run:
    """The data of a run directory, finished or not."""

    root: Path
    about: Mapping[str, Any] = field(default_factory=dict)  # the "run" event
    generations: Sequence[Generation] = ()
    # generation (-1: the confirmation) -> program -> number -> trial
    trials: Mapping[int, Mapping[str, Mapping[int, Trial]]] = field(default_factory=dict)
    confirmed: Confirmation | None = None
    motion: Sentence | None = None  # that the task's words ask for, if the task is at hand
    finished: Mapping[str, Any] | None = None
    stopped: str = ""  # why the search ended before its last generation
    full: FinalTraining | None = None  # the best program after its final training
    calls: Sequence[Mapping[str, Any]] = ()  # of models, as recorded
    wall_s: float | None = None  # of all sessions
    used: bool = False  # whether another process is working in it
    unreadable: Sequence[str] = ()  # a message for each event or call that cannot be read

    @cached_property
    def candidates(self) -> dict[str, Evaluation]:
        """All evaluated programs by name, ordered by generation and index."""
        return {c.name: c for generation in self.generations for c in generation.candidates}

    @cached_property
    def best(self) -> Evaluation | None:
        """The best program so far, by the ranking; None before the first ranking."""
        names = [*(g.best for g in reversed(self.generations)), (self.finished or {}).get("best")]
        return next((self.candidates[name] for name in names if name in self.candidates), None)

    def searched(self, name: str) -> Sequence[Trial]:
        """Return all trials of a program during the search; its one motion if the run recorded no trials."""
        rounds = [of[name] for g, of in sorted(self.trials.items()) if g != CONFIRM and name in of]
        found = [trial for numbered in rounds for _, trial in sorted(numbered.items())]
        return found if self.trials else [c for c in [self.candidates.get(name)] if c and not c.failed]

    @cached_property
    def claims(self) -> dict[str, Claim]:
        """Program -> what its trials during the search came to."""
        return {name: claim_of(self.motion, self.searched(name)) for name in self.candidates}

    def succeeded(self, trial: Trial) -> bool | None:
        """Return whether a trial succeeded; None if its success is not known."""
        value = achieved(self.motion, dict(trial.metrics))
        return None if trial.failed or value is None else value >= 1

    @property
    def scored(self) -> bool:
        """Whether scores of trials decided, as no judge watched films."""
        return str((self.about.get("backends") or {}).get("judge") or "").startswith("metrics")

    @property
    def filmed(self) -> bool:
        """Whether the search made films."""
        return (self.about.get("settings") or {}).get("films") is not False

    @cached_property
    def strengths(self) -> dict[str, dict[str, float]]:
        """Program -> its `strength`, `deviation` and `p_best` in the last ranking that has it; NaN: unknown."""
        found = {}
        for g in self.generations:
            for program, *values in ranking_rows(g.ranking):
                found[program] = dict(zip(("strength", "deviation", "p_best"), numbers(values), strict=True))
        return found

    @cached_property
    def stages(self) -> list[tuple[int, Evaluation]]:
        """(generation, best program after it) of every ranked generation."""
        known = self.candidates
        return [(g.index, known[g.best]) for g in self.generations if g.best in known]

    @property
    def course(self) -> dict[int, Evaluation]:
        """Generation -> best program after it, and after the final in that of the last generation."""
        last = max((g.index for g in self.generations if not g.final), default=0)
        return {min(index, last): best for index, best in self.stages}

    @property
    def state(self) -> str:
        """finished, in progress, interrupted or unfinished."""
        if self.finished and not self.finished.get("interrupted"):
            return "finished"
        return "in progress" if self.used else "interrupted" if self.finished else "unfinished"

    def ancestry(self, name: str | None) -> list[str]:
        """Return `name` and all its ancestors, the oldest first."""
        line: list[str] = []
        while name in self.candidates and name not in line:
            line.insert(0, name)
            name = self.candidates[name].parent
        return line


def read_run(archive: Archive, used: bool = False, motion: Sentence | None = None) -> Run:
    """Read all events and calls of an archive. Unreadable ones are skipped and listed in `unreadable`.

    used: whether another process is working in it. motion: that the words of its task ask for.
    """
    events, faults = archive.readable_events()
    calls, lost = archive.readable_calls()
    found: dict[str, list[tuple[Event, Any]]] = {}
    for event in events:
        found.setdefault(event.kind, []).append((event, _clean(event.data)))
    generations = _generations(found)
    finished = _last(found, "finished")
    seconds = [data.get("wall_s") for _, data in found.get("session", ())] or [(finished or {}).get("wall_s")]
    return Run(
        root=archive.root,
        about=_last(found, "run") or {},
        generations=generations,
        trials=_trials(found),
        confirmed=_confirmed(_last(found, "confirmed")),
        motion=motion,
        finished=finished,
        stopped=str((_last(found, "stopped") or {}).get("reason") or ""),
        full=_final_training(_last(found, "full") or {}, generations),
        calls=[_clean(call) for call in calls if call.get("state") != "reused"],
        wall_s=sum(s for s in numbers(seconds) if math.isfinite(s)) or None,
        used=used,
        unreadable=[_clean(sentence) for sentence in (*faults, *lost)],
    )


_Found = Mapping[str, Sequence[tuple[Event, Any]]]  # kind -> events with their data


def _last(found: _Found, kind: str) -> Mapping[str, Any] | None:
    """Return the data of the last event of a kind, None without one."""
    events = found.get(kind)
    return events[-1][1] if events else None


def _generations(found: _Found) -> list[Generation]:
    stages: dict[int, dict[str, Any]] = {}
    for kind, stage in (("proposed", "proposal"), ("ranked", "ranking"), ("criticised", "critique")):
        for event, data in found.get(kind, ()):
            stages.setdefault(event.generation, {})[stage] = read(KINDS[kind], data)
    for event, data in found.get("timing", ()):
        stages.setdefault(event.generation, {})["timing"] = data
    for event, data in found.get("evaluated", ()):
        candidate = read(Evaluation, data, generation=event.generation, candidate=event.candidate)
        stages.setdefault(event.generation, {}).setdefault("candidates", []).append(candidate)
    return [Generation(index, **stages[index]) for index in sorted(stages) if index >= 0]


def _trials(found: _Found) -> dict[int, dict[str, dict[int, Trial]]]:
    """Return generation -> program -> number -> trial; the generation is -1 for the confirmation."""
    trials: dict[int, dict[str, dict[int, Trial]]] = {}
    for event, data in found.get("trials", ()):
        for name, numbered in (data.get("programs") or {}).items():
            of = trials.setdefault(event.generation, {}).setdefault(name, {})
            for number, trial in (numbered or {}).items():
                if number.isdecimal() and len(number) <= _DIGITS and trial is not None:
                    of[int(number)] = read(Trial, trial)
    return trials


def _confirmed(data: Mapping[str, Any] | None) -> Confirmation | None:
    """Return the confirmation with the claims of the champion and the first program first; None without its claim."""
    found = read(Confirmation, data or {})
    if found.champion not in found.claims:
        return None
    ordered = sorted(found.claims, key=lambda name: (name != found.champion, name != found.first))
    return replace(found, claims={name: _possible(found.claims[name]) for name in ordered})


def _possible(claim: Claim) -> Claim:
    """Return the claim with counts that can be."""
    n = max(0, claim.n)
    return replace(claim, n=n, successes=claim.successes and min(n, max(0, claim.successes)))


def _final_training(data: Mapping[str, Any], generations: Sequence[Generation]) -> FinalTraining | None:
    for candidate in (c for g in generations for c in g.candidates if c.name == data.get("name")):
        program = {name: getattr(candidate, name) for name in Program.__dataclass_fields__}
        return replace(read(FinalTraining, data), **program)
    return None


def ranking_rows(ranking: Ranking | None) -> list[tuple]:
    """Return (name, strength, deviation, probability of being the best) of all ranked programs."""
    if ranking is None:
        return []
    columns = (ranking.names, ranking.strengths, ranking.deviation, ranking.p_best)
    return [row for row in itertools.zip_longest(*columns) if row[0] is not None]


def key_metrics(run: Run) -> list[str]:
    """Return the measures of how well the task is done, or only success if there are no others."""
    names = dict.fromkeys(name for c in run.candidates.values() for name in c.metrics)
    chosen = [name for name in (*RETURNS, "distance_m", "gait_r", "knee_swing_deg") if name in names]
    chosen += [name for name in names if name.startswith("object_") and name.endswith(("_m", "_rad"))]
    first = next((c.metrics for c in run.candidates.values() if c.metrics), {})
    return list(dict.fromkeys([*chosen, *leading(first)])) or [name for name in names if name == "success"]


def direction(metric: str) -> int:
    """Return +1 if higher is better, -1 if lower is better, 0 if unknown."""
    if metric in (*RETURNS, "success", "distance_m", "time_to_fall_s", "terminated_s", "gait_r"):
        return 1
    if metric.startswith("object_") or metric in ("fell", "dropped", "lateral_drift_m", "diverged_fraction"):
        return -1
    return 0


def weight_shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Return |w_i| / sum |w|, or zeros if all weights are zero."""
    total = sum(abs(w) for w in weights.values() if math.isfinite(w))
    return {k: abs(w) / total if total and math.isfinite(w) else 0.0 for k, w in weights.items()}


def _clean(value: Any) -> Any:
    """Escape characters that UTF-8 cannot encode or that change the text direction."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_clean(v) for v in value]
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return value
