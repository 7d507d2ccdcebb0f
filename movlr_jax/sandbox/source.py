"""Reads the text of a reward program: what it may contain, and the program in it.

An allow-list over the syntax tree. It gives good sentences; confinement is `vet`'s business.
"""

from __future__ import annotations

import ast
import builtins
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from movlr_jax.errors import ProgramError, near_matches
from movlr_jax.rewards import shaping
from movlr_jax.rewards.program import RewardProgram, structure_hash

MAX_BYTES = 32_768
MAX_WEIGHT = 1e6

BUILTINS = [
    "abs",
    "bool",
    "dict",
    "enumerate",
    "float",
    "int",
    "len",
    "list",
    "max",
    "min",
    "pow",
    "range",
    "reversed",
    "round",
    "sum",
    "tuple",
    "zip",
    "True",
    "False",
    "None",
]

_NODES = (
    # statements
    (
        ast.Module,
        ast.FunctionDef,
        ast.arguments,
        ast.arg,
        ast.Return,
        ast.Assign,
        ast.AugAssign,
        ast.AnnAssign,
    )
    + (ast.For, ast.If, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Assert)
    # expressions
    + (
        ast.BoolOp,
        ast.BinOp,
        ast.UnaryOp,
        ast.Lambda,
        ast.IfExp,
        ast.Dict,
        ast.Compare,
        ast.Call,
        ast.keyword,
    )
    + (ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice)
    + (ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.comprehension)
    + (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
)

_IMPORTS = {"import jax", "import jax.numpy as jnp", "from jax import lax", "from jax import numpy as jnp"}

_JNP = [
    "abs",
    "absolute",
    "add",
    "all",
    "any",
    "arange",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "array",
    "asarray",
    "atleast_1d",
    "broadcast_to",
    "cbrt",
    "ceil",
    "clip",
    "concatenate",
    "cos",
    "cosh",
    "cross",
    "cumsum",
    "deg2rad",
    "degrees",
    "diag",
    "diff",
    "divide",
    "dot",
    "e",
    "einsum",
    "equal",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "eye",
    "fabs",
    "flip",
    "float32",
    "float_power",
    "floor",
    "floor_divide",
    "full",
    "full_like",
    "fmax",
    "fmin",
    "greater",
    "greater_equal",
    "heaviside",
    "hypot",
    "inf",
    "inner",
    "int32",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "median",
    "min",
    "minimum",
    "mod",
    "multiply",
    "nan_to_num",
    "negative",
    "not_equal",
    "ones",
    "ones_like",
    "outer",
    "pi",
    "power",
    "prod",
    "ptp",
    "rad2deg",
    "radians",
    "ravel",
    "reciprocal",
    "remainder",
    "repeat",
    "reshape",
    "roll",
    "round",
    "select",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "trace",
    "transpose",
    "tril",
    "triu",
    "trunc",
    "ufunc",
    "var",
    "vdot",
    "where",
    "zeros",
    "zeros_like",
    "argmax",
    "argmin",
    "argsort",
    "newaxis",
    "bool_",
    "linalg",
]
_LINALG = ["norm", "det", "inv", "solve", "cross"]
_NN = [
    "celu",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "swish",
    "tanh",
]
_LAX = [
    "abs",
    "add",
    "clamp",
    "cond",
    "cos",
    "div",
    "dot",
    "exp",
    "fori_loop",
    "log",
    "max",
    "min",
    "mul",
    "neg",
    "pow",
    "rsqrt",
    "scan",
    "select",
    "sign",
    "sin",
    "sqrt",
    "square",
    "stop_gradient",
    "sub",
    "tanh",
]


def _pick(module: Any, names: list[str]) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


def facade() -> dict[str, Any]:
    """The names in scope of a reward program: parts of jnp, jax.nn and jax.lax, shaping, a few builtins."""
    jnp_names = _pick(jnp, [n for n in _JNP if n != "linalg"])
    jnp_facade = SimpleNamespace(**jnp_names, linalg=SimpleNamespace(**_pick(jnp.linalg, _LINALG)))
    nn, lax = SimpleNamespace(**_pick(jax.nn, _NN)), SimpleNamespace(**_pick(jax.lax, _LAX))
    return {
        "__builtins__": {name: getattr(builtins, name) for name in BUILTINS},
        "jnp": jnp_facade,
        "jax": SimpleNamespace(numpy=jnp_facade, nn=nn, lax=lax),
        "lax": lax,
        "shaping": SimpleNamespace(**shaping.PUBLIC),
    }


@dataclass(frozen=True)
class ParsedReward:
    """A reward program as text that passed the allow-list."""

    source: str
    description: str
    weights: dict[str, float]
    tree: ast.Module


def parse(source: str) -> ParsedReward:
    """Checks the text of a program. Raises ProgramError with the line and the likely fix."""
    if len(source.encode("utf-8", "replace")) > MAX_BYTES:
        raise ProgramError(f"the program is longer than {MAX_BYTES} bytes; a reward is a short function")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        raise ProgramError(f"the program is not Python: {where}{getattr(error, 'msg', error)}") from None
    tree.body = [node for node in tree.body if not _tolerated_import(node)]
    for node in ast.walk(tree):
        _check_node(node)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    reward = [f for f in functions if f.name == "reward"]
    if len(reward) != 1:
        raise ProgramError(
            f"a program defines `reward(state, action)` exactly once at top level; found {len(reward)} such "
            f"functions{' (there are: ' + ', '.join(f.name for f in functions) + ')' if functions else ''}"
        )
    names = [a.arg for a in reward[0].args.args]
    if names != ["state", "action"] or reward[0].args.vararg or reward[0].args.kwarg:
        raise ProgramError(f"reward takes exactly (state, action); this one takes ({', '.join(names)})")
    return ParsedReward(source, ast.get_docstring(tree) or "", _weights(tree), tree)


def load(parsed: ParsedReward) -> RewardProgram:
    """Runs the definitions of a parsed program in the facade. Raises ProgramError."""
    scope = facade()
    try:
        exec(compile(parsed.tree, "<reward>", "exec"), scope)
    except Exception as error:
        raise ProgramError(f"the program cannot be loaded: {type(error).__name__}: {error}") from None
    body = [n for n in parsed.tree.body if not _is_weights(n) and not isinstance(n, ast.Expr)]
    canonical = ast.dump(ast.Module(body, [])) + repr(list(parsed.weights))
    return RewardProgram(
        source=parsed.source,
        description=parsed.description,
        weights=parsed.weights,
        reward=scope["reward"],
        structure=structure_hash(canonical),
    )


def with_weights(source: str, weights: dict[str, float]) -> str:
    """The same program with other weights; everything else stays as it was written."""
    node = next(n for n in ast.parse(source).body if _is_weights(n))
    lines = source.splitlines(keepends=True)
    text = "WEIGHTS = {" + ", ".join(f'"{k}": {v:.6g}' for k, v in weights.items()) + "}\n"
    return "".join(lines[: node.lineno - 1] + [text] + lines[node.end_lineno :])


def _tolerated_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) and ast.unparse(node) in _IMPORTS


