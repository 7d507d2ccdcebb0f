"""What a function is found to read, against what changes its values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import Scorer
from movlr_jax.rewards.reads import reads_of
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.types import Step

SIZE = 20


def step(sensors) -> Step:
    zero = jnp.zeros(3)
    return Step(time=jnp.zeros(()), qpos=zero, qvel=zero, act=zero, sensors=sensors, prev_action=zero)


def chosen(s: Step):
    small, large = (lambda: s.sensors[2:4].sum()), (lambda: s.sensors[7] + 0.0 * s.qpos[0])
    return jax.lax.cond(s.qpos[0] > 1.0, small, large)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda s: s.sensors[..., 3], {3}),
        (lambda s: jnp.linalg.norm(s.sensors[..., 4:7]) + s.sensors[-1], {4, 5, 6, SIZE - 1}),
        (lambda s: s.sensors[0:9:4].sum(), {0, 4, 8}),
        (lambda s: jax.jit(lambda x: x[5:7] * 2)(s.sensors), {5, 6}),
        (lambda s: jax.checkpoint(lambda x: x[5] * 2)(s.sensors), {5}),
        (chosen, {2, 3, 7}),
        (lambda s: s.qpos.sum(), set()),
        (lambda s: s.sensors[s.qpos[0].astype(int)], set(range(SIZE))),
        (lambda s: s.sensors, set(range(SIZE))),
        (lambda s: jnp.sum(jnp.square(s.sensors)), set(range(SIZE))),
    ],
)
def test_entries(function, expected):
    found = reads_of(function, step(jnp.zeros(SIZE))).sensors
    assert set(np.flatnonzero(found).tolist()) == expected


PROGRAM = '''"""Read something of each kind."""

WEIGHTS = {"near": 1.0, "calm": 0.5, "load": 0.1}


def reward(state, action):
    return {
        "near": jnp.exp(-jnp.sum(jnp.square(state.pos("foot") - state.initial.pos("foot")))),
        "calm": -jnp.sum(jnp.square(state.com_vel)) - jnp.square(state.length("knee_ext")),
        "load": state.touch("foot"),
    }
'''


def test_a_program_does_not_depend_on_what_it_is_not_found_to_read(tiny):
    """All other values are NaN, and the scores are bitwise the same."""
    text = PROGRAM.replace("knee_ext", next(iter(tiny.layout.muscles))).replace(
        'touch("foot")', f"touch({next(iter(tiny.layout.touch))!r})"
    )
    text = text.replace('pos("foot")', f"pos({list(tiny.layout.bodies)[-1]!r})")
    program, scorer = load(parse(text)), Scorer(tiny.layout, tiny.goals)
    read = scorer.reads([program])
    assert 0 < read.sum() < len(read) / 2
    start = tiny.physics.start(*tiny.states(6))
    policy = lambda params, view, key: params * jnp.mean(tiny.layout.lengths(view.sensors))  # noqa: E731
    controls = np.random.default_rng(0).uniform(0, 1, (6, tiny.model.nu)).astype(np.float32)
    lean = NativePhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01, threads=2)
    scores, rollouts = [], []
    for mask in (None, read):
        rollout = lean.rollout(start, policy, controls, steps=5, key=jax.random.key(0), read=mask)
        parts = (rollout.steps, rollout.actions, start.step)
        scores.append(scorer([program], *jax.tree.map(lambda x: np.asarray(x)[None], parts)))
        rollouts.append(rollout)
    lean.close()
    whole, part = rollouts
    np.testing.assert_array_equal(scores[0].totals, scores[1].totals)
    np.testing.assert_array_equal(whole.final.qpos, part.final.qpos)
    np.testing.assert_array_equal(whole.actions, part.actions)
    controlled = read.copy()  # the lengths, which the policy reads
    first = tiny.layout.blocks["length"]
    controlled[first : first + tiny.model.nu] = True
    np.testing.assert_array_equal(whole.steps.sensors[..., controlled], part.steps.sensors[..., controlled])
    assert np.isnan(part.steps.sensors[..., ~controlled]).all()
    assert np.isfinite(whole.steps.sensors).all()
