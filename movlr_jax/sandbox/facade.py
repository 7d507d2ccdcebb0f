"""The names that a reward program may use: modules, functions, builtins, attributes of values.

The lists have three uses: `source` checks the text against them, `facade` creates the values, and the prompt
prints them. No allowed attribute of a value gives access to a module, a global or a frame.
"""

from __future__ import annotations

import builtins
import collections
import collections.abc
import functools
import itertools
import math
import operator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special

from movlr_jax.errors import ProgramError
from movlr_jax.rewards import shaping
from movlr_jax.rewards.state import STATE_CALLS

BUILTINS = [
    "abs", "all", "any", "bool", "callable", "dict", "divmod", "enumerate", "filter", "float", "int", "isinstance",
    "iter", "len", "list", "map", "max", "min", "next", "pow", "range", "reversed", "round", "set", "slice", "sorted",
    "str", "sum", "tuple", "zip", "True", "False", "None",
]  # fmt: skip
JNP = [
    "abs", "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin", "any", "append",
    "apply_along_axis", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "argmax", "argmin", "argsort", "array", "array_equal", "array_split", "asarray", "asin", "asinh", "astype",
    "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "block", "bool_", "broadcast_arrays", "broadcast_to", "cbrt", "ceil", "clip",
    "column_stack", "concat", "concatenate", "copysign", "cos", "cosh", "count_nonzero", "cross", "cumprod", "cumsum",
    "deg2rad", "degrees", "delete", "diag", "diagonal", "diff", "digitize", "divide", "divmod", "dot", "dstack",
    "e", "einsum", "empty", "empty_like", "equal", "exp", "exp2", "expand_dims", "expm1", "eye", "fabs", "finfo",
    "flip", "fliplr", "flipud", "float32", "float64", "float_", "float_power", "floor", "floor_divide", "fmax",
    "fmin", "fmod", "full", "full_like", "geomspace", "gradient", "greater", "greater_equal", "heaviside",
    "hsplit", "hstack", "hypot", "identity", "inf", "inner", "insert", "int32", "int64", "int_", "interp",
    "invert", "isclose", "isfinite", "isin", "isinf", "isnan", "isscalar", "kron", "less", "less_equal",
    "linspace", "log", "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logspace", "matmul", "matrix_transpose", "matvec", "max", "maximum", "mean", "median",
    "meshgrid", "min", "minimum", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num", "nanargmax",
    "nanargmin", "nanmax", "nanmean", "nanmedian", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "ndarray",
    "ndim", "negative", "newaxis", "not_equal", "ones", "ones_like", "outer", "percentile", "permute_dims", "pi",
    "piecewise", "polyval", "positive", "pow", "power", "prod", "ptp", "quantile", "rad2deg", "radians", "ravel",
    "real", "reciprocal", "remainder", "repeat", "reshape", "rint", "roll", "rot90", "round", "searchsorted",
    "select", "shape", "sign", "signbit", "sin", "sinc", "sinh", "size", "sort", "split", "sqrt", "square", "squeeze",
    "stack", "std", "subtract", "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile",
    "trace", "transpose", "trapezoid", "tri", "tril", "tril_indices", "triu", "triu_indices", "true_divide",
    "trunc", "uint32", "unwrap", "var", "vdot", "vecdot", "vsplit", "vstack", "where", "zeros", "zeros_like",
]  # fmt: skip
LINALG = [
    "cross", "det", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "multi_dot", "norm",
    "outer", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
NN = [
    "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity",
    "leaky_relu", "log_sigmoid", "log_softmax", "logmeanexp", "logsumexp", "mish", "one_hot", "relu", "relu6",
    "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus",
    "standardize", "swish", "tanh",
]  # fmt: skip
LAX = [
    "abs", "acos", "add", "argmax", "argmin", "asin", "associative_scan", "atan", "atan2", "batch_matmul",
    "broadcast", "broadcast_in_dim", "cbrt", "ceil", "clamp", "concatenate", "cond", "convert_element_type",
    "cos", "cosh", "cummax", "cummin", "cumprod", "cumsum", "div", "dot", "dynamic_index_in_dim",
    "dynamic_slice", "dynamic_slice_in_dim", "dynamic_update_slice", "eq", "erf", "erfc", "exp", "exp2",
    "expand_dims", "expm1", "floor", "fori_loop", "full", "full_like", "ge", "gt", "index_in_dim", "integer_pow",
    "iota", "is_finite", "le", "log", "log1p", "logistic", "lt", "map", "max", "min", "mul", "ne", "neg", "pow",
    "reciprocal", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum", "rem", "reshape", "rev", "round",
    "rsqrt", "scan", "select", "select_n", "sign", "sin", "sinh", "slice_in_dim", "sort", "sqrt", "square",
    "squeeze", "stop_gradient", "sub", "switch", "tan", "tanh", "transpose",
]  # fmt: skip
TREE = ["all", "leaves", "map", "reduce"]
SPECIAL = ["erf", "erfc", "expit", "log_softmax", "logsumexp", "ndtr", "softmax"]
# functions of numbers known at trace time; none that makes long integers
MATH = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh",
    "degrees", "e", "erf", "erfc", "exp", "expm1", "fabs", "floor", "fmod", "hypot", "inf", "isclose", "isfinite",
    "isinf", "isnan", "log", "log10", "log1p", "log2", "nan", "pi", "pow", "radians", "sin", "sinh", "sqrt",
    "tan", "tanh", "tau", "trunc",
]  # fmt: skip
FUNCTOOLS = ["cache", "lru_cache", "partial", "reduce"]
ITERTOOLS = ["accumulate", "chain", "combinations", "pairwise", "product", "zip_longest"]
COLLECTIONS = ["OrderedDict", "defaultdict"]
# no attrgetter and methodcaller, which read attributes by name
OPERATOR = [
    "add", "and_", "eq", "ge", "getitem", "gt", "itemgetter", "le", "lt", "matmul", "mod", "mul", "ne", "neg", "not_",
    "or_", "pos", "pow", "sub", "truediv",
]  # fmt: skip
HINTS = [
    "Any", "Array", "ArrayLike", "Bool", "Callable", "Dict", "Final", "Float", "Int", "Iterable", "List",
    "Mapping", "NamedTuple", "Optional", "Sequence", "Set", "Tuple", "TypeAlias", "Union",
]  # fmt: skip

