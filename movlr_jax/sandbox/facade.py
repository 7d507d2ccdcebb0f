"""The names in scope of a reward program: parts of jnp, jax.nn and jax.lax, shaping, and a few builtins."""

from __future__ import annotations

import builtins
import operator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from movlr_jax.errors import ProgramError
from movlr_jax.rewards import shaping

BUILTINS = [
    "abs", "bool", "dict", "enumerate", "float", "int", "len", "list", "max", "min", "pow", "range",
    "reversed", "round", "sum", "tuple", "zip", "True", "False", "None",
]  # fmt: skip
JNP = [
    "abs", "absolute", "add", "all", "any", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan",
    "arctan2", "arctanh", "argmax", "argmin", "argsort", "array", "asarray", "atleast_1d", "bool_",
    "broadcast_to", "cbrt", "ceil", "clip", "concatenate", "cos", "cosh", "cross", "cumsum", "deg2rad",
    "degrees", "diag", "diff", "divide", "dot", "e", "einsum", "equal", "exp", "exp2", "expand_dims",
    "expm1", "eye", "fabs", "flip", "float32", "float_power", "floor", "floor_divide", "fmax", "fmin",
    "full", "full_like", "greater", "greater_equal", "heaviside", "hypot", "inf", "inner", "int32",
    "isfinite", "isinf", "isnan", "less", "less_equal", "linalg", "linspace", "log", "log10", "log1p",
    "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul", "max",
    "maximum", "mean", "median", "min", "minimum", "mod", "multiply", "nan_to_num", "negative", "newaxis",
    "not_equal", "ones", "ones_like", "outer", "pi", "power", "prod", "ptp", "rad2deg", "radians", "ravel",
    "reciprocal", "remainder", "repeat", "reshape", "roll", "round", "select", "sign", "sin", "sinc",
    "sinh", "sort", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes",
    "take", "tan", "tanh", "tensordot", "tile", "trace", "transpose", "tril", "triu", "trunc", "var",
    "vdot", "where", "zeros", "zeros_like",
]  # fmt: skip
LINALG = ["norm", "det", "cross"]
NN = [
    "celu", "elu", "gelu", "hard_sigmoid", "hard_tanh", "leaky_relu", "log_sigmoid", "log_softmax",
    "logsumexp", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus", "swish",
    "tanh",
]  # fmt: skip
LAX = [
    "abs", "add", "clamp", "cond", "cos", "div", "dot", "exp", "fori_loop", "log", "max", "min", "mul",
    "neg", "pow", "rsqrt", "scan", "select", "sign", "sin", "sqrt", "square", "stop_gradient", "sub",
    "tanh",
]  # fmt: skip

MAX_ENTRIES = 10_000  # of a Python list, and turns of a Python loop
MAX_BITS = 1024  # of a Python integer


def facade() -> dict[str, Any]:
    """The scope of one program, made anew for each: what one changes, the next does not see."""
    jnp_facade = SimpleNamespace(
        **_pick(jnp, [n for n in JNP if n != "linalg"]), linalg=SimpleNamespace(**_pick(jnp.linalg, LINALG))
    )
    nn, lax = SimpleNamespace(**_pick(jax.nn, NN)), SimpleNamespace(**_pick(jax.lax, LAX))
    return {
        "__builtins__": {name: getattr(builtins, name) for name in BUILTINS}
        | {"range": _range, "pow": power, "__import__": __import__},  # C code imports through the caller's
        "jnp": jnp_facade,
        "jax": SimpleNamespace(numpy=jnp_facade, nn=nn, lax=lax),
        "lax": lax,
        "shaping": SimpleNamespace(**shaping.PUBLIC),
        **GUARDS,
    }


def _pick(module: Any, names: list[str]) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


def _range(*bounds: int) -> range:
    result = range(*bounds)
    # len() overflows where this matters most
    turns = max(0, -(-(result.stop - result.start) // result.step))
    if turns > MAX_ENTRIES:
        raise ProgramError(
            f"a range of {turns:,} entries; at most {MAX_ENTRIES:,}, for a Python loop is written out turn by turn"
        )
    return result


def times(a: Any, b: Any) -> Any:
    """a * b, but no list of millions."""
    for sequence, number in ((a, b), (b, a)):
        if isinstance(sequence, list | tuple | str) and isinstance(number, int):
            entries = len(sequence) * number
            if entries > MAX_ENTRIES:
                raise ProgramError(
                    f"a list of {entries:,} entries; at most {MAX_ENTRIES:,}, use jnp.zeros or jnp.full"
                )
    return operator.mul(a, b)


def power(a: Any, b: Any, *modulus: Any) -> Any:
    """a ** b, but no integer of millions of digits."""
    if isinstance(a, int) and isinstance(b, int) and b > 0 and abs(a) > 1 and a.bit_length() * b > MAX_BITS:
        raise ProgramError(f"a whole number of more than {MAX_BITS} bits; write it as a float, e.g. 9.0 ** 9")
    return pow(a, b, *modulus)


def shifted(a: Any, b: Any) -> Any:
    """a << b, but no integer of millions of digits."""
    if isinstance(a, int) and isinstance(b, int) and b > MAX_BITS:
        raise ProgramError(f"a whole number of more than {MAX_BITS} bits; write it as a float")
    return operator.lshift(a, b)


# Under names that no program can write: what its operators become.
GUARDS = {"_times": times, "_power": power, "_shifted": shifted}
