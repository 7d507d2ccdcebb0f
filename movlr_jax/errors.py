"""The one exception a person sees as a sentence, how a name that does not exist is reported, and how text of others
is made safe to print."""

from __future__ import annotations

import contextlib
import difflib
import re
import reprlib
import unicodedata
from collections.abc import Iterable, Iterator

_UNUSUAL = re.compile(r"[^\n\t -~]")
_JOINERS = "\u200c\u200d"  # some scripts and emoji need them
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 100
_SHOWN.maxlist = _SHOWN.maxtuple = _SHOWN.maxdict = 8
_SHOWN.maxlevel = 4
_LONGEST = 200  # characters of a name that others are compared with


def printable(text: str) -> str:
    """`text` with control characters, direction marks and lone surrogates as escapes, as in \\x1b.

    Whatever a server or a program says passes through here before it is shown: a terminal would obey such codes.
    """

    def escaped(match: re.Match[str]) -> str:
        c = match.group()
        shown = unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or c in _JOINERS
        return (
            c if shown else c.encode("ascii", "backslashreplace").decode() if ord(c) > 127 else repr(c)[1:-1]
        )

    return _UNUSUAL.sub(escaped, text)


class UserError(Exception):
    """Something the person at the keyboard can mend; commands print it and exit with status 2."""

    def __str__(self) -> str:
        return printable(super().__str__())


class BudgetSpent(UserError):
    """max_calls or max_cost_usd is reached; what was done is kept."""


class ProgramError(Exception):
    """A reward program is wrong; the sentence goes to the person, the log and the proposer alike."""


@contextlib.contextmanager
def needed(who: str, extra: str) -> Iterator[None]:
    """For imports that `who` cannot do without and an extra of this package brings. Raises UserError."""
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"{who} needs the package {error.name!r}, which is not installed; pip install 'movlr-jax[{extra}]'"
        ) from error


def shortened(value: object) -> str:
    """`repr` of a value, cut where it is long: a message is a sentence, whatever a file holds."""
    return _SHOWN.repr(value)


def near_matches(name: str, options: Iterable[str], limit: int = 5) -> list[str]:
    """The options most like `name`: spelling first, then those that contain it; in its own group, if it is dotted."""
    options = list(dict.fromkeys(options))
    group, dot, last = name.rpartition(".")
    members = [o.removeprefix(group + dot) for o in options if dot and o.startswith(group + dot)]
    if members and (near := near_matches(last, members, limit)):
        return [group + dot + member for member in near]
    lowered = {option.lower(): option for option in options}
    close = [lowered[m] for m in difflib.get_close_matches(name.lower(), lowered, n=limit, cutoff=0.5)]
    inside = [o for o in options if name and (name.lower() in o.lower() or o.lower() in name.lower())]
    return list(dict.fromkeys(close + inside))[:limit]


def unknown_name(kind: str, name: object, options: Iterable[str]) -> str:
    """A sentence for a name that does not exist: near matches, or everything when nothing is near."""
    options, said = list(options), shortened(name)
    if not options:
        return f"there is no {kind} {said}: this model has none"
    near = near_matches(str(name)[:_LONGEST], options)
    if near:
        return f"there is no {kind} {said}; did you mean {' or '.join(repr(n) for n in near)}?"
    shown = ", ".join(options[:40]) + (f", ... ({len(options)} in all)" if len(options) > 40 else "")
    return f"there is no {kind} {said}; there are: {shown}"
