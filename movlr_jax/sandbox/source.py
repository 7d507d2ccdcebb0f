"""Parser of the text of reward programs.

It checks the syntax tree against allow-lists: its nodes, the names of modules, the attributes of values. Its purpose
is to give clear error messages; `confine` enforces security. Nothing here runs the program, and every failure of the
parser ends in a ProgramError.
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
from movlr_jax.rewards.term import quoted
from movlr_jax.sandbox.facade import BUILTINS, IN_SCOPE, MODULES, SAME, VALUES

MAX_BYTES = 32_768
MAX_DEPTH = 100  # of the syntax tree
MAX_WEIGHT = 1e6
MAX_DIGITS = 600  # of an integer; Python can print at least 640 under any setting

_NODES = (
    # statements
    (ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign)
    + (ast.For, ast.If, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Assert)
    + (ast.Import, ast.ImportFrom, ast.alias)  # only of names in MODULES
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
    """A reward program whose text passed the allow-lists."""

    source: str
    description: str
    weights: dict[str, float]
    tree: ast.Module
    lines: Mapping[str, str] = field(default_factory=dict)  # term -> `line N: ` of the line that returns it

    def where(self, term: object) -> str:
        """Return `line N: ` for a term, "" if it is not returned under a literal name."""
        return self.lines.get(term, "") if isinstance(term, str) else ""


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
        raise ProgramError(
            f"the program cannot be parsed: {type(error).__name__}: {str(error)[:200]}"
        ) from None


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
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            _check_constant(node.value, _where(node))
    tree = _Unannotated().visit(tree)
    names = _Names(tree)
    tree.body = [node for node in tree.body if not _is_redundant(node)]
    for node in ast.walk(tree):
        _check_node(node, names)
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
    others = takes.posonlyargs or takes.vararg or takes.kwonlyargs or takes.kwarg or takes.defaults
    if [a.arg for a in takes.args] != ["state", "action"] or others:
        raise ProgramError(
            f"line {reward[0].lineno}: reward must take exactly (state, action), but it takes ({_written(takes)})"
        )
    return ParsedReward(source, ast.get_docstring(tree) or "", _weights(tree), tree, _lines(tree))


def unchecked(source: str) -> ParsedReward:
    """Return the parts of a program without checking its text: for tests of the confinement alone."""
    tree = _tree(source)
    weights = next(ast.literal_eval(n.value) for n in tree.body if is_weights(n))  # pyright: ignore
    return ParsedReward(source, "", weights, tree)


def with_weights(source: str, weights: dict[str, float]) -> str:
    """Return the program with other weights; the rest of its text is unchanged."""
    node = next(n for n in _tree(source).body if is_weights(n)).value  # pyright: ignore
    lines = [
        line.encode() for line in io.StringIO(source, newline="")
    ]  # str.splitlines splits at more characters
    text = "{" + ", ".join(f"{quoted(k)}: {v:.6g}" for k, v in weights.items()) + "}"
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (before + text.encode() + after).decode()


def imported(node: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
    """Return (name, path) for each name that an import binds; a path is that of a module or of a name in a module.

    Raises ProgramError if the path is not in `facade.MODULES`.
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
        f"{_where(node)}`{_written(node)}`: this import is not allowed; jnp, jax.nn, jax.lax and shaping are already "
        "in scope, and only they, math, numpy (an alias of jnp), functools, itertools, collections, operator and "
        "typing may be imported"
    )


def _module(path: str) -> str | None:
    """Return the module of `facade.MODULES` with this path or alias."""
    path = SAME.get(path, path)
    return path if path in MODULES else None


def _is_redundant(node: ast.stmt) -> bool:
    """Return whether an import binds only names that are already in scope."""
    return isinstance(node, ast.Import | ast.ImportFrom) and all(
        IN_SCOPE.get(name) == path for name, path in imported(node)
    )


class _Names:
    """The names of a program: aliases of modules, and the names that it binds itself."""

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
        """Return the full path of an expression, e.g. `jax.numpy.sum`; None if it does not refer to a module."""
        if isinstance(node, ast.Name):
            return self.paths.get(node.id)
        if isinstance(node, ast.Attribute) and (owner := self.module(node.value)):
            return f"{owner}.{node.attr}"
        return None

    def missing(self, node: ast.expr) -> bool:
        """Return whether this is an undefined name; when the program runs, it raises NameError, which is reported."""
        return isinstance(node, ast.Name) and node.id not in self.bound | {*self.paths, *BUILTINS}

    def module(self, node: ast.expr) -> str | None:
        return _module(self.path(node) or "")


