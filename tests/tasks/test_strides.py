"""How people walk as a recorded motion, and start states in the middle of a stride."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from movlr_jax.biomech.gait.reference import class_of_speed, human_gait
from movlr_jax.biomech.world import lowest
from movlr_jax.config.compose import compose
from movlr_jax.engine.tasks import task_of
from movlr_jax.rewards.state import State, reference_name
from movlr_jax.tasks import Task
from movlr_jax.tasks.walking.biomechanics import leg_coordinates, leg_length
from movlr_jax.tasks.walking.strides import stride_posture, stride_starts
from movlr_jax.tasks.walking.walker import SINK, Walker
from movlr_jax.types import Step

ANGLES = {"hip_flexion": -14.0, "knee_flexion": 0.0, "ankle_dorsiflexion": 0.0}  # and their shift in deg

LEGS = ["+task=flat_walk", "model=ms_human_700_legs", "task.settings.speed_m_s=1.2"]


@pytest.fixture(scope="module")
def walk() -> Task:
    return task_of(compose(["+task=flat_walk", "model=humanoid", "optimizer=mppi", "reference=people"]))


def test_the_legs_follow_people_half_a_stride_apart(walk: Task):
    """Right contact is at phase 0, and the left leg is half a stride late; signs and zeros are the model's."""
    people = human_gait(class_of_speed(float(walk.goals["velocity"][0]), leg_length(walk)))
    frequency = float(walk.goals["stride_frequency"])
    pairs = leg_coordinates(walk.adapter, walk.layout.joints)
    empty = Step(**dict.fromkeys(("qpos", "qvel", "act", "sensors", "prev_action"), np.zeros(0)), time=0.0)
    for phase in (0.0, 0.2, 0.62, 0.9):
        state = State(walk.layout, empty.replace(time=phase / frequency), walk.data, empty)
        for angle, shift in ANGLES.items():
            curve = people.mean(angle) + shift
            for coordinate, late in zip(pairs[angle], (0.5, 0.0), strict=True):
                shown = np.degrees(coordinate.sign * float(state.reference(coordinate.joint)) + coordinate.offset)
                wanted = np.interp((phase + late) % 1.0 * 100, np.linspace(0, 100, 51), curve)
                assert shown == pytest.approx(wanted, abs=0.7)  # the curves do not quite close


def test_both_feet_of_a_person_are_on_the_ground_when_people_s_are():
    """At right contact the lowest points of both feet of the skeleton are level, and the toes behind bend."""
    made = task_of(compose([*LEGS, "reference=people"]))
    model, data = made.model, mujoco.MjData(made.model)
    qpos = np.mean(made.start(np.random.default_rng(0), 16)[0], axis=0)
    for joint in made.layout.references:
        qpos[model.joint(joint).qposadr[0]] = made.reference[reference_name(joint)][0]  # at phase 0
    assert np.degrees(qpos[model.joint("mtp_angle_l").qposadr[0]]) == pytest.approx(-16, abs=5)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    lowest = {}
    for side in ("left", "right"):
        bodies = [model.body(made.adapter.roles[f"{side}_{part}"]).id for part in ("foot", "toes")]
        heights = []
        for g in np.flatnonzero(np.isin(model.geom_bodyid, bodies) & (model.geom_conaffinity > 0)):
            first = model.mesh_vertadr[model.geom_dataid[g]]
            vertices = model.mesh_vert[first : first + model.mesh_vertnum[model.geom_dataid[g]]]
            heights.append((vertices @ data.geom_xmat[g].reshape(3, 3).T + data.geom_xpos[g])[:, 2].min())
        lowest[side] = min(heights)
    assert lowest["right"] - lowest["left"] == pytest.approx(0.0, abs=0.015)


