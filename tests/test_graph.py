"""A traced reward as a document and back: the same bits, every JAX transformation, and no document that harms."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from movlr_jax.errors import ProgramError
from movlr_jax.rewards import shaping
from movlr_jax.sandbox import facade, graph
from movlr_jax.sandbox.codec import encode
from movlr_jax.sandbox.graph import MAX_CONSTANTS, MAX_EQUATIONS, MAX_TURNS, MAX_WORK, read, run
from movlr_jax.sandbox.inputs import inputs
from movlr_jax.sandbox.primitives import TABLE, known
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import document

V = jax.core.ShapedArray((3,), jnp.dtype("float32"))
M = jax.core.ShapedArray((3, 3), jnp.dtype("float32"))
S = jax.core.ShapedArray((), jnp.dtype("float32"))
lax = jax.lax


def total(function: Callable[..., Any]) -> Callable[..., list[jax.Array]]:
    """A function whose result, whatever it is, becomes one float32, as terms are."""

    def one(*xs: Any) -> list[jax.Array]:
        leaves = [jnp.sum(jnp.asarray(leaf, jnp.float32)) for leaf in jax.tree.leaves(function(*xs))]
        return [jnp.sum(jnp.stack(leaves))]

    return one


def there_and_back(function: Callable[..., Any], *shapes: Any) -> graph.Graph:
    closed = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes))
    return read(json.dumps(encode(closed, ["a"])), ["a"], list(shapes))


def same_bits(function: Callable[..., Any], *shapes: Any) -> None:
    rebuilt = there_and_back(function, *shapes)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(16, *s.shape)).astype(np.float32) for s in shapes]
    native = jax.jit(jax.vmap(function))(*values)[0]
    ours = jax.jit(jax.vmap(lambda *xs: run(rebuilt, xs)))(*values)[0]
    np.testing.assert_array_equal(np.asarray(native).view(np.int32), np.asarray(ours).view(np.int32))


# Arguments that each function of the facade can be called with; others take one of `_TRIED`.
_TRIED = ((V,), (V, V), (V, V, V), (M,), (M, M), (S,), (S, S))
CALLS: dict[str, Callable[..., Any]] = {
    "jnp.arange": lambda x: jnp.arange(5) * x[0],
    "jnp.array": lambda x: jnp.array([x[0], 1.0, 2]) + jnp.array(x),
    "jnp.broadcast_to": lambda x: jnp.broadcast_to(x, (2, 3)),
    "jnp.einsum": lambda x: jnp.einsum("i,i->", x, x),
    "jnp.expand_dims": lambda x: jnp.expand_dims(x, 0),
    "jnp.eye": lambda x: jnp.eye(3) @ x,
    "jnp.full": lambda x: jnp.full((3,), 2.0) * x,
    "jnp.ones": lambda x: jnp.ones(3) * x,
    "jnp.repeat": lambda x: jnp.repeat(x, 2),
    "jnp.reshape": lambda x: jnp.reshape(x, (3, 1)),
    "jnp.select": lambda x: jnp.select([x > 0, x < 0], [x, -x], 0.0),
    "jnp.split": lambda x: jnp.split(x, 3),
    "jnp.swapaxes": lambda x: jnp.swapaxes(x[None], 0, 1),
    "jnp.take": lambda x: jnp.take(x, jnp.array([0, 2])) + x[jnp.argmin(x)],
    "jnp.tile": lambda x: jnp.tile(x, 2),
    "jnp.zeros": lambda x: jnp.zeros(3) + x,
    "jnp.linalg.det": lambda x: jnp.linalg.det(jnp.outer(x, x) + jnp.eye(3)),
    "lax.cond": lambda x: lax.cond(x[0] > 0, lambda: x, lambda: -x),
    "lax.fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, c: c * 0.5 + x[i], 0.0),
    "lax.scan": lambda x: lax.scan(lambda c, a: (c + a, c * a), 0.0, x),
    "lax.select": lambda x: lax.select(x > 0, x, -x),
}
OPERATORS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x: x**2 + x**0.5 + 2.0**x + x**-1 + x % 2 + x // 0.3 - (-x) / 3 + abs(x),
    "powers": lambda x: x ** jnp.arange(3) + (x.astype(int) << 1) + (x.astype(int) >> 1),
    "logic": lambda x: ((x > 0) & (x < 1)) | ~(x >= 2) ^ (x != 0.5) | (x == 0.1) | (x <= 0.2),
    "slices": lambda x: (x[::-1][-1], x[1:], x[None], x[..., 0], x[jnp.array([1, 0])], list(x)),
    "updates": lambda x: x.at[0].set(1.0).at[1].add(2.0).at[2].multiply(3.0).at[0].min(3.0).at[1].max(0.0),
    "methods": lambda x: (
        x.mean(),
        x.max(),
        x.min(),
        x.prod(),
        x.std(),
        x.T,
        x.flatten(),
        x.argmax(),
        x.dot(x),
    ),
    "matrices": lambda x: (jnp.outer(x, x) @ x, jnp.outer(x, x).T, jnp.linalg.norm(jnp.outer(x, x), axis=0)),
    "norms": lambda x: (
        jnp.linalg.norm(x, ord=1),
        jnp.linalg.norm(x, ord=jnp.inf),
        jnp.linalg.norm(x, axis=-1),
    ),
    "cumulative": lambda x: (jnp.cumsum(x), jnp.diff(x), jnp.roll(x, 1), jnp.sort(x), jnp.argsort(x)),
    "gelu": lambda x: (jax.nn.gelu(x, approximate=False), jax.nn.softmax(x), jax.nn.logsumexp(x)),
    "dynamic": lambda x: lax.dynamic_slice(x, (jnp.argmax(x),), (2,)) if hasattr(lax, "dynamic_slice") else x,
    "nested": lambda x: lax.fori_loop(
        0, 2, lambda i, c: lax.fori_loop(0, 2, lambda j, d: d + x[j] * i, c), 0.0
    ),
    "constants": lambda x: x * jnp.asarray(np.linspace(0, 1, 3, dtype=np.float32)) + np.float32(0.1) + 3,
    "nan": lambda x: (jnp.nan_to_num(jnp.log(x)), jnp.log(x), jnp.inf * x),
}
NOT_FUNCTIONS = {"jnp.linalg", "jnp.newaxis", "jnp.pi", "jnp.e", "jnp.inf"}


def offered() -> dict[str, Any]:
    scope = facade.facade()
    places = {
        "jnp": scope["jnp"],
        "jnp.linalg": scope["jnp"].linalg,
        "jax.nn": scope["jax"].nn,
        "lax": scope["lax"],
    }
    places["shaping"] = scope["shaping"]
    return {f"{place}.{n}": f for place, names in places.items() for n, f in vars(names).items()}


@pytest.mark.parametrize("name", [n for n in offered() if n not in NOT_FUNCTIONS])
def test_everything_a_program_may_call_survives(name: str):
    """Each function of the facade, on the first arguments it takes: traced, written, read, the same when run."""
    function = offered()[name]
    attempts = [((V,), CALLS[name])] if name in CALLS else [(shapes, function) for shapes in _TRIED]
    worked = 0
    for shapes, call in attempts:
        structs = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes]
        try:
            jax.eval_shape(call, *structs)
        except (TypeError, ValueError, IndexError, NotImplementedError):
            continue
        there_and_back(total(call), *shapes)
        worked += 1
    assert worked, "no arguments of the test fit this function: name some in CALLS"
    assert name in CALLS or worked


def test_the_facade_has_all_it_names():
    """What a version of JAX drops is missed here, and not by a program."""
    found = {n.rpartition(".")[2] for n in offered()}
    wanted = {*facade.JNP, *facade.LINALG, *facade.NN, *facade.LAX, *shaping.PUBLIC}
    assert wanted - found == set()
    assert set(TABLE) - set(known()) <= {"split", "stack", "tile", "square"}, (
        "younger than the oldest JAX we take"
    )


@pytest.mark.parametrize("name", [*OPERATORS, *(f"call {n}" for n in CALLS)])
def test_values_are_the_same_bit_by_bit(name: str):
    function = OPERATORS.get(name) or CALLS[name.removeprefix("call ")]
    same_bits(total(function), V)


def test_gradients_and_loops_of_a_rebuilt_function():
    """Gradients where a function has its own (relu at 0, a stable softplus), scan over it, and jit."""

    def native(x: jax.Array) -> list[jax.Array]:
        return [
            jnp.sum(jax.nn.relu(x) + jax.nn.softplus(x) + jax.nn.silu(x) + shaping.tolerance(x) + jnp.sinc(x))
        ]

    rebuilt = there_and_back(native, V)
    for x in (np.float32([0.0, -100.0, 3.0]), np.float32([0.5, 0.0, 90.0])):
        slopes = [
            np.asarray(jax.grad(lambda v, f=f: f(v)[0])(x)) for f in (native, lambda v: run(rebuilt, [v]))
        ]
        np.testing.assert_array_equal(*slopes)
        assert np.isfinite(slopes[0]).all()
    many = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    step = jax.jit(lambda xs: lax.scan(lambda c, x: (c + run(rebuilt, [x])[0], 0), jnp.float32(0), xs)[0])
    np.testing.assert_allclose(step(many), sum(float(native(x)[0]) for x in many), rtol=1e-5)


# What is refused, by hand.

PROGRAM = """WEIGHTS = {"near": 2.0, "calm": 1.0}


