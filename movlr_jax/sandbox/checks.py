"""Checks of the syntax tree of a reward program: which statements, names and attributes it may contain."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Sequence

from movlr_jax.errors import ProgramError, near_matches, unknown_name
from movlr_jax.rewards.state import STATE_CALLS
from movlr_jax.sandbox.facade import BUILTINS, ERRORS, IN_SCOPE, MODULES, VALUES
from movlr_jax.sandbox.limits import FORMAT, METHODS, check_template
from movlr_jax.sandbox.names import Names, captured, members, module_of, taken, where, written
from movlr_jax.sandbox.records import UNDERSCORED

MAX_DIGITS = 600  # of an integer; Python can print at least 640 under any setting
_LARGEST = 10**MAX_DIGITS
_NODES = (
    # statements
    (ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign)
    + (ast.For, ast.While, ast.If, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Assert, ast.Delete, ast.Raise)
    + (ast.Match, ast.match_case, ast.pattern)
    + (ast.ClassDef, ast.AnnAssign)  # of `records`; annotations are removed, except in classes
    + (ast.Import, ast.ImportFrom, ast.alias)  # only of names in MODULES
    # expressions
    + (ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.Set, ast.Compare, ast.Call)
    + (ast.keyword, ast.NamedExpr, ast.JoinedStr, ast.FormattedValue)
    + (ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice)
    + (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension)
    + (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
)
# kinds of nodes with nothing of their own to check
_HARMLESS = {ast.Load, ast.Store, ast.Constant, ast.Call, ast.Tuple, ast.Expr, ast.Assign, ast.Return, ast.arguments}
_HARMLESS |= {kind for base in (ast.operator, ast.unaryop, ast.cmpop, ast.boolop) for kind in base.__subclasses__()}
_FORBIDDEN = set(dir(builtins)) - set(BUILTINS)
_HOMES = ("jnp", "jnp.linalg", "jax.nn", "jax.lax", "shaping")
_DECORATORS = ("jax.jit", "jax.vmap", "functools.cache", "functools.lru_cache")
_IN_CLASSES = ("property", "staticmethod", "classmethod")  # decorators of methods
_METHODS = ("__call__", "__post_init__")  # of classes, with two underscores
_RESERVED = (*UNDERSCORED, "_signature", "_make", "_field_defaults")
_PATTERNS = ("bool", "dict", "float", "int", "list", "str", "tuple")  # classes that a pattern may name
_STATEMENTS = {
    "Try": "; a name that the model lacks is an error in any case: use the names that it has",
    "With": "; remove it and keep its body",
    "Global": "; return the value instead",
    "Nonlocal": "; return the value instead",
    "Yield": "; return a list",
}
# names that are not available -> what to use
_INSTEAD_OF = {
    "hasattr": "; write the names that the model has, an unknown one is an error that lists similar ones",
    "getattr": "; write state.pos(name), state.q(name), ..., whose names may be computed",
    "setattr": "; use a dict",
    "type": "; use isinstance",
    "print": "; on a line of its own it is ignored",
    "globals": "; use a dict",
    "locals": "; use a dict",
    "complex": "; rewards are real numbers",
    "object": "; write a function",
    "super": "; write a function",
    "bytes": "; use a list",
}
# attributes of values that are not available -> what to use
_INSTEAD = {"item": "; use the value itself", "tolist": "; use the array itself", "detach": "; use the value itself"}
_INVERSE = "; the inverse of a rotation R is R.T"
# names of modules that are not available -> what to use
_INSTEAD_IN = {
    "jax.numpy.linalg.inv": _INVERSE + ", of other small matrices write it out",
    "jax.numpy.linalg.pinv": _INVERSE,
    "jax.numpy.linalg.solve": "; for a rotation R the solution is R.T @ b, write other small systems out",
    "jax.numpy.linalg.lstsq": "; write the solution of a small system out",
    "jax.debug": "; remove it: the report shows the values of all terms, and a line with only print(...) is ignored",
    "jax.random": "; a reward must be deterministic",
    "jax.numpy.random": "; a reward must be deterministic",
}


def check_node(node: ast.AST, names: Names) -> None:
    """Check one node; names and attributes that it contains are nodes of their own. Raises ProgramError."""
    if type(node) in _HARMLESS:
        return
    at = where(node)
    if not isinstance(node, _NODES):
        kind = type(node).__name__
        hint = _STATEMENTS.get(kind, "; use plain expressions, functions, if and for")
        raise ProgramError(f"{at}{kind} is not part of a reward program{hint}")
    match node:
        case ast.FunctionDef():
            if not all(_decorates(decorator, names) for decorator in node.decorator_list):
                raise ProgramError(
                    f"{at}def {node.name}: decorators other than @jax.jit, @jax.vmap, functools' caches and "
                    "functions of the program are not allowed"
                )
            if node.name not in _METHODS:
                _check_bound(node.name, at, names)
        case ast.arg():
            _check_bound(node.arg, at, names)
        case ast.Name(ctx=ast.Load()):
            _check_no_dunder(node.id, at)
            if node.id in _FORBIDDEN and node.id not in names.bound and node not in names.given:
                hint = _INSTEAD_OF.get(node.id, "")
                raise ProgramError(f"{at}{node.id!r} is not available in a reward program{hint}")
        case ast.Name() if node not in names.given:
            _check_variable(node.id, at, names)
        case ast.Subscript(ctx=ast.Store()) if node not in names.given:
            if any(isinstance(inner, ast.Slice) for inner in ast.walk(node.slice)):
                raise ProgramError(f"{at}`{written(node)}`: a slice cannot be assigned to here; assign to it alone")
        case ast.keyword(arg=str(name)) if name.startswith("_"):
            raise _hidden(name, at)
        case ast.Attribute():
            _check_attribute(node, at, names)
        case ast.BinOp(op=operator) if not isinstance(operator, ast.Add) and _is_text(node.left, node.right):
            if not isinstance(operator, ast.Mod) or not _is_text(node.left):
                raise ProgramError(
                    f"{at}`{written(node)}`: + is the only operation allowed on strings; write names out in full"
                )
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=parts)):
            if not all(isinstance(p, ast.Constant) and FORMAT.fullmatch(str(p.value)) for p in parts):
                raise ProgramError(f"{at}a format specification must be a literal such as .3f")
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            if any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node)):
                raise ProgramError(f"{at}`:=` within a comprehension is not allowed; use a loop")
        case ast.pattern():
            _check_pattern(node, at, names)
        case ast.Raise():
            _check_raise(node, at, names)
        case ast.ClassDef():
            _check_class(node, at, names)


def _decorates(decorator: ast.expr, names: Names) -> bool:
    """Return whether a decorator is a function of the program, jit, vmap or a cache, with or without options."""
    inner = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(inner, ast.Name) and (inner.id in names.functions or decorator in names.given):
        return True
    if isinstance(decorator, ast.Call):
        called = [names.path(part) for part in (decorator.func, *decorator.args)]
        partial = called[:1] == ["functools.partial"] and called[1:] in (["jax.jit"], ["jax.vmap"])
        return partial or called == ["jax.jit"] or called[0] == "functools.lru_cache"
    return names.path(decorator) in _DECORATORS


def _check_class(node: ast.ClassDef, at: str, names: Names) -> None:
    """Check that a class only holds values and functions. Raises ProgramError."""
    if names.kind(node) is None or node.keywords:
        raise ProgramError(
            f"{at}class {node.name}: only NamedTuple, @dataclass(frozen=True), Enum, TypedDict and plain constants "
            "are available; write functions"
        )
    if names.module(ast.Name(node.name)) or node.name == "reward":
        raise taken(at, node.name)
    _check_no_dunder(node.name, at)
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name, decorator_list=decorators):
                if name.startswith("__") and name not in _METHODS:
                    raise ProgramError(
                        f"{where(statement)}{name} of class {node.name} is not available; list the values as fields "
                        "of a NamedTuple or of a @dataclass(frozen=True)"
                    )
                if any(d not in names.given for d in decorators):
                    raise ProgramError(
                        f"{where(statement)}def {name}: decorators of a class other than property, staticmethod and "
                        "classmethod are not allowed"
                    )
            case ast.Assign(targets=[ast.Name()]) | ast.AnnAssign(target=ast.Name()) | ast.Pass():
                pass
            case ast.Expr(value=ast.Constant()):
                pass
            case _:
                raise ProgramError(
                    f"{where(statement)}`{written(statement)}`: class {node.name} may only hold values and functions"
                )
    for name in members(node):
        if name in _RESERVED:
            raise _hidden(name, at)


def given_names(nodes: Sequence[ast.AST], names: Names) -> set[ast.AST]:
    """Return nodes that are only allowed where they are: errors after `raise`, roles of methods, assigned slices."""
    found: set[ast.AST] = set()
    for node in nodes:
        match node:
            case ast.Raise(exc=ast.Name() as kind) | ast.Raise(exc=ast.Call(func=ast.Name() as kind)):
                if kind.id in ERRORS and kind.id not in names.bound:
                    found.add(kind)
            case ast.Assign(targets=[ast.Subscript() as place]) | ast.AugAssign(target=ast.Subscript() as place):
                found.add(place)
            case ast.ClassDef(body=body):
                decorators = [d for f in body if isinstance(f, ast.FunctionDef) for d in f.decorator_list[:1]]
                found |= {d for d in decorators if isinstance(d, ast.Name) and d.id in set(_IN_CLASSES) - names.bound}
    return found


def _check_raise(node: ast.Raise, at: str, names: Names) -> None:
    kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    plain = node.cause is None or (isinstance(node.cause, ast.Constant) and node.cause.value is None)
    if kind not in names.given or not plain or (isinstance(node.exc, ast.Call) and node.exc.keywords):
        raise ProgramError(
            f'{at}`{written(node)}`: only errors such as ValueError("why") can be raised; they refuse the program'
        )


def _check_pattern(node: ast.pattern, at: str, names: Names) -> None:
    """Check that a pattern reads no attributes but those of the program's own classes. Raises ProgramError."""
    match node:
        case ast.MatchAs() | ast.MatchStar() | ast.MatchMapping():
            if name := captured(node):
                _check_variable(name, at, names)
        case ast.MatchClass(cls=ast.Name(id=name), kwd_attrs=attributes):
            own = name in names.classes
            if own and all(a in names.attributes for a in attributes):
                return
            if own or attributes or name not in set(_PATTERNS) - names.bound:
                raise ProgramError(
                    f"{at}`{written(node)}`: a pattern may name {', '.join(_PATTERNS)} and classes of the program "
                    "with their fields"
                )
        case ast.MatchClass():
            raise ProgramError(f"{at}`{written(node)}`: a pattern may only name a class")
        case ast.MatchValue(value=ast.Attribute(value=owner, attr=name) as value):
            of_class = isinstance(owner, ast.Name) and owner.id in names.classes and name in names.attributes
            if not of_class and (module := names.module(owner)) and name in MODULES[module]:
                return
            if not of_class:
                raise ProgramError(f"{at}`{written(value)}`: a pattern may not read this attribute")


