"""The names that a reward program may use: modules, functions, builtins, attributes of values.

The lists have three uses: `source` checks the text against them, `facade` creates the values, and the prompt
prints them. No allowed attribute of a value gives access to a module, a global or a frame.
"""

from __future__ import annotations

import builtins
import collections
import collections.abc
import enum
import functools
import itertools
import math
import operator
import re
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special

from movlr_jax.rewards import shaping
from movlr_jax.rewards.state import STATE_CALLS
from movlr_jax.sandbox import limits, records

BUILTINS = [
    "abs", "all", "any", "bool", "callable", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "int",
    "isinstance", "iter", "len", "list", "map", "max", "min", "next", "pow", "range", "repr", "reversed", "round",
    "set", "slice", "sorted", "str", "sum", "tuple", "zip", "True", "False", "None",
]  # fmt: skip
JNP = [
    "abs", "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin", "any", "append",
    "apply_along_axis", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "argmax", "argmin", "argsort", "array", "array_equal", "array_split", "asarray", "asin", "asinh", "astype",
    "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average", "bincount", "bitwise_and",
    "bitwise_not", "bitwise_or", "bitwise_xor", "block", "bool", "bool_", "broadcast_arrays", "broadcast_to",
    "cbrt", "ceil", "clip", "column_stack", "concat", "concatenate", "copy", "copysign", "corrcoef", "cos",
    "cosh", "count_nonzero", "cov", "cross", "cumprod", "cumsum", "cumulative_sum", "deg2rad", "degrees",
    "delete", "diag", "diag_indices", "diagonal", "diff", "digitize", "divide", "divmod", "dot", "dstack", "e",
    "ediff1d", "einsum", "empty", "empty_like", "equal", "exp", "exp2", "expand_dims", "expm1", "eye", "fabs",
    "finfo", "flip", "fliplr", "flipud", "float32", "float64", "float_", "float_power", "floor", "floor_divide",
    "fmax", "fmin", "fmod", "full", "full_like", "geomspace", "gradient", "greater", "greater_equal", "heaviside",
    "hsplit", "hstack", "hypot", "identity", "inf", "inner", "insert", "int32", "int64", "int_", "interp",
    "invert", "isclose", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "isscalar", "kron",
    "left_shift", "less", "less_equal", "linspace", "log", "log10", "log1p", "log2", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logspace", "matmul", "matrix_transpose", "matvec", "max",
    "maximum", "mean", "median", "meshgrid", "min", "minimum", "mod", "modf", "moveaxis", "multiply", "nan",
    "nan_to_num", "nanargmax", "nanargmin", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin",
    "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "ndarray", "ndim", "negative",
    "newaxis", "not_equal", "ones", "ones_like", "outer", "pad", "percentile", "permute_dims", "pi", "piecewise",
    "polyval", "positive", "pow", "power", "prod", "ptp", "quantile", "rad2deg", "radians", "ravel", "real",
    "reciprocal", "remainder", "repeat", "reshape", "right_shift", "rint", "roll", "rollaxis", "rot90", "round",
    "searchsorted", "select", "shape", "sign", "signbit", "sin", "sinc", "sinh", "size", "sort", "split", "sqrt",
    "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh",
    "tensordot", "tile", "trace", "transpose", "trapezoid", "tri", "tril", "tril_indices", "triu", "triu_indices",
    "triu_indices_from", "true_divide", "trunc", "uint32", "unwrap", "var", "vdot", "vecdot", "vsplit", "vstack",
    "where", "zeros", "zeros_like",
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
    "abs", "acos", "acosh", "add", "argmax", "argmin", "asin", "asinh", "associative_scan", "atan", "atan2",
    "atanh", "batch_matmul", "broadcast", "broadcast_in_dim", "cbrt", "ceil", "clamp", "concatenate", "cond",
    "convert_element_type", "cos", "cosh", "cummax", "cummin", "cumprod", "cumsum", "div", "dot",
    "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_update_index_in_dim",
    "dynamic_update_slice", "dynamic_update_slice_in_dim", "eq", "erf", "erfc", "exp", "exp2", "expand_dims",
    "expm1", "floor", "fori_loop", "full", "full_like", "ge", "gt", "index_in_dim", "integer_pow", "iota",
    "is_finite", "le", "log", "log1p", "logistic", "lt", "map", "max", "min", "mul", "ne", "neg", "pad", "pow",
    "reciprocal", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum", "rem", "reshape", "rev", "round",
    "rsqrt", "scan", "select", "select_n", "sign", "sin", "sinh", "slice", "slice_in_dim", "sort", "sqrt",
    "square", "squeeze", "stop_gradient", "sub", "switch", "tan", "tanh", "transpose",
]  # fmt: skip
# functions of numbers known at trace time; none that makes long integers
MATH = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh",
    "degrees", "e", "erf", "erfc", "exp", "expm1", "fabs", "floor", "fmod", "hypot", "inf", "isclose", "isfinite",
    "isinf", "isnan", "log", "log10", "log1p", "log2", "nan", "pi", "pow", "radians", "sin", "sinh", "sqrt",
    "tan", "tanh", "tau", "trunc",
]  # fmt: skip
ITERTOOLS = ["accumulate", "chain", "combinations", "pairwise", "product", "zip_longest"]
# no attrgetter and methodcaller, which read attributes by name
OPERATOR = [
    "add", "and_", "eq", "ge", "getitem", "gt", "itemgetter", "le", "lt", "matmul", "mod", "mul", "ne", "neg", "not_",
    "or_", "pos", "pow", "sub", "truediv",
]  # fmt: skip
HINTS = [
    "Annotated", "Any", "Array", "ArrayLike", "ArrayTree", "Bool", "Callable", "ClassVar", "Collection",
    "DTypeLike", "Dict", "Final", "Float", "FrozenSet", "Generator", "Generic", "Hashable", "Int", "Integer",
    "Iterable", "Iterator", "List", "Literal", "Mapping", "MutableMapping", "NDArray", "NamedTuple", "NewType",
    "NoReturn", "Num", "Numeric", "Optional", "Protocol", "RewardFn", "Scalar", "Self", "Sequence", "Set",
    "State", "Step", "Tuple", "Type", "TypeAlias", "TypeVar", "TypedDict", "Union", "overload",
]  # fmt: skip

