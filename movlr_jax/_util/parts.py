"""Parts that own their settings: classes that are chosen by name, of this package or of another one.

A part is a frozen dataclass. A field made by `setting` is set by its users and appears in --help, in the record of a
run and in the documentation. A field made by `service` is filled by the search, before the part works.
"""

from __future__ import annotations

import dataclasses
import operator
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from movlr_jax._util.registry import Registry
from movlr_jax._util.settings import from_mapping, plain
from movlr_jax.errors import UserError, unknown_name

T = TypeVar("T")
_LIMITS = {  # kind of limit -> whether a value keeps it, and how a message says it
    "least": (operator.ge, "{:g} or more"),
    "above": (operator.gt, "more than {:g}"),
    "most": (operator.le, "at most {:g}"),
    "below": (operator.lt, "less than {:g}"),
}


def setting(
    default: Any,
    about: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Iterable[str] = (),
) -> Any:
    """Return the field of a setting.

    Args:
        default: Its default, in the type of its annotation.
        about: What it is, with its unit, in a few words for --help.
        least, above, most, below: Its range: `least` and `most` belong to it, `above` and `below` do not.
        choices: Its possible values, for a string.
    """
    limits = {"least": least, "above": above, "most": most, "below": below}
    return dataclasses.field(
        default=default,
        metadata={"about": about, "limits": {k: v for k, v in limits.items() if v is not None}, "choices": choices},
    )


def service(default: Any = None) -> Any:
    """Return a field that the search fills with what it offers under the name of the field; see `filled`.

    A judge or critic may have `client`, the model of vlm=, and `media`, the motions as that model sees them; a
    proposer `client`, the model of llm=; all of them `say`, which shows a sentence.
    """
    return dataclasses.field(default=default, repr=False, compare=False, metadata={"service": True})


def worked(what: str, made: object, call: Callable[[], T], kind: type[T]) -> T:
    """Return what a part came to. Raises UserError if one of another package fails, or returns no `kind`.

    what: names the part and what it was asked, for the message.
    """
    if type(made).__module__.partition(".")[0] == __name__.partition(".")[0]:
        return call()
    try:
        found = call()
    except UserError:
        raise
    except Exception as error:  # a part may raise anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename}, line {place.lineno}"
        raise UserError(f"{what} failed in {where}: {type(error).__name__}: {error}") from error
    if not isinstance(found, kind):
        raise UserError(f"{what} returned {found!r:.60}, expected a {kind.__name__}")
    return found


@runtime_checkable
class Checked(Protocol):
    """Settings whose ranges depend on each other."""

    def check(self, where: str) -> None:
        """Raise UserError if they do not fit together. `where`: the dotted name of the group."""
        ...


def part(registry: Parts[Any], default: Any) -> Any:
    """Return a field of a configuration that holds a part of `registry`; default: a part, or the name of one."""
    if isinstance(default, str):
        return dataclasses.field(default_factory=lambda: registry.read(default, ""), metadata={"parts": registry})
    return dataclasses.field(default=default, metadata={"parts": registry})


def settings_of(kind: type) -> list[dataclasses.Field[Any]]:
    """Return the fields of a class that users set; none for a class that is no dataclass."""
    if not dataclasses.is_dataclass(kind):
        return []
    fields = dataclasses.fields(kind)
    return [f for f in fields if f.init and f.name != "name" and not f.metadata.get("service")]


def services_of(made: object) -> list[str]:
    """Return the names of the services that a part uses."""
    fields = dataclasses.fields(made) if dataclasses.is_dataclass(made) else ()
    return [f.name for f in fields if f.metadata.get("service")]


def filled(made: T, services: Mapping[str, Any]) -> T:
    """Return a part with the services that it uses. Raises UserError if one is not offered."""
    names = services_of(made)
    if missing := next((name for name in names if services.get(name) is None), None):
        raise UserError(f"{type(made).__name__} uses the service {missing!r}, which this search does not offer")
    return dataclasses.replace(made, **{name: services[name] for name in names}) if names else made  # pyright: ignore


