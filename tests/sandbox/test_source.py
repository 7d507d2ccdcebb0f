"""What the text of a reward program may contain: each class of mistake, with its line and the likely fix."""

from __future__ import annotations

import ast
import contextlib
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from movlr_jax._util.resources import resource_dir
from movlr_jax.errors import ProgramError
from movlr_jax.sandbox.source import MAX_BYTES, MAX_DEPTH, parse, with_weights
from movlr_jax.sandbox.trace import load

GOOD = '''"""Stand tall and keep still."""

import jax.numpy as jnp

WEIGHTS = {"tall": 10.0, "calm": -0.5}
TARGET = 0.9


def closeness(x, width=0.1):
    return shaping.gaussian(x, width)


def reward(state, action):
    """One control step."""
    speed = 0.0
    for joint in ("hip", "knee"):
        speed = speed + jnp.abs(state.qd(joint))
    return {"tall": closeness(state.pos("pelvis")[2] - TARGET), "calm": jax.nn.relu(speed)}
'''


HEX = "0x" + "f" * 5000


def program(body: str = '{"r": jnp.sum(action)}', weights: str = '{"r": 1.0}', before: str = "") -> str:
    """A program whose WEIGHTS stand in line 2 and whose only expression stands in line 6."""
    return f'"""Text."""\nWEIGHTS = {weights}\n\n{before}\ndef reward(state, action):\n    return {body}\n'


def statement(text: str) -> str:
    """A program with one more statement, in line 6."""
    return program().replace("    return", f"    {text}\n    return")


def test_good_program_is_parsed():
    parsed = parse(GOOD)
    assert parsed.description == "Stand tall and keep still."
    assert parsed.weights == {"tall": 10.0, "calm": -0.5}
    assert parsed.source == GOOD
    assert load(parsed).terms == ("tall", "calm")


