"""Encoding of a traced reward as plain data: the child process writes the jaxpr as JSON, and nothing here runs it.

A document is {"version", "terms", "main"}; a graph is {"in", "consts", "eqns", "out"}. Values are numbered: the
inputs, then the constants, then the results of each equation. An operand is such a number, or a literal
[dtype, hexadecimal bytes]; a constant is [dtype, shape, hexadecimal bytes]. An equation holds
"p" primitive, "i" operands, "n" number of results, "a" parameters, "l" line of the program, "g" inner graphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from movlr_jax.errors import ProgramError
from movlr_jax.sandbox.primitives import DTYPES, SCAN, TABLE, BadValue

VERSION = 1
FILE = "<reward>"  # the file name in tracebacks of programs

_HINTS = {
    "while": "a loop's number of iterations is only known at run time; use a Python `for` over a fixed range, or "
    "jax.lax.fori_loop with constant bounds",
    "lu": "matrix factorisations are not available; write the solution of small systems out, or use "
    "jnp.linalg.norm, jnp.dot, jnp.cross",
    **dict.fromkeys(("pure_callback", "io_callback", "debug_callback"), "callbacks into Python are not allowed"),
    "debug_print": "printing is not allowed",
}


def at_line(line: int | None) -> str:
    """Return `line N: `, "" if the line is unknown."""
    return f"line {line}: " if line else ""


def refusal(primitive: str, line: int | None) -> str:
    """Return the error message for an operation that is not allowed in a reward."""
    if primitive.startswith(("random_", "threefry")):
        return f"{at_line(line)}randomness is not allowed; a reward must be deterministic"
    what = _HINTS.get(primitive)
    if what:
        return f"{at_line(line)}{what} (`{primitive}` is not an allowed operation)"
    return (
        f"{at_line(line)}the operation `{primitive}` is not allowed in a reward; use elementwise functions and sums"
    )


def encode(closed: ClosedJaxpr, terms: list[str]) -> dict[str, Any]:
    """Return the document of a traced reward. Raises ProgramError with the line if an operation is not allowed."""
    return {"version": VERSION, "terms": terms, "main": _graph(closed)}


def _known_dtype(name: str, line: int | None) -> str:
    if name not in DTYPES:
        raise ProgramError(
            f"{at_line(line)}the program computes with {name} values; only float32, int32 and bool are supported, "
            "remove the astype or dtype"
        )
    return name


def _graph(closed: ClosedJaxpr) -> dict[str, Any]:
    # two passes: constants of inlined functions are found on the way but are numbered before the equations
    inputs = [("in", i) for i in range(len(closed.jaxpr.invars))]
    flat: list[tuple[Any, list[Any], list[Any], int | None]] = []
    consts: list[Any] = []
    out = _flatten(closed, inputs, flat, consts, None)
    numbers: dict[Any, int] = {}
    for value in (*inputs, *(("const", i) for i in range(len(consts)))):
        numbers[value] = len(numbers)

    def atom(value: Any) -> Any:
        return value[1] if value[0] == "literal" else numbers[value]

    equations = []
    for equation, operands, results, at in flat:
        equations.append(_equation(equation, [atom(v) for v in operands], at))
        for result in results:
            numbers[result] = len(numbers)
    arrays = [np.asarray(c) for c in consts]
    written = [[_known_dtype(a.dtype.name, None), list(a.shape), a.tobytes().hex()] for a in arrays]
    return {"in": len(inputs), "consts": written, "eqns": equations, "out": [atom(v) for v in out]}


def _flatten(
    closed: ClosedJaxpr, inputs: list[Any], flat: list[Any], consts: list[Any], line: int | None
) -> list[Any]:
    """Append equations and constants of a jaxpr and of the functions that it calls. Return its results."""
    jaxpr = closed.jaxpr
    scope: dict[Any, Any] = dict(zip(jaxpr.invars, inputs, strict=True))
    for var, const in zip(jaxpr.constvars, closed.consts, strict=True):
        scope[var] = ("const", len(consts))
        consts.append(const)

    def read(var: Any) -> Any:
        if isinstance(var, Literal):
            array = np.asarray(var.val, var.aval.dtype)  # pyright: ignore[reportAttributeAccessIssue]
            return ("literal", [_known_dtype(array.dtype.name, line), array.tobytes().hex()])
        return scope[var]

    for equation in jaxpr.eqns:
        at = line or _line(equation)
        inner = _inlined(equation)
        operands = [read(v) for v in equation.invars]
        if inner is not None:
            given = operands[len(operands) - len(inner.jaxpr.invars) :]
            results = _flatten(inner, given, flat, consts, at)
        else:
            results = [("eqn", len(flat), i) for i in range(len(equation.outvars))]
            for var in equation.outvars:
                _known_dtype(str(getattr(var.aval, "dtype", None)), at)
            flat.append((equation, operands, results, at))
        scope.update(zip(equation.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _inlined(equation: Any) -> ClosedJaxpr | None:
    """Return the function that an equation only calls, None for other equations."""
    name, params = equation.primitive.name, equation.params
    if name in ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint"):
        inner = params.get("jaxpr") or params.get("call_jaxpr")
        return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
    if name == "custom_jvp_call":  # its own gradient is not used
        return params["call_jaxpr"]
    if name == "cond" and params.get("branches_platforms") is not None:
        # one branch per platform (jnp.diag); only the default is used
        for branch, platforms in zip(params["branches"], params["branches_platforms"], strict=True):
            if platforms is None:
                return branch
    return None


def _equation(equation: Any, operands: list[Any], line: int | None) -> dict[str, Any]:
    name, params, graphs = equation.primitive.name, dict(equation.params), []
    if equation.effects and name not in ("scan", "cond"):
        raise ProgramError(refusal(name, line))
    kinds = TABLE.get(name)
    if name == "scan":
        graphs, kinds = [_graph(params["jaxpr"])], SCAN
        params = {k: v for k, v in scan_params(params).items() if k in SCAN}
    elif name == "cond":
        graphs, kinds, params = [_graph(b) for b in params["branches"]], {}, {}
    elif is_copy(name, params):
        name, kinds, params = "copy", TABLE["copy"], {}
    elif name == "platform_index":  # used only by a `cond` with one branch per platform, which is inlined
        name, kinds, params = "iota", TABLE["iota"], _ZERO
    elif name.startswith("scatter"):
        params = {k: v for k, v in params.items() if k not in ("update_jaxpr", "update_consts")}
    if kinds is None:
        raise ProgramError(refusal(name, line))
    written = {}
    for key, value in params.items():
        if key not in kinds:
            raise ProgramError(f"{refusal(name, line)} (its parameter {key!r} is not supported)")
        try:
            written[key] = kinds[key].encode(value)
        except (BadValue, ValueError, TypeError) as error:
            detail = str(error) or f"{key}={value!r}"[:80]
            raise ProgramError(
                f"{at_line(line)}`{name}` with {detail} is not allowed in a reward; use its defaults"
            ) from None
    made = {"p": name, "i": operands, "n": len(equation.outvars), "a": written, "l": line or 0}
    return made | ({"g": graphs} if graphs else {})


_ZERO = {"dtype": np.dtype("int32"), "shape": (1,), "dimension": 0, "sharding": None}


def _line(equation: Any) -> int | None:
    """Return the line of the program that an equation comes from."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback else ():
        if frame.file_name == FILE:
            return frame.line_num
    return None


def scan_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a `scan` equation with `num_consts` and `num_carry`, as JAX 0.9 and 0.10 have them.

    JAX 0.11 replaced the two counts by `ft_in`, a flat tree of (consts, carry, xs).
    """
    if "ft_in" not in params:
        return params
    consts, carry, _ = params["ft_in"].unpack()
    return params | {"num_consts": len(consts), "num_carry": len(carry)}


def is_copy(name: str, params: dict[str, Any]) -> bool:
    """Return whether an equation copies a value; JAX 0.9 writes full_like with a `device_put` to no device."""
    return name == "copy" or (name == "device_put" and all(device is None for device in params["devices"]))
