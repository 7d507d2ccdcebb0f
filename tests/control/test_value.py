"""The value at the horizon of a planner: its equations by hand, and a double integrator whose optimum is known."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

pytest.importorskip("brax", reason="the extra ppo is not installed")

import jax
import jax.numpy as jnp
from scipy.linalg import solve_discrete_are

from movlr_jax.config.compose import compose
from movlr_jax.control.build import build_optimizer
from movlr_jax.control.mpc.value import absorbed, plan_costs, targets
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.tasks.simple import simple_task

CART = """<mujoco><option timestep="0.01"/><worldbody><body name="cart"><joint name="x" type="slide" axis="1 0 0"/>
<geom type="sphere" size="0.1" mass="1"/></body></worldbody>
<actuator><motor name="push" joint="x" ctrlrange="-20 20" ctrllimited="true"/></actuator></mujoco>"""
STEP, TIME_S, EFFORT = 0.04, 1.0, 1e-3  # s, s, weight of u^2
G = np.exp(-STEP / TIME_S)


def test_targets_are_worked_out_by_hand():
    rewards, values, ended = jnp.array([1.0, 2.0]), jnp.array([9.0, 5.0, 7.0]), jnp.zeros(2, bool)
    # g = 0.5, lambda = 0: y_t = 0.5 r_t + 0.5 V(s_(t+1))
    np.testing.assert_allclose(targets(rewards, values, ended, 0.5, 0.0), [3.0, 4.5])
    # lambda = 1: y_1 = 0.5 x 2 + 0.5 x 7, y_0 = 0.5 x 1 + 0.5 y_1
    np.testing.assert_allclose(targets(rewards, values, ended, 0.5, 1.0), [2.75, 4.5])
    # lambda = 0.5 mixes 5 and 4.5 half and half
    np.testing.assert_allclose(targets(rewards, values, ended, 0.5, 0.5), [0.5 + 0.5 * 4.75, 4.5])
    # an episode that ended with its first step keeps its reward of 1
    r, over = absorbed(rewards, jnp.array([True, False]))
    np.testing.assert_allclose(targets(r, values, over, 0.5, 0.9), [1.0, 1.0])


def test_costs_are_worked_out_by_hand():
    rewards, value = jnp.array([[1.0, 2.0]]), jnp.array([8.0])
    np.testing.assert_allclose(plan_costs(rewards, value, jnp.zeros((1, 2), bool), 0.5), [-(0.5 + 0.5 + 2.0)])
    np.testing.assert_allclose(
        plan_costs(rewards, value, jnp.array([[False, True]]), 0.5), [-(0.5 + 0.5 + 0.5)]
    )


def optimum() -> tuple[np.ndarray, np.ndarray]:
    """Return P and the gain of the discounted linear quadratic regulator: V* = -(1 - g) s'Ps."""
    a, b = np.array([[1.0, STEP], [0.0, 1.0]]), np.array([[STEP**2 / 2], [STEP]])
    # the reward of a step is that of the state after it
    p = solve_discrete_are(np.sqrt(G) * a, np.sqrt(G) * b, np.diag([1.0, 0.0]), np.array([[EFFORT]]))
    gain = np.linalg.solve(EFFORT + G * b.T @ p @ b, G * b.T @ p @ a)
    return p, gain


def played(use: bool, weights: tuple[float, ...]) -> tuple[np.ndarray, object, list[float]]:
    """Return the returns [K] of an episode from x = 1 m under K rewards, and the planner."""

    def begin(rng, n: int):
        return rng.uniform(-1.5, 1.5, (n, 1)), rng.uniform(-1, 1, (n, 1)), np.zeros((n, 0))

    task = simple_task(
        name="cart",
        model=mujoco.MjSpec.from_string(CART),
        description="bring the cart to the middle",
        goals={"middle": [0.0, 0.0, 0.0]},
        episode_s=4.0,
        start=begin,
    )
    settings = {
        "ctrl_dt": STEP,
        "sim_dt": 0.01,
        "plan_dt": 0.02,
        "horizon_s": 0.12,
        "knots": 2,
        "replan_every": 1,
    }
    learning = {"use": str(use).lower(), "rounds": 3, "starts": 6, "observe": "[qpos,qvel]", "time_s": TIME_S}
    words = [f"optimizer.{name}={value}" for name, value in settings.items()]
    words += [f"optimizer.value.{name}={value}" for name, value in learning.items()]
    words = ["+task=bottle_pour", "optimizer=mppi", "tuned=false", *words]
    planner = build_optimizer(compose(words).optimizer, task)

    def reward(weight: float) -> RewardProgram:
        def terms(state, action):
            return {"near": -jnp.square(state.qpos[0]), "effort": -EFFORT * jnp.sum(jnp.square(action))}

        return RewardProgram("", "", {"near": weight, "effort": weight}, terms, "cart")

    programs = [reward(w) for w in weights]
    controllers = planner.optimise(programs, jax.random.key(0))
    k = len(weights)
    start = planner.sim_physics.start(np.full((k, 1), 1.0), np.zeros((k, 1)), np.zeros((k, 0)))
    done = controllers.rollout(start, steps=100, key=jax.random.key(1))
    x, u = np.asarray(done.final.qpos), np.asarray(done.actions)[..., 0]
    costs = (np.square(np.asarray(done.steps.qpos)[..., 0]) + EFFORT * np.square(u)) @ G ** np.arange(100)
    return costs, planner, x[:, 0].tolist()


@pytest.mark.slow
def test_a_double_integrator_is_stopped_whose_horizon_is_too_short():
    """The best discounted cost from x = 1 m at rest is s'Ps; a horizon of 0.12 s does not see what brakes."""
    p, _ = optimum()
    best = p[0, 0]
    blind, _, _ = played(False, (1.0,))
    seeing, planner, _ = played(True, (1.0, 50.0))
    assert blind[0] > 1.7 * best
    assert (seeing < 1.15 * best).all()  # under both rewards, learned at once
    value = planner.value
    states = np.array([[1.0, 0.0], [0.5, -0.5], [-1.0, 0.5], [0.2, 0.2]], np.float32)
    found = np.asarray(value._value(value.learned.slow, value.unit, np.repeat(states[None], 2, axis=0)))
    expected = -(1 - G) * np.einsum("ni,ij,nj->n", states, p, states)
    assert np.corrcoef(found[0], expected)[0, 1] > 0.9
    np.testing.assert_allclose(found[1] / 50.0, found[0], atol=0.3 * np.abs(found[0]).max())