# Module -> its available names, including its submodules.
MODULES = {
    "jax": ["Array", "grad", "jit", "lax", "nn", "numpy", "scipy", "tree", "value_and_grad", "vmap"],
    "jax.numpy": ["linalg", *JNP],
    "jax.numpy.linalg": LINALG,
    "jax.nn": NN,
    "jax.lax": LAX,
    "jax.tree": ["all", "leaves", "map", "reduce"],
    "jax.scipy": ["special"],
    "jax.scipy.special": ["erf", "erfc", "expit", "log_softmax", "logsumexp", "ndtr", "softmax"],
    "shaping": list(shaping.PUBLIC),
    "math": MATH,
    "functools": ["cache", "lru_cache", "partial", "reduce"],
    "itertools": ITERTOOLS,
    "collections": ["OrderedDict", "defaultdict", "namedtuple"],
    "operator": OPERATOR,
    "dataclasses": ["asdict", "astuple", "dataclass", "field", "replace"],
    "enum": ["Enum", "IntEnum", "auto"],
    "types": ["SimpleNamespace"],
    "typing": [*HINTS, "TYPE_CHECKING", "cast"],
}
# Aliases of modules. NumPy itself does not accept values that are only known at run time.
SAME = {
    "numpy": "jax.numpy",
    "numpy.linalg": "jax.numpy.linalg",
    "jax.typing": "typing",
    "jaxtyping": "typing",
    "typing_extensions": "typing",
    "numpy.typing": "typing",
    "chex": "typing",
    "collections.abc": "typing",
    "movlr_jax.shaping": "shaping",
    "movlr_jax.rewards.shaping": "shaping",
    **dict.fromkeys(
        ("movlr_jax.types", "movlr_jax.rewards", "movlr_jax.rewards.state", "movlr_jax.rewards.program"), "typing"
    ),
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
        "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalpha", "isdigit",
        "isidentifier", "islower", "isnumeric", "isupper", "join", "lower", "lstrip", "partition",
        "removeprefix", "removesuffix",
        "replace", "rfind", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
        "swapcase", "title", "upper",
    ],
    "a set": ["difference", "intersection", "isdisjoint", "issubset", "issuperset", "union"],
    "`jnp.finfo(...)`": ["eps", "max", "min", "tiny"],
}  # fmt: skip
VALUES = frozenset(itertools.chain(STATE_CALLS, *ATTRIBUTES.values()))

# Errors that a program may raise about its own settings: it is refused with their text.
ERRORS = (
    "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError", "LookupError",
    "NotImplementedError", "RuntimeError", "TypeError", "ValueError", "ZeroDivisionError",
)  # fmt: skip


def offered() -> list[tuple[str, list[str]]]:
    """Return (module as programs write it, its names), without `shaping` and `typing`, which the prompt describes."""
    parts = {
        path.replace("jax.numpy", "jnp"): [name for name in names if f"{path}.{name}" not in MODULES]
        for path, names in MODULES.items()
        if path not in ("shaping", "typing", "enum", "types")
    }
    return [(module, names) for module, names in parts.items() if names]