# Module -> its available names, including its submodules.
MODULES = {
    "jax": ["Array", "jit", "lax", "nn", "numpy", "scipy", "tree", "vmap"],
    "jax.numpy": ["linalg", *JNP],
    "jax.numpy.linalg": LINALG,
    "jax.nn": NN,
    "jax.lax": LAX,
    "jax.tree": TREE,
    "jax.scipy": ["special"],
    "jax.scipy.special": SPECIAL,
    "shaping": list(shaping.PUBLIC),
    "math": MATH,
    "functools": FUNCTOOLS,
    "itertools": ITERTOOLS,
    "collections": COLLECTIONS,
    "operator": OPERATOR,
    "typing": HINTS,
}
# Aliases of modules. NumPy itself does not accept values that are only known at run time.
SAME = {
    "numpy": "jax.numpy",
    "numpy.linalg": "jax.numpy.linalg",
    "jax.typing": "typing",
    "jaxtyping": "typing",
    "collections.abc": "typing",
    "movlr_jax.rewards.shaping": "shaping",
}
IN_SCOPE = {"jnp": "jax.numpy", "jax": "jax", "lax": "jax.lax", "shaping": "shaping"}  # without an import

# Attributes of values other than modules, by type. A program cannot read any others.
ATTRIBUTES = {
    "an array": [
        "shape", "ndim", "size", "dtype", "T", "mT", "at", "all", "any", "argmax", "argmin", "argsort", "astype",
        "clip", "copy", "cumprod", "cumsum", "diagonal", "dot", "flatten", "max", "mean", "min", "prod", "ptp",
        "ravel", "real", "repeat", "reshape", "round", "sort", "squeeze", "std", "sum", "swapaxes", "take",
        "trace", "transpose", "var",
    ],
    "`x.at[i]`": ["add", "apply", "divide", "get", "max", "min", "mul", "multiply", "power", "set", "subtract"],
    "a dict": ["copy", "fromkeys", "get", "items", "keys", "pop", "setdefault", "update", "values"],
    "a list": ["append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"],
    "a text": [
        "capitalize", "count", "endswith", "join", "lower", "removeprefix", "removesuffix", "replace", "split",
        "startswith", "strip", "title", "upper",
    ],
    "`jnp.finfo(...)`": ["eps", "max", "min", "tiny"],
}  # fmt: skip
VALUES = frozenset(itertools.chain(STATE_CALLS, *ATTRIBUTES.values()))

