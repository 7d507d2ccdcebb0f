"""K reward programs in one function: the same bits as each alone, and broken terms that harm nobody else."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax.rewards.program import RewardProgram, Scorer, guard
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.types import Step

SOURCES = (
    '''"""Stand tall."""

WEIGHTS = {"tall": 10.0, "calm": 0.5}


def reward(state, action):
    return {
        "tall": shaping.gaussian(state.pos("pelvis")[2] - state.goal("height")),
        "calm": -jnp.sum(jnp.square(state.qvel)),
    }
''',
    """WEIGHTS = {"reach": 3.0, "upright": 1.0, "effort": 0.01}


def distance(a, b):
    return jnp.linalg.norm(a - b)


def reward(state, action):
    return {
        "reach": jnp.exp(-5.0 * distance(state.pos("foot"), state.goal("foot_pos"))),
        "upright": state.rot("pelvis")[2, 2] - state.initial.rot("thigh")[2, 2],
        "effort": -jnp.mean(state.muscles**2) - jnp.mean(jnp.abs(action - state.prev_action)),
    }
""",
    """WEIGHTS = {"smooth": 1.0}


def reward(state, action):
    total = 0.0
    for muscle in ("vasti", "rect_fem", "hamstrings"):
        total = total + jnp.tanh(state.length(muscle)) * state.activation(muscle)
    return {"smooth": jax.nn.softplus(total) + state.touch("foot")}
""",
    """WEIGHTS = {"bend": -2.0, "time": 1.0}


def reward(state, action):
    knee = state.q("knee")
    return {"bend": jnp.where(knee > 0, jnp.log1p(jnp.abs(knee)), 0.0), "time": jnp.sin(state.time)}
""",
)
# A term that no number below 0 has a value for, and one that overflows.
BROKEN = """WEIGHTS = {"bad": 1.0, "fine": 1.0}


def reward(state, action):
    return {"bad": jnp.log(state.q("knee")), "fine": state.q("hip")}
