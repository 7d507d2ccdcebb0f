"""Rewriting of a checked program: operators, loops, calls and classes become guarded versions from the facade."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from movlr_jax.sandbox.facade import MODULES, VALUES
from movlr_jax.sandbox.limits import METHODS
from movlr_jax.sandbox.names import Names, imported

_OPERATORS = {ast.Add: "<+>", ast.Mult: "<*>", ast.Pow: "<**>", ast.LShift: "<<<>", ast.Mod: "<%>"}


class Guarded(ast.NodeTransformer):
    """Replaces parts of a checked program with these names by calls that enforce the facade's limits."""

    def __init__(self, names: Names):
        self._names, self._attributes = names, names.attributes - VALUES

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = _OPERATORS.get(type(node.op))
        return node if name is None else _call(node, name, node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        name = _OPERATORS.get(type(node.op))
        if name is None:
            return node
        name = "<+=>" if name == "<+>" else name
        if isinstance(node.target, ast.Name):
            call = _call(node, name, ast.Name(node.target.id, ast.Load()), node.value)
            return ast.copy_location(ast.Assign([node.target], call), node)
        if not isinstance(node.target, ast.Subscript):
            return node
        # the container and the index are evaluated once
        owner, place = ast.Name("<owner>", ast.Load()), ast.Name("<place>", ast.Load())
        pair = ast.Tuple([ast.Name("<owner>", ast.Store()), ast.Name("<place>", ast.Store())], ast.Store())
        both = ast.Tuple([node.target.value, _index(node.target.slice)], ast.Load())
        call = _call(node, name, ast.Subscript(owner, place, ast.Load()), node.value)
        stored = ast.Expr(_call(node, "<stored>", call, owner, place))
        return [ast.copy_location(ast.Assign([pair], both), node), ast.copy_location(stored, node)]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        match node.targets:
            case [ast.Subscript(value=owner, slice=place)]:  # a slice may make a list longer
                return ast.copy_location(ast.Expr(_call(node, "<stored>", node.value, owner, _index(place))), node)
            case _:
                return node

    def visit_List(self, node: ast.List | ast.Tuple) -> ast.AST:
        self.generic_visit(node)
        grows = isinstance(node.ctx, ast.Load) and any(isinstance(e, ast.Starred) for e in node.elts)
        return _call(node, "<bounded>", node) if grows else node

    visit_Tuple = visit_List

    def visit_Set(self, node: ast.Set) -> ast.AST:
        self.generic_visit(node)
        return _call(node, "<set>", ast.List(node.elts, ast.Load()))

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        self.generic_visit(node)
        return _call(node, "<set>", ast.copy_location(ast.ListComp(node.elt, node.generators), node))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        return _call(node, "<bounded>", node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        node.value = _call(node.value, "<shown>", self.visit(node.value))  # its format is a literal
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
            if node.func.id in ("float", "int", "bool"):
                return _call(node, "<number>", node.func, node.args[0])
            if node.func.id in ("list", "tuple"):
                return _call(node, "<bounded>", node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr == "__name__":
            return _call(node, "<name>", node.value)
        if not isinstance(node.ctx, ast.Load) or node.attr not in self._attributes | set(METHODS):
            return node
        guard = "<method>" if node.attr in METHODS else "<attribute>"
        return _call(node, guard, node.value, ast.Constant(node.attr))

    def visit_For(self, node: ast.For | ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.iter = _call(node.iter, "<each>", node.iter)
        return node

    visit_comprehension = visit_For

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.copy_location(ast.Expr(_call(node, "<step>")), node))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.copy_location(ast.Expr(_step(node, node.args)), node))
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.generic_visit(node)
        node.body = ast.copy_location(ast.BoolOp(ast.Or(), [_step(node, node.args), node.body]), node)
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        node.subject = _call(node.subject, "<matched>", self.visit(node.subject))
        for case in node.cases:  # patterns contain no calls
            for inner in ast.walk(case.pattern):
                if isinstance(inner, ast.MatchClass) and isinstance(inner.cls, ast.Name):
                    inner.cls.id = "<str>" if inner.cls.id == "str" else inner.cls.id
            case.guard = self.visit(case.guard) if case.guard else None
            case.body = [s for statement in case.body for s in _statements(self.visit(statement))]
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        self.generic_visit(node)
        call = node.exc if isinstance(node.exc, ast.Call) else None
        kind = call.func if call else node.exc
        if isinstance(kind, ast.Name):
            node.exc = _call(node, "<error>", ast.Constant(kind.id), *(call.args if call else ()))
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> list[ast.stmt]:
        """Replace a class statement by a function that returns what its body binds, and a class made from that."""
        kind = self._names.kind(node)
        body: list[ast.stmt] = []
        fields, bound, roles = [], dict[str, None](), dict[str, str]()
        for statement in node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), value=value):
                    fields.append(name)
                    if value is None:
                        continue
                    bound[name] = None
                    statement = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), statement)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    bound[name] = None
                case ast.FunctionDef(name=name, decorator_list=decorators):
                    bound[name] = None
                    roles.update((name, d.id) for d in decorators if isinstance(d, ast.Name))
                    statement.decorator_list = []
                case _:
                    continue
            body += _statements(self.visit(statement))
        names = [ast.Constant(name) for name in bound]
        result = ast.Dict([*names], [ast.Name(name, ast.Load()) for name in bound])
        maker = ast.FunctionDef(
            f"<class {node.name}>", ast.arguments([], [], None, [], [], None, []), [*body, ast.Return(result)], []
        )
        listed = ast.Tuple([ast.Constant(name) for name in fields], ast.Load())
        played = ast.Dict([ast.Constant(k) for k in roles], [ast.Constant(v) for v in roles.values()])
        made = _call(
            node, "<class>", ast.Constant(kind), ast.Constant(node.name), listed, _call(node, maker.name), played
        )
        assigned = ast.Assign([ast.Name(node.name, ast.Store())], made)
        return [ast.copy_location(maker, node), ast.copy_location(assigned, node)]

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for name, path in imported(node):
            module, _, last = path.rpartition(".")
            value = ast.Name(f"<{path}>", ast.Load())
            if path not in MODULES:
                value = ast.Attribute(ast.Name(f"<{module}>", ast.Load()), last, ast.Load())
            made.append(ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node))
        return made

    visit_ImportFrom = visit_Import


def _statements(found: ast.AST | list[ast.stmt] | None) -> list[ast.stmt]:
    return found if isinstance(found, list) else [] if found is None else [found]  # pyright: ignore


def _index(node: ast.expr) -> ast.expr:
    """Return an index as a value: `a:b` as slice(a, b)."""
    if isinstance(node, ast.Slice):
        parts: Sequence[ast.expr | None] = (node.lower, node.upper, node.step)
        return _call(node, "<slice>", *(p or ast.Constant(None) for p in parts))
    if isinstance(node, ast.Tuple):
        return ast.copy_location(ast.Tuple([_index(e) for e in node.elts], ast.Load()), node)
    return node


def _step(node: ast.expr | ast.stmt, takes: ast.arguments) -> ast.expr:
    """Return the call that counts a call of a function; its *args are checked for their length."""
    return _call(node, "<step>", *([ast.Name(takes.vararg.arg, ast.Load())] if takes.vararg else []))


def _call(at: ast.expr | ast.stmt, name: str, *arguments: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(arguments), []), at)
