"""The names of a reward program: what its imports bind, what it binds itself, and the attributes of its classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from movlr_jax.errors import ProgramError
from movlr_jax.sandbox.facade import BUILTINS, IN_SCOPE, MODULES, SAME
from movlr_jax.sandbox.records import UNDERSCORED

# bases and decorators of classes -> kind of `records.made`
_KINDS = {
    "typing.NamedTuple": "NamedTuple",
    "typing.TypedDict": "TypedDict",
    "enum.Enum": "Enum",
    "enum.IntEnum": "IntEnum",
    "dataclasses.dataclass": "dataclass",
}


def where(node: ast.AST) -> str:
    return f"line {node.lineno}: " if hasattr(node, "lineno") else ""  # pyright: ignore


def written(node: ast.AST) -> str:
    """Return the first line of a node's source, truncated for a message."""
    return (ast.unparse(node).splitlines() or [""])[0][:120]


def imported(node: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
    """Return (name, path) for each name that an import binds; a path is that of a module or of a name in a module.

    Raises ProgramError if the path is not in `facade.MODULES`.
    """
    bound = []
    for alias in node.names:
        if isinstance(node, ast.ImportFrom) and (node.module, alias.name) == ("__future__", "annotations"):
            continue
        if isinstance(node, ast.Import):
            name, path = alias.asname or alias.name, module_of(alias.name)
            if path and not alias.asname:  # `import a.b` binds a
                name = alias.name.partition(".")[0]
                path = module_of(name)
        else:
            module = module_of(node.module or "") if not node.level else None
            whole = f"{node.module}.{alias.name}"
            name, path = alias.asname or alias.name, module_of(whole)
            if not path and module and alias.name in MODULES[module]:
                path = f"{module}.{alias.name}"
        if not path:
            raise ProgramError(
                f"{where(node)}`{written(node)}`: this import is not allowed; jnp, jax.nn, jax.lax and shaping are "
                "already in scope, and only they, math, numpy (an alias of jnp), functools, itertools, collections, "
                "dataclasses, enum, operator and typing may be imported"
            )
        bound.append((name, path))
    return bound


def module_of(path: str) -> str | None:
    """Return the module of `facade.MODULES` with this path or alias."""
    path = SAME.get(path, path)
    return path if path in MODULES else None


def taken(at: str, name: str) -> ProgramError:
    return ProgramError(f"{at}{name!r} is already in scope and cannot be redefined; use another name")


def captured(node: ast.AST) -> str | None:
    """Return the name that a pattern of `match` binds by itself, None for other nodes."""
    match node:
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return name
        case _:
            return None


class Names:
    """The names of a program: aliases of modules, and the names that it binds itself."""

    def __init__(self, nodes: Sequence[ast.AST]):
        self.paths = dict(IN_SCOPE)  # name -> module, or a module's function
        self.bound: set[str] = set()
        self.functions: set[str] = set()
        self.classes: set[str] = set()
        for node in nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    self.bound.add(name)
                case ast.FunctionDef(name=name):
                    self.bound.add(name)
                    self.functions.add(name)
                case ast.ClassDef(name=name):
                    self.bound.add(name)
                    self.classes.add(name)
                case ast.pattern() if name := captured(node):
                    self.bound.add(name)
        self.given: set[ast.AST] = set()  # the names of assignments such as `nn = jax.nn`
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name, path in imported(node):
                    self._bind(name, path, node)
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name) as target]) if path := self.module(node.value):
                    self.given.add(target)
                    self._bind(name, path, node)
        self.attributes = frozenset(self._attributes(nodes))  # those of the program's own records

    def _bind(self, name: str, path: str, node: ast.stmt) -> None:
        if self.paths.setdefault(name, path) != path or name.startswith("__") or name == "reward":
            raise taken(where(node), name)

    def _attributes(self, nodes: Sequence[ast.AST]) -> Iterator[str]:
        for node in nodes:
            match node:
                case ast.ClassDef():
                    yield from members(node)
                    if self.kind(node) in ("Enum", "IntEnum"):
                        yield from ("name", "value")
                    elif self.kind(node) == "NamedTuple":
                        yield from UNDERSCORED
                case ast.Call(keywords=keywords) if self.path(node.func) == "types.SimpleNamespace":
                    yield from (k.arg for k in keywords if k.arg)
                case ast.Call(args=[_, fields, *_]) if self.path(node.func) == "collections.namedtuple":
                    yield from UNDERSCORED
                    texts = [n.value for n in ast.walk(fields) if isinstance(n, ast.Constant)]
                    for text in texts:
                        yield from text.replace(",", " ").split() if isinstance(text, str) else ()

    def kind(self, node: ast.ClassDef) -> str | None:
        """Return the kind of a class by its base or its decorator, None if it is not one that `records` makes."""
        decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
        if len(node.bases) + len(decorators) > 1:
            return None
        for named in (*node.bases, *decorators):
            kind = _KINDS.get(self.path(named) or "")
            return kind if (kind == "dataclass") == bool(decorators) else None
        return "plain"

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
        return module_of(self.path(node) or "")


def members(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names that the body of a class binds."""
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (t.id for t in targets if isinstance(t, ast.Name))