@pytest.mark.parametrize("path", sorted((resource_dir("assets") / "rewards").glob("*.py")), ids=lambda p: p.stem)
def test_rewards_of_the_package_are_parsed(path: Path):
    loaded = load(parse(path.read_text(encoding="utf-8")))
    assert loaded.description


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("import numpy as np, math", "np.linalg.norm(action) * np.pi * math.sqrt(2.0)"),
        ("import jax.nn as nn, jax.scipy.special", "nn.relu(action).sum() + jax.scipy.special.expit(action[0])"),
        ("from jax.nn import relu as positive", "positive(action).sum()"),
        ("from functools import partial, reduce", "partial(reduce, lambda a, b: a + b)(action)"),
        ("from typing import Any as Whatever, Dict\nTerms = Dict[str, float]", "action[0]"),
        ("from movlr_jax.rewards import shaping", "shaping.quadratic(action).sum()"),
    ],
)
def test_import_of_what_is_in_scope_binds_its_name(line: str, body: str):
    reward = load(parse(f"{line}\n" + program(f'{{"r": {body}}}'))).reward
    assert np.isfinite(reward(None, np.ones(3))["r"])  # pyright: ignore[reportArgumentType]
    inside = statement(line.splitlines()[0]).replace("jnp.sum(action)", body)
    assert np.isfinite(load(parse(inside)).reward(None, np.ones(3))["r"])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("source", "line", "sentence"),
    [
        # imports
        ("import os\n" + program(), 1, r"`import os`: this import is not allowed; jnp, jax\.nn"),
        ("from jax.numpy import *\n" + program(), 1, "this import is not allowed"),
        ("from . import lax\n" + program(), 1, "this import is not allowed"),
        ("import numpy as reward\n" + program(), 1, "'reward' is already in scope"),
        ("import numpy as np\nnp = 3\n" + program(), 2, "'np' is already in scope"),
        ("import numpy as np\n" + program('{"r": np.load(action)}'), 7, r"np\.load is not available"),
        (statement("import os"), 6, "this import is not allowed"),
        # statements and expressions that have no place here
        (statement("async def f(): pass"), 6, "AsyncFunctionDef is not part of a reward program; use plain expr"),
        (statement("with state: pass"), 6, "With is not part of a reward program; remove it and keep its body"),
        (statement("try: pass\n    except KeyError: pass"), 6, "Try is not part of a reward program; a name that"),
        (statement("raise SystemExit"), 6, "only errors such as ValueError"),
        # classes
        (program(before="class A(dict): pass"), 4, "class A: only NamedTuple, @dataclass"),
        (program(before="class A:\n    def __init__(self): pass"), 5, "__init__ of class A is not available; list"),
        (program(before="class A:\n    _replace = 1"), 4, "'_replace': names that begin with an underscore"),
        (program(before="class A: x = 1\nA = 2"), 5, "'A' is already in scope"),
        (program('{"r": action._x}', before="class A: y = 1"), 6, "'_x': names that begin with an underscore"),
        # patterns
        (statement("match 1:\n        case object(): pass"), 7, "a pattern may name bool, dict, float, int"),
        (statement("match 1:\n        case state.time: pass"), 7, "a pattern may not read this attribute"),
        (statement("match 1:\n        case __x: pass"), 7, "'__x': names that begin with two underscores"),
        (program('{f"{1:{2}}": 1.0}'), 6, r"a format specification must be a literal such as \.3f"),
        (program('{"r": sum([(x := i) for i in (1, 2)])}'), 6, "`:=` within a comprehension"),
        (program(before="@jit"), 5, r"def reward: decorators other than @jax\.jit"),
        # names
        (program('{"r": action.__class__}'), 6, "'__class__': names that begin with an underscore"),
        (program('{"r": shaping.gaussian(action, _x=1)}'), 6, "'_x': names that begin"),
        (program(before="def __help(x): return x"), 4, "'__help': names that begin with two underscores"),
        (statement("x = print(1)"), 6, "'print' is not available in a reward program; on a line of its own it is"),
        (program('{"r": getattr(state, "x")}'), 6, "'getattr' is not available .*; write state.pos"),
        (statement("if hasattr(state, 'x'): pass"), 6, "'hasattr' is not available .*; write the names that the"),
        (statement("jnp = state"), 6, "'jnp' is already in scope and cannot be redefined"),
        (program(before="reward = 3"), 4, "reward is a function and cannot be assigned to"),
        # attributes of what is in scope
        (statement("jnp.sum = 3"), 6, r"jnp\.sum cannot be assigned to"),
        (program('{"r": jnp.save(action)}'), 6, r"jnp\.save is not available in a reward program"),
        (program('{"r": jax.debug.print(action)}'), 6, r"jax\.debug is not available .*; remove it: the report"),
        (program('{"r": jnp.linalg.inv(state.rot("x"))[0, 0]}'), 6, r"linalg\.inv is not available.*is R\.T"),
        (program('{"r": jax.lax.while_loop(1, 2, 3)}'), 6, r"while_loop is not.*did you mean.*fori_loop"),
        (program('{"r": jnp.sum.lower(action)}'), 6, r"jnp\.sum\.lower is not available.*; call jnp\.sum itself"),
        # attributes of values
        (program('{"r": (i for i in [1]).gi_frame}'), 6, r"\.gi_frame is not available in a reward program"),
        (program('{"r": "{0.x}".format(state)}'), 6, r"a placeholder of \.format must be {}, a number or a name"),
        (program('{"r": "{:>1000000}".format(1)}'), 6, r"a format specification must be a literal such as \.3f"),
        (program('{"r": str.format("{0.x}", state)}'), 6, r"str\.format is not available .*; call it on a value"),
        (program('{"r": action.summ()}'), 6, r"\.summ is not available .*; did you mean \.sum"),
        (program('{"r": state.poss("hip")}'), 6, "state has no 'poss': there is no call 'poss'; did you mean 'pos'"),
        # values
        (program('{"r": 1j * action[0]}'), 6, "1j: complex values are not allowed; rewards are real numbers"),
        (program('{"r": 1e400 * action[0]}'), 6, "too large for a float and becomes infinite"),
        (program('{"r": "x" * 10 ** 9}'), 6, r"\+ is the only operation allowed on strings"),
        # top level
        (program(before="while True: pass"), 4, "`while True:`: only functions, classes, constants and WEIGHTS"),
        (program(before="__all__ = f()"), 4, "'__all__': names that begin with two underscores"),
        (program(before="WEIGHTS |= {}"), 4, "WEIGHTS is set once at top level"),
        # the signature
        (program().replace("state, action", "s, a"), 5, r"take exactly \(state, action\), but it takes \(s, a\)"),
        (program().replace("state, action", "state, action, x"), 5, r"takes \(state, action, x\); other arguments"),
        # weights
        (program(weights="[1.0]"), 2, "WEIGHTS must be a dict with at least one term; got list"),
        (program(weights="dict(r=X)"), 2, "WEIGHTS must be a literal dict of numbers, or of arithmetic on numbers"),
        (program(weights='{"r": 9 ** 9 ** 9}'), 2, "an integer has more than 1024 bits"),
        (program(weights='{"r": 1 / 0}'), 2, "WEIGHTS must be a literal dict of numbers"),
        (program(weights='{"r": 1.0, "r": 2.0}'), 2, "WEIGHTS names a term twice"),
        (program(weights='{"r": True}'), 2, r"WEIGHTS\['r'\] is True, expected a number"),
        (program(weights='{"r": 2e6}'), 2, r"WEIGHTS\['r'\] is 2000000\.0, more than 1e\+06"),
        (program(weights='{"a b;rm": 1.0}'), 2, "a term's name must be an identifier of at most 64 characters"),
        (program(before='WEIGHTS["r"] = 2.0'), 4, "WEIGHTS is set once at top level"),
        (program('{"r": WEIGHTS["r"] * action[0]}'), 6, "must not be used elsewhere; return the terms unweighted"),
        # numbers that Python refuses to write out, as a message about them would
        (program(f'{{"r": {HEX}}}'), 6, "an integer here has more than 600 digits"),
        (program(before=f"X: f({HEX}) = 1"), 4, "an integer here has more than 600 digits"),
        # depth
        (program('{"r": ' + "-" * 400 + "1.0}"), 6, f"nested more than {MAX_DEPTH} deep"),
    ],
)  # fmt: skip
def test_mistake_is_reported_with_its_line(source: str, line: int, sentence: str):
    with pytest.raises(ProgramError, match=rf"^line {line}: .*{sentence}"):
        parse(source)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("", r"must define `reward\(state, action\)` exactly once at top level; found 0"),
        (program().replace("def reward", "def rewards"), r"found 0 such functions \(there are: rewards\)"),
        (program() + program().partition("\n\n")[2], "found 2 such functions"),
        (program().replace("WEIGHTS", "SCALES"), r"one top-level `WEIGHTS = .*found 0"),
        (program() + "\0", "the program is not Python"),
        ('"""\ud800"""\n' + program(), "the program is not Python"),
        (program().replace("):", ")"), r"the program is not Python: line 5: expected ':'"),
        (program() + "#" * MAX_BYTES, f"longer than {MAX_BYTES} bytes"),
        (program('{"r": ' + "(" * 300 + "1.0" + ")" * 300 + "}"), "not Python: line 6: too many nested"),
        # Python 3.11 and 3.12 stop reading here; 3.13 goes on, and the depth is ours to check
        (program('{"r": ' + "+".join(["1.0"] * 6000) + "}"), f"not Python|nested more than {MAX_DEPTH} deep"),
    ],
)  # fmt: skip
def test_text_without_a_program_is_reported(source: str, sentence: str):
    with pytest.raises(ProgramError, match=sentence):
        parse(source)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("jnp.norm", "jnp.linalg.norm"),
        ("jnp.linalg.nrom", "jnp.linalg.norm"),
        ("jnp.sigmoid", "jax.nn.sigmoid"),
        ("jnp.tolerance", "shaping.tolerance"),
        ("shaping.gausian", "shaping.gaussian"),
        ("jax.clamp", "jax.lax.clamp"),
    ],
)
def test_unknown_name_gets_the_similar_one_of_any_module(wrong: str, right: str):
    """The first suggestion is the right one, in whatever module it is."""
    with pytest.raises(ProgramError, match=rf"^line 6: {wrong} is not available.*; did you mean {right}\b"):
        parse(program('{"r": FUNCTION(action)}'.replace("FUNCTION", wrong)))


