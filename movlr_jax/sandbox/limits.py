"""Limits of what a reward program computes while it is traced: guarded operators, strings, loops and builtins.

A Python loop or a string can grow without end before any operation is traced. Each guard raises ProgramError where
a value would exceed its limit, before it is made where that is possible.
"""

from __future__ import annotations

import builtins
import itertools
import math
import operator
import re
import string
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax

from movlr_jax.errors import ProgramError

MAX_ENTRIES = 10_000  # of a Python list, and iterations of a Python loop
MAX_BITS = 1024  # of a Python integer
MAX_TEXT = 2_000  # characters of a string
MAX_STEPS = 50_000  # iterations of all Python loops and calls of all functions of a program together

# a format specification; a width has at most two digits
FORMAT = re.compile(r"[<>=^]?[ +-]?0?\d{0,2}[,_]?(\.\d{1,2})?[bdeEfFgGnosxX%]?")
_PERCENT = re.compile(r"%(?:%|(?:\([A-Za-z]\w*\))?[-+ #0]*\d{0,2}(?:\.\d{1,2})?[diouxXeEfFgGcrsa])")


class Steps:
    """Counter of the iterations and calls of one program. Raises ProgramError past MAX_STEPS."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def restart(self) -> None:
        self._left = MAX_STEPS

    def step(self, *arguments: Any) -> None:
        """Count one call or iteration; `arguments` are those that a function takes as *args."""
        self._left -= 1
        if self._left < 0:
            raise ProgramError(
                f"Python loops and calls take more than {MAX_STEPS:,} steps: they are unrolled when the program is "
                "traced; use arrays or jax.lax.fori_loop"
            )
        for value in arguments:
            bounded(value)

    def _passed(self, item: Any) -> Any:
        self.step()
        return item

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        """Return an iterator over `items` that counts."""
        return map(self._passed, items)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of itertools whose results count, since they may be many."""
        return lambda *arguments, **options: self.each(function(*arguments, **options))


def bounded(value: Any) -> Any:
    """Return a string, list or tuple that is not too long. Raises ProgramError."""
    if isinstance(value, str | list | tuple):
        _of_length(value, len(value))
    return value


def _check_text(length: int) -> None:
    if length > MAX_TEXT:
        raise ProgramError(f"a string has {length:,} characters, the limit is {MAX_TEXT:,}")


def _check_entries(entries: int) -> None:
    if entries > MAX_ENTRIES:
        raise ProgramError(f"a list has {entries:,} entries, the limit is {MAX_ENTRIES:,}; use jnp.zeros or jnp.full")


def _check_bits(bits: int, instead: str = "a float") -> None:
    if bits > MAX_BITS:
        raise ProgramError(f"an integer has more than {MAX_BITS} bits; write it as {instead}")


def _of_length(value: Any, length: int) -> None:
    _check_text(length) if isinstance(value, str) else _check_entries(length)


def plus(a: Any, b: Any) -> Any:
    """Return a + b, but raise ProgramError for very long strings and lists."""
    if all(isinstance(value, str | list | tuple) for value in (a, b)):
        _of_length(a, len(a) + len(b))
    return operator.add(a, b)


def plus_in_place(a: Any, b: Any) -> Any:
    """Return a += b, which extends a list itself."""
    if isinstance(a, list):
        return extended(a, b, then=a)
    return plus(a, b)


def extended(items: list[Any], more: Iterable[Any], then: Any = None) -> Any:
    """Extend a list within its limit and return `then`."""
    items += list(itertools.islice(more, max(MAX_ENTRIES + 1 - len(items), 0)))
    _check_entries(len(items))
    return then


def stored(value: Any, owner: Any, place: Any) -> None:
    """Set owner[place] = value; a list stays within its limit."""
    owner[place] = value
    bounded(owner)


