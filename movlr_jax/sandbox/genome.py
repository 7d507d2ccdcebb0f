"""A reward program in a form that can be mutated: named expressions with weights, and the statements before them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from movlr_jax.errors import ProgramError
from movlr_jax.rewards.term import quoted
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.weights import is_weights


@dataclass(frozen=True)
class Genome:
    """The form that the scripted proposer edits. `preamble` holds the statements of `reward` before its return."""

    terms: Mapping[str, tuple[float, str]]  # name -> (weight, expression)
    preamble: str = ""
    description: str = ""
    helpers: str = ""  # other top-level functions and constants

    def with_term(self, name: str, weight: float, expression: str) -> Genome:
        return replace(self, terms={**self.terms, name: (weight, expression)})

    def with_weight(self, name: str, weight: float) -> Genome:
        return self.with_term(name, weight, self.terms[name][1])

    def without(self, name: str) -> Genome:
        return replace(self, terms={k: v for k, v in self.terms.items() if k != name})

    def source(self) -> str:
        """Return the program as text, in the format that every proposer writes."""
        weights = ", ".join(f"{quoted(name)}: {float(weight)}" for name, (weight, _) in self.terms.items())
        entries = "".join(f"        {quoted(name)}: {text},\n" for name, (_, text) in self.terms.items())
        description = self.description.replace("\\", "").replace('"', "'")
        parts = [f'"""{description}"""\n', f"WEIGHTS = {{{weights}}}\n"]
        if self.helpers:
            parts.append("\n" + self.helpers + "\n")
        body = "".join(f"    {line}\n" for line in self.preamble.splitlines())
        parts.append(f"\ndef reward(state, action):\n{body}    return {{\n{entries}    }}\n")
        return "\n".join(parts)


def _text(node: ast.AST) -> str:
    """Return the source of a node, with double quotes as in other programs."""
    text = ast.unparse(node)
    return text if '"' in text else text.replace("'", '"')


def _returns(node: ast.AST) -> bool:
    """Return whether a statement may return from the function that contains it."""
    if isinstance(node, ast.FunctionDef):
        return False
    return isinstance(node, ast.Return) or any(_returns(child) for child in ast.iter_child_nodes(node))


@lru_cache(4096)  # a generation edits and screens few programs many times
def genome_of(source: str) -> Genome:
    """Return the genome of a program that ends in one `return {...}` with literal names. Raises ProgramError."""
    parsed = parse(source)
    reward = next(n for n in parsed.tree.body if isinstance(n, ast.FunctionDef) and n.name == "reward")
    if ast.unparse(reward.args) != "state, action":
        raise ProgramError("reward takes more than (state, action); only its weights can be edited by script")
    body = reward.body[1:] if ast.get_docstring(reward) else reward.body
    last = body[-1] if body else None
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Dict):
        raise ProgramError("reward does not end in `return {...}`; only its weights can be edited by script")
    if any(_returns(statement) for statement in body[:-1]):
        raise ProgramError("reward returns in more than one place; only its weights can be edited by script")
    names = [k.value if isinstance(k, ast.Constant) else None for k in last.value.keys]
    if set(names) != set(parsed.weights):
        raise ProgramError("the returned dict and WEIGHTS differ; only the weights can be edited by script")
    # without the docstring and WEIGHTS, which a genome stores separately
    helpers = [n for n in parsed.tree.body if n is not reward and not isinstance(n, ast.Expr) and not is_weights(n)]
    return Genome(
        terms={
            str(name): (parsed.weights[str(name)], _text(value))
            for name, value in zip(names, last.value.values, strict=True)
        },
        preamble="\n".join(_text(statement) for statement in body[:-1]),
        description=parsed.description,
        helpers="\n\n".join(map(_text, helpers)),
    )