MAX_ENTRIES = 10_000  # of a Python list, and iterations of a Python loop
MAX_BITS = 1024  # of a Python integer


def offered() -> list[tuple[str, list[str]]]:
    """Return (module as programs write it, its names), without `shaping` and `typing`, which the prompt describes."""
    parts = {
        path.replace("jax.numpy", "jnp"): [name for name in names if f"{path}.{name}" not in MODULES]
        for path, names in MODULES.items()
        if path not in ("shaping", "typing")
    }
    return [(module, names) for module, names in parts.items() if names]


def facade() -> dict[str, Any]:
    """Return a new scope for one program, so that no program sees the changes of another."""
    places = {
        "jax": jax, "jax.numpy": jnp, "jax.numpy.linalg": jnp.linalg, "jax.nn": jax.nn, "jax.lax": jax.lax,
        "jax.tree": jax.tree, "jax.scipy.special": jax.scipy.special, "shaping": shaping, "math": math,
        "functools": functools, "itertools": itertools, "collections": collections, "operator": operator,
    }  # fmt: skip
    modules = {path: SimpleNamespace() for path in MODULES}
    for path, names in MODULES.items():
        for name in names:
            inner = modules.get(f"{path}.{name}")
            if inner is not None or hasattr(places.get(path), name):
                setattr(modules[path], name, inner or getattr(places[path], name))
    modules["jax"].jit = _no_jit
    vars(modules["functools"]).update(cache=_no_jit, lru_cache=_no_cache)
    vars(modules["operator"]).update(mul=times, mod=modulo, pow=power)
    vars(modules["jax.numpy"]).update(clip=_clip, empty=jnp.zeros, empty_like=jnp.zeros_like)  # deterministic
    modules["typing"].__dict__.update(dict.fromkeys(HINTS, _Hint))
    return {
        "__builtins__": {name: getattr(builtins, name) for name in BUILTINS}
        | {"range": _range, "pow": power, "round": _round, "str": text, "isinstance": _isinstance}
        | {"set": Members, "__import__": __import__},  # C code imports through the caller's builtins
        **{name: modules[path] for name, path in IN_SCOPE.items()},
        **{f"<{path}>": module for path, module in modules.items()},
        **GUARDS,
    }


class _Hint:
    """A placeholder for the names of `typing`, usable in annotations and type aliases."""

    def __class_getitem__(cls, _: Any) -> type:
        return cls


class Members(collections.abc.Set):
    """A set that keeps insertion order: the order of Python's own set differs between processes."""

    def __init__(self, items: Any = ()):
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def _no_jit(function: Any = None, **_: Any) -> Any:
    """Replace `jax.jit`: the whole reward is compiled, so its parts need not be."""
    return function or _no_jit


def _no_cache(maxsize: Any = 128, typed: bool = False) -> Any:
    """Replace `functools.lru_cache`: a reward is traced once."""
    return maxsize if callable(maxsize) else _no_jit


