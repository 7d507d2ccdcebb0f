"""Convert settings to typed values. Every error is one sentence that names the setting."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import yaml

from movlr_jax.errors import UserError, shortened, unknown_name

T = TypeVar("T")
_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}


CONFIG_BYTES = 2**20  # size limit of a settings file
_TOO_LARGE = 2**63
_DEEPEST = 30  # limit of nested groups and lists


class _PlainLoader(yaml.SafeLoader):
    """A YAML loader that rejects aliases (a short text can expand to a huge one), NUL and deep nesting."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"it uses the alias *{event.anchor}, which settings do not support")
        if "\0" in (getattr(event, "value", None) or ""):
            raise ValueError("it contains a NUL character")
        if self._depth > _DEEPEST:
            raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def read_yaml(text: str) -> Any:
    """Parse an untrusted YAML text. Raises ValueError with a message of one line."""
    try:
        return yaml.load(text, _PlainLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"line {line}: {' '.join(str(error.problem).split()):.200}") from None
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{' '.join(str(error).split()) or type(error).__name__:.200}") from None


def from_mapping(kind: type, values: Any, where: str = "") -> Any:
    """Build a frozen dataclass from nested mappings. `where` is the dotted name of the group, empty at the top.

    A field with the metadata `parts` is read by that registry (`_util.parts`). A field with the metadata `flat` is a
    group whose settings have no dotted name of their own.

    Raises UserError for unknown names, missing ones and wrong types.
    """
    fields, hints, built = dataclasses.fields(kind), get_type_hints(kind), {}
    members = {f.name: [m.name for m in dataclasses.fields(hints[f.name])] for f in fields if f.metadata.get("flat")}
    own = [f.name for f in fields if f.name not in members and not f.metadata.get("service")]
    _check_names(values, [*own, *itertools.chain(*members.values())], where)
    for f in fields:
        name = _dotted(where, f.name)
        if f.name in members:
            inside = {member: values[member] for member in members[f.name] if member in values}
            built[f.name] = from_mapping(hints[f.name], inside, where)
        elif f.name in values and "parts" in f.metadata:
            built[f.name] = f.metadata["parts"].read(values[f.name], name)
        elif f.name in values:
            built[f.name] = typed(hints[f.name], values[f.name], name)
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise UserError(f"{name} is not set; give {name}=...")
    return kind(**built)


def group_of(kind: type) -> Any:
    """Return a field for a group of settings, a dataclass `kind`, whose names are those of the group around it."""
    return dataclasses.field(default_factory=kind, metadata={"flat": True})


def plain(settings: Any) -> dict[str, Any]:
    """Return settings as nested mappings, from which `from_mapping` builds them again."""
    found: dict[str, Any] = {}
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if f.metadata.get("service") or not f.init:
            continue
        if "parts" in f.metadata:
            found[f.name] = f.metadata["parts"].record(value)
        elif f.metadata.get("flat"):
            found |= plain(value)
        elif dataclasses.is_dataclass(value):
            found[f.name] = plain(value)
        else:
            found[f.name] = list(value) if isinstance(value, tuple) else copy.deepcopy(value)
    return found


