"""Runs the definitions of a reward program and traces it to a document: in a confined child, and in tests."""

from __future__ import annotations

import ast
import builtins
import copy
import json
import re
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.errors import ProgramError, unknown_name
from movlr_jax.rewards.program import RewardProgram, structure_hash
from movlr_jax.rewards.state import Layout, State
from movlr_jax.sandbox.codec import FILE, encode
from movlr_jax.sandbox.facade import BUILTINS, MODULES, facade, number
from movlr_jax.sandbox.inputs import inputs, pack
from movlr_jax.sandbox.source import ParsedReward, imported, is_weights, parse, unchecked


def load(parsed: ParsedReward, scope: dict[str, Any] | None = None) -> RewardProgram:
    """Runs the definitions of a parsed program in the facade. Raises ProgramError."""
    scope = facade() if scope is None else scope
    body = [n for n in parsed.tree.body if not is_weights(n) and not isinstance(n, ast.Expr)]
    canonical = ast.dump(ast.Module(body, [])) + repr(list(parsed.weights))
    tree = _Guarded().visit(copy.deepcopy(parsed.tree))
    scope["<number>"] = number
    try:
        exec(compile(ast.fix_missing_locations(tree), FILE, "exec"), scope)
    except Exception as error:
        text = explain(error)
        raise ProgramError(text) from None
    finally:
        scope["<number>"] = lambda kind, value: kind(value)  # a state's value is no constant
    return RewardProgram(
        source=parsed.source,
        description=parsed.description,
        weights=parsed.weights,
        reward=scope["reward"],
        structure=structure_hash(canonical),
    )


class _Guarded(ast.NodeTransformer):
    """Operators, f-strings, sets and imports as calls and names of the facade's own, which keep within its bounds."""

    names = {ast.Mult: "<*>", ast.Pow: "<**>", ast.LShift: "<<<>", ast.Mod: "<%>"}  # noqa: RUF012

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = self.names.get(type(node.op))
        return node if name is None else _call(node, name, node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        name = self.names.get(type(node.op))
        if name is None or not isinstance(node.target, ast.Name):
            return node
        call = _call(node, name, ast.Name(node.target.id, ast.Load()), node.value)
        return ast.copy_location(ast.Assign([node.target], call), node)

    def visit_Set(self, node: ast.Set) -> ast.AST:
        self.generic_visit(node)
        return _call(node, "<set>", ast.List(node.elts, ast.Load()))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        node.value = _call(node.value, "<shown>", node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "float" and len(node.args) == 1:
            return _call(node, "<number>", node.func, node.args[0])
        return node

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        try:
            bound = imported(node)
        except ProgramError:  # of a text that nobody looked at
            return [node]
        for name, path in bound:
            module, _, last = path.rpartition(".")
            value = ast.Name(f"<{path}>", ast.Load())
            if path not in MODULES:
                value = ast.Attribute(ast.Name(f"<{module}>", ast.Load()), last, ast.Load())
            made.append(ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node))
        return made

    visit_ImportFrom = visit_Import


def _call(where: ast.expr | ast.stmt, name: str, *arguments: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(arguments), []), where)


def document(source: str, layout: Layout, checked: bool = True) -> str:
    """The traced program as JSON. Raises Rejection; the text is looked at only where `checked`."""
    stage = "parse"
    try:
        parsed = parse(source) if checked else unchecked(source)
        shapes = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in inputs(layout)]

        def instant(again: bool) -> Callable[..., list[Any]]:
            def whole(*values: Any) -> list[Any]:
                """Definitions are traced too: nothing is computed here, constants are part of the graph."""
                nonlocal stage
                stage = "load"
                program = load(parsed, facade() | ({} if checked else {"__builtins__": builtins}))
                stage = "trace"

                def terms(*values: Any) -> list[Any]:
                    step, action, initial, goals = pack(layout, values)
                    found = _terms(parsed, program.reward(State(layout, step, goals, initial), action))
                    return [jnp.asarray(found[name], jnp.float32) for name in parsed.weights]

                if again:  # once for nothing: what that leaves behind must not show
                    jax.eval_shape(terms, *values)
                return terms(*values)

            return whole

        def written(again: bool) -> str:
            closed = jax.make_jaxpr(instant(again))(*shapes)
            return json.dumps(encode(closed, list(parsed.weights)), separators=(",", ":"))

        first = written(again=False)
        try:
            second = written(again=True)
        except Exception:
            raise ProgramError(
                "a value of one step is kept for another; a reward sees one step at a time"
            ) from None
        if first != second:
            raise ProgramError(
                "the program is another one each time it is read; a reward depends on state and action alone"
            )
        return first
    except Exception as error:
        raise Rejection(stage, explain(error)) from None