def facade() -> dict[str, Any]:
    """Return a new scope for one program, so that no program sees the changes of another."""
    places = {
        "jax": jax, "jax.numpy": jnp, "jax.numpy.linalg": jnp.linalg, "jax.nn": jax.nn, "jax.lax": jax.lax,
        "jax.tree": jax.tree, "jax.scipy.special": jax.scipy.special, "shaping": shaping, "math": math,
        "functools": functools, "itertools": itertools, "collections": collections, "operator": operator,
        "dataclasses": _DATACLASSES, "enum": enum, "types": SimpleNamespace(SimpleNamespace=records.namespace),
    }  # fmt: skip
    modules = {path: SimpleNamespace() for path in MODULES}
    for path, names in MODULES.items():
        for name in names:
            inner = modules.get(f"{path}.{name}")
            if inner is not None or hasattr(places.get(path), name):
                setattr(modules[path], name, inner or getattr(places[path], name))
    steps = limits.Steps()
    counted = {name: steps.counted(getattr(itertools, name)) for name in ITERTOOLS}
    for path in ("jax.numpy", "jax.numpy.linalg"):
        functions = [(k, v) for k, v in vars(modules[path]).items() if callable(v) and not isinstance(v, type)]
        vars(modules[path]).update((k, _of_lists(v)) for k, v in functions)
    modules["jax"].jit = _no_jit
    vars(modules["functools"]).update(cache=_no_jit, lru_cache=_no_cache)
    vars(modules["itertools"]).update(counted, product=steps.counted(limits.product))
    vars(modules["collections"]).update(namedtuple=records.named_tuple)
    vars(modules["operator"]).update(add=limits.plus, mul=limits.times, mod=limits.modulo, pow=limits.power)
    vars(modules["jax.numpy"]).update(clip=_clip, empty=jnp.zeros, empty_like=jnp.zeros_like)  # deterministic
    vars(modules["typing"]).update(dict.fromkeys(HINTS, _Hint), TYPE_CHECKING=False, cast=typing.cast)
    return {
        "__builtins__": {name: getattr(builtins, name) for name in BUILTINS}
        | {"range": limits.turns, "pow": limits.power, "round": limits.rounded, "str": limits.text}
        | {"iter": limits.first, "sum": limits.added, "repr": limits.text, "isinstance": _isinstance}
        | {"set": Members, "frozenset": Members}
        | {"__import__": __import__},  # C code imports through the caller's builtins
        **{name: modules[path] for name, path in IN_SCOPE.items()},
        **{f"<{path}>": module for path, module in modules.items()},
        "<steps>": steps,
        "<step>": steps.step,
        "<each>": steps.each,
        **GUARDS,
    }


_DATACLASSES = SimpleNamespace(
    dataclass=records.decorator,
    field=records.Field,
    replace=records.replace,
    asdict=records.asdict,
    astuple=records.astuple,
)


_NO_LIST = re.compile(r"requires ndarray or scalar arguments, got <class '(?:list|tuple)'> at position (\d+)")


@functools.cache
def _of_lists(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of jnp that also takes lists of numbers, as NumPy's does."""

    def call(*arguments: Any, **options: Any) -> Any:
        given = list(arguments)
        while True:
            try:
                return function(*given, **options)
            except TypeError as error:
                found = _NO_LIST.search(str(error))
                place = int(found.group(1)) if found else len(given)
                if place >= len(given) or not isinstance(given[place], list | tuple):
                    raise
                given[place] = jnp.asarray(given[place])

    return call


class _Hint:
    """A placeholder for the names of `typing`, usable in annotations and type aliases."""

    def __new__(cls, *_: Any, **__: Any) -> Any:  # TypeVar("T")
        return cls

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

    def union(self, *others: Any) -> Members:
        return Members(itertools.chain(self, *others))

    def intersection(self, *others: Any) -> Members:
        return Members(item for item in self if all(item in Members(other) for other in others))

    def difference(self, *others: Any) -> Members:
        return Members(item for item in self if not any(item in Members(other) for other in others))

    def issubset(self, other: Any) -> bool:
        return self <= Members(other)

    def issuperset(self, other: Any) -> bool:
        return self >= Members(other)


def _no_jit(function: Any = None, **_: Any) -> Any:
    """Replace `jax.jit`: the whole reward is compiled, so its parts need not be."""
    return function or _no_jit


def _no_cache(maxsize: Any = 128, typed: bool = False) -> Any:
    """Replace `functools.lru_cache`: a reward is traced once."""
    return maxsize if callable(maxsize) else _no_jit


def _clip(arr: Any, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> jax.Array:
    """Return jnp.clip, which takes the limits under NumPy's names too."""
    return jnp.clip(arr, a_min if min is None else min, a_max if max is None else max)


def _isinstance(value: Any, kinds: Any) -> bool:
    if isinstance(kinds, tuple):
        return any(_isinstance(value, kind) for kind in kinds)
    return isinstance(value, str if kinds is limits.text else kinds)


# Replacements of operators, statements and calls, under names that no program can contain.
GUARDS: dict[str, Callable[..., Any] | type] = {
    "<+>": limits.plus,
    "<+=>": limits.plus_in_place,
    "<*>": limits.times,
    "<**>": limits.power,
    "<<<>": limits.shifted,
    "<%>": limits.modulo,
    "<set>": Members,
    "<shown>": limits.shown,
    "<bounded>": limits.bounded,
    "<stored>": limits.stored,
    "<number>": limits.number,
    "<method>": functools.partial(limits.method, otherwise=records.attribute),
    "<attribute>": records.attribute,
    "<class>": records.made,
    "<matched>": limits.matched,
    "<error>": limits.error,
    "<name>": records.name_of,
    "<slice>": slice,
    "<str>": str,
}
