"""Episodes are played in segments of several control steps; what happens within one has its order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from movlr_jax.control.episode import Loop, episode_ends, episode_of, play
from movlr_jax.physics.base import Physics
from movlr_jax.physics.mjx import MjxPhysics
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.state import instrument, layout_of
from movlr_jax.tasks.base import Course
from movlr_jax.types import Step

XML = """<mujoco><option timestep="0.002"/><worldbody>
<body name="ball"><joint name="z" type="slide" axis="0 0 1"/><geom type="sphere" size=".1" mass="1"/></body>
</worldbody><actuator><motor name="lift" joint="z"/></actuator></mujoco>"""
EXPLODES_S = 0.4  # the control is then so large that MuJoCo gives up
# speeds upwards in m/s, and the control step in which each ball passes -5 cm: after 0.101 s, 0.355 s, 4.08 s
FALLS = {0.0: 6, 1.6: 18, 20.0: None}


def explosive(params: jax.Array, view: Step, key: jax.Array) -> jax.Array:
    return jnp.where(view.time > EXPLODES_S - 1e-4, 1e12, 0.0)[None] * params


def reads(params: jax.Array, view: Step, key: jax.Array) -> jax.Array:
    """As `explosive`, one call of the policy for each control step."""
    return explosive(params, view, key) + 0.0 * view.qpos[0]


def fallen(steps: Step, first: Step) -> np.ndarray:
    return np.asarray(steps.qpos)[..., 0] < -0.05


@pytest.fixture(scope="module", params=["native", "mjx"])
def physics(request: pytest.FixtureRequest) -> Any:
    spec = mujoco.MjSpec.from_string(XML)
    instrument(spec, root="ball", touch={}, sites=[])
    model = spec.compile()
    built = {"native": NativePhysics, "mjx": MjxPhysics}[request.param]
    physics: Physics = built(model, layout_of(model, {}), sim_dt=0.002, ctrl_dt=0.02)
    yield physics
    physics.close()


@pytest.mark.parametrize(("policy", "every"), [(explosive, 25), (reads, 4)])
def test_a_simulation_that_diverges_after_its_fall_has_not_diverged(physics: Physics, policy: Any, every: int):
    rows, speeds = len(FALLS), np.array(list(FALLS))
    start = physics.start(np.zeros((rows, 1)), speeds[:, None], np.zeros((rows, 0)))
    loop = Loop(physics, policy, lambda state, keys: np.ones((rows, 1), np.float32), every, 1)
    task: Any = SimpleNamespace(course=Course(over=fallen))
    made = play(loop, task, start, steps=50, key=jax.random.key(0))
    np.testing.assert_array_equal(made.valid, [20, 20, 20])
    ends = episode_ends(made, start.step, task)
    assert ends[:2].tolist() == [step for step in FALLS.values() if step is not None]
    episodes = [episode_of(made, row, end) for row, end in enumerate(ends)]
    assert [bool(e.diverged) for e in episodes] == [False, False, True]
