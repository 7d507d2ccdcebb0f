"""Tries a reward program out: read, load, trace, probe. Runs in the worker, never in the main process."""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.errors import ProgramError, unknown_name
from movlr_jax.rewards.program import RewardProgram, Scorer
from movlr_jax.rewards.state import Layout, State
from movlr_jax.sandbox.source import load, parse
from movlr_jax.types import Array, Step


@dataclass(frozen=True)
class Probe:
    """What a program is tried on: states that the task really reaches."""

    layout: Layout
    goals: Mapping[str, Array]
    steps: Step  # [N, T, ...]
    actions: Array  # [N, T, nu]
    initial: Step  # [N, ...]


def trial(source: str, probe: Probe) -> tuple[str, str | None]:
    """(stage reached, None) when the program is sound, else (stage, sentence). Never raises for bad programs."""
    stage = "parse"
    try:
        parsed = parse(source)
        stage = "load"
        program = load(parsed)
        stage = "trace"
        check_terms(program, trace(program, probe))
        stage = "probe"
        check_values(program, probe)
    except Exception as error:
        return stage, explain(error)
    return stage, None


def trace(program: RewardProgram, probe: Probe) -> Any:
    """What `reward` returns, as shapes and dtypes, for one step of one simulation."""
    step, action, initial = jax.tree.map(
        lambda x, lead: jax.ShapeDtypeStruct(np.shape(x)[lead:], jnp.float32),
        (probe.steps, probe.actions, probe.initial),
        (jax.tree.map(lambda _: 2, probe.steps), 2, jax.tree.map(lambda _: 1, probe.initial)),
    )
    goals = {k: jnp.asarray(v, jnp.float32) for k, v in probe.goals.items()}

    def instant(step: Step, action: Array, initial: Step) -> Any:
        terms = program.reward(State(probe.layout, step, goals, initial), action)
        if not isinstance(terms, dict):
            raise ProgramError(
                f"reward returns {_kind(terms)}, expected a dict of named scalar terms, "
                'e.g. {"reach": -distance}'
            )
        for name, value in terms.items():
            if not isinstance(value, bool | int | float | complex | jax.Array | np.ndarray | np.generic):
                raise ProgramError(
                    f"{_where(program, name)}term {name!r} is {_kind(value)}, a term is one number"
                )
        return {str(k): jnp.asarray(v) for k, v in terms.items()}

    return jax.eval_shape(instant, step, action, initial)


def _kind(value: object) -> str:
    """What a value is, in words."""
    if isinstance(value, jax.Array):
        return f"an array of shape {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"


def _where(program: RewardProgram, term: str) -> str:
    """`line N: ` of the entry of a returned dict that is called `term`, or nothing where there is none."""
    for node in ast.walk(ast.parse(program.source)):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            for key in node.value.keys:
                if isinstance(key, ast.Constant) and key.value == term:
                    return f"line {key.lineno}: "
    return ""


def check_terms(program: RewardProgram, terms: Mapping[str, jax.ShapeDtypeStruct]) -> None:
    """Raises ProgramError unless terms and weights agree and every term is a real scalar."""
    for name in terms:
        if name not in program.weights:
            raise ProgramError(
                f"{_where(program, name)}term {name!r} has no weight: "
                + unknown_name("entry of WEIGHTS", name, program.weights)
            )
    for name in program.weights:
        if name not in terms:
            raise ProgramError(
                "WEIGHTS names a term that reward does not return: " + unknown_name("term", name, terms)
            )
    for name, value in terms.items():
        if value.shape != ():
            raise ProgramError(
                f"{_where(program, name)}term {name!r} has shape {value.shape}, a term is a scalar; "
                "reduce it, e.g. jnp.linalg.norm(x) or jnp.mean(x)"
            )
        if jnp.issubdtype(value.dtype, jnp.complexfloating):
            raise ProgramError(
                f"{_where(program, name)}term {name!r} is complex ({value.dtype}), a term is a real number"
            )


def check_values(program: RewardProgram, probe: Probe) -> None:
    """Raises ProgramError when a term is finite at none of the probe's states."""
    scores = Scorer(probe.layout, probe.goals)(
        [program], *jax.tree.map(lambda x: np.asarray(x)[None], (probe.steps, probe.actions, probe.initial))
    )
    total = scores.totals[0].size
    for name, count in scores.nonfinite[0].items():
        if count == total:
            raise ProgramError(
                f"{_where(program, name)}term {name!r} is not finite at any of {total} states of this task; look for "
                "a division by zero, a log or square root of a negative number, or an exp that overflows"
            )
    if not np.isfinite(scores.totals).all():
        raise ProgramError("the weighted total overflows float32; use smaller weights or bounded terms")


def explain(error: Exception) -> str:
    """One sentence for any way a program can fail, with its line where there is one."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == "<reward>"]
    where = f"line {lines[-1]}: " if lines else ""
    if isinstance(error, ProgramError):
        text = str(error)
        return text if text.startswith("line ") else where + text
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return where + (
            "a Python `if`, `and`, `or`, `not` or `while` on a value that is only known at run time; "
            "use jnp.where, jnp.logical_and, jnp.maximum ..."
        )
    if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
        return where + "a value that is only known at run time is used where Python needs a constant; use jnp"
    if isinstance(error, jax.errors.UnexpectedTracerError):
        return where + "a value of one step is kept for another; a reward sees one step at a time"
    if isinstance(error, RecursionError):
        return where + "the program calls itself without end"
    first = re.sub(r" at 0x[0-9a-f]+", "", (str(error).strip() or "no message").splitlines()[0][:300])
    if isinstance(error, MemoryError) or first.startswith("RESOURCE_EXHAUSTED"):
        return where + "the program needs too much memory; a reward is a few small vectors a step"
    return f"{where}{type(error).__name__}: {first}"
