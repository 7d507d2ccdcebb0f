"""Reads the text of a reward program: what it may contain, and the program in it.

An allow-list over the syntax tree. It gives good sentences; confinement is `confine`'s business. Nothing here
runs the program.
"""

from __future__ import annotations

import ast
import builtins
import io
import math
from dataclasses import dataclass

from movlr_jax.errors import ProgramError, near_matches
from movlr_jax.rewards import shaping
from movlr_jax.sandbox.facade import BUILTINS, JNP, LAX, LINALG, NN

MAX_BYTES = 32_768
MAX_DEPTH = 100  # of the syntax tree
MAX_WEIGHT = 1e6

_NODES = (
    # statements
    (ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign)
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
    _check_depth(tree)
    tree = _Unannotated().visit(tree)
    tree.body = [node for node in tree.body if not _tolerated_import(node)]
    for node in ast.walk(tree):
        _check_node(node)
    for node in tree.body:
        _check_top_level(node)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    reward = [f for f in functions if f.name == "reward"]
    if len(reward) != 1:
        raise ProgramError(
            f"a program defines `reward(state, action)` exactly once at top level; found {len(reward)} such "
            f"functions{' (there are: ' + ', '.join(f.name for f in functions) + ')' if functions else ''}"
        )
    takes = reward[0].args
    others = takes.posonlyargs or takes.vararg or takes.kwonlyargs or takes.kwarg or takes.defaults
    if [a.arg for a in takes.args] != ["state", "action"] or others:
        raise ProgramError(
            f"line {reward[0].lineno}: reward takes exactly (state, action); this one takes ({ast.unparse(takes)})"
        )
    return ParsedReward(source, ast.get_docstring(tree) or "", _weights(tree), tree)


def unchecked(source: str) -> ParsedReward:
    """The parts of a program whose text nobody looked at: for tests of what holds it when the text is no help."""
    tree = ast.parse(source)
    weights = next(ast.literal_eval(n.value) for n in tree.body if is_weights(n))  # pyright: ignore
    return ParsedReward(source, "", weights, tree)


def with_weights(source: str, weights: dict[str, float]) -> str:
    """The same program with other weights; everything else stays as it was written."""
    node = next(n for n in ast.parse(source).body if is_weights(n)).value  # pyright: ignore
    lines = [line.encode() for line in io.StringIO(source, newline="")]  # str.splitlines knows more line ends
    text = "{" + ", ".join(f'"{k}": {v:.6g}' for k, v in weights.items()) + "}"
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (before + text.encode() + after).decode()


def _tolerated_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) and ast.unparse(node) in _IMPORTS


class _Unannotated(ast.NodeTransformer):
    """Drops annotations, which say nothing to JAX; they may hold names and nothing that could run."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        _check_annotation(node.annotation)
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        _check_annotation(node.returns)
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        _check_annotation(node.annotation)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(ast.copy_location(ast.Assign([node.target], node.value), node))


def _check_annotation(annotation: ast.expr | None) -> None:
    plain = (
        ast.Name,
        ast.Attribute,
        ast.Subscript,
        ast.Constant,
        ast.Tuple,
        ast.List,
        ast.BinOp,
        ast.BitOr,
        ast.Load,
    )
    for node in ast.walk(annotation) if annotation else ():
        if not isinstance(node, plain):
            assert annotation
            what = ast.unparse(annotation)
            raise ProgramError(
                f"line {annotation.lineno}: the annotation `{what}` is more than names; leave it out"
            )


def _check_depth(tree: ast.AST) -> None:
    """Deeper trees exhaust the recursion of whoever walks them, Python's own compiler included."""
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            where = next((f"line {n.lineno}: " for n in level if hasattr(n, "lineno")), "")  # pyright: ignore
            raise ProgramError(f"{where}nested more than {MAX_DEPTH} deep; give parts of it a name")
        level = [child for node in level for child in ast.iter_child_nodes(node)]


