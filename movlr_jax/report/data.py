"""Read the events of a run for the report. The run may be unfinished: any prefix of its events is valid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from movlr_jax.errors import printable
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import candidate_name

FIRST = "g00k00"  # the first program of every run


@dataclass(frozen=True)
class Candidate:
    """One evaluated program. All fields are present and have the right type."""

    name: str
    generation: int
    index: int
    source: str
    parent: str | None
    reason: str | None  # why it failed; None if it ran
    stage: str | None  # stage at which it failed
    weights: Mapping[str, float]
    metrics: Mapping[str, float]
    timing: Mapping[str, float]
    terms: Mapping[str, Mapping[str, Any]]
    series: Mapping[str, Sequence[float]]  # curves of the motion, with units in their names
    curve_time: Sequence[float]  # s, of the curves of terms and series
    film: str | None  # path inside the run directory
    learning: Mapping[str, Any] = field(default_factory=dict)  # learning curves, if it was trained

    @property
    def failed(self) -> bool:
        return self.reason is not None


@dataclass(frozen=True)
class Generation:
    """One generation of the search. Stages that have not happened are None."""

    index: int
    proposed: Mapping[str, Any] | None = None
    ranked: Mapping[str, Any] | None = None
    criticised: Mapping[str, Any] | None = None
    timing: Mapping[str, Any] | None = None
    candidates: Sequence[Candidate] = ()

    @property
    def best(self) -> str | None:
        """Name of the best program after this generation, once it is ranked."""
        return (self.ranked or {}).get("best")


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
class Run:
    """The data of a run directory, finished or not."""

    root: Path
    about: Mapping[str, Any] = field(default_factory=dict)  # the "run" event
    generations: Sequence[Generation] = ()
    finished: Mapping[str, Any] | None = None
    full: Candidate | None = None  # the best program after its final training
    calls: Sequence[ModelCalls] = ()
    unreadable: Sequence[str] = ()  # a message for each event or call that cannot be read

    @property
    def candidates(self) -> dict[str, Candidate]:
        """All evaluated programs by name, ordered by generation and index."""
        return {c.name: c for generation in self.generations for c in generation.candidates}

    @property
    def best(self) -> Candidate | None:
        """The best program so far, by the ranking; None before the first ranking."""
        names = [(self.finished or {}).get("best"), *(g.best for g in reversed(self.generations))]
        return next((self.candidates[name] for name in names if name in self.candidates), None)

    @property
    def stages(self) -> list[tuple[int, Candidate]]:
        """(generation, best program after it) of every ranked generation."""
        known = self.candidates
        return [(g.index, known[g.best]) for g in self.generations if g.best in known]

    @property
    def state(self) -> str:
        """finished, interrupted or unfinished."""
        if self.finished is None:
            return "unfinished"
        return "interrupted" if self.finished.get("interrupted") else "finished"

    def ancestry(self, name: str | None) -> list[str]:
        """Return `name` and all its ancestors, the oldest first."""
        line: list[str] = []
        while name in self.candidates and name not in line:
            line.insert(0, name)
            name = self.candidates[name].parent
        return line


def read_run(archive: Archive) -> Run:
    """Read all events and calls of an archive. Unreadable ones are skipped and listed in `unreadable`."""
    about: Mapping[str, Any] = {}
    finished: Mapping[str, Any] | None = None
    full: Mapping[str, Any] = {}
    parts: dict[int, dict[str, Any]] = {}
    evaluated: dict[int, list[Candidate]] = {}
    events, faults = archive.readable_events()
    calls, lost = archive.readable_calls()
    for event in events:
        data = _mapping(_clean(event.data))
        if event.kind == "run":
            about = data
        elif event.kind == "finished":
            finished = data
        elif event.kind == "full":
            full = data
        elif event.kind == "evaluated":
            evaluated.setdefault(event.generation, []).append(
                _candidate(event.generation, event.candidate, data)
            )
        elif event.kind in ("proposed", "ranked", "criticised", "timing") and event.generation >= 0:
            parts.setdefault(event.generation, {})[event.kind] = data
    generations = [
        Generation(index, **parts.get(index, {}), candidates=evaluated.get(index, []))
        for index in sorted(parts.keys() | evaluated.keys())
    ]
    winner = next((c for g in generations for c in g.candidates if c.name == full.get("name")), None)
    return Run(
        root=archive.root,
        about=about,
        generations=generations,
        finished=finished,
        full=_retrained(winner, full) if winner else None,
        calls=_calls(calls),
        unreadable=_few([_clean(sentence) for sentence in (*faults, *lost)]),
    )


def _few(sentences: Sequence[str], most: int = 20) -> list[str]:
    more = [f"and {len(sentences) - most} more"] if len(sentences) > most else []
    return [*sentences[:most], *more]


def _retrained(winner: Candidate, data: Mapping[str, Any]) -> Candidate:
    """Return the same program after its final training."""
    program = {"source": winner.source, "parent": winner.parent, "weights": winner.weights}
    return _candidate(winner.generation, winner.index, {**data, **program})


def _calls(attempts: Sequence[Mapping[str, Any]]) -> list[ModelCalls]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for a in attempts:
        groups.setdefault((str(a.get("purpose")), f"{a.get('provider')} {a.get('model')}"), []).append(
            _clean(a)
        )
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


def key_metrics(run: Run) -> list[str]:
    """Return the measures of how well the task is done, or only success if there are no others."""
    names = dict.fromkeys(name for c in run.candidates.values() for name in c.metrics)
    chosen = [
        name
        for name in names
        if name == "distance_m" or (name.startswith("object_") and name.endswith(("_m", "_rad")))
    ]
    return chosen or [name for name in names if name == "success"]


def direction(metric: str) -> int:
    """Return +1 if higher is better, -1 if lower is better, 0 if unknown."""
    if metric in ("success", "distance_m", "time_to_fall_s"):
        return 1
    if metric.startswith("object_") or metric in ("fell", "dropped", "lateral_drift_m", "diverged_fraction"):
        return -1
    return 0


def weight_shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Return |w_i| / sum |w|, or zeros if all weights are zero."""
    total = sum(abs(w) for w in weights.values() if math.isfinite(w))
    return {k: abs(w) / total if total and math.isfinite(w) else 0.0 for k, w in weights.items()}


def numbers(values: Any) -> list[float]:
    """Convert a JSON list to floats; other values become NaN."""
    values = values if isinstance(values, list) else []
    return [float(v) if isinstance(v, int | float) else math.nan for v in values]


def _candidate(generation: int, index: int, data: Mapping[str, Any]) -> Candidate:
    return Candidate(
        # built from the key of the event, not from its data, since the name is used in links
        name=candidate_name(generation, index),
        generation=generation,
        index=index,
        source=str(data.get("source") or ""),
        parent=_text(data.get("parent")),
        reason=_text(data.get("reason")),
        stage=_text(data.get("stage")),
        weights=_floats(data.get("weights")),
        metrics=_floats(data.get("metrics")),
        timing=_floats(data.get("timing")),
        terms={name: _mapping(term) for name, term in _mapping(data.get("terms")).items()},
        series={name: numbers(values) for name, values in _mapping(data.get("series")).items()},
        curve_time=numbers(data.get("curve_time")),
        film=_text(data.get("film")),
        learning=_mapping(data.get("learning")),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _floats(value: Any) -> dict[str, float]:
    return dict(zip(_mapping(value), numbers(list(_mapping(value).values())), strict=True))


def _clean(value: Any) -> Any:
    """Escape characters that UTF-8 cannot encode or that change the text direction."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_clean(v) for v in value]
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return value
