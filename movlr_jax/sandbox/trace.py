"""Execution of a reward program's definitions and tracing to a document: in a confined child, and in tests."""

from __future__ import annotations

import ast
import builtins
import copy
import json
import re
import traceback
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.errors import ProgramError, unknown_name
from movlr_jax.rewards.program import RewardProgram, structure_hash
from movlr_jax.rewards.state import Layout, State
from movlr_jax.sandbox.codec import FILE, encode
from movlr_jax.sandbox.facade import BUILTINS, facade
from movlr_jax.sandbox.guarded import Guarded
from movlr_jax.sandbox.inputs import inputs, pack
from movlr_jax.sandbox.limits import known_number, number
from movlr_jax.sandbox.source import ParsedReward, Rejected, parse, unchecked
from movlr_jax.sandbox.weights import is_weights

_KEPT = "a value of one step is kept for another step; a reward sees one step at a time"
_CONSTANT = "a value that is only known at run time is used where Python needs a constant; use jnp"
# what errors mean; the first that fits
_MEANINGS: dict[type[Exception], str] = {
    jax.errors.TracerBoolConversionError: "a Python `if`, `and`, `or`, `not`, `while`, `min` or `max` uses a value "
    "that is only known at run time; use jnp.where, jnp.logical_and, jnp.maximum, ...",
    jax.errors.NonConcreteBooleanIndexError: "an array is indexed by a condition, so its size is only known at run "
    "time; use jnp.where(condition, x, 0.0) and sum it",
    jax.errors.ConcretizationTypeError: _CONSTANT,
    jax.errors.TracerArrayConversionError: _CONSTANT,
    jax.errors.TracerIntegerConversionError: "an index or a size is only known at run time, but Python needs a "
    "constant here; use jnp.take",
    jax.errors.UnexpectedTracerError: _KEPT,
    RecursionError: "infinite recursion: a function calls itself without end",
}


def load(parsed: ParsedReward, scope: dict[str, Any] | None = None) -> RewardProgram:
    """Run the definitions of a parsed program in the scope of `facade`. Raises ProgramError."""
    scope = facade() if scope is None else scope
    body = [n for n in parsed.tree.body if not is_weights(n) and not isinstance(n, ast.Expr)]
    canonical = ast.dump(ast.Module(body, [])) + repr(list(parsed.weights))
    tree = copy.deepcopy(parsed.tree)
    tree = Guarded(parsed.names).visit(tree) if parsed.names else tree
    scope["<number>"] = number
    try:
        exec(compile(ast.fix_missing_locations(tree), FILE, "exec"), scope)
    except Exception as error:
        raise ProgramError(explain(error)) from None
    finally:
        scope["<number>"] = known_number  # inside `reward`, values of a state are not constants
    written = scope["reward"]

    def reward(state: Any, action: Any) -> Any:
        scope["<steps>"].restart()
        return written(state, action)

    return RewardProgram(
        source=parsed.source,
        description=parsed.description,
        weights=parsed.weights,
        reward=reward,
        structure=structure_hash(canonical),
    )


def document(source: str, layout: Layout, checked: bool = True) -> str:
    """Return the traced program as JSON; the text is checked only if `checked`. Raises Rejected."""
    stage = "parse"
    try:
        parsed = parse(source) if checked else unchecked(source)
        shapes = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in inputs(layout)]

        def whole(again: bool, values: Sequence[Any]) -> list[Any]:
            """Trace the definitions too, so that constants are part of the graph and nothing is computed here."""
            nonlocal stage
            stage = "load"
            scope = facade() | ({} if checked else {"__builtins__": builtins})
            program = load(parsed, scope)
            stage = "trace"

            def terms(*values: Any) -> list[Any]:
                step, action, initial, goals = pack(layout, values)
                found = _terms(parsed, program.reward(State(layout, step, goals, initial), action))
                return [jnp.asarray(found[name], jnp.float32) for name in parsed.weights]

            if again:  # an extra call, whose side effects must not change the result
                jax.eval_shape(terms, *values)
            return terms(*values)

        def written(again: bool) -> str:
            closed = jax.make_jaxpr(lambda *values: whole(again, values))(*shapes)
            return json.dumps(encode(closed, list(parsed.weights)), separators=(",", ":"))

        first = written(again=False)
        try:
            second = written(again=True)
        except Exception:
            raise ProgramError(_KEPT) from None
        if first != second:
            raise ProgramError(
                "the program changes each time it is run; a reward must depend on state and action alone"
            )
        return first
    except Exception as error:
        raise Rejected(stage, explain(error)) from None