def _taken(where: str, name: str) -> ProgramError:
    return ProgramError(f"{where}{name!r} is already in scope and cannot be redefined; use another name")


def _where(node: ast.AST) -> str:
    return f"line {node.lineno}: " if hasattr(node, "lineno") else ""  # pyright: ignore


def _written(node: ast.AST) -> str:
    """Return the first line of a node's source, truncated for a message."""
    return (ast.unparse(node).splitlines() or [""])[0][:120]


class _Unannotated(ast.NodeTransformer):
    """Removes annotations, which JAX does not use; they may contain names but no code that could run."""

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
            f"{_where(annotation)}the annotation `{_written(annotation)}` contains more than names; remove it"
        )


def _check_depth(tree: ast.AST) -> None:
    """Raise ProgramError for trees so deep that recursive code, such as Python's compiler, would fail on them."""
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            where = next((f"line {n.lineno}: " for n in level if hasattr(n, "lineno")), "")  # pyright: ignore
            raise ProgramError(
                f"{where}expressions are nested more than {MAX_DEPTH} deep; give parts of them a name"
            )
        level = [child for node in level for child in ast.iter_child_nodes(node)]


def _check_top_level(node: ast.stmt) -> None:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    allowed = (ast.FunctionDef, ast.Assign, ast.AugAssign, ast.Pass, ast.Import, ast.ImportFrom)
    if not isinstance(node, allowed) and not text:
        raise ProgramError(
            f"line {node.lineno}: `{_written(node)}`: only functions, constants and WEIGHTS are allowed at top level"
        )


def _check_node(node: ast.AST, names: _Names) -> None:
    where = _where(node)
    if not isinstance(node, _NODES):
        raise ProgramError(f"{where}{type(node).__name__} is not part of a reward program; "
                           "use plain expressions, functions, if and for")  # fmt: skip
    match node:
        case ast.FunctionDef():
            if not all(_compiles(decorator, names) for decorator in node.decorator_list):
                raise ProgramError(
                    f"{where}def {node.name}: decorators other than @jax.jit and functools' caches are not allowed"
                )
            _check_bound(node.name, where, names)
        case ast.arg():
            _check_bound(node.arg, where, names)
        case ast.Name(ctx=ast.Load()):
            _check_no_dunder(node.id, where)
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
                f"{where}`{_written(node)}`: + is the only operation allowed on strings; write names out in full"
            )
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=parts)):
            if not all(isinstance(p, ast.Constant) and _FORMAT.fullmatch(str(p.value)) for p in parts):
                raise ProgramError(f"{where}a format specification must be a literal such as .3f")
        case ast.ListComp() | ast.DictComp() | ast.GeneratorExp():
            if any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node)):
                raise ProgramError(f"{where}`:=` within a comprehension is not allowed; use a loop")
        case _:
            pass


_DECORATORS = ("jax.jit", "functools.cache", "functools.lru_cache")


def _compiles(decorator: ast.expr, names: _Names) -> bool:
    """Return whether a decorator is jax.jit or a cache of functools, with or without options."""
    if isinstance(decorator, ast.Call):
        called = [names.path(part) for part in (decorator.func, *decorator.args)]
        return called in (["jax.jit"], ["functools.partial", "jax.jit"]) or called[0] == "functools.lru_cache"
    return names.path(decorator) in _DECORATORS


def _check_no_dunder(name: str, where: str) -> None:
    if name.startswith("__"):
        raise ProgramError(f"{where}{name!r}: names that begin with two underscores are not allowed")


def _check_bound(name: str, where: str, names: _Names) -> None:
    _check_no_dunder(name, where)
    if _module(names.paths.get(name, "")):
        raise _taken(where, name)


def _hidden(name: str, where: str) -> ProgramError:
    return ProgramError(f"{where}{name!r}: names that begin with an underscore are not allowed here")


def _is_text(*nodes: ast.expr) -> bool:
    return any(isinstance(node, ast.Constant) and isinstance(node.value, str) for node in nodes)