def changed(settings: T, **values: Any) -> T:
    """Return settings with other values; names may be those of a group that has no dotted name of its own."""
    own = {f.name: f for f in dataclasses.fields(settings)}  # pyright: ignore[reportArgumentType]
    for f in own.values():
        if f.metadata.get("flat"):
            inside = {m.name for m in dataclasses.fields(getattr(settings, f.name))} & values.keys()
            if inside:
                values[f.name] = changed(getattr(settings, f.name), **{name: values.pop(name) for name in inside})
    return dataclasses.replace(settings, **values)  # pyright: ignore[reportArgumentType]


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested settings as a flat dict with dotted names."""
    if not isinstance(values, dict):
        return {prefix.rstrip("."): values}
    return {k: v for name, value in values.items() for k, v in flat(value, f"{prefix}{name}.").items()}


def keywords(function: Callable[..., Any], values: Any, where: str, without: Sequence[str] = ()) -> dict[str, Any]:
    """Convert `values` to keyword-only arguments of `function`, except those in `without`. Raises UserError.

    An argument that is a dataclass takes the values of its fields, so that functions can share settings.
    """
    parameters, hints = inspect.signature(function).parameters.values(), get_type_hints(function)
    kinds = {p.name: hints[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in without}
    groups = {name: kinds.pop(name) for name in list(kinds) if dataclasses.is_dataclass(kinds[name])}
    members = {name: [f.name for f in dataclasses.fields(kind)] for name, kind in groups.items()}
    _check_names(values, [*kinds, *itertools.chain(*members.values())], where)
    given = {name: typed(kinds[name], values[name], _dotted(where, name)) for name in kinds if name in values}
    for name, kind in groups.items():
        given[name] = from_mapping(kind, {n: values[n] for n in members[name] if n in values}, where)
    return given


def default_settings(function: Callable[..., Any], without: Sequence[str] = ()) -> dict[str, Any]:
    """Return the defaults of the keyword-only arguments of `function`, those of dataclasses among them, by name."""
    hints, found = get_type_hints(function), {}
    for p in inspect.signature(function).parameters.values():
        if p.kind is not p.KEYWORD_ONLY or p.name in without:
            continue
        if dataclasses.is_dataclass(hints[p.name]):
            found |= dataclasses.asdict(hints[p.name]())
        elif p.default is not p.empty:
            found[p.name] = p.default
    return found


def typed(hint: Any, value: Any, name: str) -> Any:
    """Convert `value` to the type of the annotation `hint`. Raises UserError, in which the setting is `name`."""
    if isinstance(hint, types.UnionType):  # X | None
        if value is None:
            return None
        hint = next(option for option in get_args(hint) if option is not types.NoneType)
    if dataclasses.is_dataclass(hint):
        return from_mapping(hint, value, name)  # pyright: ignore[reportArgumentType]
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if kinds[1:] == (...,) and isinstance(value, list | tuple):
            kinds = kinds[:1] * len(value)
        if not isinstance(value, list | tuple) or len(value) != len(kinds):
            raise UserError(f"{name}={shortened(value)} is not a list of {len(kinds)} values")
        return tuple(typed(kind, v, f"{name}[{i}]") for i, (kind, v) in enumerate(zip(kinds, value, strict=True)))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, int) and abs(value) >= _TOO_LARGE:
        raise UserError(f"{name}={shortened(value)} is too large, expected less than 2^63")
    if hint is float and number:
        if not math.isfinite(value):
            raise UserError(f"{name}={value} is not a finite number")
        return float(value)
    if hint is str and number:
        return str(value)  # run_dir=2026 is a folder name
    if hint in _WORDS and type(value) is not hint:
        raise UserError(f"{name}={shortened(value)} is not {_WORDS[hint]}")
    if get_origin(hint) is Sequence and not isinstance(value, list | tuple):
        raise UserError(f"{name}={shortened(value)} is not a list, as in [1, 2]")
    if get_origin(hint) is Mapping and not isinstance(value, Mapping):
        raise UserError(f"{name} is {shortened(value)}, expected a group of settings")
    return value


def _check_names(values: Any, known: list[str], where: str) -> None:
    if not isinstance(values, Mapping):
        raise UserError(f"{where or 'the configuration'} is {shortened(values)}, expected a group of settings")
    for name in values:
        if name not in known:
            raise UserError(unknown_name("setting", _dotted(where, str(name)), [_dotted(where, k) for k in known]))


def _dotted(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise UserError for no seeds, or negative ones."""
    if not seeds or min(seeds) < 0:
        raise UserError(f"seeds={','.join(map(str, seeds))}: expected integers of 0 or more, as in seeds=0,1,2")


def no_secrets(name: str, address: str | None, instead: str) -> None:
    """Raise UserError if the address in the setting `name` has a user name, a password or a query.

    Settings are written to run directories, reports and messages. So the error does not show the address.
    instead: where such a value belongs.
    """
    if address is None or ":" not in address:  # a path
        return
    try:
        url = urlsplit(address)
        url.port  # noqa: B018 - a password with a slash in it reads as a port
    except ValueError:
        raise UserError(f"{name} is not a valid address, as http://host:port") from None
    plain = url.scheme in ("file", "sqlite")  # a path with a scheme
    if "@" in url.netloc or (not plain and (url.query or (not url.netloc and "@" in url.path))):
        raise UserError(f"{name} must not contain a user name, password or query; {instead}")
