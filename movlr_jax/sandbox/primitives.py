"""The operations that a reward may use, and the allowed values of their parameters.

Encoding and checking use the same table. A primitive or a parameter that is not in it is rejected, so that
changes in a new version of JAX fail a test (`tests/sandbox/test_graph.py`) and not a user's run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive, primitives
from jax.lax import GatherDimensionNumbers, GatherScatterMode, RoundingMethod, ScatterDimensionNumbers

DTYPES = ("float32", "int32", "uint32", "bool")
_BIG = 1 << 31
_LONGEST = 64  # entries of a list among the parameters


class BadValue(ValueError):
    """A parameter has a value that the table does not allow."""


@dataclass(frozen=True)
class Kind:
    """One kind of parameter: encoded to JSON in the child, decoded in the main process. Both raise BadValue."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _int(value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or abs(int(value)) > _BIG:
        raise BadValue
    return int(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise BadValue
    return bool(value)


def _ints(value: Any, longest: int = _LONGEST) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or len(value) > longest:
        raise BadValue
    return tuple(_int(v) for v in value)


def _none(value: Any) -> None:
    if value is not None:
        raise BadValue


def _nested(value: Any, depth: int = 3) -> tuple[Any, ...]:
    """Check lists of integers nested up to `depth`, such as padding and the dimensions of a product."""
    if not isinstance(value, list | tuple) or len(value) > _LONGEST or not depth:
        raise BadValue
    return tuple(_int(v) if isinstance(v, int | np.integer) else _nested(v, depth - 1) for v in value)


def _dtype_out(value: Any) -> str:
    name = np.dtype(value).name
    if name not in DTYPES:
        raise BadValue(f"{name} values; only float32, int32 and bool are supported")
    return name


def _dtype_in(value: Any) -> np.dtype:
    if value not in DTYPES:
        raise BadValue
    return np.dtype(value)


def _fill_out(value: Any) -> int | float | bool | str | None:
    """Encode the fill value for entries out of bounds; JAX's default is NaN, which JSON cannot represent."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, np.generic | np.ndarray):
        value = value.item()
    if isinstance(value, float) and np.isinf(value):
        raise BadValue(f"{value}")
    if isinstance(value, float):
        return "nan" if np.isnan(value) else value
    return _int(value)


def _fill_in(value: Any) -> int | float | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return value
    return float("nan") if value == "nan" else _int(value)


def _same(function: Callable[[Any], Any]) -> Kind:
    return Kind(function, function)


def _or_none(kind: Kind) -> Kind:
    return Kind(lambda v: None if v is None else kind.encode(v), lambda v: None if v is None else kind.decode(v))


def _choice(enum: Any) -> Kind:
    names = {member.name: member for member in enum}

    def decode(value: Any) -> Any:
        if not isinstance(value, str) or value not in names:
            raise BadValue
        return names[value]

    return Kind(lambda v: enum(v).name, decode)


def _record(kind: Any, fields: tuple[str, ...]) -> Kind:
    def encode(value: Any) -> Any:
        if getattr(value, "mode", None) is not None:
            raise BadValue
        return {f: list(_ints(tuple(getattr(value, f)))) for f in fields}

    def decode(value: Any) -> Any:
        if not isinstance(value, dict) or set(value) != set(fields):
            raise BadValue
        return kind(**{f: _ints(value[f]) for f in fields})

    return Kind(encode, decode)


INT, BOOL, INTS, NONE, NESTED = (_same(f) for f in (_int, _bool, _ints, _none, _nested))
FILL = Kind(_fill_out, _fill_in)
SIZES = _same(functools.partial(_ints, longest=4096))  # of a split: up to as many as a vector has entries
# weak types affect only promotion, which is already done
STRONG = Kind(_bool, lambda value: _bool(value) and False)
DTYPE = Kind(_dtype_out, _dtype_in)
MODE, ROUNDING = _choice(GatherScatterMode), _choice(RoundingMethod)
GATHER = _record(
    GatherDimensionNumbers,
    ("offset_dims", "collapsed_slice_dims", "start_index_map", "operand_batching_dims",
     "start_indices_batching_dims"),
)  # fmt: skip
SCATTER = _record(
    ScatterDimensionNumbers,
    ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "operand_batching_dims",
     "scatter_indices_batching_dims"),
)  # fmt: skip

_AXES, _ACCURACY = {"axes": INTS}, {"accuracy": NONE}
_SCATTER = {"dimension_numbers": SCATTER, "indices_are_sorted": BOOL, "unique_indices": BOOL, "mode": MODE}
_PLAIN = [
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "ceil",
    "clamp", "copy", "cosh", "div", "eq", "erf", "floor", "ge", "gt", "is_finite", "le", "le_to", "lt", "lt_to",
    "max", "min", "mul", "ne", "neg", "not", "one_minus_square", "or", "pow", "rem", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sinh", "square", "stop_gradient", "sub",
    "tan", "tanh", "xor", "erfc",
]  # fmt: skip
_ACCURATE = [
    "cbrt", "cos", "exp", "exp2", "expm1", "log", "log1p", "log2", "logistic", "rsqrt", "sin", "sqrt", "tan",
    "tanh",
]  # fmt: skip

# Parameters of each primitive. A parameter of kind NONE may also be absent: only some versions of JAX have it.
TABLE: dict[str, dict[str, Kind]] = {
    **{name: {} for name in _PLAIN},
    **dict.fromkeys(_ACCURATE, _ACCURACY),
    "mul": {"out_dtype": NONE},
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_prod"), _AXES),
    **{f"reduce_{n}": _AXES | {"out_sharding": NONE} for n in ("max", "min", "sum")},
    **{n: {"axes": INTS, "index_dtype": DTYPE} for n in ("argmax", "argmin")},
    **{n: {"axis": INT, "reverse": BOOL} for n in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")},
    "bitcast_convert_type": {"new_dtype": DTYPE},
    "broadcast_in_dim": {"shape": INTS, "broadcast_dimensions": INTS, "sharding": NONE},
    "concatenate": {"dimension": INT},
    "convert_element_type": {"new_dtype": DTYPE, "weak_type": STRONG, "sharding": NONE},
    "dot_general": {
        "dimension_numbers": NESTED, "precision": NONE, "preferred_element_type": _or_none(DTYPE),
        "out_sharding": NONE,
    },
    "dynamic_slice": {"slice_sizes": INTS},
    "dynamic_update_slice": {},
    "gather": {
        "dimension_numbers": GATHER, "slice_sizes": INTS, "indices_are_sorted": BOOL, "unique_indices": BOOL,
        "mode": MODE, "fill_value": FILL,
    },
    "integer_pow": {"y": INT},
    "iota": {"dtype": DTYPE, "shape": INTS, "dimension": INT, "sharding": NONE},
    "pad": {"padding_config": NESTED},
    "reshape": {"new_sizes": INTS, "dimensions": _or_none(INTS), "sharding": NONE},
    "rev": {"dimensions": INTS},
    "round": {"rounding_method": ROUNDING},
    "slice": {"start_indices": INTS, "limit_indices": INTS, "strides": _or_none(INTS)},
    "sort": {"dimension": INT, "is_stable": BOOL, "num_keys": INT},
    "split": {"sizes": SIZES, "axis": INT},
    "squeeze": {"dimensions": INTS},
    "stack": {"axis": INT},
    "tile": {"reps": INTS},
    "transpose": {"permutation": INTS},
    "unstack": {"axis": INT},
    **dict.fromkeys(("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"), _SCATTER),
}  # fmt: skip
SCAN = {"length": INT, "reverse": BOOL, "num_consts": INT, "num_carry": INT}


# their updates are functions, which the table cannot hold
_SCATTERS: dict[str, Callable[..., Any]] = {
    name: getattr(jax.lax, name.replace("-", "_")) for name in TABLE if name.startswith("scatter")
}


@functools.cache
def known() -> dict[str, Primitive]:
    """Return the primitives of the table by name, as far as this version of JAX has them."""
    found = {p.name: p for p in vars(primitives).values() if isinstance(p, Primitive)}
    x = jax.ShapeDtypeStruct((2,), jnp.float32)
    # primitives that jax.extend does not list
    for use in (lambda x: jnp.split(x, 2), lambda x: jnp.stack([x, x]), lambda x: jnp.tile(x, 2), jnp.log2, list):
        for equation in jax.make_jaxpr(use)(x).jaxpr.eqns:
            for inner in getattr(equation.params.get("jaxpr"), "eqns", ()):
                found.setdefault(inner.primitive.name, inner.primitive)
            found.setdefault(equation.primitive.name, equation.primitive)
    return {name: found[name] for name in TABLE if name in found}


def apply(name: str, operands: list[Any], params: dict[str, Any]) -> list[Any]:
    """Apply one operation of the table to arrays or tracers."""
    if name in _SCATTERS:
        return [_SCATTERS[name](*operands, **params)]
    result = known()[name].bind(*operands, **params)
    return list(result) if isinstance(result, list | tuple) else [result]


def shapes(name: str, operands: list[Any], params: dict[str, Any]) -> list[Any]:
    """Return shapes and types of an operation's results, from those of its operands. Raises what JAX raises."""
    if name in _SCATTERS:
        given = (jax.ShapeDtypeStruct(a.shape, a.dtype) for a in operands)
        (result,) = jax.eval_shape(lambda *xs: apply(name, list(xs), params), *given)
        return [jax.core.ShapedArray(result.shape, result.dtype)]
    result, effects = known()[name].abstract_eval(*operands, **params)
    if effects:
        raise BadValue
    return list(result) if known()[name].multiple_results else [result]