@pytest.mark.parametrize(
    ("before", "weights", "expected"),
    [
        ("", '{"r": 2 * 3 - 1 / 4, "s": -(10 ** -2)}', {"r": 5.75, "s": -0.01}),
        ("", 'dict(r=1.0, s=+2)', {"r": 1.0, "s": 2.0}),
        ("A, B = 3.0, 4\nR = 'r'\n", '{R: A * B, "s": B // 3}', {"r": 12.0, "s": 1.0}),
        ("import math\nfrom math import sqrt\n", '{"r": math.pi, "s": sqrt(4)}', {"r": np.pi, "s": 2.0}),
        ("G = {'r': 2.0}\nT = [1, 7]\n", '{"r": G["r"], "s": T[1] if True else 0}', {"r": 2.0, "s": 7.0}),
        ("SCALE: float = 2.0\n", '{"r": SCALE, "s": 3}', {"r": 2.0, "s": 3.0}),
    ],
)  # fmt: skip
def test_weights_are_computed_from_numbers_above_them(before: str, weights: str, expected: dict[str, float]):
    source = before + program('{"r": action[0], "s": action[1]}', weights=weights)
    assert parse(source).weights == pytest.approx(expected)
    changed = with_weights(source, {"r": 0.125, "s": 3.0})
    assert parse(changed).weights == {"r": 0.125, "s": 3.0}