def test_starts_in_a_stride_stand_on_the_ground_and_move_as_the_reference(walk: Task):
    time, qpos, qvel, act = stride_starts(walk, np.random.default_rng(0), 6, noise=0.0)
    model, data = walk.model, mujoco.MjData(walk.model)
    frequency = float(walk.goals["stride_frequency"])
    assert act.shape == (6, model.na)
    for t, q, v in zip(time, qpos, qvel, strict=True):
        assert 1.0 <= t * frequency < 2.0
        data.qpos[:], data.qvel[:] = q, v
        mujoco.mj_forward(model, data)
        depth = [contact.dist for contact in data.contact]
        assert -2e-3 < min(depth) < 0.0
        root = model.body(walk.adapter.root).id
        moving = np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, root, moving, 0)
        np.testing.assert_allclose(moving[3:], walk.goals["velocity"], atol=1e-6)
        for joint in walk.layout.references:
            samples = walk.reference[reference_name(joint)]
            at = np.linspace(0, 1, len(samples))
            place, ends = model.joint(joint), model.joint(joint).range
            here, later = (np.clip(np.interp((t * frequency + d) % 1.0, at, samples), *ends) for d in (0.0, 0.01))
            assert q[place.qposadr[0]] == pytest.approx(here, abs=1e-6)
            assert v[place.dofadr[0]] == pytest.approx((later - here) * frequency / 0.01, abs=1.2)


def test_on_a_slope_legs_and_start_states_follow_it():
    """An ankle is as much higher as the ground, a foot turns with it, and start states climb at its angle."""
    up = task_of(compose(["+task=slope_walk", "model=myolegs", "optimizer=mppi", "reference=people"]))
    flat = task_of(compose(["+task=flat_walk", "model=myolegs", "optimizer=mppi", "reference=people"]))
    slope = float(up.goals["slope"])
    assert slope == pytest.approx(np.tan(np.deg2rad(5.0)), abs=1e-4)
    placed = {}
    for task in (up, flat):
        walker, data = Walker(task.model, task.adapter), mujoco.MjData(task.model)
        for phase in (0.02, 0.25, 0.45, 0.8):  # the right leg lands, stands, pushes, swings
            data.qpos[:] = stride_posture(task, walker, phase)
            mujoco.mj_kinematics(task.model, data)
            ankle, toes = (data.body(task.adapter.role(f"right_{part}")).xpos for part in ("foot", "toes"))
            hip = data.body(task.adapter.role("right_thigh")).xpos
            pitch = np.arctan2((toes - ankle)[2], (toes - ankle)[0])
            placed[task.name, phase] = np.array([*(ankle - hip)[[0, 2]], pitch])
    for phase in (0.02, 0.25, 0.45, 0.8):
        ahead, rise, turn = placed["slope_walk", phase] - placed["flat_walk", phase]
        assert ahead == pytest.approx(0.0, abs=0.03)
        wanted = slope * placed["flat_walk", phase][0]
        # the leg that pushes is almost straight, and cannot reach all the way down
        assert wanted - 0.015 < rise < (0.0 if phase == 0.45 else wanted + 0.015)
        assert np.rad2deg(turn) == pytest.approx(5.0, abs=1.0)
    _, qpos, qvel, _ = stride_starts(up, np.random.default_rng(0), 3, noise=0.0)
    data, root = mujoco.MjData(up.model), up.model.body(up.adapter.root).id
    normal = np.array([-slope, 0.0, 1.0]) / np.hypot(1.0, slope)
    for q, v in zip(qpos, qvel, strict=True):
        data.qpos[:], data.qvel[:] = q, v
        mujoco.mj_forward(up.model, data)
        solid = np.flatnonzero((up.model.geom_conaffinity > 0) & (up.model.geom_bodyid > 0))
        height = min(lowest(up.model, data, int(g), normal) for g in solid)
        assert height == pytest.approx(-SINK, abs=1e-4)
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(up.model, data, mujoco.mjtObj.mjOBJ_BODY, root, velocity, 0)
        assert velocity[5] == pytest.approx(slope * velocity[3], abs=0.05)
