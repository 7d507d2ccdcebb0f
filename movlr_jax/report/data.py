"""What a report knows of a run: its events, put in order. Any prefix of a run's events will do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from movlr_jax.errors import printable
from movlr_jax.storage.archive import Archive

FIRST = "g00k00"  # the first program of every run


@dataclass(frozen=True)
class Candidate:
    """One evaluated program, with every field present and of its type."""

    name: str
    generation: int
    index: int
    source: str
    parent: str | None
    reason: str | None  # why it failed; None when it ran
    stage: str | None  # where it failed
    weights: Mapping[str, float]
    metrics: Mapping[str, float]
    timing: Mapping[str, float]
    terms: Mapping[str, Mapping[str, Any]]
    series: Mapping[str, Sequence[float]]  # curves of the motion, units in their names
    curve_time: Sequence[float]  # s, of the curves of terms and series
    film: str | None  # path inside the run directory
    learning: Mapping[str, Any] = field(default_factory=dict)  # curves of its training, where it was trained

    @property
    def failed(self) -> bool:
        return self.reason is not None


@dataclass(frozen=True)
class Generation:
    """One turn of the loop, as far as it got: None is what has not happened."""

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
    """All calls of one purpose to one model of a run."""

    purpose: str
    model: str
    versions: str  # as the answers name themselves
    sent: int
    failed: int  # attempts that had to be made again
    lost: int  # under way when the process died; their price is the most it may have been
    refused: int  # given up
    tokens_in: int
    tokens_out: int
    cost_usd: float | None


@dataclass(frozen=True)
class Run:
    """A whole run directory, finished or not."""

    root: Path
    about: Mapping[str, Any] = field(default_factory=dict)  # the "run" event
    generations: Sequence[Generation] = ()
    finished: Mapping[str, Any] | None = None
    full: Candidate | None = None  # the winner as its full training left it
    calls: Sequence[ModelCalls] = ()
    unreadable: Sequence[str] = ()  # what is wrong with each event and call that is left out

    @property
    def candidates(self) -> dict[str, Candidate]:
        """Every evaluated program by name, in the order of generation and index."""
        return {c.name: c for generation in self.generations for c in generation.candidates}

    @property
    def best(self) -> Candidate | None:
        """The best program so far by the ranking; None before the first ranking."""
        names = [(self.finished or {}).get("best"), *(g.best for g in reversed(self.generations))]
        return next((self.candidates[name] for name in names if name in self.candidates), None)

    @property
    def stages(self) -> list[tuple[int, Candidate]]:
        """(generation, best program after it) for every ranked generation."""
        known = self.candidates
        return [(g.index, known[g.best]) for g in self.generations if g.best in known]

    @property
    def state(self) -> str:
        """finished, interrupted or unfinished."""
        if self.finished is None:
            return "unfinished"
        return "interrupted" if self.finished.get("interrupted") else "finished"

    def ancestry(self, name: str | None) -> list[str]:
        """`name`, its parent, the parent's parent ... oldest first."""
        line: list[str] = []
        while name in self.candidates and name not in line:
            line.insert(0, name)
            name = self.candidates[name].parent
        return line


def read_run(archive: Archive) -> Run:
    """Everything the archive's events say; what cannot be read is left out and named."""
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
    """The same program after another training."""
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
    """The measures that say how well the task was done; success alone where there are no others."""
    names = dict.fromkeys(name for c in run.candidates.values() for name in c.metrics)
    chosen = [
        name
        for name in names
        if name == "distance_m" or (name.startswith("object_") and name.endswith(("_m", "_rad")))
    ]
    return chosen or [name for name in names if name == "success"]


def direction(metric: str) -> int:
    """+1 when higher is better, -1 when lower is, 0 when neither is known."""
    if metric in ("success", "distance_m", "time_to_fall_s"):
        return 1
    if metric.startswith("object_") or metric in ("fell", "dropped", "lateral_drift_m", "diverged_fraction"):
        return -1
    return 0


def weight_shares(weights: Mapping[str, float]) -> dict[str, float]:
    """|w_i| / sum |w|; all zero when every weight is."""
    total = sum(abs(w) for w in weights.values() if math.isfinite(w))
    return {k: abs(w) / total if total and math.isfinite(w) else 0.0 for k, w in weights.items()}


def numbers(values: Any) -> list[float]:
    """A list of floats from what JSON gave; what is no number becomes NaN."""
    values = values if isinstance(values, list) else []
    return [float(v) if isinstance(v, int | float) else math.nan for v in values]


def _candidate(generation: int, index: int, data: Mapping[str, Any]) -> Candidate:
    return Candidate(
        # from the key, not from the data: the name is used in links
        name=f"g{generation:02d}k{index:02d}",
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
    """With escapes for what UTF-8 cannot hold and what changes the direction of text."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_clean(v) for v in value]
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return value