@pytest.mark.parametrize("before", ["X = 1.0\nX = 2.0\n", "X = 1.0\nX += 1.0\n", "for X in (1.0, 2.0): pass\n", ""])
def test_weights_from_names_that_change_are_refused(before: str):
    with pytest.raises(ProgramError, match="WEIGHTS must be a literal dict of numbers"):
        parse(before + program(weights='{"r": X}') + "X = 3.0\n" * (not before))


def test_ignored_parts_are_noted():
    source = '__all__ = ["reward"]\n' + statement("print(state)") + "\n\nif __name__ == '__main__':\n    import os\n"
    parsed = parse(source)
    assert parsed.notes == [
        "line 7: print is ignored: the program is traced once, not run at each step",
        "line 11: the block under `if __name__ == ...` is ignored",
    ]
    assert load(parsed).terms == ("r",)


def test_programs_in_several_threads_are_parsed_alike():
    """CPython 3.11 counts the depth of all trees under way together; a collector's callback lets threads change."""
    nested = program('{"r": ' + "(" * 40 + "-" * 40 + "1.0" + ")" * 40 + "}")
    turn = gc.get_threshold()
    gc.callbacks.append(_give_way)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert len({p.description for p in pool.map(parse, [nested] * 400)}) == 1
            assert len(set(pool.map(lambda _: with_weights(nested, {"r": 2.0}), range(200)))) == 1
    finally:
        gc.callbacks.remove(_give_way)
        gc.set_threshold(*turn)


def _give_way(*_: object) -> None:
    time.sleep(0)


def test_terms_have_the_line_that_returns_them():
    parsed = parse(program('{\n"r": action[0],\n"s": 1.0}', weights='{"r": 1.0, "s": 1.0}'))
    assert (parsed.where("r"), parsed.where("s"), parsed.where("t"), parsed.where(1)) == (
        "line 7: ",
        "line 8: ",
        "",
        "",
    )


def test_programs_share_no_definitions(tiny):
    """Each has its own facade: what one defines, the next does not see."""
    load(parse(program(before="SECRET = 3.0")))
    other = load(parse(program('{"r": SECRET}')))
    with pytest.raises(NameError):
        other.reward(None, np.zeros(2))


def without_weights(source: str) -> list[str]:
    """The program's other statements, one by one."""
    return [ast.unparse(n) for n in ast.parse(source).body if not ast.unparse(n).startswith("WEIGHTS")]


@pytest.mark.parametrize(
    "source",
    [
        GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("WEIGHTS = {", "WEIGHTS = {  # most first\n    ").replace("0.5}", "0.5,\n}  # as it was"),
        GOOD.replace("WEIGHTS", "SIGMA = 0.25; WEIGHTS"),
        GOOD.replace("WEIGHTS", 'GREEK = "σσσ"; WEIGHTS').replace("-0.5}", "-0.5}; LAST = 1"),
        GOOD.replace("Stand tall", "Stand\x0ctall\u2028and\x1cwide\u0085"),  # no ends of lines to Python
        "\n".join(line for line in GOOD.splitlines() if "WEIGHTS" not in line)
        + '\nWEIGHTS = {"tall": 1.0, "calm": 2}',
    ],
    ids=["plain", "windows", "several lines", "after another", "between", "odd characters", "last"],
)
def test_with_weights_changes_nothing_else(source: str):
    changed = with_weights(source, {"tall": 0.125, "calm": -3e-05})
    assert parse(changed).weights == {"tall": 0.125, "calm": -3e-05}
    assert without_weights(changed) == without_weights(source)
    assert load(parse(changed)).structure == load(parse(source)).structure
    before, _, after = changed.partition("WEIGHTS = {")
    assert source.startswith(before)
    assert source.endswith(after.partition("}")[2])


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.floats(-1e6, 1e6), min_size=1, max_size=4
    )
)
@settings(max_examples=50, deadline=None)
def test_with_weights_writes_any_weights(weights: dict[str, float]):
    """To six digits: a person is to read them."""
    changed = parse(with_weights(GOOD, weights)).weights
    assert list(changed) == list(weights)
    np.testing.assert_allclose(list(changed.values()), list(weights.values()), rtol=1e-5)


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_ends_in_a_program_or_a_program_error(text: str):
    for source in (text, program(f'{{"r": {text}}}'), program(weights=text), program(before=text)):
        with contextlib.suppress(ProgramError):
            parse(source)


def test_long_chain_of_attributes_is_parsed_soon():
    """32 kB of it took 80 s, outside of every limit."""
    chain = "[" + ",".join(["state.time"] * 2000) + "]" + ".T" * 90
    started = time.process_time()
    parse(program(chain))
    assert time.process_time() - started < 2.0
