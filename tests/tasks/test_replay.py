"""Replays in an environment, with one whose rewards are known."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from movlr_jax.errors import UserError
from movlr_jax.tasks.environments.replay import ActionMap, Environment, matched
from movlr_jax.types import SimState, Step, Trajectory

MODEL = """<mujoco><option timestep="0.01"/><worldbody><geom name="wall" size="1" pos="5 0 0"/>
<body><joint name="hinge"/><geom name="bar" type="capsule" fromto="0 0 0 0 0 1" size="0.1"/></body></worldbody>
<actuator><motor joint="hinge" ctrlrange="-1 1"/></actuator></mujoco>"""


class World:
    """Rewards 1, 2, 3, ... It reports which actions solve it, and ends after the last of them."""

    frame_skip = 2

    def __init__(self, solved: list[bool]):
        self.model = mujoco.MjModel.from_xml_string(MODEL)
        self.data, self.solved, self.count, self.seed = mujoco.MjData(self.model), solved, 0, -1

    def reset(self, seed: int) -> None:
        self.count, self.seed = 0, seed

    def set_state(self, qpos: np.ndarray, qvel: np.ndarray) -> None:
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        report = {"solved": self.solved[self.count - 1], "x_position": 10.0 * self.count}
        return None, float(self.count), self.count == len(self.solved), False, report


def episode(steps: int) -> Trajectory:
    time, none = 0.02 * np.arange(1, steps + 1), np.zeros((steps, 1))
    step = Step(time, none, none, np.zeros((steps, 0)), none, none)
    one = np.ones(1)
    start = SimState(np.zeros(()), one, one, np.zeros(0), one, one, np.zeros((), bool))
    return Trajectory(step, none, np.asarray(steps), start, start=start)


def test_rewards_count_until_the_environment_ends_the_episode():
    played = Environment("World", World([False, True, False]), seed=7)
    metrics = played.measure(episode(5), None)  # pyright: ignore[reportArgumentType]
    assert metrics == {
        "return": 1.0 + 2.0 + 3.0,
        "terminated": 1.0,
        "terminated_s": pytest.approx(0.06),
        "distance_m": 30.0 - 1.0,  # from where the episode began
        "success": 0.0,  # the last action decides
        "solved_fraction": pytest.approx(1 / 3),
    }
    assert played.world.seed == 7


@pytest.mark.parametrize(("count", "success"), [(5, 0.0), (6, 1.0)])
def test_a_success_may_need_more_than_some_actions(count: int, success: float):
    played = Environment("World", World([True] * count + [False] * 10), solved_steps=5)
    assert played.measure(episode(12), None)["success"] == success  # pyright: ignore[reportArgumentType]


def test_a_spec_gets_what_its_environment_has_changed():
    model = mujoco.MjModel.from_xml_string(MODEL)
    model.opt.gravity[2] = -1.0
    model.geom("wall").pos[0] = 3.0
    model.geom("bar").size[0] = 0.2  # which would make the body heavier
    again = matched(mujoco.MjSpec.from_string(MODEL), model, "World").compile()
    assert again.opt.gravity[2] == -1.0
    for array in ("geom_pos", "geom_quat", "geom_size", "body_mass", "body_inertia"):
        np.testing.assert_allclose(getattr(again, array), getattr(model, array), rtol=1e-12, atol=1e-15)


def test_a_change_that_a_spec_cannot_have_is_told():
    model = mujoco.MjModel.from_xml_string(MODEL)
    model.dof_damping[:] = 1.0
    with pytest.raises(UserError, match="env=World changes dof_damping of its model, so it cannot be a task"):
        matched(mujoco.MjSpec.from_string(MODEL), model, "World")


def test_controls_are_turned_into_actions():
    """Of a muscle 1 / (1 + exp(-5 (a - 0.5))), which is 0.5 at 0.5; of a motor 1 + 2 a."""
    given = np.array([[-1.0, -1.0], [1.0, 1.0], [0.5, 0.25]])
    made = np.array([[0.00055277864, -1.0], [0.92414181997, 3.0], [0.5, 1.5]])
    actions = ActionMap.fitted(given, made, ["muscle", "motor"], "World").actions
    np.testing.assert_allclose(actions(np.array([0.5, 2.0])), [0.5, 0.5])
    np.testing.assert_allclose(actions(np.array([[1.0, 9.0], [0.0, -9.0]])), [[1, 1], [-1, -1]], rtol=1e-7)
    made[2] = [0.6, 1.5]
    with pytest.raises(UserError, match="env=World does not make the controls of muscle of its actions alone"):
        ActionMap.fitted(given, made, ["muscle", "motor"], "World")
