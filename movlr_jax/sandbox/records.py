"""Classes of reward programs: records of named values, made here, so that no program makes a class itself."""

from __future__ import annotations

import collections
import enum
import itertools
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from types import FunctionType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from movlr_jax.errors import ProgramError

# The attributes of each class of a program. A program reads no others, whatever it calls an attribute.
_OFFERED: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()
UNDERSCORED = ("_asdict", "_fields", "_replace")  # of a named tuple
_ROLES: dict[str, Callable[[Any], Any]] = {
    "property": property,
    "staticmethod": staticmethod,
    "classmethod": classmethod,
}

_ENUMS: dict[str, Any] = {"Enum": enum.Enum, "IntEnum": enum.IntEnum}


class Field:
    """What `dataclasses.field` returns: the default value of a field, or a function that makes it."""

    def __init__(self, default: Any = None, default_factory: Callable[[], Any] | None = None, **_: Any):
        self.value, self.factory = default, default_factory

    def new(self) -> Any:
        return self.factory() if self.factory else self.value


class Record:
    """Base of frozen data classes and of classes that only hold constants and functions."""

    _signature = Signature()  # its fields with their default values

    def __init__(self, *arguments: Any, **named: Any):
        given = type(self)._signature.bind(*arguments, **named)
        given.apply_defaults()
        values = given.arguments.items()
        vars(self).update((name, v.new() if isinstance(v, Field) else v) for name, v in values)
        check = getattr(type(self), "__post_init__", None)
        if check:
            check(self)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and asdict(self) == asdict(other)

    def __hash__(self) -> int:
        return hash(tuple(asdict(self).items()))


def made(kind: str, name: str, fields: Sequence[str], namespace: dict[str, Any], roles: Mapping[str, str]) -> Any:
    """Return the class of a class statement: `kind` is its base or decorator, `roles` the decorators of methods."""
    if kind == "TypedDict":
        return dict
    if kind in _ENUMS:
        found: Any = _ENUMS[kind](name, list(namespace.items()), module=__name__)
        _OFFERED[found] = frozenset(namespace) | {"name", "value"}
        return found
    fields = fields if kind in ("NamedTuple", "dataclass") else ()
    methods = {k: _ROLES[roles[k]](v) if k in roles else v for k, v in namespace.items() if k not in fields}
    defaults = {k: namespace[k] for k in fields if k in namespace}
    offered = frozenset((*fields, *methods))
    if kind == "NamedTuple":
        base = named_tuple(name, fields, defaults=_last(fields, defaults))
        found = type(name, (base,), {**methods, "__slots__": (), "__module__": __name__})
        offered |= set(UNDERSCORED)
    else:
        methods |= {k: v for k, v in defaults.items() if not isinstance(v, Field)}
        kind_of = Parameter.POSITIONAL_OR_KEYWORD
        takes = [Parameter(k, kind_of, default=defaults.get(k, Parameter.empty)) for k in fields]
        inner = {"_signature": Signature(takes), "__match_args__": tuple(fields)}
        found = type(name, (Record,), {**methods, **inner, "__module__": __name__})
    _OFFERED[found] = offered
    return found


def _last(fields: Sequence[str], defaults: Mapping[str, Any]) -> list[Any]:
    """Return the defaults of the last fields. Raises TypeError if a field without a default follows."""
    plain = list(itertools.takewhile(lambda f: f not in defaults, fields))
    if len(plain) + len(defaults) != len(fields):
        raise TypeError("a field without a default value follows one that has a default value")
    return list(defaults.values())


def named_tuple(name: str, fields: str | Sequence[str], *, defaults: Any = None, **_: Any) -> Any:
    """Return collections.namedtuple(name, fields); its names are identifiers without a leading underscore."""
    found = collections.namedtuple(name, fields, defaults=defaults, module=__name__)
    _OFFERED[found] = frozenset((*found._fields, *UNDERSCORED))
    return found


def namespace(**values: Any) -> Record:
    """Return types.SimpleNamespace(**values), but frozen."""
    return made("dataclass", "SimpleNamespace", tuple(values), {}, {})(**values)


def replace(record: Any, /, **changes: Any) -> Any:
    """Return dataclasses.replace(record, **changes)."""
    return type(_record(record))(**{**asdict(record), **changes})


def asdict(record: Any, /) -> dict[str, Any]:
    return {name: vars(record)[name] for name in type(_record(record))._signature.parameters}


def astuple(record: Any, /) -> tuple[Any, ...]:
    return tuple(asdict(record).values())


def _record(value: Any) -> Record:
    if not isinstance(value, Record):
        raise TypeError(f"expected a value of a frozen dataclass, got a {type(value).__name__}")
    return value


def decorator(*_: Any, **__: Any) -> Any:
    """Stand for `dataclasses.dataclass`, which only decorates a class statement."""
    raise ProgramError("dataclass can only decorate a class: @dataclass(frozen=True)")


def name_of(value: Any) -> str:
    """Return the name of a function or a class of a program. Raises ProgramError for every other value."""
    if isinstance(value, FunctionType) or (isinstance(value, type) and value in _OFFERED):
        return value.__name__
    raise ProgramError(f".__name__ is not available on a {type(value).__name__}, only on functions of the program")


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of a record or of a module of the facade. Raises ProgramError for every other value."""
    if isinstance(value, SimpleNamespace):
        offered: Any = vars(value)
    else:
        offered = _OFFERED.get(value if isinstance(value, type) else type(value), ())
    if name not in offered:
        raise ProgramError(f".{name} is not available on a {type(value).__name__}")
    return getattr(value, name)
