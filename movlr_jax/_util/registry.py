"""Open registries: what the package has by name, what a caller registers, and what other packages bring."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from movlr_jax.errors import UserError, unknown_name

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """Entries of one kind by name.

    Args:
        kind: What an entry is, in one word, for messages: task, model, judge ...
        group: The entry point group in which other packages name their entries, as `movlr_jax.judges`. Such an entry
            point is loaded when it is first looked up.
        entries: Those of this package; a string says where one is, as `module:name`, if it is to be loaded later.
    """

    def __init__(self, kind: str, group: str, entries: Mapping[str, T | str] | None = None):
        self.kind, self.group = kind, group
        self._entries: dict[str, Any] = dict(entries or {})
        self.packaged = frozenset(self._entries)  # names of the entries that this package brings

    def register(self, name: str, entry: T, *, replace: bool = False) -> T:
        """Add `entry` under `name` and return it. Raises UserError when the name is taken and `replace` is False."""
        if not replace and name in self:
            raise UserError(f"there is a {self.kind} {name!r} already; give another name, or replace=True")
        if not name.replace("-", "_").isidentifier():
            raise UserError(f"{name!r} cannot name a {self.kind}: use letters, digits, _ and -")
        self._entries[name] = entry
        return entry

    def get_or_raise(self, name: str, setting: str = "") -> T:
        """Return the entry `name`. Raises UserError with near matches; `setting` names it there, else the kind."""
        if name not in self:
            raise UserError(unknown_name(setting or self.kind, name, list(self)))
        return self[name]

    def _points(self) -> Mapping[str, EntryPoint]:
        return _installed(self.group, tuple(sys.path))

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            point = self._points().get(name)
            if point is None:
                raise KeyError(name)
            try:
                self._entries[name] = point.load()
            except Exception as error:  # whatever another package raises on import
                raise UserError(
                    f"the {self.kind} {name!r} of the entry point {point.value} cannot be loaded: {error}"
                ) from error
        entry = self._entries[name]
        if isinstance(entry, str):  # where it is, as module:name
            self._entries[name] = entry = EntryPoint(name, entry, self.group).load()
        return entry

    def __setitem__(self, name: str, entry: T) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._points()

    def __iter__(self) -> Iterator[str]:
        yield from self._entries
        yield from (name for name in self._points() if name not in self._entries)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@functools.cache
def _installed(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group. Reading them takes 20 ms, and names are looked up many times."""
    return {point.name: point for point in entry_points(group=group)}