def _clip(arr: Any, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> jax.Array:
    """Return jnp.clip, which takes the limits under NumPy's names too."""
    return jnp.clip(arr, a_min if min is None else min, a_max if max is None else max)


def _range(*bounds: int) -> range:
    result = range(*bounds)
    # len() would overflow for very long ranges
    turns = max(0, -(-(result.stop - result.start) // result.step))
    if turns > MAX_ENTRIES:
        raise ProgramError(
            f"a range has {turns:,} entries, the limit is {MAX_ENTRIES:,}: a Python loop is unrolled when it is "
            "traced; use jax.lax.fori_loop or arrays"
        )
    return result


def _round(number: Any, digits: Any = None) -> Any:
    if isinstance(digits, int) and abs(digits) > MAX_BITS:
        raise ProgramError(f"round to {digits:,} digits; the limit is {MAX_BITS:,}")
    return round(number, digits)


def _isinstance(value: Any, kinds: Any) -> bool:
    if isinstance(kinds, tuple):
        return any(_isinstance(value, kind) for kind in kinds)
    return isinstance(value, str if kinds is text else kinds)


def text(value: Any = "") -> str:
    """Return `str(value)` for values known at trace time, the type's name for other values; never an address."""
    if isinstance(value, tuple | list):
        return f"({', '.join(text(v) for v in value)})"
    if isinstance(value, jax.Array):
        return f"array{value.shape}"
    return str(shown(value))


def shown(value: Any) -> Any:
    """Return a value that an f-string may format: a string, a number, or the name of the value's type."""
    if value is None or type(value) in (str, bool, int, float):
        return value
    return text(value) if isinstance(value, tuple | list | jax.Array) else type(value).__name__


def number(kind: Any, value: Any) -> Any:
    """Return float(value) at top level, where even constants of jnp are traced."""
    if kind is float and isinstance(value, jax.core.Tracer) and value.shape == ():
        return value.astype(jnp.float32)
    return kind(value)


def times(a: Any, b: Any) -> Any:
    """Return a * b, but raise ProgramError for very long lists and integers."""
    for sequence, count in ((a, b), (b, a)):
        if isinstance(sequence, list | tuple | str) and isinstance(count, int):
            entries = len(sequence) * count
            if entries > MAX_ENTRIES:
                raise ProgramError(
                    f"a list has {entries:,} entries, the limit is {MAX_ENTRIES:,}; use jnp.zeros or jnp.full"
                )
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() + b.bit_length() > MAX_BITS + 1:
        raise ProgramError(f"an integer has more than {MAX_BITS} bits; write it as a float")
    return operator.mul(a, b)


def power(a: Any, b: Any, *modulus: Any) -> Any:
    """Return a ** b, but raise ProgramError for very long integers."""
    if isinstance(a, int) and isinstance(b, int) and b > 0 and abs(a) > 1 and a.bit_length() * b > MAX_BITS:
        raise ProgramError(f"an integer has more than {MAX_BITS} bits; write it as a float, e.g. 9.0 ** 9")
    return pow(a, b, *modulus)


def shifted(a: Any, b: Any) -> Any:
    """Return a << b, but raise ProgramError for very long integers."""
    if isinstance(a, int) and isinstance(b, int) and b > MAX_BITS:
        raise ProgramError(f"an integer has more than {MAX_BITS} bits; write it as a float")
    return operator.lshift(a, b)


def modulo(a: Any, b: Any) -> Any:
    """Return a % b for numbers; for strings it could format any object, so it raises ProgramError."""
    if isinstance(a, str):
        raise ProgramError("% formatting of strings is not available; write an f-string")
    return operator.mod(a, b)


# Replacements of operators and calls, under names that no program can contain.
GUARDS = {
    "<*>": times,
    "<**>": power,
    "<<<>": shifted,
    "<%>": modulo,
    "<set>": Members,
    "<shown>": shown,
    "<number>": number,
}
