"""Exceptions whose messages are shown to the user, messages for unknown names, and escaping of untrusted text."""

from __future__ import annotations

import contextlib
import difflib
import errno
import re
import reprlib
import shlex
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

_UNUSUAL = re.compile(r"[^\n\t -~]")
_JOINERS = "\u200c\u200d"  # some scripts and emoji need them
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 100
_SHOWN.maxlist = _SHOWN.maxtuple = _SHOWN.maxdict = 8
_SHOWN.maxlevel = 4
_LONGEST = 200  # characters of an unknown name that are compared with the existing names


def printable(text: str) -> str:
    """Return `text` with control characters, direction marks and lone surrogates escaped, as in \\x1b.

    Text from servers and programs is escaped here before it is shown, because a terminal would execute such codes.
    """

    def escaped(match: re.Match[str]) -> str:
        c = match.group()
        shown = unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or c in _JOINERS
        return c if shown else c.encode("ascii", "backslashreplace").decode() if ord(c) > 127 else repr(c)[1:-1]

    return _UNUSUAL.sub(escaped, text)


class UserError(Exception):
    """An error that the user can fix; commands print its message and exit with status 2."""

    def __str__(self) -> str:
        return printable(super().__str__())


class BudgetSpent(UserError):
    """max_calls or max_cost_usd is reached; finished work is kept."""


class MissingModel(UserError):
    """The files of a model are not on this machine: they cannot be downloaded, or their package is not installed."""


class ProgramError(Exception):
    """A reward program is invalid; the user, the log and the proposer get the same message."""


@contextlib.contextmanager
def needed(who: str, extra: str) -> Iterator[None]:
    """Wrap imports that `who` needs and an extra of this package installs. Raises UserError if one is missing."""
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"{who} needs the package {error.name!r}, which is not installed; pip install 'movlr-jax[{extra}]'"
        ) from error


_OF_PATHS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR)


@contextlib.contextmanager
def path_errors() -> Iterator[None]:
    """Raise UserError instead of an OSError for a path that cannot be entered or exist, or no current folder."""
    try:
        yield
    except OSError as error:
        try:
            Path.cwd()
        except FileNotFoundError:
            raise UserError("the current folder was deleted; change to another one, as with cd ~") from None
        if error.errno not in _OF_PATHS or error.filename is None:
            raise
        raise UserError(f"cannot access {error.filename}: {error.strerror}") from error


def resuming(run: Path) -> str:
    """Return the setting that continues a run, as it can be pasted into a shell."""
    path = str(run)
    if "," in path:  # which separates the values of a sweep
        path = "'" + path.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"resume={shlex.quote(path)}"


def shortened(value: object) -> str:
    """Return the `repr` of a value, truncated so that an error message stays one readable sentence."""
    return " ".join(_SHOWN.repr(value).split())


def near_matches(name: str, options: Iterable[str], limit: int = 5) -> list[str]:
    """Return the options most similar to `name`: similar spelling first, then options that contain it.

    A dotted name is first compared with the options in its own group.
    """
    options = list(dict.fromkeys(options))
    group, dot, last = name.rpartition(".")
    members = [o.removeprefix(group + dot) for o in options if dot and o.startswith(group + dot)]
    if members and (near := near_matches(last, members, limit)):
        return [group + dot + member for member in near]
    lowered = {option.lower(): option for option in options}
    close = [lowered[m] for m in difflib.get_close_matches(name.lower(), lowered, n=limit, cutoff=0.5)]
    inside = [o for o in options if name and (name.lower() in o.lower() or o.lower() in name.lower())]
    return list(dict.fromkeys(close + inside))[:limit]


def similar_files(file: Path) -> str:
    """Return a hint with the files next to `file` that have similar names and its suffix, "" if there are none."""
    beside = file.parent.glob(f"*{file.suffix}") if file.parent.is_dir() else []
    near = near_matches(file.stem, [path.stem for path in beside], limit=3)
    return f"; did you mean {' or '.join(str(file.with_name(n + file.suffix)) for n in near)}?" if near else ""


def unknown_name(kind: str, name: object, options: Iterable[str]) -> str:
    """Return an error message for an unknown name that lists near matches, or all options if there are none."""
    options, shown_name = list(options), shortened(name)
    if not options:
        return f"there is no {kind} {shown_name}: this model has none"
    near = near_matches(str(name)[:_LONGEST], options)
    if near:
        return f"there is no {kind} {shown_name}; did you mean {' or '.join(repr(n) for n in near)}?"
    shown = ", ".join(options[:40]) + (f", ... ({len(options)} in all)" if len(options) > 40 else "")
    return f"there is no {kind} {shown_name}; there are: {shown}"
