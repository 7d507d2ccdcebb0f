"""What a program finds in scope: where its values lead, and what becomes of its operators, texts and sets."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax.errors import ProgramError
from movlr_jax.rewards.state import State
from movlr_jax.sandbox import facade
from movlr_jax.sandbox.inputs import inputs, pack
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load

OUTSIDE = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)


def generator() -> Iterator[int]:
    yield 1


def test_the_facade_has_all_it_names():
    """What a version of Python or JAX drops is missed here, and not by a program."""
    scope = facade.facade()
    for path, names in facade.MODULES.items():
        assert set(names) == set(vars(scope[f"<{path}>"])), path
    assert set(facade.BUILTINS) == set(scope["__builtins__"]) - {"__import__"}


def led_out(tiny: Any, names: Iterable[str]) -> list[str]:
    """Attributes, three deep, by which a value that a program can get hold of leads out."""
    found: list[str] = []

    def traced(*values: Any) -> Any:
        step, action, initial, goals = pack(tiny.layout, values)
        scope = facade.facade()
        program = load(
            parse('WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return {"a": action[0]}\n')
        )
        start = [State(tiny.layout, step, goals, initial), action, action.at[0], action.dtype, program.reward]
        start += [generator(), jax.vmap(jnp.sum), facade.Members([1]), scope["<functools>"].partial(max, 1)]
        start += [{}, [], (), "", 1, 1.0, None, range(3), zip(()), *facade.GUARDS.values()]
        start += [v for v in scope["__builtins__"].values() if v is not __import__]
        start += [v for path in facade.MODULES for v in vars(scope[f"<{path}>"]).values()]
        level = [(type(v).__name__, v) for v in start if not isinstance(v, types.SimpleNamespace)]
        for _ in range(3):
            reached: dict[tuple[type, str], tuple[str, Any]] = {}
            for path, value in level:
                for name in names:
                    try:
                        inner = getattr(value, name)
                    except Exception:  # it has none
                        continue
                    reached.setdefault((type(inner), name), (f"{path}.{name}", inner))
            level = list(reached.values())
            found.extend(path for path, inner in level if isinstance(inner, OUTSIDE) or is_scope(inner))
        return action

    jax.make_jaxpr(traced)(*(jax.ShapeDtypeStruct(s.shape, s.dtype) for s in inputs(tiny.layout)))
    return found


def is_scope(value: Any) -> bool:
    return isinstance(value, dict) and bool({"__builtins__", "__name__", "__import__"} & set(value))


def test_no_attribute_leads_to_a_module_a_frame_or_globals(tiny):
    assert led_out(tiny, facade.VALUES) == []
    for name in ("gi_frame", "gi_code", "__globals__", "__self__"):
        assert led_out(tiny, facade.VALUES | {name}), "the search finds what there is to find"


def value(expression: str, before: str = "") -> Any:
    """What a program computes that needs no state."""
    source = (
        f'{before}\nWEIGHTS = {{"a": 1.0}}\ndef reward(state, action):\n    return {{"a": {expression}}}\n'
    )
    return load(parse(source)).reward(None, np.zeros(2))["a"]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("list({3, 1, 2, 1})", [3, 1, 2]),
        ("list(set([2, 1, 2]) | {3})", [2, 1, 3]),
        ("2 in {1, 2} and 3 not in {1, 2}", True),
        ('f"{1.5:.2f} {(1, [2])} {True!r} {None}"', "1.50 (1, (2)) True None"),
        ('f"{jnp.zeros(3)} {state} {len} {{}}"', "array(3,) None builtin_function_or_method {}"),
        ("str(1) + str([jnp.ones(2)])", "1(array(2,))"),
        ("isinstance('a', (int, (str, float)))", True),
        ("(isinstance({1}, set), isinstance(1.0, int | float), isinstance('a', str))", (True, True, True)),
        ("7 % 3 * 2 ** 3 << 1", 16),
        (
            "float(jnp.clip(3.0, a_min=0.0, a_max=2.0) + jnp.clip(arr=-1.0, min=0.5) + jnp.clip(9.0, 0.0, 1))",
            3.5,
        ),
        (
            "(next(iter([3])), [0, 1, 2][slice(1)], callable(len), dict.fromkeys('ab', 1))",
            (3, [0], True, {"a": 1, "b": 1}),
        ),
        ("float('0.5') + float(1)", 1.5),
        ("(round(2.567, 1), round(2.4))", (2.6, 2)),
        ("sorted({'b': 1, 'a': 2}.items())", [("a", 2), ("b", 1)]),
    ],
)
def test_python_as_a_program_sees_it(expression: str, result: Any):
    assert value(expression) == result


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("[T % len for T in ['%s']]", "% formatting of strings is not available for a builtin"),
        ("2 ** 1000 * 2 ** 1000", "an integer has more than 1024 bits"),
        ("round(7, -(10 ** 9))", "round to -1,000,000,000 digits"),
        ("pow(3, 2 ** 1000, 7)", "more than 1024 bits"),
    ],
)
def test_what_fills_the_memory_is_refused(expression: str, sentence: str):
    with pytest.raises(ProgramError, match=sentence):
        value(expression)


def test_numpy_is_jnp_and_math_is_of_numbers():
    assert value(
        "np.sum(np.array([1.0, 2.0])) + math.pi + floor(2.5)",
        "import numpy as np, math\nfrom math import floor",
    ) == (pytest.approx(3 + np.pi + 2))
    with pytest.raises(TypeError):
        value("math.cos(action)", "import math")