"""
K, N, T = 4, 8, 10


def program(source: str) -> RewardProgram:
    return load(parse(source))


def states(layout, shape: tuple[int, ...], seed: int = 0) -> tuple[Step, np.ndarray, Step]:
    """Made-up steps [*shape, ...], actions and first steps [*shape[:-1], ...]: rewards do not mind physics."""
    rng = np.random.default_rng(seed)

    def step(axes: tuple[int, ...]) -> Step:
        def draw(size: str) -> np.ndarray:
            return rng.normal(size=(*axes, layout.sizes[size])).astype(np.float32)

        return Step(
            time=rng.uniform(0, 1, axes).astype(np.float32),
            qpos=draw("nq"),
            qvel=draw("nv"),
            act=np.abs(draw("na")),
            sensors=draw("nsensordata"),
            prev_action=draw("nu"),
        )

    return step(shape), rng.normal(size=(*shape, layout.sizes["nu"])).astype(np.float32), step(shape[:-1])


def part(step: Step, k: slice) -> Step:
    return Step(**{name: value[k] for name, value in vars(step).items()})


@pytest.fixture
def scorer(tiny) -> Scorer:
    return Scorer(tiny.layout, tiny.goals)


def variants(generation: int) -> list[RewardProgram]:
    """Four programs whose code, and not only whose weights, is new in each generation."""
    return [program(s.replace("def reward", f"SHIFT = {generation}.0\n\n\ndef reward")) for s in SOURCES]


def test_together_as_alone_bit_by_bit(tiny, scorer):
    programs: Sequence[RewardProgram] = [program(s) for s in SOURCES]
    steps, actions, initial = states(tiny.layout, (K, N, T))
    together = scorer(programs, steps, actions, initial)
    assert together.totals.shape == (K, N, T)
    assert np.isfinite(together.totals).all()
    for k, one in enumerate(programs):
        only = slice(k, k + 1)
        alone = scorer([one], part(steps, only), actions[only], part(initial, only))
        np.testing.assert_array_equal(together.totals[k], alone.totals[0])
        assert together.nonfinite[k] == alone.nonfinite[0]
        for term in one.terms:
            np.testing.assert_array_equal(together.terms[k][term], alone.terms[0][term])


def test_the_total_is_the_weighted_sum(tiny, scorer):
    """Worked by hand: q = (0, 0.5, 2), actions 1 and 2: 3 * 0.5 - 2 * 2 + 0.25 * (1 + 2) = -1.75."""
    source = (
        'WEIGHTS = {"a": 3.0, "b": -2.0, "c": 0.25}\n'
        "def reward(state, action):\n"
        '    return {"c": action[0] + action[1], "a": state.q("hip"), "b": state.q("knee")}\n'
    )
    steps, actions, initial = states(tiny.layout, (1, 1, 1))
    steps.qpos[0, 0, 0] = (0.0, 0.5, 2.0)
    actions[0, 0, 0, :2] = (1.0, 2.0)
    scores = scorer([program(source)], steps, actions, initial)
    assert scores.totals.tolist() == [[[-1.75]]]
    assert {k: v.tolist() for k, v in scores.terms[0].items()} == {"a": [[0.5]], "b": [[2.0]], "c": [[3.0]]}
    assert list(scores.terms[0]) == ["a", "b", "c"]


def test_weights_are_data(tiny, scorer):
    steps, actions, initial = states(tiny.layout, (K, N, T))
    first = scorer([program(s) for s in SOURCES], steps, actions, initial)
    assert scorer.traces == K, "one each"
    changed = [program(s.replace("10.0", "7.5").replace("3.0", "-1.0")) for s in SOURCES]
    second = scorer(changed, steps, actions, initial)
    assert scorer.traces == K
    np.testing.assert_array_equal(first.terms[0]["tall"], second.terms[0]["tall"])
    expected = first.totals[0] - 2.5 * first.terms[0]["tall"]
    np.testing.assert_allclose(second.totals[0], expected, rtol=1e-4, atol=1e-4)
    others = [program(s.replace("-5.0", "-4.0")) for s in SOURCES]
    new = sum(o.structure != p.structure for o, p in zip(others, changed, strict=True))
    assert 0 < new < K
    scorer(others, steps, actions, initial)
    assert scorer.traces == K + new, "other code has to compile, and only that"
    scorer(changed[::-1], steps, actions, initial)
    assert scorer.traces == K + new, "what was compiled is kept"


def test_prepared_programs_are_compiled_for_the_shapes_that_were_seen(tiny, scorer):
    """Twice the same code compiles once; before anything was scored, there is nothing to prepare for."""
    first, *others = variants(1)
    scorer.prepare([first])
    assert scorer.traces == 0
    batches = [states(tiny.layout, (1, N, T)), states(tiny.layout, (1, 1, T + 1))]
    for batch in batches:
        scorer([first], *batch)
    scorer.prepare([first, *others, *others])
    assert scorer.traces == 2 * (1 + len(others))
    for other in others:
        for batch in batches:
            scorer([other], *batch)
    assert scorer.traces == 2 * (1 + len(others))


def test_structures_know_code_from_weights_and_words():
    one = program(SOURCES[0])
    same = ("10.0", "4.0"), ("Stand tall.", "Stand very tall."), ("\n\n\ndef", "\n# a remark\ndef")
    for old, new in same:
        assert program(SOURCES[0].replace(old, new)).structure == one.structure, new
    other = (".goal(", ".initial.goal("), ('"calm": 0.5', '"calms": 0.5'), ("square", "abs")
    for old, new in other:
        assert program(SOURCES[0].replace(old, new)).structure != one.structure, new


def test_a_broken_term_takes_its_worst_value_and_harms_nobody(tiny, scorer):
    steps, actions, initial = states(tiny.layout, (2, N, T))
    programs = [program(BROKEN), program(SOURCES[0])]
    scores = scorer(programs, steps, actions, initial)
    knee = steps.qpos[0, ..., 2]
    assert (knee < 0).any()
    worst = np.log(knee[knee > 0].min())
    np.testing.assert_allclose(
        scores.terms[0]["bad"], np.where(knee > 0, np.log(np.maximum(knee, 1e-9)), worst), rtol=1e-5
    )
    assert scores.nonfinite[0] == {"bad": int((knee < 0).sum()), "fine": 0}
    assert np.isfinite(scores.totals).all()
    one = slice(1, 2)
    alone = scorer([programs[1]], part(steps, one), actions[one], part(initial, one))
    np.testing.assert_array_equal(scores.totals[1], alone.totals[0])
    assert scores.nonfinite[1] == {"tall": 0, "calm": 0}


def test_terms_that_overflow_only_when_weighted(tiny, scorer):
    """3e38 is a float32, 10 times as much is none: totals stay finite and the replacement is counted."""
    source = (
        'WEIGHTS = {"huge": 10.0}\n'
        "def reward(state, action):\n"
        '    return {"huge": jnp.where(state.q("knee") > 0.5, 3e38, state.q("knee"))}\n'
    )
    steps, actions, initial = states(tiny.layout, (1, N, T))
    steps.qpos[..., 2] = 0.25
    steps.qpos[0, 0, 0, 2] = 1.0
    scores = scorer([program(source)], steps, actions, initial)
    np.testing.assert_array_equal(scores.totals, np.full((1, N, T), 2.5))
    assert scores.nonfinite[0] == {"huge": 1}


@pytest.mark.parametrize(
    ("values", "weight", "expected", "count"),
    [
        ([1.0, np.nan, 3.0], 2.0, [1.0, 1.0, 3.0], 1),  # worst is the least where more is better
        ([1.0, np.nan, 3.0], -2.0, [1.0, 3.0, 3.0], 1),  # and the largest where less is better
        ([1.0, np.inf, -np.inf], 1.0, [1.0, 1.0, 1.0], 2),
        ([np.nan, np.nan, np.inf], 1.0, [0.0, 0.0, 0.0], 3),  # nothing to go by
        ([np.nan, 5.0, 4.0], 0.0, [4.0, 5.0, 4.0], 1),
        ([1.0, 2.0, 3.0], 1.0, [1.0, 2.0, 3.0], 0),
    ],
)
@pytest.mark.parametrize("xp", [np, jnp])  # states on the host, and on a device
def test_the_guard_worked_by_hand(xp, values, weight: float, expected, count: int):
    both = [values, [7.0, 8.0, np.nan]]  # the second does not change the first
    value, number = guard(xp, xp.asarray(both, np.float32)[:, :, None], xp.asarray([weight, -1.0], np.float32))
    assert value.dtype == np.float32
    np.testing.assert_array_equal(value[:, :, 0], np.float32([expected, [7.0, 8.0, 8.0]]))
    assert number.tolist() == [count, 1]
