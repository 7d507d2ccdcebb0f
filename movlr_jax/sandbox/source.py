"""Reads the text of a reward program: what it may contain, and the program in it.

An allow-list over the syntax tree: of its nodes, of the names of modules, of the attributes of values. It gives
good sentences; confinement is `confine`'s business. Nothing here runs the program, and whatever its text makes a
parser do ends in a ProgramError.
"""

from __future__ import annotations

import ast
import builtins
import io
import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from movlr_jax.errors import ProgramError, near_matches, unknown_name
from movlr_jax.rewards.state import STATE_CALLS
from movlr_jax.sandbox.facade import BUILTINS, IN_SCOPE, MODULES, SAME, VALUES

MAX_BYTES = 32_768
MAX_DEPTH = 100  # of the syntax tree
MAX_WEIGHT = 1e6
MAX_DIGITS = 600  # of a whole number; Python writes out up to 640 under any setting

_NODES = (
    # statements
    (ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign)
    + (ast.For, ast.If, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Assert)
    + (ast.Import, ast.ImportFrom, ast.alias)  # of what is in MODULES
    # expressions
    + (
        ast.BoolOp,
        ast.BinOp,
        ast.UnaryOp,
        ast.Lambda,
        ast.IfExp,
        ast.Dict,
        ast.Set,
        ast.Compare,
        ast.Call,
        ast.keyword,
        ast.NamedExpr,
        ast.JoinedStr,
        ast.FormattedValue,
    )
    + (ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice)
    + (ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.comprehension)
    + (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
)
_FORBIDDEN = set(dir(builtins)) - set(BUILTINS)
_HOMES = ("jnp", "jnp.linalg", "jax.nn", "jax.lax", "shaping")
_FORMAT = re.compile(r"[<>=^]?[ +-]?0?\d{0,2}[,_]?(\.\d{1,2})?[bdeEfFgGnsxX%]?")

_PARSER = threading.Lock()


@dataclass(frozen=True)
class ParsedReward:
    """A reward program as text that passed the allow-list."""

    source: str
    description: str
    weights: dict[str, float]
    tree: ast.Module
    lines: Mapping[str, str] = field(default_factory=dict)  # term -> `line N: ` of where it is returned

    def where(self, term: object) -> str:
        """`line N: ` of a term, or nothing where it is not returned by name."""
        return self.lines.get(term, "") if isinstance(term, str) else ""


def parse(source: str) -> ParsedReward:
    """Checks the text of a program. Raises ProgramError with the line and the likely fix, and nothing else."""
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
    except Exception as error:  # of what Python does with a tree that nobody thought of
        raise ProgramError(
            f"the program cannot be read: {type(error).__name__}: {str(error)[:200]}"
        ) from None


def _tree(source: str) -> ast.Module:
    """The syntax tree, made by one thread at a time.

    CPython 3.11 counts the depth of the trees of all threads together; where that comes out wrong it raises
    SystemError (https://github.com/python/cpython/issues/106905). Others than us parse too, tracebacks for one.
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
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            _check_constant(node.value, _where(node))
    tree = _Unannotated().visit(tree)
    names = _Names(tree)
    tree.body = [node for node in tree.body if not _says_nothing(node)]
    for node in ast.walk(tree):
        _check_node(node, names)
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
            f"line {reward[0].lineno}: reward takes exactly (state, action); this one takes ({_written(takes)})"
        )
    return ParsedReward(source, ast.get_docstring(tree) or "", _weights(tree), tree, _lines(tree))


def unchecked(source: str) -> ParsedReward:
    """The parts of a program whose text nobody looked at: for tests of what holds it when the text is no help."""
    tree = _tree(source)
    weights = next(ast.literal_eval(n.value) for n in tree.body if is_weights(n))  # pyright: ignore
    return ParsedReward(source, "", weights, tree)


def with_weights(source: str, weights: dict[str, float]) -> str:
    """The same program with other weights; everything else stays as it was written."""
    node = next(n for n in _tree(source).body if is_weights(n)).value  # pyright: ignore
    lines = [line.encode() for line in io.StringIO(source, newline="")]  # str.splitlines knows more line ends
    text = "{" + ", ".join(f'"{k}": {v:.6g}' for k, v in weights.items()) + "}"
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (before + text.encode() + after).decode()


def imported(node: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
    """(name, path) of all that an import binds; a path is a module's, or a module's with a name of it.

    Raises ProgramError where it is none of `facade.MODULES`.
    """
    bound = []
    for alias in node.names:
        if isinstance(node, ast.ImportFrom) and (node.module, alias.name) == ("__future__", "annotations"):
            continue
        if isinstance(node, ast.Import):
            name, path = alias.asname or alias.name, _module(alias.name)
            if path and not alias.asname:  # `import a.b` binds a
                name = alias.name.partition(".")[0]
                path = _module(name)
        else:
            module = _module(node.module or "") if not node.level else None
            whole = f"{node.module}.{alias.name}"
            name, path = alias.asname or alias.name, _module(whole)
            if not path and module and alias.name in MODULES[module]:
                path = f"{module}.{alias.name}"
        if not path:
            raise _no_import(node)
        bound.append((name, path))
    return bound


def _no_import(node: ast.AST) -> ProgramError:
    return ProgramError(
        f"{_where(node)}`{_written(node)}`: nothing may be imported; jnp, jax.nn, jax.lax and shaping are in scope "
        "already, and only parts of those, math, numpy (which is jnp), functools, itertools and typing are let by"
    )


def _module(path: str) -> str | None:
    """The module of `facade.MODULES` that goes by this path."""
    path = SAME.get(path, path)
    return path if path in MODULES else None


def _says_nothing(node: ast.stmt) -> bool:
    """Whether an import binds only what is in scope without it."""
    return isinstance(node, ast.Import | ast.ImportFrom) and all(
        IN_SCOPE.get(name) == path for name, path in imported(node)
    )


class _Names:
    """What the names of a program are: modules by any name, and those that it binds itself."""

    def __init__(self, tree: ast.Module):
        self.paths = dict(IN_SCOPE)  # name -> module, or a module's function
        self.bound: set[str] = set()
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                    self.bound.add(name)
        self.given: set[ast.AST] = set()  # the names of assignments such as `nn = jax.nn`
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name, path in imported(node):
                    self._bind(name, path, node)
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name) as target]) if path := self.module(node.value):
                    self.given.add(target)
                    self._bind(name, path, node)

    def _bind(self, name: str, path: str, node: ast.stmt) -> None:
        if self.paths.setdefault(name, path) != path or name.startswith("__") or name == "reward":
            raise _taken(_where(node), name)

    def path(self, node: ast.expr) -> str | None:
        """`jax.numpy.sum` of whatever a program writes for it; None of all that is no name of a module."""
        if isinstance(node, ast.Name):
            return self.paths.get(node.id)
        if isinstance(node, ast.Attribute) and (owner := self.module(node.value)):
            return f"{owner}.{node.attr}"
        return None

    def missing(self, node: ast.expr) -> bool:
        """Whether this is a name that nothing gives a value: whoever reads it gets a NameError, and so a sentence."""
        return isinstance(node, ast.Name) and node.id not in self.bound | {*self.paths, *BUILTINS}

    def module(self, node: ast.expr) -> str | None:
        return _module(self.path(node) or "")


def _taken(where: str, name: str) -> ProgramError:
    return ProgramError(
        f"{where}{name!r} is in scope already and cannot mean anything else; use another name"
    )


def _where(node: ast.AST) -> str:
    return f"line {node.lineno}: " if hasattr(node, "lineno") else ""  # pyright: ignore


def _written(node: ast.AST) -> str:
    """A node as text, as much of it as a message shows."""
    return (ast.unparse(node).splitlines() or [""])[0][:120]


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


_PLAIN = (
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


def _check_annotation(annotation: ast.expr | None) -> None:
    if annotation and not all(isinstance(node, _PLAIN) for node in ast.walk(annotation)):
        raise ProgramError(
            f"{_where(annotation)}the annotation `{_written(annotation)}` is more than names; leave it out"
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
    allowed = (ast.FunctionDef, ast.Assign, ast.Pass, ast.Import, ast.ImportFrom)
    if not isinstance(node, allowed) and not text:
        raise ProgramError(
            f"line {node.lineno}: `{_written(node)}`: only functions, constants and WEIGHTS stand at top level"
        )


def _check_node(node: ast.AST, names: _Names) -> None:
    where = _where(node)
    if not isinstance(node, _NODES):
        raise ProgramError(f"{where}{type(node).__name__} is not part of a reward program; "
                           "use plain expressions, functions, if and for")  # fmt: skip
    match node:
        case ast.FunctionDef():
            if not all(_compiles(decorator, names) for decorator in node.decorator_list):
                raise ProgramError(f"{where}def {node.name}: decorators other than @jax.jit are not allowed")
            _check_bound(node.name, where, names)
        case ast.arg():
            _check_bound(node.arg, where, names)
        case ast.Name(ctx=ast.Load()):
            _check_own_name(node.id, where)
            if node.id in _FORBIDDEN and node.id not in names.bound:
                raise ProgramError(f"{where}{node.id!r} is not available in a reward program")
        case ast.Name() if node not in names.given:
            _check_bound(node.id, where, names)
            if node.id == "reward":
                raise ProgramError(f"{where}reward is a function and cannot be assigned to")
        case ast.keyword(arg=str(name)) if name.startswith("_"):
            raise _hidden(name, where)
        case ast.Attribute():
            _check_attribute(node, where, names)
        case ast.BinOp(op=operator) if not isinstance(operator, ast.Add) and _is_text(node.left, node.right):
            raise ProgramError(
                f"{where}`{_written(node)}`: names are written out, there are no operations on text but +"
            )
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=parts)):
            if not all(isinstance(p, ast.Constant) and _FORMAT.fullmatch(str(p.value)) for p in parts):
                raise ProgramError(f"{where}a format here is a literal such as .3f")
        case ast.ListComp() | ast.DictComp() | ast.GeneratorExp():
            if any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node)):
                raise ProgramError(f"{where}`:=` within a comprehension is not allowed; use a loop")
        case _:
            pass


def _compiles(decorator: ast.expr, names: _Names) -> bool:
    """Whether a decorator is jax.jit, with or without options."""
    if isinstance(decorator, ast.Call):
        made_of = [decorator.func, *decorator.args]
        return [names.path(part) for part in made_of] in (["jax.jit"], ["functools.partial", "jax.jit"])
    return names.path(decorator) == "jax.jit"


def _check_own_name(name: str, where: str) -> None:
    if name.startswith("__"):
        raise ProgramError(f"{where}{name!r}: names that begin with two underscores are not allowed")


def _check_bound(name: str, where: str, names: _Names) -> None:
    _check_own_name(name, where)
    if _module(names.paths.get(name, "")):
        raise _taken(where, name)


def _hidden(name: str, where: str) -> ProgramError:
    return ProgramError(f"{where}{name!r}: names that begin with an underscore are not allowed here")


def _is_text(*nodes: ast.expr) -> bool:
    return any(isinstance(node, ast.Constant) and isinstance(node.value, str) for node in nodes)


def _check_constant(value: object, where: str) -> None:
    if isinstance(value, complex | bytes):
        raise ProgramError(
            f"{where}{repr(value)[:40]}: rewards are real numbers; there are no {type(value).__name__} values"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ProgramError(f"{where}a number here is too large for a float and reads as infinite")
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise ProgramError(
            f"{where}a whole number here has more than {MAX_DIGITS} digits; write it as a float"
        )


_LARGEST = 10**MAX_DIGITS


_INSTEAD = {
    "format": "; write an f-string",
    "item": "; use the value itself",
    "tolist": "; use the array itself",
}


def _check_attribute(node: ast.Attribute, where: str, names: _Names) -> None:
    if isinstance(node.value, ast.Attribute):  # the first that is wrong is the one to mend
        _check_attribute(node.value, where, names)
    owner, name = _written(node.value), node.attr
    if name.startswith("_"):
        raise _hidden(name, where)
    if not isinstance(node.ctx, ast.Load):
        raise ProgramError(f"{where}{owner}.{name} cannot be set; use a variable of your own")
    module, path = names.module(node.value), names.path(node.value)
    if module:
        if name not in MODULES[module]:
            hint = _meant(owner, name, module)
            raise ProgramError(f"{where}{owner}.{name} is not available in a reward program{hint}")
    elif path:
        raise ProgramError(f"{where}{owner}.{name} is not available in a reward program; call {owner} itself")
    elif name not in VALUES and not names.missing(node.value):
        if owner in ("state", "state.initial"):
            raise ProgramError(f"{where}state has no {name!r}: {unknown_name('call', name, STATE_CALLS)}")
        near = near_matches(name, sorted(VALUES), limit=3)
        hint = f"; did you mean {' or '.join('.' + n for n in near)}?" if near else ""
        hint = _INSTEAD.get(name, hint)
        raise ProgramError(f"{where}.{name} is not available in a reward program{hint}")


def _meant(owner: str, name: str, module: str) -> str:
    """What to write instead of a name that a module does not have."""
    homes = dict.fromkeys(MODULES[module], owner)  # name -> where it is: here, or else in another module
    for home in _HOMES:
        first, _, rest = home.partition(".")
        path = _module(f"{IN_SCOPE[first]}.{rest}".removesuffix("."))
        for other in MODULES[path or ""]:
            homes.setdefault(other, home)
    near = near_matches(name, homes, limit=3)
    if module == "jax":  # parts of JAX that are not here resemble nothing that is
        near = [n for n in near if n == name]
    return f"; did you mean {' or '.join(f'{homes[n]}.{n}' for n in near)}?" if near else ""


def is_weights(node: ast.stmt) -> bool:
    """Whether a statement sets WEIGHTS, with or without an annotation."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign) and node.value:
        targets = [node.target]
    return len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == "WEIGHTS"


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
                f"line {node.lineno}: a term's name is an identifier of at most 64 letters; got {repr(term)[:80]}"
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise ProgramError(
                f"line {node.lineno}: WEIGHTS[{term!r}] is {repr(weight)[:60]}, expected a number"
            )
        if abs(weight) > MAX_WEIGHT:
            shown = repr(weight)[:20]
            raise ProgramError(f"line {node.lineno}: WEIGHTS[{term!r}] is {shown}, more than {MAX_WEIGHT:g}")
    return {k: float(v) for k, v in value.items()}


def _lines(tree: ast.Module) -> dict[str, str]:
    """Term -> `line N: ` of the entry of a returned dict that is called so."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            for key in node.value.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.setdefault(key.value, f"line {key.lineno}: ")
    return found
