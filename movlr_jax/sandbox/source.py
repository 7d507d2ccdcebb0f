"""Parser of the text of reward programs.

It checks the syntax tree against allow-lists: its nodes, the names of modules, the attributes of values. Its purpose
is to give clear error messages; `confine` enforces security. Nothing here runs the program, and every failure of the
parser ends in a ProgramError.
"""

from __future__ import annotations

import ast
import io
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from movlr_jax.errors import ProgramError
from movlr_jax.rewards.term import quoted
from movlr_jax.sandbox.checks import check_constant, check_node, given_names
from movlr_jax.sandbox.facade import IN_SCOPE
from movlr_jax.sandbox.names import Names, imported, where, written
from movlr_jax.sandbox.weights import is_weights, weights_of

MAX_BYTES = 32_768
MAX_DEPTH = 100  # of the syntax tree

_PARSER = threading.Lock()


@dataclass(frozen=True)
class ParsedReward:
    """A reward program whose text passed the allow-lists."""

    source: str
    description: str
    weights: dict[str, float]
    tree: ast.Module
    lines: Mapping[str, str] = field(default_factory=dict)  # term -> `line N: ` of the line that returns it
    names: Names | None = None  # None if the text was not checked
    notes: Sequence[str] = ()  # what of the text is ignored

    def where(self, term: object) -> str:
        """Return `line N: ` for a term, "" if it is not returned under a literal name."""
        return self.lines.get(term, "") if isinstance(term, str) else ""


class Rejected(Exception):
    """A rejected program; its arguments are (stage, message)."""


def parse(source: str) -> ParsedReward:
    """Check the text of a program. Raises only ProgramError, with the line and the likely fix."""
    if len(source.encode("utf-8", "replace")) > MAX_BYTES:
        raise ProgramError(f"the program is longer than {MAX_BYTES} bytes; a reward is a short function")
    try:
        tree = _tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError) as error:
        where = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        raise ProgramError(f"the program is not Python: {where}{getattr(error, 'msg', error)}") from None
    try:
        return _parse(source, tree)
    except ProgramError as error:
        raise ProgramError(str(error)[:1000]) from None
    except Exception as error:  # an error of Python on an unforeseen tree
        raise ProgramError(f"the program cannot be parsed: {type(error).__name__}: {str(error)[:200]}") from None


def _tree(source: str) -> ast.Module:
    """Return the syntax tree; only one thread at a time parses.

    CPython 3.11 counts the depth of the trees of all threads together and raises SystemError if the count is wrong
    (https://github.com/python/cpython/issues/106905). Other code, such as tracebacks, parses too, hence the retries.
    """
    with _PARSER:
        for _ in range(3):
            try:
                return ast.parse(source)
            except SystemError:
                continue
        return ast.parse(source)


def _parse(source: str, tree: ast.Module) -> ParsedReward:
    _check_depth(tree)
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Constant):
            check_constant(node.value, where(node))
    cleaner = _Cleaner(nodes)
    tree = cleaner.visit(tree)
    nodes = list(ast.walk(tree))
    names = Names(nodes)
    names.given |= given_names(nodes, names)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    # of names that are already in scope
    redundant = {node for node in imports if all(IN_SCOPE.get(name) == path for name, path in imported(node))}
    tree.body = [node for node in tree.body if node not in redundant]
    for node in nodes:
        if node not in redundant:
            check_node(node, names)
    for node in tree.body:
        _check_top_level(node)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    reward = [f for f in functions if f.name == "reward"]
    if len(reward) != 1:
        raise ProgramError(
            f"a program must define `reward(state, action)` exactly once at top level; found {len(reward)} such "
            f"functions{' (there are: ' + ', '.join(f.name for f in functions) + ')' if functions else ''}"
        )
    takes = reward[0].args
    required = [*takes.posonlyargs, *takes.args][: len(takes.posonlyargs + takes.args) - len(takes.defaults)]
    if [a.arg for a in required] != ["state", "action"] or None in takes.kw_defaults:
        raise ProgramError(
            f"line {reward[0].lineno}: reward must take exactly (state, action), but it takes ({written(takes)}); "
            "other arguments need a default value"
        )
    return ParsedReward(
        source, ast.get_docstring(tree) or "", weights_of(tree, names), tree, _lines(tree), names, cleaner.notes
    )


def unchecked(source: str) -> ParsedReward:
    """Return the parts of a program without checking its text: for tests of the confinement alone."""
    tree = _tree(source)
    weights = next(ast.literal_eval(n.value) for n in tree.body if is_weights(n))  # pyright: ignore
    return ParsedReward(source, "", weights, tree)