def times(a: Any, b: Any) -> Any:
    """Return a * b, but raise ProgramError for very long strings, lists and integers."""
    for sequence, count in ((a, b), (b, a)):
        if isinstance(sequence, list | tuple | str) and isinstance(count, int):
            _of_length(sequence, len(sequence) * count)
    if isinstance(a, int) and isinstance(b, int):
        _check_bits(a.bit_length() + b.bit_length() - 1)
    return operator.mul(a, b)


def power(a: Any, b: Any, *modulus: Any) -> Any:
    """Return a ** b, but raise ProgramError for very long integers."""
    if isinstance(a, int) and isinstance(b, int) and b > 0 and abs(a) > 1:
        _check_bits(a.bit_length() * b, "a float, e.g. 9.0 ** 9")
    return pow(a, b, *modulus)


def shifted(a: Any, b: Any) -> Any:
    """Return a << b, but raise ProgramError for very long integers."""
    if isinstance(a, int) and isinstance(b, int) and b > 0:
        _check_bits(a.bit_length() + b)
    return operator.lshift(a, b)


def modulo(a: Any, b: Any) -> Any:
    """Return a % b; a string is formatted with numbers and strings only."""
    if not isinstance(a, str):
        return operator.mod(a, b)
    if _PERCENT.sub("", bounded(a)).count("%"):
        raise ProgramError("% formatting of strings needs plain conversions, such as %d, %s and %.3f")
    if isinstance(b, dict):
        return bounded(a % {str(k): _plain(v, "% formatting of strings") for k, v in b.items()})
    values = tuple(_plain(v, "% formatting of strings") for v in (b if isinstance(b, tuple) else (b,)))
    return bounded(a % values)


def formatted(template: str, *arguments: Any, **named: Any) -> str:
    """Return template.format(...) of numbers and strings: no placeholder reads an attribute or an entry."""
    check_template(bounded(template))
    values = [_plain(v, ".format") for v in arguments]
    return bounded(template.format(*values, **{k: _plain(v, ".format") for k, v in named.items()}))


def check_template(template: str) -> None:
    """Raise ProgramError if a placeholder of a template is not a plain name or number with a plain format."""
    for _, name, spec, _ in string.Formatter().parse(template):
        if name is None:
            continue
        if not re.fullmatch(r"\d{0,3}|[A-Za-z]\w*", name, re.ASCII):
            raise ProgramError(f"a placeholder of .format must be {{}}, a number or a name, not {{{name[:40]}}}")
        if not FORMAT.fullmatch(spec or ""):
            raise ProgramError("a format specification must be a literal such as .3f")


def joined(separator: str, items: Iterable[Any]) -> str:
    """Return separator.join(items) within the limit."""
    found = list(itertools.islice(items, MAX_TEXT + 2))
    if all(isinstance(item, str) for item in found):
        _check_text(sum(len(item) for item in found) + len(separator) * max(len(found) - 1, 0))
    return separator.join(found)


def replaced(text: str, old: str, new: str, count: int = -1) -> str:
    """Return text.replace(old, new, count) within the limit."""
    found = text.count(old)
    _check_text(len(text) + (found if count < 0 else min(found, count)) * (len(new) - len(old)))
    return text.replace(old, new, count)


def _plain(value: Any, what: str) -> Any:
    """Return a number, string or a description of an array. Raises ProgramError for other values."""
    if value is None or isinstance(value, str | bool | int | float | tuple | list | jax.Array):
        return shown(value)
    raise ProgramError(f"{what} is not available for a {type(value).__name__}, only for numbers and strings")


def text(value: Any = "") -> str:
    """Return `str(value)` for values known at trace time, the type's name for other values; never an address."""
    return bounded("".join(itertools.islice(_pieces(value), MAX_TEXT + 1)))


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, tuple | list):
        yield "("
        for i, entry in enumerate(value):
            yield ", " if i else ""
            yield from _pieces(entry)
        yield ")"
    elif isinstance(value, jax.Array):
        yield f"array{value.shape}"
    else:
        yield str(shown(value))