def _check_no_dunder(name: str, at: str) -> None:
    if name.startswith("__"):
        raise ProgramError(f"{at}{name!r}: names that begin with two underscores are not allowed")


def _check_bound(name: str, at: str, names: Names) -> None:
    _check_no_dunder(name, at)
    if module_of(names.paths.get(name, "")) or name in names.classes:
        raise taken(at, name)


def _check_variable(name: str, at: str, names: Names) -> None:
    _check_bound(name, at, names)
    if name == "reward":
        raise ProgramError(f"{at}reward is a function and cannot be assigned to")


def _hidden(name: str, at: str) -> ProgramError:
    return ProgramError(f"{at}{name!r}: names that begin with an underscore are not allowed here")


def _is_text(*nodes: ast.expr) -> bool:
    return any(isinstance(node, ast.Constant) and isinstance(node.value, str) for node in nodes)


def check_constant(value: object, at: str) -> None:
    """Raise ProgramError for a constant that is not a real number, a string or None."""
    if isinstance(value, complex | bytes):
        raise ProgramError(
            f"{at}{repr(value)[:40]}: {type(value).__name__} values are not allowed; rewards are real numbers"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ProgramError(f"{at}a number here is too large for a float and becomes infinite")
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise ProgramError(f"{at}an integer here has more than {MAX_DIGITS} digits; write it as a float")


def _check_attribute(node: ast.Attribute, at: str, names: Names) -> None:
    if isinstance(node.value, ast.Attribute):  # report the first wrong attribute of a chain
        _check_attribute(node.value, at, names)
    name = node.attr
    module, path = names.module(node.value), names.path(node.value)
    own = (name in names.attributes or (name == "__name__" and isinstance(node.ctx, ast.Load))) and not path
    if name.startswith("_") and not own:
        raise _hidden(name, at)
    if not isinstance(node.ctx, ast.Load):
        raise ProgramError(f"{at}{written(node)} cannot be assigned to; use a local variable")
    if name in METHODS:
        _check_method(node, at, names)
    known = MODULES[module] if module else () if path else VALUES
    if own or name in known or names.missing(node.value):
        return
    owner = written(node.value)  # not before: the text of a long chain takes time
    if module:
        hint = _INSTEAD_IN.get(f"{module}.{name}") or _meant(owner, name, module)
        raise ProgramError(f"{at}{owner}.{name} is not available in a reward program{hint}")
    if path:
        raise ProgramError(f"{at}{owner}.{name} is not available in a reward program; call {owner} itself")
    if owner in ("state", "state.initial"):
        raise ProgramError(f"{at}state has no {name!r}: {unknown_name('call', name, STATE_CALLS)}")
    near = near_matches(name, sorted(VALUES), limit=3)
    hint = f"; did you mean {' or '.join('.' + n for n in near)}?" if near else ""
    hint = _INSTEAD.get(name, hint)
    raise ProgramError(f"{at}.{name} is not available in a reward program{hint}")


def _check_method(node: ast.Attribute, at: str, names: Names) -> None:
    """Check what is known of a method that `limits` guards. Raises ProgramError."""
    match node.value:
        case ast.Constant(value=str(template)) if node.attr == "format":
            try:
                check_template(template)
            except (ProgramError, ValueError) as error:
                raise ProgramError(f"{at}{error}") from None
        case ast.Name(id=name) if name in BUILTINS and name not in names.bound:
            raise ProgramError(f"{at}{name}.{node.attr} is not available in a reward program; call it on a value")


def _meant(owner: str, name: str, module: str) -> str:
    """Return a hint with names to use instead of a name that a module does not have, "" if there are none."""
    homes = dict.fromkeys(MODULES[module], owner)  # name -> its module: this one if it has the name
    for home in _HOMES:
        first, _, rest = home.partition(".")
        path = module_of(f"{IN_SCOPE[first]}.{rest}".removesuffix("."))
        for other in MODULES[path or ""]:
            homes.setdefault(other, home)
    near = near_matches(name, homes, limit=3)
    if module == "jax":  # similar names are misleading for parts of JAX that are not available
        near = [n for n in near if n == name]
    return f"; did you mean {' or '.join(f'{homes[n]}.{n}' for n in near)}?" if near else ""