def reward(state, action):
    near = jnp.exp(-jnp.linalg.norm(state.pos("foot") - state.goal("foot_pos")))
    swing = lax.fori_loop(0, 3, lambda i, c: c + jnp.sin(state.qpos[i]) * jax.nn.relu(action[0]), 0.0)
    calm = lax.cond(state.time > 0.5, lambda: jnp.sum(jnp.square(state.qvel)), lambda: jnp.median(action))
    return {"near": near + swing, "calm": calm * jnp.array([1.0, 2.0, 3.0])[jnp.argmax(state.qpos)]}
"""


def eqn(p: str = "neg", i: Any = (0,), n: int = 1, a: Any = None, **more: Any) -> dict[str, Any]:
    return {"p": p, "i": list(i), "n": n, "a": a or {}, "l": 7, **more}


def text(*eqns: Any, out: Any = (3,), consts: Any = ()) -> str:
    main = {"in": 3, "consts": list(consts), "eqns": list(eqns), "out": list(out)}
    return json.dumps({"version": 1, "terms": ["a"], "main": main})


LOOP = {"length": 3, "reverse": False, "num_consts": 0, "num_carry": 1}
NEGATE = {"in": 1, "consts": [], "eqns": [eqn()], "out": [1]}
GOOD_SCAN = eqn("scan", a=LOOP, g=[NEGATE])


def test_what_is_sound_by_hand():
    for good in (text(eqn()), text(GOOD_SCAN), text(eqn("add", [0, ["float32", "0000803f"]]))):
        read(good, ["a"], [S, V, M])


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("9" * 10_000, "not JSON"),
        ("null", "expected an object of version, terms, main"),
        (text(eqn()).replace('"version": 1', '"version": 2'), "its version or its terms"),
        (text(eqn()).replace('["a"]', '["b"]'), "its version or its terms"),
        (text(eqn(), out=[3, 3]), "2 values for 1 terms"),
        (text(eqn(i=[1])), r"term 'a' is float32\[3\], not one float32"),
        (text(eqn("gt", [0, 0])), r"term 'a' is bool\[\]"),
        (text(eqn(i=[4])), "a value that does not exist yet"),
        (text(eqn(i=[-1])), "a value that does not exist yet"),
        (text(eqn(i=[True])), "an operand"),
        (text(eqn(i=[0.0])), "an operand"),
        (text(eqn(n=2)), "gives 1 values, not 2"),
        (text(eqn(a={"axes": [0]})), "parameters of 'neg'"),
        (text(eqn("add", [1, 2])), "with these operands"),
        (text(eqn("while")), "line 7: a loop whose number of turns is only known at run time"),
        (text(eqn("pure_callback")), "line 7: a call back into Python"),
        (text(eqn("random_bits")), "line 7: randomness is not part of a reward"),
        (text(eqn("svd")), "line 7: the operation `svd` is not among those of a reward"),
        (text(eqn("custom_call")), "`custom_call` is not among those"),
        (text(eqn("jit", g=[NEGATE])), "has inner graphs"),
        (text(eqn("reduce_sum", a={"axes": [0]})), "with these operands"),
        (text(eqn("reduce_sum", [1], a={"axes": [5]})), "with these operands"),
        (text(eqn("reduce_sum", [1], a={"axes": [2**40]})), "a parameter of 'reduce_sum'"),
        (text(eqn("iota", [], a={"dtype": "float32", "shape": [10**5, 10**5], "dimension": 0, "sharding": None})),
         "line 7: an array of 100000x100000 has 10,000,000,000 numbers; at most 4,096"),
        (text(eqn("iota", [], a={"dtype": "complex64", "shape": [3], "dimension": 0, "sharding": None})),
         "a parameter of 'iota'"),
        (text(eqn("scan", a=LOOP | {"length": MAX_TURNS + 1}, g=[NEGATE])), "line 7: a loop of 1,025 turns"),
        (text(eqn("scan", a=LOOP | {"length": -1}, g=[NEGATE])), "line 7: a loop of -1 turns"),
        (text(eqn("scan", a=LOOP | {"num_carry": 2}, g=[NEGATE])), "a loop over more than there is"),
        (text(eqn("scan", a={}, g=[NEGATE])), "parameters of 'scan'"),
        (text(eqn("scan", a=LOOP)), "a list is missing"),
        (text(eqn("scan", a=LOOP, g=[NEGATE | {"eqns": [eqn("gt", [0, 0])]}])), "carries other values"),
        (text(eqn("cond", [0, 0], g=[NEGATE])), "a branch without an index"),
        (text(*[eqn()] * (MAX_EQUATIONS + 1)), f"line 7: the program comes to more than {MAX_EQUATIONS} operations"),
        (text(eqn(), consts=[["float32", [3], "00"]]), "a constant of another size"),
        (text(eqn(), consts=[["float32", [1], "zzzzzzzz"]]), "not hexadecimal"),
        (text(eqn(), consts=[["bool", [1], "02"]]), "a constant of another size"),
        (text(eqn(), consts=[["object", [1], "00000000"]]), "malformed: a constant"),
        (text(eqn(), consts=[["float32", [4096], "00" * 16384]] * 17), f"more than {MAX_CONSTANTS >> 10} KiB"),
    ],
    ids=lambda x: x[:40] if len(x) < 70 else None,
)  # fmt: skip
def test_a_document_that_is_wrong_is_told(document: str, sentence: str):
    with pytest.raises(ProgramError, match=sentence):
        read(document, ["a"], [S, V, M])


def test_loops_in_loops_multiply():
    inner: dict[str, Any] = NEGATE
    for _ in range(3):
        inner = {
            "in": 1,
            "consts": [],
            "eqns": [eqn("scan", a=LOOP | {"length": 1000}, g=[inner])],
            "out": [1],
        }
    with pytest.raises(ProgramError, match=f"computes more than {MAX_WORK:,} numbers a step"):
        read(text(inner["eqns"][0]), ["a"], [S, V, M])
    for _ in range(5):
        inner = {"in": 1, "consts": [], "eqns": [eqn("scan", a=LOOP | {"length": 1}, g=[inner])], "out": [1]}
    with pytest.raises(ProgramError, match="nested more than 6 deep"):
        read(text(inner["eqns"][0]), ["a"], [S, V, M])


@pytest.fixture(scope="module")
def sound(tiny) -> tuple[str, list[str], list[Any]]:
    return document(PROGRAM, tiny.layout), list(parse(PROGRAM).weights), inputs(tiny.layout)


def places(value: Any) -> list[tuple[Any, ...]]:
    """The way to everything inside a document."""
    found: list[tuple[Any, ...]] = []
    left: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while left:
        path, value = left.pop()
        children = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, child in children:
            way = (*path, key)
            found.append(way)
            if isinstance(child, dict | list):
                left.append((way, child))
    return found


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 40), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from([*TABLE, "scan", "cond", "relu", "while", "float32", "int32", "bool", "CLIP"]),
    st.lists(st.integers(-2, 9), max_size=4), st.lists(st.lists(st.integers(-2, 5), max_size=3), max_size=3),
    st.dictionaries(st.sampled_from(["axes", "p", "i", "shape", "length"]), st.integers(-1, 5), max_size=2),
)  # fmt: skip


@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_changed_document_does_more_than_be_refused(sound, data: st.DataObject):
    """Values swapped, dropped, repeated or replaced anywhere: a graph that traces, or a ProgramError; and soon."""
    original, terms, shapes = sound
    changed = json.loads(original)
    for _ in range(data.draw(st.integers(1, 3))):
        everywhere = places(changed)
        path = everywhere[data.draw(st.integers(0, len(everywhere) - 1))]
        parent = changed
        for key in path[:-1]:
            parent = parent[key]
        how = data.draw(st.sampled_from(["odd", "odd", "drop", "twice", "other"]))
        if how == "odd":
            parent[path[-1]] = data.draw(ODD)
        elif how == "drop":
            del parent[path[-1]]
        elif how == "twice" and isinstance(parent, list):
            parent.insert(path[-1], json.loads(json.dumps(parent[path[-1]])))
        else:
            source = everywhere[data.draw(st.integers(0, len(everywhere) - 1))]
            value: Any = changed
            try:
                for key in source:
                    value = value[key]
            except (KeyError, IndexError, TypeError):
                continue
            parent[path[-1]] = json.loads(json.dumps(value))
    began = time.monotonic()
    try:
        checked = read(json.dumps(changed), terms, shapes)
    except ProgramError:
        pass
    else:
        if data.draw(st.integers(0, 19)) == 0:  # what passes can be traced
            outs = jax.eval_shape(
                lambda *xs: run(checked, xs), *(jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes)
            )
            assert [(o.shape, o.dtype) for o in outs] == [((), jnp.float32)] * len(terms)
    assert time.monotonic() - began < 5.0


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_changed_bytes_do_more_than_be_refused(sound, data: st.DataObject):
    original, terms, shapes = sound
    raw = bytearray(original.encode())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProgramError):
        read(bytes(raw), terms, shapes)