def _check_node(node: ast.AST) -> None:
    where = f"line {node.lineno}: " if hasattr(node, "lineno") else ""  # pyright: ignore
    if isinstance(node, ast.Import | ast.ImportFrom):
        raise ProgramError(f"{where}`{ast.unparse(node)}`: nothing may be imported; jnp, jax.nn, jax.lax and "
                           "shaping are in scope already")  # fmt: skip
    if not isinstance(node, _NODES):
        raise ProgramError(f"{where}{type(node).__name__} is not part of a reward program; "
                           "use plain expressions, functions, if and for")  # fmt: skip
    name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "arg", None)
    if isinstance(name, str) and name.startswith("_"):
        raise ProgramError(f"{where}{name!r}: names that begin with an underscore are not allowed")
    if isinstance(node, ast.FunctionDef) and (node.decorator_list or node.name.startswith("_")):
        raise ProgramError(f"{where}def {node.name}: decorators and private names are not allowed")
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _FORBIDDEN:
        raise ProgramError(f"{where}{node.id!r} is not available in a reward program")
    if isinstance(node, ast.Attribute):
        _check_attribute(node, where)


_FORBIDDEN = set(dir(builtins)) - set(BUILTINS)
_ROOTS = {"jnp": _JNP, "lax": _LAX, "jnp.linalg": _LINALG, "jax.nn": _NN, "jax.lax": _LAX, "jax.numpy": _JNP,
          "jax.numpy.linalg": _LINALG, "jax": ["numpy", "nn", "lax"], "shaping": list(shaping.PUBLIC)}  # fmt: skip


def _check_attribute(node: ast.Attribute, where: str) -> None:
    owner = ast.unparse(node.value)
    if owner in _ROOTS and node.attr not in _ROOTS[owner]:
        near = near_matches(node.attr, _ROOTS[owner])
        hint = f"; did you mean {' or '.join(f'{owner}.{n}' for n in near)}?" if near else ""
        raise ProgramError(f"{where}{owner}.{node.attr} is not available in a reward program{hint}")


def _is_weights(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["WEIGHTS"]


def _weights(tree: ast.Module) -> dict[str, float]:
    found = [n for n in tree.body if _is_weights(n)]
    if len(found) != 1:
        raise ProgramError(
            f'a program has one top-level `WEIGHTS = {{"term": 1.0, ...}}`; found {len(found)}'
        )
    node = found[0].value  # pyright: ignore[reportAttributeAccessIssue]
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ProgramError(
            f"line {node.lineno}: WEIGHTS is a literal dict of numbers, with nothing to compute"
        ) from None
    if not isinstance(value, dict) or not value:
        raise ProgramError(
            f"line {node.lineno}: WEIGHTS is a dict with at least one term; got {type(value).__name__}"
        )
    if len(value) != len(node.keys):
        raise ProgramError(f"line {node.lineno}: WEIGHTS names a term twice")
    for term, weight in value.items():
        if not isinstance(term, str) or not term.isidentifier() or len(term) > 64:
            raise ProgramError(
                f"line {node.lineno}: a term's name is an identifier of at most 64 letters; got {term!r}"
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
            raise ProgramError(
                f"line {node.lineno}: WEIGHTS[{term!r}] is {weight!r}, expected a finite number"
            )
        if abs(weight) > MAX_WEIGHT:
            raise ProgramError(
                f"line {node.lineno}: WEIGHTS[{term!r}] is {weight:g}, more than {MAX_WEIGHT:g}"
            )
    return {k: float(v) for k, v in value.items()}