def _check_constant(value: object, where: str) -> None:
    if isinstance(value, complex | bytes):
        raise ProgramError(
            f"{where}{repr(value)[:40]}: {type(value).__name__} values are not allowed; rewards are real numbers"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ProgramError(f"{where}a number here is too large for a float and becomes infinite")
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise ProgramError(f"{where}an integer here has more than {MAX_DIGITS} digits; write it as a float")


_LARGEST = 10**MAX_DIGITS


_INSTEAD = {
    "format": "; write an f-string",
    "item": "; use the value itself",
    "tolist": "; use the array itself",
}


def _check_attribute(node: ast.Attribute, where: str, names: _Names) -> None:
    if isinstance(node.value, ast.Attribute):  # report the first wrong attribute of a chain
        _check_attribute(node.value, where, names)
    name = node.attr
    if name.startswith("_"):
        raise _hidden(name, where)
    if not isinstance(node.ctx, ast.Load):
        raise ProgramError(f"{where}{_written(node)} cannot be assigned to; use a local variable")
    module, path = names.module(node.value), names.path(node.value)
    known = MODULES[module] if module else () if path else VALUES
    if name in known or names.missing(node.value):
        return
    owner = _written(node.value)  # not before: the text of a long chain takes time
    if module:
        hint = _meant(owner, name, module)
        raise ProgramError(f"{where}{owner}.{name} is not available in a reward program{hint}")
    if path:
        raise ProgramError(f"{where}{owner}.{name} is not available in a reward program; call {owner} itself")
    if owner in ("state", "state.initial"):
        raise ProgramError(f"{where}state has no {name!r}: {unknown_name('call', name, STATE_CALLS)}")
    near = near_matches(name, sorted(VALUES), limit=3)
    hint = f"; did you mean {' or '.join('.' + n for n in near)}?" if near else ""
    hint = _INSTEAD.get(name, hint)
    raise ProgramError(f"{where}.{name} is not available in a reward program{hint}")


def _meant(owner: str, name: str, module: str) -> str:
    """Return a hint with names to use instead of a name that a module does not have, "" if there are none."""
    homes = dict.fromkeys(MODULES[module], owner)  # name -> its module: this one if it has the name
    for home in _HOMES:
        first, _, rest = home.partition(".")
        path = _module(f"{IN_SCOPE[first]}.{rest}".removesuffix("."))
        for other in MODULES[path or ""]:
            homes.setdefault(other, home)
    near = near_matches(name, homes, limit=3)
    if module == "jax":  # similar names are misleading for parts of JAX that are not available
        near = [n for n in near if n == name]
    return f"; did you mean {' or '.join(f'{homes[n]}.{n}' for n in near)}?" if near else ""


def is_weights(node: ast.stmt) -> bool:
    """Return whether a statement sets WEIGHTS, with or without an annotation."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign) and node.value:
        targets = [node.target]
    return len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == "WEIGHTS"


def _weights(tree: ast.Module) -> dict[str, float]:
    found = [n for n in tree.body if is_weights(n)]
    if len(found) != 1:
        raise ProgramError(
            f'a program must have one top-level `WEIGHTS = {{"term": 1.0, ...}}`; found {len(found)}'
        )
    target, node = found[0].targets[0], found[0].value  # pyright: ignore[reportAttributeAccessIssue]
    for use in ast.walk(tree):
        if isinstance(use, ast.Name) and use.id == "WEIGHTS" and use is not target:
            raise ProgramError(
                f"line {use.lineno}: WEIGHTS is set once at top level and must not be used elsewhere; return the "
                "terms unweighted, the weighted total is computed for you"
            )
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ProgramError(
            f"line {node.lineno}: WEIGHTS must be a literal dict of numbers, without expressions"
        ) from None
    if not isinstance(value, dict) or not value:
        raise ProgramError(
            f"line {node.lineno}: WEIGHTS must be a dict with at least one term; got {type(value).__name__}"
        )
    if len(value) != len(node.keys):
        raise ProgramError(f"line {node.lineno}: WEIGHTS names a term twice")
    for term, weight in value.items():
        if not isinstance(term, str) or not term.isidentifier() or len(term) > 64:
            raise ProgramError(
                f"line {node.lineno}: a term's name must be an identifier of at most 64 characters; "
                f"got {repr(term)[:80]}"
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
    """Return a dict: term -> `line N: ` of its entry in a returned dict."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            for key in node.value.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.setdefault(key.value, f"line {key.lineno}: ")
    return found
