"""The events of a run as JSON: written from the records, checked and read back.

This is the one reader. A run directory may be from an untrusted source, so `check` holds the data of an event against
the annotations of its record before `read` builds it.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Any, Literal, TypedDict, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

from movlr_jax.errors import shortened
from movlr_jax.records import (
    Claim,
    Confirmation,
    Critique,
    Evaluation,
    FinalTraining,
    Proposal,
    Ranking,
    Trial,
    VotedRanking,
    candidate_name,
)
from movlr_jax.storage.inside import is_inside

R = TypeVar("R")
_DEEPEST = 30  # nesting of lists and mappings
_LARGEST = 99_999  # largest number of a generation or a candidate
# fields of records that are not written: arrays have a file of their own, and a description an event
_UNWRITTEN = ("states", "description")


class Unreadable(Exception):
    """An event is unreadable; the message says which one and why."""


class Described(TypedDict, total=False):
    """`run`: the task, the settings and the parts of the search, and where it ran."""

    task: str
    description: str
    reading: str  # how the scripted proposer reads the description
    model: str
    model_notes: list[str]
    cameras: list[str]  # what each shows
    seed: int
    method: str
    settings: dict[str, Any]
    tuned_settings: dict[str, Any]
    goals: dict[str, list[float]]
    backends: dict[str, str]
    versions: dict[str, str]
    hardware: str
    models_used: str
    model_sha256: str
    groups: dict[str, int]


class Term(TypedDict, total=False):
    mean: float
    weighted_mean: float
    nonfinite: float
    nonfinite_planned: float
    curve: list[float | None]


class Learning(TypedDict, total=False):
    """Curves of a training; curves that are not listed here are numbers too."""

    env_steps: list[float | None]
    terms: dict[str, list[float | None]]


class GaitCurve(TypedDict, total=False):
    mean: list[float | None]
    sd: list[float | None]


class GaitLeg(TypedDict, total=False):
    strides: float
    measures: dict[str, float]
    angles: dict[str, GaitCurve]
    force: list[float | None]
    activity: dict[str, list[float | None]]


class Gait(TypedDict, total=False):
    """The gait of an episode: `GaitAnalysis.record`."""

    speed_m_s: float
    speed_class: str
    measures: dict[str, float]
    legs: dict[str, GaitLeg]


class Descriptor(TypedDict, total=False):
    region: str
    label: str
    confidence: float


class Description(TypedDict, total=False):
    """What a vision model sees in one motion, or the problem with its answer."""

    descriptors: list[Descriptor]
    success: bool
    alignment: float
    problem: str


class Call(TypedDict, total=False):
    """A call of a model."""

    purpose: str
    provider: str
    model: str
    model_version: str
    logprobs: list[list[float]]
    sent: bool
    replayed: bool
    tokens_in: float
    tokens_out: float
    cost_usd: float


# parts of a trial that stay mappings
_SHAPES: Mapping[str, Any] = {"terms": dict[str, Term], "learning": Learning, "gait": Gait}
# numbers of trials that a search chose in place of the default ones, see `TrialPlan`
_TRIAL_NUMBERS = ("first", "more", "most", "last", "confirm")
# kind of an event -> its data: a record, a TypedDict, or the types of its fields
KINDS: Mapping[str, Any] = {
    "run": Described,
    "task_file": {"path": str, "sha256": str},  # that defines the task, with its hash at the start of the run
    "proposed": Proposal,
    "evaluated": Evaluation,
    # name of the program -> number of the trial -> its results; -1 as generation is the confirmation
    "trials": {"programs": dict[str, dict[str, Trial]]},
    "trial_plan": dict.fromkeys(_TRIAL_NUMBERS, int),
    "confirmed": Confirmation,
    "ranked": Ranking,
    "voted": VotedRanking,
    "described": {"candidates": dict[str, Description]},  # motions of a generation, by the name of the candidate
    "criticised": Critique,
    "stopped": {"reason": str},  # why a search ended before its last generation
    "timing": dict[str, float],
    # one process of a search, which may be resumed; its number is the event's generation
    "session": {"wall_s": float},
    # what a resumed session obeyed beyond the run directory; settings by name
    "obeyed": {"settings": dict[str, Any], "trust": bool, "sandbox": str},
    "tracked_run": dict.fromkeys(("tracker", "key", "uri", "store"), str),  # the run of the search in a tracker
    "finished": {
        "best": str,
        "score": float | None,
        "generations": int,
        "wall_s": float,
        "side_by_side": str | None,
        "judge_silence": str,
        "interrupted": bool,
    },
    "full": FinalTraining,
}
# needed fields whose entries may be null
_NULLABLE = ("parents", "settings", "tuned_settings", "strengths", "p_best")
_NULL = ("flip_rate",)  # needed fields that may be null: the judge gave no answer
# fields that a resumed search needs; a report works without them
NEEDED: Mapping[str, tuple[str, ...]] = {
    "run": ("settings",),
    "task_file": ("path", "sha256"),
    "proposed": ("sources", "parents"),
    "trials": ("programs",),
    "trial_plan": _TRIAL_NUMBERS,
    "confirmed": ("champion", "first", "claims"),
    "evaluated": ("name", "generation", "candidate", "source", "weights", "metrics", "terms"),
    "ranked": ("names", "strengths", "p_best", "flip_rate", "best", "comparisons"),
    "described": ("candidates",),
    "criticised": ("success", "problems", "advice", "author"),
    "session": ("wall_s",),
    "full": ("name", "metrics"),
}


def parse_event(time: Any, kind: Any, generation: Any, candidate: Any, text: Any) -> dict[str, Any]:
    """Return the data of an event from a row of run.db. Raises Unreadable."""
    data, wrong = loaded(text)
    if not wrong and not isinstance(data, dict):
        wrong = f"it is {shortened(data)}, expected a mapping"
    if not isinstance(kind, str) or not isinstance(time, int | float):
        wrong = f"its kind is {shortened(kind)} and its time {shortened(time)}, expected a string and a number"
    for name, number in (("generation", generation), ("candidate", candidate)):
        if not isinstance(number, int) or not -1 <= number <= _LARGEST:
            wrong = f"its {name} is {shortened(number)}, expected an integer from -1 to {_LARGEST}"
    if wrong:
        raise Unreadable(f"the event {_place(kind, generation, candidate)} cannot be read: {wrong}")
    return data


def check(kind: str, generation: int, candidate: int, data: Mapping[str, Any], whole: bool = True) -> None:
    """Raise Unreadable if the data of an event do not match the schema of its kind.

    whole: also raise if data are missing that a resumed search needs.
    """
    wrong = fault(data, KINDS.get(kind, dict[str, Any]))
    if whole and not wrong:
        wrong = _lacking(kind, generation, candidate, data)
    if wrong:
        raise Unreadable(f"the event {_place(kind, generation, candidate)} cannot be read: {wrong}")


def parse_call(number: int, text: Any) -> dict[str, Any]:
    """Return the record of a call. Raises Unreadable."""
    data, wrong = loaded(text)
    if wrong := wrong or fault(data, Call):
        raise Unreadable(f"the call {number} cannot be read: {wrong}")
    return data


def loaded(text: Any) -> tuple[Any, str]:
    """Return the value of a JSON text and an error message, "" if the text is valid."""
    if not isinstance(text, str):
        return None, f"it is {shortened(text)}, expected JSON text"
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, f"it is not JSON ({str(error) or type(error).__name__})"
    level = [data]
    for _ in range(_DEEPEST):
        level = [x for value in level for x in _members(value)]
    return data, f"it has more than {_DEEPEST} levels of nested lists" if level else ""


def numbers(values: Any) -> list[float]:
    """Convert a JSON list to floats; other values become NaN."""
    values = values if isinstance(values, list) else []
    return [float(v) if isinstance(v, int | float) else math.nan for v in values]


def written(record: Any) -> dict[str, Any]:
    """Return a record as JSON. Numbers that are NaN become null."""
    if isinstance(record, Mapping):
        return _plain(record)
    data = {name: _plain(getattr(record, name)) for name in hints_of(type(record))}
    if isinstance(record, Claim):
        return {**record.record(), "metrics": data["metrics"]}
    return {"name": record.name, **data} if isinstance(record, Evaluation) else data


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return written(value)
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value.as_posix() if isinstance(value, PurePath) else value


def read(kind: type[R], data: Mapping[str, Any], **known: Any) -> R:
    """Return the record that checked data hold. A field that is missing or null has its default.

    Args:
        kind: A record of `movlr_jax.records`.
        data: As `check` accepts them.
        **known: Fields that are known otherwise, as the generation from the key of the event.
    """
    data = {**data, **known}
    if not is_dataclass(kind):
        return cast(R, data)
    hints, found = hints_of(kind), {}
    for f in fields(kind):
        needed = f.default is MISSING and f.default_factory is MISSING
        if f.name in hints and (needed or data.get(f.name) is not None):
            found[f.name] = _value(hints[f.name], data.get(f.name))
    build: Any = kind
    return build(**found)


def _value(hint: Any, value: Any) -> Any:
    """Return a JSON value as `hint` says. Null is NaN for a number, and otherwise empty."""
    if isinstance(hint, UnionType):
        hint = _without_none(hint)
        if value is None and hint is not float:
            return None
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return read(hint, value or {})
    if hint is Path:
        return Path(value) if value and is_inside(value) else None
    if origin in (dict, Mapping):
        return {key: _value(arguments[1], v) for key, v in (value or {}).items()}
    if origin in (list, Sequence):
        return [_value(arguments[0], v) for v in (value or ())]
    if hint is float:
        return math.nan if value is None else float(value)
    if hint is int and value is not None:
        return int(value) if math.isfinite(value) else 0
    if value is not None:
        return value
    return {} if is_typeddict(hint) else "none" if origin is Literal else hint() if isinstance(hint, type) else None


def fault(value: Any, hint: Any, where: str = "") -> str:
    """Return how `value` does not match the annotation `hint`, as a clause; "" if it matches.

    Numbers may be non-finite, and any field may be null, which means that its value is not known.
    """
    name = where or "it"
    if value is None and where:
        return ""
    if isinstance(hint, UnionType):
        hint = _without_none(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    one_kind = origin in (dict, Mapping)  # of all values
    if one_kind or isinstance(hint, dict) or is_typeddict(hint) or is_dataclass(hint):
        if not isinstance(value, dict):
            return f"{name} is {shortened(value)}, expected a mapping"
        hints = dict.fromkeys(value, arguments[1]) if one_kind else hints_of(hint)
        return _first(fault(value[key], hints[key], _dotted(where, key)) for key in hints if key in value)
    if origin in (list, Sequence):
        if not isinstance(value, list):
            return f"{name} is {shortened(value)}, expected a list"
        return _first(fault(v, arguments[0], f"{name}[{i}]") for i, v in enumerate(value))
    if origin is Literal:
        return "" if value in arguments else f"{name} is {shortened(value)}, expected {' or '.join(arguments)}"
    if hint in (str, Path) and not isinstance(value, str):
        return f"{name} is {shortened(value)}, expected a string"
    if hint in (int, float, bool) and not _is_number(value):
        return f"{name} is {shortened(value)}, expected a number"
    return ""


def _without_none(hint: Any) -> Any:
    return next(option for option in get_args(hint) if option is not NoneType)


def hints_of(kind: Any) -> Mapping[str, Any]:
    """Return the fields of a record, a TypedDict or a mapping that are written, with their types."""
    return kind if isinstance(kind, dict) else _annotations(kind)


@functools.cache
def _annotations(kind: type) -> Mapping[str, Any]:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name not in _UNWRITTEN}
    shaped = {name: _SHAPES[name] for name in hints if name in _SHAPES and issubclass(kind, Trial)}
    return {**hints, **shaped} if is_dataclass(kind) else get_type_hints(kind)


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and float(value) is not None
    except OverflowError:
        return False


def _lacking(kind: str, generation: int, candidate: int, data: Mapping[str, Any]) -> str:
    """Return which data of an event are missing or inconsistent for a resumed search, as a clause; "" if none."""
    for name in NEEDED.get(kind, ()):
        if name not in data or (data[name] is None and name not in _NULL):
            return f"it has no {name}"
        if name not in _NULLABLE and isinstance(data[name], list | dict) and None in _members(data[name]):
            return f"a value of {name} is null"
    if kind == "evaluated":
        if missing := {"reason", "film", "parent"} - set(data):
            return f"it has no {min(missing)}"
        name = candidate_name(generation, candidate)
        if (data["name"], data["generation"], data["candidate"]) != (name, generation, candidate):
            return "its data belong to another candidate"
    if kind == "proposed" and len(data["sources"]) != len(data["parents"]):
        return "its numbers of sources and parents differ"
    if kind == "ranked":
        names = data["names"]
        shown = [c.get(side) for c in data["comparisons"] for side in ("first", "second")]
        if not len(names) == len(data["strengths"]) == len(data["p_best"]):
            return "its numbers of names, strengths and p_best differ"
        if unknown := next((name for name in [data["best"], *shown] if name not in names), None):
            return f"{unknown!r:.50} is not among its names"
        if None in shown or any(c.get("winner") is None or c.get("reason") is None for c in data["comparisons"]):
            return "a comparison has no first, second, winner or reason"
    if kind == "described":
        seen = list(data["candidates"].values())
        labels = [label for d in seen for label in d.get("descriptors") or []]
        if not all(_whole(d, Description) or set(d) == {"problem"} for d in seen) or not all(
            _whole(label, Descriptor) for label in labels
        ):
            return "a description is not complete"
    if kind == "criticised" and any(set(a) < {"action", "term", "reason"} for a in data["advice"]):
        return "a piece of advice has no action, term or reason"
    return ""


def _whole(value: Mapping[str, Any] | None, kind: type) -> bool:
    return value is not None and set(value) == set(get_type_hints(kind)) - {"problem"} and None not in value.values()


def _place(kind: Any, generation: Any, candidate: Any) -> str:
    if not isinstance(generation, int) or generation < 0:
        return shortened(kind)
    if not isinstance(candidate, int) or candidate < 0:
        return f"{shortened(kind)} of generation {generation}"
    return f"{shortened(kind)} of {candidate_name(generation, candidate)}"


def _members(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _dotted(where: str, key: str) -> str:
    key = key[:60] if key[:60].isidentifier() else repr(key[:60])
    return f"{where}.{key}" if where else key


def _first(faults: Iterable[str]) -> str:
    return next((wrong for wrong in faults if wrong), "")
