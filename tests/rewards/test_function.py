"""A reward in a loop of one's own: the numbers are those of MuJoCo's data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from mujoco import mjx

import movlr_jax as mj
from movlr_jax.tasks import Task, simple_task

MODEL = """<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <body name="arm" pos="0 0 1">
      <joint name="shoulder" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/>
      <body name="fore" pos=".3 0 0">
        <joint name="elbow" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/>
        <site name="hand" pos=".3 0 0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder" ctrlrange="-2 2"/><motor joint="elbow" ctrlrange="-2 2"/></actuator>
</mujoco>"""
REWARD = """WEIGHTS = {"reach": 2.0, "low": -1.0, "calm": 0.5, "late": 1.0}

def reward(state, action):
    return {
        "reach": -jnp.linalg.norm(state.site("hand") - state.goal("hand_pos")),
        "low": state.com[2] - state.initial.com[2],
        "calm": -jnp.mean(jnp.square(action - state.prev_action)),
        "late": state.time + state.q("elbow") * state.qd("shoulder"),
    }
"""
GOAL = np.array([0.1, 0.0, 1.4])


@pytest.fixture(scope="module")
def task() -> Task:
    spec = mujoco.MjSpec.from_string(MODEL)
    return simple_task(name="reach", model=spec, description="reach", goals={"hand_pos": GOAL})


@pytest.fixture(scope="module")
def reward(task: Task):
    return mj.load_reward(REWARD, task)


def played(model: mujoco.MjModel, steps: int) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.ctrl[:] = [0.5, -1.0]
    mujoco.mj_step(model, data, steps)
    mujoco.mj_forward(model, data)
    return data


def test_the_terms_are_those_of_the_data_of_mujoco(reward):
    first, data = played(reward.model, 0), played(reward.model, 37)
    total, terms = reward(data, data.ctrl, first, previous=np.array([0.25, 0.0]))
    expected = {
        "reach": -np.linalg.norm(data.site("hand").xpos - GOAL),
        "low": data.subtree_com[1, 2] - first.subtree_com[1, 2],
        "calm": -(0.25**2 + 1.0) / 2,
        "late": data.time + data.joint("elbow").qpos[0] * data.joint("shoulder").qvel[0],
    }
    assert {name: float(value) for name, value in terms.items()} == pytest.approx(expected, rel=1e-5)
    by_hand = 2 * expected["reach"] - expected["low"] + 0.5 * expected["calm"] + expected["late"]
    assert float(total) == pytest.approx(by_hand, rel=1e-5)
    assert float(reward(data, data.ctrl, first)[1]["calm"]) == 0.0


def test_many_simulations_of_mjx_are_rewarded_and_differentiated_at_once(reward):
    """Against one C MuJoCo simulation after another, and against a finite difference."""
    model = mjx.put_model(reward.model)
    first = played(reward.model, 0)
    begun = mjx.put_data(reward.model, first)
    angles = jnp.array([[0.1, 0.2], [0.5, -0.4], [-1.0, 0.3]])

    def of(qpos: jax.Array) -> jax.Array:
        return jax.jit(reward)(mjx.forward(model, begun.replace(qpos=qpos)), begun.ctrl, begun)[0]

    totals, slopes = jax.jit(jax.vmap(jax.value_and_grad(of)))(angles)

    def one(qpos: np.ndarray) -> float:
        data = played(reward.model, 0)
        data.qpos[:] = qpos
        mujoco.mj_forward(reward.model, data)
        return float(reward(data, first.ctrl, first)[0])

    np.testing.assert_allclose(totals, [one(q) for q in angles], rtol=1e-5)
    ahead = [(one(np.float64(q) + [1e-2, 0]) - one(np.float64(q) - [1e-2, 0])) / 2e-2 for q in angles]
    np.testing.assert_allclose(slopes[:, 0], ahead, rtol=1e-2)


def test_a_program_that_is_rejected_is_told(task: Task):
    with pytest.raises(mj.UserError, match="there is no body 'hnd'"):
        mj.load_reward(REWARD.replace('state.site("hand")', 'state.pos("hnd")'), task)