def with_weights(source: str, weights: dict[str, float]) -> str:
    """Return the program with other weights; the rest of its text is unchanged."""
    node = next(n for n in _tree(source).body if is_weights(n)).value  # pyright: ignore
    # str.splitlines splits at more characters
    lines = [line.encode() for line in io.StringIO(source, newline="")]
    text = "{" + ", ".join(f"{quoted(k)}: {v:.6g}" for k, v in weights.items()) + "}"
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (before + text.encode() + after).decode()


class _Cleaner(ast.NodeTransformer):
    """Removes what has no effect on the terms: annotations, print, the main guard, `__all__`, `if TYPE_CHECKING`.

    Annotations may contain names but no code that could run.
    """

    def __init__(self, nodes: Sequence[ast.AST]):
        self._own = {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
        self._fields: set[ast.AST] = set()
        self._notes: list[tuple[int, str]] = []

    @property
    def notes(self) -> list[str]:
        return [f"line {line}: {text}" for line, text in sorted(self._notes)]

    def visit_Module(self, node: ast.Module) -> ast.AST:
        body: list[ast.stmt] = []
        for statement in node.body:
            match statement:
                case ast.If(test=ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]), orelse=[]):
                    self._notes.append((statement.lineno, "the block under `if __name__ == ...` is ignored"))
                case ast.Assign(targets=[ast.Name(id=name)]) if name in _DROPPED:
                    if not all(isinstance(n, _LITERAL) for n in ast.walk(statement.value)):
                        body.append(statement)
                case _:
                    body.append(statement)
        node.body = body
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        match node.test:
            case ast.Name(id="TYPE_CHECKING") | ast.Attribute(value=ast.Name(id="typing"), attr="TYPE_CHECKING"):
                return node.orelse or None
            case _:
                return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        match node.value:
            case ast.Call(func=ast.Name(id="print")) if "print" not in self._own:
                self._notes.append((node.lineno, _PRINTS))
                return None
            case _:
                return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        _check_annotation(node.annotation)
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        _check_annotation(node.returns)
        node.returns = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Keep which names are fields of a class: those with annotations, except of ClassVar."""
        annotated = [s for s in node.body if isinstance(s, ast.AnnAssign)]
        self._fields.update(s for s in annotated if "ClassVar" not in ast.unparse(s.annotation))
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        _check_annotation(node.annotation)
        if node in self._fields:
            node.annotation = ast.copy_location(ast.Constant(None), node.annotation)
            return self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        before = getattr(node, "body", None)
        first = before[0] if isinstance(before, list) and before else None
        super().generic_visit(node)
        if first is not None and not node.body and not isinstance(node, ast.Module):  # pyright: ignore
            node.body = [ast.copy_location(ast.Pass(), first)]  # pyright: ignore
        return node


_DROPPED = ("__all__", "__version__", "__author__")
_PRINTS = "print is ignored: the program is traced once, not run at each step"
_LITERAL = (ast.Constant, ast.List, ast.Tuple, ast.Load)
_PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.BitOr, ast.Load)


def _check_annotation(annotation: ast.expr | None) -> None:
    if annotation and not all(isinstance(node, _PLAIN) for node in ast.walk(annotation)):
        raise ProgramError(
            f"{where(annotation)}the annotation `{written(annotation)}` contains more than names; remove it"
        )


def _check_depth(tree: ast.AST) -> None:
    """Raise ProgramError for trees so deep that recursive code, such as Python's compiler, would fail on them."""
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            where = next((f"line {n.lineno}: " for n in level if hasattr(n, "lineno")), "")  # pyright: ignore
            raise ProgramError(f"{where}expressions are nested more than {MAX_DEPTH} deep; give parts of them a name")
        level = [child for node in level for child in ast.iter_child_nodes(node)]


def _check_top_level(node: ast.stmt) -> None:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    allowed = (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AugAssign, ast.Delete, ast.Assert, ast.Pass)
    allowed += (ast.If, ast.For, ast.Import, ast.ImportFrom)
    if not isinstance(node, allowed) and not text:
        raise ProgramError(
            f"{where(node)}`{written(node)}`: only functions, classes, constants and WEIGHTS are allowed at top level"
        )


def _lines(tree: ast.Module) -> dict[str, str]:
    """Return a dict: term -> `line N: ` of its entry in a returned dict."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            for key in node.value.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.setdefault(key.value, f"line {key.lineno}: ")
    return found
