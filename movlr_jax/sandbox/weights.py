"""The weights of a reward program: a dict of numbers, computed from its text without running it."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from movlr_jax.errors import ProgramError
from movlr_jax.sandbox.facade import MATH
from movlr_jax.sandbox.limits import plus, power, times
from movlr_jax.sandbox.names import Names

MAX_WEIGHT = 1e6
_CONSTANTS = ("math.pi", "math.e", "jax.numpy.pi", "jax.numpy.e")
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: plus,
    ast.Sub: operator.sub,
    ast.Mult: times,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


class _Unknown(Exception):
    """An expression whose value is not known from the text."""


def is_weights(node: ast.stmt) -> bool:
    """Return whether a statement sets WEIGHTS, with or without an annotation."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign) and node.value:
        targets = [node.target]
    return len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == "WEIGHTS"


def weights_of(tree: ast.Module, names: Names) -> dict[str, float]:
    """Return the weights of a program. Raises ProgramError."""
    found = [n for n in tree.body if is_weights(n)]
    if len(found) != 1:
        raise ProgramError(f'a program must have one top-level `WEIGHTS = {{"term": 1.0, ...}}`; found {len(found)}')
    target, node = found[0].targets[0], found[0].value  # pyright: ignore[reportAttributeAccessIssue]
    for use in ast.walk(tree):
        if isinstance(use, ast.Name) and use.id == "WEIGHTS" and use is not target:
            raise ProgramError(
                f"line {use.lineno}: WEIGHTS is set once at top level and must not be used elsewhere; return the "
                "terms unweighted, the weighted total is computed for you"
            )
    where = f"line {node.lineno}: "
    try:
        value = _value(node, _constants(tree, found[0], names), names)
    except ProgramError as error:
        raise ProgramError(f"{where}{error}") from None
    except (_Unknown, ArithmeticError, ValueError, TypeError, LookupError, RecursionError):
        raise ProgramError(
            f"{where}WEIGHTS must be a literal dict of numbers, or of arithmetic on numbers that are set above it"
        ) from None
    return _checked(value, where)


def _checked(value: Any, where: str) -> dict[str, float]:
    if not isinstance(value, dict) or not value:
        raise ProgramError(f"{where}WEIGHTS must be a dict with at least one term; got {type(value).__name__}")
    for term, weight in value.items():
        if not isinstance(term, str) or not term.isidentifier() or len(term) > 64:
            raise ProgramError(
                f"{where}a term's name must be an identifier of at most 64 characters; got {repr(term)[:80]}"
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise ProgramError(f"{where}WEIGHTS[{term!r}] is {repr(weight)[:60]}, expected a number")
        if not abs(weight) <= MAX_WEIGHT:  # also for nan
            shown = repr(weight)[:20]
            raise ProgramError(f"{where}WEIGHTS[{term!r}] is {shown}, more than {MAX_WEIGHT:g}")
    return {k: float(v) for k, v in value.items()}


def _constants(tree: ast.Module, before: ast.stmt, names: Names) -> dict[str, Any]:
    """Return the values of the names that are set once, at top level and above WEIGHTS, where the text has them."""
    stored = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
    known: dict[str, Any] = {}
    for node in tree.body[: tree.body.index(before)]:
        match node:
            case ast.Assign(targets=[ast.Name() as target], value=value):
                pairs = [(target, value)]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(
                values
            ):
                pairs = list(zip(targets, values, strict=True))
            case _:
                continue
        for target, value in pairs:
            if isinstance(target, ast.Name) and stored.count(target.id) == 1:
                try:
                    known[target.id] = _value(value, known, names)
                except (_Unknown, ProgramError, ArithmeticError, ValueError, TypeError, LookupError):
                    continue
    return known


def _value(node: ast.expr | None, known: dict[str, Any], names: Names) -> Any:
    """Return the value of an expression of constants. Raises _Unknown, ProgramError and what arithmetic raises."""

    def of(inner: ast.expr | None) -> Any:
        return _value(inner, known, names)

    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.Dict(keys=keys, values=values):
            return _dict([(of(k), of(v)) for k, v in zip(keys, values, strict=True)])
        case ast.Call(func=ast.Name(id="dict"), args=args, keywords=keywords) if "dict" not in names.bound:
            if args or any(k.arg is None for k in keywords):
                raise _Unknown
            return _dict([(k.arg, of(k.value)) for k in keywords])
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [of(e) for e in elements]
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
            return of(inner)[key]
        case ast.UnaryOp(op=operation, operand=operand) if type(operation) in _OPERATORS:
            return _OPERATORS[type(operation)](_number(of(operand)))
        case ast.IfExp(test=test, body=then, orelse=other):
            return of(then) if of(test) else of(other)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
            values = of(left), of(right)
            if isinstance(operation, ast.Add) and all(isinstance(v, str) for v in values):
                return plus(*values)
            result = _OPERATORS[type(operation)](*map(_number, values))
            return _number(result)  # a power may be complex
        case ast.Attribute() if names.path(node) in _CONSTANTS:
            return getattr(math, node.attr)
        case ast.Call(func=function, args=args, keywords=[]) if (names.path(function) or "").startswith("math."):
            name = (names.path(function) or "").removeprefix("math.")
            if name in MATH and callable(getattr(math, name, None)):
                return getattr(math, name)(*(_number(of(a)) for a in args))
    raise _Unknown


def _dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ProgramError("WEIGHTS names a term twice")
    return dict(pairs)


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Unknown
    return value