def shown(value: Any) -> Any:
    """Return a value that an f-string may format: a string, a number, or the name of the value's type."""
    if value is None or type(value) in (str, bool, int, float):
        return value
    return text(value) if isinstance(value, tuple | list | jax.Array) else type(value).__name__


def turns(*bounds: int) -> range:
    """Return range(*bounds) within the limit."""
    result = range(*bounds)
    # len() would overflow for very long ranges
    count = max(0, -(-(result.stop - result.start) // result.step))
    if count > MAX_ENTRIES:
        raise ProgramError(
            f"a range has {count:,} entries, the limit is {MAX_ENTRIES:,}: a Python loop is unrolled when it is "
            "traced; use jax.lax.fori_loop or arrays"
        )
    return result


def rounded(number: Any, digits: Any = None) -> Any:
    if isinstance(digits, int) and abs(digits) > MAX_BITS:
        raise ProgramError(f"round to {digits:,} digits; the limit is {MAX_BITS:,}")
    return round(number, digits)


def first(items: Any, *sentinel: Any) -> Iterator[Any]:
    """Return iter(items); a function that is called until it returns a sentinel may be called without end."""
    if sentinel:
        raise ProgramError("iter with two arguments is not available; loop over a range or a list")
    return iter(items)


def added(items: Iterable[Any], start: Any = 0) -> Any:
    """Return sum(items, start); lists are added within the limit."""
    if not isinstance(start, list | tuple):
        return builtins.sum(items, start)
    for item in items:
        start = plus(start, item)
    return start


def product(*sequences: Iterable[Any], repeat: int = 1) -> Iterator[Any]:
    """Return itertools.product, which keeps all its inputs."""
    found = [tuple(itertools.islice(s, MAX_ENTRIES + 1)) for s in sequences]
    _check_entries(min(math.prod(map(len, found)) ** min(repeat, 64), MAX_ENTRIES + 1))
    return itertools.product(*found, repeat=repeat)


def number(kind: Any, value: Any) -> Any:
    """Return float(value) at top level, where even constants of jnp are traced."""
    if kind is float and isinstance(value, jax.core.Tracer) and value.shape == ():
        return value.astype("float32")
    return kind(value)


_AS_ARRAY = {float: "jnp.asarray(x, jnp.float32)", int: "jnp.asarray(x, jnp.int32)", bool: "jnp.asarray(x, bool)"}


def known_number(kind: Any, value: Any) -> Any:
    """Return float(value), int(value) or bool(value) within `reward`. Raises ProgramError for a traced value."""
    if isinstance(value, jax.core.Tracer) and kind in _AS_ARRAY:
        raise ProgramError(
            "a value that is only known at run time is used where Python needs a constant; write "
            f"{_AS_ARRAY[kind]} in place of {kind.__name__}(x)"
        )
    return kind(value)


def matched(value: Any) -> Any:
    """Return the subject of a `match` statement. Raises ProgramError unless it is a Python value."""
    if isinstance(value, jax.Array) or type(value).__name__ == "State":
        raise ProgramError(
            "match needs a Python value, but this one is only known at run time; use jnp.where or jax.lax.switch"
        )
    return value


def error(kind: str, *details: Any) -> ProgramError:
    """Return the error that `raise` in a program raises."""
    return ProgramError(f"{kind}: {' '.join(text(d) for d in details)}" if details else kind)


METHODS: dict[str, tuple[type, Callable[..., Any]]] = {
    "format": (str, formatted),
    "join": (str, joined),
    "replace": (str, replaced),
    "extend": (list, extended),
}


def method(value: Any, name: str, otherwise: Callable[[Any, str], Any]) -> Any:
    """Return the guarded method `name` of a string or list; `otherwise` finds attributes of other values."""
    kind, function = METHODS[name]
    return partial(function, value) if isinstance(value, kind) else otherwise(value, name)