def _check_top_level(node: ast.stmt) -> None:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if not isinstance(node, ast.FunctionDef | ast.Assign | ast.Pass) and not text:
        raise ProgramError(
            f"line {node.lineno}: `{ast.unparse(node).splitlines()[0]}`: only functions, constants and WEIGHTS "
            "stand at top level"
        )


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
    bound = node.name if isinstance(node, ast.FunctionDef) else name
    if bound in _SCOPE and isinstance(getattr(node, "ctx", ast.Store()), ast.Store):
        raise ProgramError(
            f"{where}{bound!r} is in scope already and cannot mean anything else; use another name"
        )
    if isinstance(node, ast.Name) and node.id == "reward" and isinstance(node.ctx, ast.Store):
        raise ProgramError(f"{where}reward is a function and cannot be assigned to")
    if isinstance(node, ast.Attribute):
        _check_attribute(node, where)
    if isinstance(node, ast.Constant):
        _check_constant(node.value, where)
    if isinstance(node, ast.BinOp) and any(_is_text(side) for side in (node.left, node.right)):
        raise ProgramError(
            f"{where}`{ast.unparse(node)}`: names are written out, there are no operations on text"
        )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _check_constant(value: object, where: str) -> None:
    if isinstance(value, complex | bytes):
        raise ProgramError(
            f"{where}{value!r}: rewards are real numbers; there are no {type(value).__name__} values"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ProgramError(f"{where}a number here is too large for a float and reads as infinite")


_FORBIDDEN = set(dir(builtins)) - set(BUILTINS)
_ROOTS = {"jnp": JNP, "lax": LAX, "jnp.linalg": LINALG, "jax.nn": NN, "jax.lax": LAX, "jax.numpy": JNP,
          "jax.numpy.linalg": LINALG, "jax": ["numpy", "nn", "lax"], "shaping": list(shaping.PUBLIC)}  # fmt: skip


_SCOPE = {"jnp", "jax", "lax", "shaping"}
_HOMES = ("jnp", "jnp.linalg", "jax.nn", "jax.lax", "shaping")


def _check_attribute(node: ast.Attribute, where: str) -> None:
    owner = ast.unparse(node.value)
    if not isinstance(node.ctx, ast.Load):
        raise ProgramError(f"{where}{owner}.{node.attr} cannot be set; use a variable of your own")
    module, _, function = owner.rpartition(".")
    if owner not in _ROOTS and function in _ROOTS.get(module, ()):
        raise ProgramError(
            f"{where}{owner}.{node.attr} is not available in a reward program; call {owner} itself"
        )
    if owner in _ROOTS and node.attr not in _ROOTS[owner]:
        homes: dict[str, str] = {}  # name -> where it is: here, or else in another module
        for root in (owner, *_HOMES):
            homes.update({name: root for name in _ROOTS.get(root, ()) if name not in homes})
        near = near_matches(node.attr, homes, limit=3)
        if owner == "jax":  # parts of JAX that are not here resemble nothing that is
            near = [name for name in near if name == node.attr]
        hint = f"; did you mean {' or '.join(f'{homes[n]}.{n}' for n in near)}?" if near else ""
        raise ProgramError(f"{where}{owner}.{node.attr} is not available in a reward program{hint}")


def is_weights(node: ast.stmt) -> bool:
    """Whether a statement sets WEIGHTS, with or without an annotation."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign) and node.value:
        targets = [node.target]
    return [ast.unparse(t) for t in targets] == ["WEIGHTS"]


def _weights(tree: ast.Module) -> dict[str, float]:
    found = [n for n in tree.body if is_weights(n)]
    if len(found) != 1:
        raise ProgramError(
            f'a program has one top-level `WEIGHTS = {{"term": 1.0, ...}}`; found {len(found)}'
        )
    target, node = found[0].targets[0], found[0].value  # pyright: ignore[reportAttributeAccessIssue]
    for use in ast.walk(tree):
        if isinstance(use, ast.Name) and use.id == "WEIGHTS" and use is not target:
            raise ProgramError(
                f"line {use.lineno}: WEIGHTS is set once, at top level, and read by nobody here: terms are returned "
                "unweighted, the total is summed for you"
            )
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
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise ProgramError(f"line {node.lineno}: WEIGHTS[{term!r}] is {weight!r}, expected a number")
        if abs(weight) > MAX_WEIGHT:
            shown = repr(weight)[:20]
            raise ProgramError(f"line {node.lineno}: WEIGHTS[{term!r}] is {shown}, more than {MAX_WEIGHT:g}")
    return {k: float(v) for k, v in value.items()}


def where_is(source: str, term: object) -> str:
    """`line N: ` of the entry of a returned dict that is called `term`, or nothing where there is none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            for key in node.value.keys:
                if isinstance(key, ast.Constant) and key.value == term:
                    return f"line {key.lineno}: "
    return ""