class Rejection(Exception):
    """(stage, sentence) of a program that is none."""


def _terms(parsed: ParsedReward, terms: Any) -> dict[str, Any]:
    """What `reward` returned, if it is real scalars under exactly the names of WEIGHTS. Raises ProgramError."""
    if not isinstance(terms, dict):
        raise ProgramError(
            f'reward returns {_kind(terms)}, expected a dict of named scalar terms, e.g. {{"reach": -distance}}'
        )
    if not terms:
        raise ProgramError('reward returns no terms, expected those of WEIGHTS, e.g. {"reach": -distance}')
    for name, value in terms.items():
        where = parsed.where(name)
        if name not in parsed.weights:
            raise ProgramError(
                f"{where}term {name!r} has no weight: "
                + unknown_name("entry of WEIGHTS", name, parsed.weights)
            )
        if not isinstance(value, bool | int | float | complex | jax.Array | np.ndarray | np.generic):
            raise ProgramError(f"{where}term {name!r} is {_kind(value)}, a term is one number")
        if jnp.shape(value) != ():
            raise ProgramError(
                f"{where}term {name!r} has shape {jnp.shape(value)}, a term is a scalar; "
                "reduce it, e.g. jnp.linalg.norm(x) or jnp.mean(x)"
            )
        if jnp.issubdtype(jnp.result_type(value), jnp.complexfloating):
            raise ProgramError(
                f"{where}term {name!r} is complex ({jnp.result_type(value)}), a term is a real number"
            )
    for name in parsed.weights:
        if name not in terms:
            raise ProgramError(
                "WEIGHTS names a term that reward does not return: " + unknown_name("term", name, terms)
            )
    return terms


def _kind(value: object) -> str:
    """What a value is, in words."""
    if isinstance(value, jax.Array):
        return f"an array of shape {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"


def explain(error: Exception) -> str:
    """One sentence for any way a program can fail, with its line where there is one."""
    # not extract_tb, which reads source files
    stack = traceback.walk_tb(error.__traceback__)
    mine = [(frame, line) for frame, line in stack if frame.f_code.co_filename == FILE]
    where = f"line {mine[-1][1]}: " if mine else ""
    if isinstance(error, ProgramError):
        text = str(error)
        return text if re.match(r"line \d", text) or "line " in text[:60] else where + text
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return where + (
            "a Python `if`, `and`, `or`, `not` or `while` on a value that is only known at run time; "
            "use jnp.where, jnp.logical_and, jnp.maximum ..."
        )
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        return where + (
            "an index by a condition, whose number of entries is only known at run time; use "
            "jnp.where(condition, x, 0.0) and sum that"
        )
    if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
        return where + "a value that is only known at run time is used where Python needs a constant; use jnp"
    if isinstance(error, jax.errors.TracerIntegerConversionError):
        return where + (
            "an index or a size that is only known at run time, where Python needs a constant; use jnp.take"
        )
    if isinstance(error, jax.errors.UnexpectedTracerError):
        return where + "a value of one step is kept for another; a reward sees one step at a time"
    if isinstance(error, RecursionError):
        return where + "the program calls itself without end"
    first = re.sub(r" at 0x[0-9a-f]+", "", (str(error).strip() or "no message").splitlines()[0][:300])
    if isinstance(error, MemoryError) or first.startswith("RESOURCE_EXHAUSTED"):
        return where + "the program needs too much memory; a reward is a few small vectors a step"
    if isinstance(error, NameError) and mine:
        scope = [*mine[-1][0].f_locals, *mine[-1][0].f_globals, *BUILTINS]
        return where + unknown_name(
            "name", error.name, [n for n in scope if n.isidentifier() and n[0] != "_"]
        )
    if isinstance(error, TypeError) and "shape" in first:
        return f"{where}shapes that do not fit: {first.rstrip('.')}; look up what the state gives, index or reduce it"
    if isinstance(error, PermissionError):
        return where + f"the program reaches for something outside itself ({first})"
    return f"{where}{type(error).__name__}: {first}"