def _terms(parsed: ParsedReward, terms: Any) -> dict[str, Any]:
    """Return the terms if they are real scalars with exactly the names of WEIGHTS. Raises ProgramError."""
    if not isinstance(terms, dict):
        raise ProgramError(
            f'reward returned {_kind(terms)}, expected a dict of named scalar terms, e.g. {{"reach": -distance}}'
        )
    if not terms:
        raise ProgramError('reward returned no terms, expected those of WEIGHTS, e.g. {"reach": -distance}')
    for name, value in terms.items():
        where = parsed.where(name)
        if name not in parsed.weights:
            raise ProgramError(
                f"{where}term {name!r} has no weight: " + unknown_name("entry of WEIGHTS", name, parsed.weights)
            )
        if not isinstance(value, bool | int | float | complex | jax.Array | np.ndarray | np.generic):
            raise ProgramError(f"{where}term {name!r} is {_kind(value)}, expected one number")
        if jnp.shape(value) != ():
            raise ProgramError(
                f"{where}term {name!r} has shape {jnp.shape(value)}, expected a scalar; "
                "reduce it, e.g. jnp.linalg.norm(x) or jnp.mean(x)"
            )
        if jnp.issubdtype(jnp.result_type(value), jnp.complexfloating):
            raise ProgramError(f"{where}term {name!r} is complex ({jnp.result_type(value)}), expected a real number")
    for name in parsed.weights:
        if name not in terms:
            raise ProgramError(
                "WEIGHTS names a term that reward does not return: " + unknown_name("term", name, terms)
            )
    return terms


def _kind(value: object) -> str:
    """Describe the type of a value in words."""
    if isinstance(value, jax.Array):
        return f"an array of shape {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"


def explain(error: Exception) -> str:
    """Return a one-sentence message for any exception of a program, with the line if it is known."""
    # not extract_tb, which reads source files
    stack = traceback.walk_tb(error.__traceback__)
    mine = [(frame, line) for frame, line in stack if frame.f_code.co_filename == FILE]
    where = f"line {mine[-1][1]}: " if mine else ""
    if isinstance(error, ProgramError):
        text = str(error)
        return text if re.match(r"line \d", text) or "line " in text[:60] else where + text
    if isinstance(error, SyntaxError):  # found by the compiler, not by the parser
        return f"line {error.lineno}: the program is not Python: {error.msg}"
    for kind, meaning in _MEANINGS.items():
        if isinstance(error, kind):
            return where + meaning
    first = re.sub(r" at 0x[0-9a-f]+", "", (str(error).strip() or "no message").splitlines()[0][:300])
    if isinstance(error, MemoryError) or first.startswith("RESOURCE_EXHAUSTED"):
        return where + "the program needs too much memory; use a few small vectors per step"
    if isinstance(error, UnboundLocalError):
        name = (re.findall(r"'(\w+)'", str(error)) or ["?"])[0]
        return f"{where}the variable {name!r} has no value here: it was deleted, or is only set in another branch"
    if isinstance(error, NameError) and mine:
        scope = [*mine[-1][0].f_locals, *mine[-1][0].f_globals, *BUILTINS]
        return where + unknown_name("name", error.name, [n for n in scope if n.isidentifier() and n[0] != "_"])
    if isinstance(error, TypeError) and "shape" in first:
        return (
            f"{where}incompatible shapes: {first.rstrip('.')}; check the shapes that the state returns, "
            "then index or reduce them"
        )
    if isinstance(error, PermissionError):
        return where + f"the program tried to access a resource outside itself ({first})"
    return f"{where}{type(error).__name__}: {first}"
