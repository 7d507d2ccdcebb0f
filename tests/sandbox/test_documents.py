"""No document of a traced reward harms: what is wrong is told, and whatever is changed at random is refused."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from movlr_jax.errors import ProgramError
from movlr_jax.sandbox.graph import MAX_CONSTANTS, MAX_EQUATIONS, MAX_TURNS, MAX_WORK, read, run
from movlr_jax.sandbox.inputs import inputs
from movlr_jax.sandbox.primitives import TABLE
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import document

SHAPES = [jax.core.ShapedArray(shape, jnp.dtype("float32")) for shape in ((), (3,), (3, 3))]  # of the inputs

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


def test_documents_written_by_hand_are_read():
    for good in (text(eqn()), text(GOOD_SCAN), text(eqn("add", [0, ["float32", "0000803f"]]))):
        read(good, ["a"], SHAPES)


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
        (text(eqn(i=[1])), r"term 'a' is float32\[3\], expected one float32"),
        (text(eqn("gt", [0, 0])), r"term 'a' is bool\[\]"),
        (text(eqn(i=[4])), "an operand that is not defined yet"),
        (text(eqn(i=[-1])), "an operand that is not defined yet"),
        (text(eqn(i=[True])), "an invalid operand"),
        (text(eqn(i=[0.0])), "an invalid operand"),
        (text(eqn(n=2)), "returns 1 values, not 2"),
        (text(eqn(a={"axes": [0]})), "parameters of 'neg'"),
        (text(eqn("add", [1, 2])), "cannot be applied to its operands"),
        (text(eqn("while")), "line 7: a loop's number of iterations is only known at run time"),
        (text(eqn("pure_callback")), "line 7: callbacks into Python are not allowed"),
        (text(eqn("random_bits")), "line 7: randomness is not allowed"),
        (text(eqn("svd")), "line 7: the operation `svd` is not allowed in a reward"),
        (text(eqn("custom_call")), "`custom_call` is not allowed"),
        (text(eqn("jit", g=[NEGATE])), "has inner graphs"),
        (text(eqn("reduce_sum", a={"axes": [0]})), "cannot be applied to its operands"),
        (text(eqn("reduce_sum", [1], a={"axes": [5]})), "cannot be applied to its operands"),
        (text(eqn("reduce_sum", [1], a={"axes": [2**40]})), "an invalid parameter of 'reduce_sum'"),
        (text(eqn("iota", [], a={"dtype": "float32", "shape": [10**5, 10**5], "dimension": 0, "sharding": None})),
         "line 7: an array of 100000x100000 has 10,000,000,000 numbers; the limit is 4,096"),
        (text(eqn("iota", [], a={"dtype": "complex64", "shape": [3], "dimension": 0, "sharding": None})),
         "an invalid parameter of 'iota'"),
        (text(eqn("scan", a=LOOP | {"length": MAX_TURNS + 1}, g=[NEGATE])), "line 7: a loop has 1,025 iterations"),
        (text(eqn("scan", a=LOOP | {"length": -1}, g=[NEGATE])), "line 7: a loop has -1 iterations"),
        (text(eqn("scan", a=LOOP | {"num_carry": 2}, g=[NEGATE])), "a loop has more constants and carried values"),
        (text(eqn("scan", a={}, g=[NEGATE])), "parameters of 'scan'"),
        (text(eqn("scan", a=LOOP)), "a list is missing"),
        (text(eqn("scan", a=LOOP, g=[NEGATE | {"eqns": [eqn("gt", [0, 0])]}])), "a loop carries change in shape"),
        (text(eqn("cond", [0, 0], g=[NEGATE])), "a branch without an index"),
        (text(*[eqn()] * (MAX_EQUATIONS + 1)), f"line 7: the program has more than {MAX_EQUATIONS} operations"),
        (text(eqn(), consts=[["float32", [3], "00"]]), "a constant of the wrong size"),
        (text(eqn(), consts=[["float32", [1], "zzzzzzzz"]]), "not hexadecimal"),
        (text(eqn(), consts=[["bool", [1], "02"]]), "a constant of the wrong size"),
        (text(eqn(), consts=[["object", [1], "00000000"]]), "malformed: an invalid constant"),
        (text(eqn(), consts=[["float32", [4096], "00" * 16384]] * 17), f"more than {MAX_CONSTANTS >> 10} KiB"),
    ],
    ids=lambda x: x[:40] if len(x) < 70 else None,
)  # fmt: skip
def test_wrong_document_is_refused(document: str, sentence: str):
    with pytest.raises(ProgramError, match=sentence):
        read(document, ["a"], SHAPES)


def test_work_of_nested_loops_multiplies():
    inner: dict[str, Any] = NEGATE
    for _ in range(3):
        inner = {"in": 1, "consts": [], "eqns": [eqn("scan", a=LOOP | {"length": 1000}, g=[inner])], "out": [1]}
    with pytest.raises(ProgramError, match=f"computes more than {MAX_WORK:,} numbers per step"):
        read(text(inner["eqns"][0]), ["a"], SHAPES)
    for _ in range(5):
        inner = {"in": 1, "consts": [], "eqns": [eqn("scan", a=LOOP | {"length": 1}, g=[inner])], "out": [1]}
    with pytest.raises(ProgramError, match="nested more than 6 deep"):
        read(text(inner["eqns"][0]), ["a"], SHAPES)


@pytest.fixture(scope="module")
def sound(tiny) -> tuple[str, list[str], list[Any]]:
    return document(PROGRAM, tiny.layout), list(parse(PROGRAM).weights), inputs(tiny.layout)


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to everything inside a document."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in children for place in ((*way, key), *places(child, (*way, key)))]


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 40), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from([*TABLE, "scan", "cond", "relu", "while", "float32", "int32", "bool", "CLIP"]),
    st.lists(st.integers(-2, 9), max_size=4), st.lists(st.lists(st.integers(-2, 5), max_size=3), max_size=3),
    st.dictionaries(st.sampled_from(["axes", "p", "i", "shape", "length"]), st.integers(-1, 5), max_size=2),
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_document_with_changed_values_is_read_or_refused(sound, data: st.DataObject):
    """Values dropped, repeated or replaced anywhere: a graph that traces, or a ProgramError; and soon."""
    original, terms, shapes = sound
    changed = json.loads(original)
    for _ in range(data.draw(st.integers(1, 3))):
        everywhere = places(changed)
        *way, last = everywhere[data.draw(st.integers(0, len(everywhere) - 1))]
        parent = changed
        for key in way:
            parent = parent[key]
        how = data.draw(st.sampled_from(["odd", "odd", "drop", "twice"]))
        if how == "odd":
            parent[last] = data.draw(ODD)
        elif how == "drop":
            del parent[last]
        elif isinstance(parent, list):
            parent.insert(last, json.loads(json.dumps(parent[last])))
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


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_document_with_changed_bytes_is_read_or_refused(sound, data: st.DataObject):
    original, terms, shapes = sound
    raw = bytearray(original.encode())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProgramError):
        read(bytes(raw), terms, shapes)
