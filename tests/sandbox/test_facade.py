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


def test_facade_has_all_names_of_its_lists():
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
        program = load(parse('WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return {"a": action[0]}\n'))
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


def test_attributes_lead_to_no_module_frame_or_globals(tiny):
    assert led_out(tiny, facade.VALUES) == []
    for name in ("gi_frame", "gi_code", "__globals__", "__self__"):
        assert led_out(tiny, facade.VALUES | {name}), "the search finds what there is to find"


def value(expression: str, before: str = "") -> Any:
    """What a program computes that needs no state."""
    source = f'{before}\nWEIGHTS = {{"a": 1.0}}\ndef reward(state, action):\n    return {{"a": {expression}}}\n'
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
        ("float(jnp.clip(3.0, a_min=0.0, a_max=2.0) + jnp.clip(arr=-1.0, min=0.5) + jnp.clip(9.0, 0.0, 1))", 3.5),
        (
            "(next(iter([3])), [0, 1, 2][slice(1)], callable(len), dict.fromkeys('ab', 1))",
            (3, [0], True, {"a": 1, "b": 1}),
        ),
        ("float('0.5') + float(1)", 1.5),
        ("(round(2.567, 1), round(2.4))", (2.6, 2)),
        ("sorted({'b': 1, 'a': 2}.items())", [("a", 2), ("b", 1)]),
        ("'{0:>3}|{name}|{0!r}'.format(7, name='a')", "  7|a|7"),
        ("'%s %d %.2f %5s %%' % ('x', 3, 1.5, 'y')", "x 3 1.50     y %"),
        ("'%(a)s-%(b)d' % {'a': (1, 2), 'b': 2}", "(1, 2)-2"),
        ("', '.join(['a', 'b']) + 'aXa'.replace('X', 'yy') + str([1, [2]])", "a, bayya(1, (2))"),
        ("sorted({x % 2 for x in range(5)} | frozenset([7]))", [0, 1, 7]),
        ("list({1, 2}.union([3]).difference({1}).intersection([3, 2]))", [2, 3]),
        ("sum([[1], [2]], []) + [*range(2)]", [1, 2, 0, 1]),
        ("float(jnp.mean([1.0, 2.0]) + jnp.maximum([1.0], 2.0)[0] + jnp.linalg.norm([3.0, 4.0]))", 8.5),
    ],
)
def test_guarded_python_computes_what_python_does(expression: str, result: Any):
    assert value(expression) == result


RECORDS = """
import dataclasses
from collections import namedtuple
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from types import SimpleNamespace
from typing import ClassVar, NamedTuple, TypedDict

class Point(NamedTuple):
    x: float
    y: float = 2.0
    def total(self, more=0.0):
        return self.x + self.y + more

@dataclass(frozen=True)
class Gains:
    near: float
    tips: tuple = ("a", "b")
    made: list = field(default_factory=lambda: [1])
    UNIT: ClassVar[str] = "m"
    LIMIT = 9
    def __post_init__(self):
        if self.near < 0:
            raise ValueError("near is negative")
    def __call__(self, x):
        return self.near * x
    @property
    def double(self):
        return 2 * self.near
    @staticmethod
    def half(x):
        return x / 2

class Plain:
    A = 1.0
    B = 2 * A
    NAMES: list = ["c"]

class Kind(Enum):
    FIRST = "f"
    LAST = "l"

class Level(IntEnum):
    LOW = 1
    HIGH = auto()

class Terms(TypedDict):
    a: float

Pair = namedtuple("Pair", "left right", defaults=[5])
N = SimpleNamespace(k=3)

def named(value):
    match value:
        case Point(x=0.0):
            return "origin"
        case Point(x, y) if x > 5:
            return "far"
        case Kind.LAST:
            return "last"
        case str() | int():
            return "plain"
        case [first, *rest]:
            return len(rest)
        case {"a": a, **others}:
            return a
    return None
"""


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("(Point(1.0).total(), Point(1.0)._replace(x=4.0).x)", (3.0, 4.0)),
        ("Point(1.0, y=3.0)._asdict()", {"x": 1.0, "y": 3.0}),
        ("[*Point(1.0)] + list(Point._fields)", [1.0, 2.0, "x", "y"]),
        ("(Gains(2.0)(3.0), Gains(near=2.0).double, Gains(1.0).half(4.0))", (6.0, 4.0, 2.0)),
        ("(Gains(1.0).made, Gains(1.0).tips[1])", ([1], "b")),
        ("(Gains.UNIT, Gains(1.0).LIMIT, Gains(1.0) == Gains(1.0), Gains(1.0) == Gains(2.0))", ("m", 9, True, False)),
        ("(dataclasses.replace(Gains(1.0), near=7.0).near, dataclasses.asdict(Gains(1.0))['near'])", (7.0, 1.0)),
        ("(Plain.B, Plain.NAMES)", (2.0, ["c"])),
        ("(isinstance(Point(1.0), Point), isinstance(Gains(1.0), Point))", (True, False)),
        ("(Kind.FIRST.value, Kind.LAST.name, Kind('l') is Kind.LAST)", ("f", "LAST", True)),
        ("[k.name for k in Kind]", ["FIRST", "LAST"]),
        ("(Level.HIGH + 1, Terms(a=1.0), Pair(1).right, Pair(1, right=2).left, N.k)", (3, {"a": 1.0}, 5, 1, 3)),
        ("[named(v) for v in (Point(0.0), Point(6.0), Kind.LAST)]", ["origin", "far", "last"]),
        ("[named(v) for v in ('x', 3)]", ["plain", "plain"]),
        ("[named(v) for v in ((1, 2, 3), {'a': 7}, None)]", [2, 7, None]),
        ("(named.__name__, Point.__name__)", ("named", "Point")),
    ],
)  # fmt: skip
def test_class_of_a_program_holds_its_values(expression: str, result: Any):
    assert value(expression, RECORDS) == result


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("Gains(-1.0)", "ValueError: near is negative"),
        ("len.x", r"\.x is not available on a builtin_function_or_method"),
        ("jnp.sum.x", r"jnp\.sum\.x is not available"),
        ("action.x", r"\.x is not available on a"),
        ("[m.x for m in [jnp]][0]", r"\.x is not available on a SimpleNamespace"),
        ("(i for i in [1]).left", r"\.left is not available on a generator"),
        ("action.__name__", r"\.__name__ is not available on a"),
    ],
)
def test_field_names_read_no_attributes_of_other_values(expression: str, sentence: str):
    with pytest.raises(ProgramError, match=sentence):
        value(expression, RECORDS)


def test_limit_of_steps_counts_from_each_call():
    source = 'WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return {"a": sum(i for i in range(9999))}\n'
    reward = load(parse(source)).reward
    assert {reward(None, None)["a"] for _ in range(8)} == {9999 * 4999}  # pyright: ignore[reportArgumentType]


def test_named_tuple_is_carried_by_a_loop_of_jax():
    before = "from typing import NamedTuple\nclass C(NamedTuple):\n    a: float\n    b: float\n"
    loop = "lax.fori_loop(0, 3, lambda i, c: c._replace(a=c.a + c.b), C(0.0, 2.0)).a"
    assert value(loop, before) == 6.0


def test_numpy_is_jnp_and_math_takes_numbers_only():
    assert value(
        "np.sum(np.array([1.0, 2.0])) + math.pi + floor(2.5)", "import numpy as np, math\nfrom math import floor"
    ) == (pytest.approx(3 + np.pi + 2))
    with pytest.raises(TypeError):
        value("math.cos(action)", "import math")
