"""Read the events of a run for the report. The run may be unfinished: any prefix of its events is valid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from movlr_jax._util.quantities import leading
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
class ModelCalls:
    """All calls of a run with one purpose to one model."""

    purpose: str
    model: str
    versions: str  # model versions reported in the answers
    sent: int
    failed: int  # attempts that were repeated
    lost: int  # in progress when the process died; counted with their maximum cost
    refused: int  # questions without a valid answer after all attempts
    tokens_in: int
    tokens_out: int
    cost_usd: float | None


@dataclass(frozen=True)
class Exchange:
    """One call of a model, as it was sent and answered."""

    number: int  # from 1, in the order of the run
    purpose: str
    about: str  # what it is about, as the names of two programs
    model: str
    state: str
    parts: Sequence[tuple[str, str]]  # (role, text) of each message; media are named, not shown
    answer: str
    seconds: float


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
    calls: Sequence[ModelCalls] = ()
    exchanges: Sequence[Exchange] = ()
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
        return {name: self.claim(self.searched(name)) for name in self.candidates}

    def claim(self, trials: Sequence[Trial]) -> Claim:
        """Return what trials of one program came to."""
        return claim_of(self.motion, trials)

    def succeeded(self, trial: Trial) -> bool | None:
        """Return whether a trial succeeded; None if its success is not known."""
        value = achieved(self.motion, dict(trial.metrics))
        return None if trial.failed or value is None else value >= 1

    @property
    def scored(self) -> bool:
        """Whether scores of trials decided, as no judge watched films."""
        judge = str((self.about.get("backends") or {}).get("judge") or "")
        return judge.startswith("metrics")

    @property
    def filmed(self) -> bool:
        """Whether the search made films."""
        return (self.about.get("settings") or {}).get("films") is not False

    @property
    def ranked_by_trials(self) -> bool:
        """Whether the rankings say how much trials differ; those of earlier versions compared single motions."""
        return any(g.ranking and g.ranking.noise is not None for g in self.generations)

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
    def side_by_side(self) -> Path | None:
        """Path inside the run directory of the film of the best next to the first program."""
        path = (self.finished or {}).get("side_by_side")
        return Path(path) if path else None

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
    calls = [call for call in calls if call.get("state") != "reused"]
    found: dict[str, list[tuple[Event, Any]]] = {}
    for event in events:
        data = _mapping(_clean(event.data))
        found.setdefault(event.kind, []).append((event, data))
    generations = _generations(found)
    finished = _last(found, "finished")
    sessions = [data.get("wall_s") for _, data in found.get("session", ())]
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
        calls=_calls(calls),
        exchanges=[_exchange(i, call) for i, call in enumerate(calls, 1)],
        wall_s=_total(sessions) or _total([(finished or {}).get("wall_s")]),
        used=used,
        unreadable=_few([_clean(sentence) for sentence in (*faults, *lost)]),
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
            trials.setdefault(event.generation, {}).setdefault(name, {}).update(
                {
                    int(number): read(Trial, trial)
                    for number, trial in _mapping(numbered).items()
                    if number.isdecimal() and len(number) <= _DIGITS and trial is not None
                }
            )
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
    successes = None if claim.successes is None else min(n, max(0, claim.successes))
    return replace(claim, n=n, successes=successes, failed=min(n, max(0, claim.failed)))


def _final_training(data: Mapping[str, Any], generations: Sequence[Generation]) -> FinalTraining | None:
    """Return the champion after its final training; None if the run has no such program."""
    for candidate in (c for g in generations for c in g.candidates if c.name == data.get("name")):
        program = {name: getattr(candidate, name) for name in Program.__dataclass_fields__}
        return replace(read(FinalTraining, data), **program)
    return None


def _total(seconds: Sequence[Any]) -> float | None:
    known = [float(s) for s in seconds if isinstance(s, int | float) and math.isfinite(s)]
    return sum(known) or None


def _few(sentences: Sequence[str], most: int = 20) -> list[str]:
    more = [f"and {len(sentences) - most} more"] if len(sentences) > most else []
    return [*sentences[:most], *more]


def _calls(attempts: Sequence[Mapping[str, Any]]) -> list[ModelCalls]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for a in attempts:
        groups.setdefault((str(a.get("purpose")), f"{a.get('provider')} {a.get('model')}"), []).append(_clean(a))
    rows = []
    for (purpose, model), made in groups.items():
        prices = [a.get("cost_usd") for a in made if a.get("sent")]
        rows.append(
            ModelCalls(
                purpose=purpose,
                model=model,
                versions=", ".join(sorted({str(a["model_version"]) for a in made if a.get("model_version")})),
                sent=sum(bool(a.get("sent")) and not a.get("replayed") for a in made),
                failed=sum(a["state"] == "failed" for a in made),
                lost=sum(a["state"] == "lost" for a in made),
                refused=sum(a["state"] == "refused" for a in made),
                tokens_in=sum(a.get("tokens_in") or 0 for a in made),
                tokens_out=sum(a.get("tokens_out") or 0 for a in made),
                cost_usd=None if None in prices else sum(p for p in prices if p is not None),
            )
        )
    return rows


def _exchange(number: int, call: Mapping[str, Any]) -> Exchange:
    call = _mapping(_clean(dict(call)))
    messages = call.get("messages")
    parts = [
        (str(message.get("role") or ""), _part(part))
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, dict) and isinstance(message.get("parts"), list)
        for part in message["parts"]
    ]
    seconds = call.get("seconds")
    return Exchange(
        number=number,
        purpose=str(call.get("purpose") or ""),
        about=str(call.get("about") or ""),
        model=" ".join(str(call.get(key) or "") for key in ("provider", "model")).strip(),
        state="replayed" if call.get("replayed") else str(call.get("state") or ""),
        parts=parts,
        answer=str(call.get("answer") or call.get("error") or ""),
        seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
    )


def _part(part: Any) -> str:
    """Return a part of a message as text; a film or picture is named by its kind and size."""
    if not isinstance(part, dict):
        return str(part)
    size = part.get("bytes")
    return f"[{part.get('media')}, {size / 1000:,.0f} kB]" if isinstance(size, int | float) else "[media]"


def ranking_rows(ranking: Ranking | None) -> list[tuple]:
    """Return (name, strength, deviation, probability of being the best) of all ranked programs."""
    if ranking is None:
        return []
    columns = (ranking.names, ranking.strengths, ranking.deviation, ranking.p_best)
    return [row for row in itertools.zip_longest(*columns) if row[0] is not None]


def key_metrics(run: Run) -> list[str]:
    """Return the measures of how well the task is done, or only success if there are no others."""
    names = dict.fromkeys(name for c in run.candidates.values() for name in c.metrics)
    chosen = [name for name in ("distance_m", "gait_r", "knee_swing_deg") if name in names]
    chosen += [name for name in names if name.startswith("object_") and name.endswith(("_m", "_rad"))]
    first = next((c.metrics for c in run.candidates.values() if c.metrics), {})
    return list(dict.fromkeys([*chosen, *leading(first)])) or [name for name in names if name == "success"]


def direction(metric: str) -> int:
    """Return +1 if higher is better, -1 if lower is better, 0 if unknown."""
    if metric in ("success", "distance_m", "time_to_fall_s", "gait_r"):
        return 1
    if metric.startswith("object_") or metric in ("fell", "dropped", "lateral_drift_m", "diverged_fraction"):
        return -1
    return 0


def weight_shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Return |w_i| / sum |w|, or zeros if all weights are zero."""
    total = sum(abs(w) for w in weights.values() if math.isfinite(w))
    return {k: abs(w) / total if total and math.isfinite(w) else 0.0 for k, w in weights.items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def _clean(value: Any) -> Any:
    """Escape characters that UTF-8 cannot encode or that change the text direction."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_clean(v) for v in value]
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return value