def check_ranges(group: Any, where: str = "") -> None:
    """Raise UserError if a setting of `group`, or of a group in it, is out of its range. `where`: its dotted name."""
    if isinstance(group, Checked):
        group.check(where)
    for f in dataclasses.fields(group) if dataclasses.is_dataclass(group) else ():
        name, value = f"{where}.{f.name}" if where else f.name, getattr(group, f.name)
        if f.metadata.get("flat"):
            check_ranges(value, where)
        elif dataclasses.is_dataclass(value):
            check_ranges(value, name)
        elif value is not None:
            _check(name, value, f.metadata)


def _check(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    limits = metadata.get("limits", {})
    if limits and not isinstance(value, int | float):
        raise UserError(f"{name}={value!r:.60} is not a number")
    if not all(_LIMITS[kind][0](value, limit) for kind, limit in limits.items()):
        words = " and ".join(_LIMITS[kind][1].format(limit) for kind, limit in limits.items())
        raise UserError(f"{name}={value:g}: it must be {words}")
    choices = tuple(metadata.get("choices", ()))
    for chosen in value if isinstance(value, tuple) else (value,):
        if choices and chosen not in choices:
            raise UserError(unknown_name(name, chosen, choices))


class Parts(Registry[type[T]]):
    """Classes of parts by name.

    Args:
        kind: What a part is, in one word, for messages: rule, law, judge ...
        group: The entry point group in which other packages name their classes.
        entries: The classes of this package. A function without arguments that makes a part is accepted, too.
        tag: The setting that holds the name of the part, among its own settings.
        former: Names of earlier versions, with the present ones.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        entries: Mapping[str, Any],
        tag: str = "name",
        former: Mapping[str, str] | None = None,
    ):
        super().__init__(kind, group, entries)
        self.tag, self._former = tag, former or {}
        self._names: dict[type, str] = {}  # of the classes of parts that were read

    def read(self, values: Any, where: str) -> T:
        """Return the part that `values` describe: its name, or a mapping with its name and settings.

        where: dotted name of the group. Settings of other parts are ignored, since a record or a file of settings may
        hold those of several; so is null for the default. Raises UserError for unknown names and wrong types.
        """
        given = {self.tag: values} if isinstance(values, str) else values
        if not isinstance(given, Mapping):
            raise UserError(f"{where} is {given!r:.60}, expected the name of a {self.kind} or a group of settings")
        given = {str(name): value for name, value in given.items()}
        name = self.present(str(given.pop(self.tag, next(iter(self)))))
        entry = self.get_or_raise(name, where if self.tag == "name" else f"{where}.{self.tag}")
        own = {f.name: f for f in settings_of(entry)}
        for strange in given.keys() - own.keys() - set(self.names()):
            known = [f"{where}.{n}" for n in (self.tag, *own)]
            raise UserError(unknown_name("setting", f"{where}.{strange}", known))
        chosen = {n: value for n, value in given.items() if n in own and value is not None}
        made: Any = from_mapping(entry, chosen, where) if own else entry()
        self._names[type(made)] = name
        return made

    def present(self, name: str) -> str:
        """Return the present name of a part for a name that an earlier version recorded."""
        return self._former.get(name, name)

    def names(self) -> list[str]:
        """Return the names of the settings of all parts."""
        return list(dict.fromkeys(f.name for entry in self.values() for f in settings_of(entry)))

    def name_of(self, made: object) -> str:
        """Return the name of a part; that of its class if it is not registered."""
        kind = type(made)
        where = f"{kind.__module__}:{kind.__qualname__}"
        found = (name for name, entry in self._entries.items() if entry is kind or entry == where)
        return self._names.get(kind) or next(found, kind.__name__)

    def record(self, made: object) -> Any:
        """Return what `read` makes the part of again: its name and settings, or the name of one without settings."""
        own = plain(made) if settings_of(type(made)) else {}
        return {self.tag: self.name_of(made), **own} if own or self.tag != "name" else self.name_of(made)

    def known(self, made: object) -> dict[str, Any]:
        """Return the name and the settings of a part, and the defaults of the settings of all others."""
        others = {f.name: f.default for entry in self.values() for f in settings_of(entry)}
        return others | self.record(made)

    def node(self, made: object) -> dict[str, Any]:
        """Return the settings that Hydra has where `made` is the default: those of all parts.

        Null is the default of whichever part is chosen.
        """
        found = {self.tag: self.name_of(made), **dict.fromkeys(self.names())}
        for f in settings_of(type(made)):
            if (value := getattr(made, f.name)) != f.default:
                found[f.name] = value
        return found
