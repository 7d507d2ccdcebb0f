"""The robot and its tasks, against C MuJoCo, geometry and hand-built episodes."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from moving import ANY_MOTION
from test_locomotion import base_move, episode_of

from movlr_jax.models import MODELS
from movlr_jax.models.humanoid import FILE as HUMANOID
from movlr_jax.tasks import build_task
from movlr_jax.tasks.robot.humanoid import knee_angle
from movlr_jax.tasks.walking.terrain import landings
from movlr_jax.types import SimState

ROBOT = MODELS["humanoid"]


def built(name: str, **settings):
    return build_task(f"humanoid_{name}", "humanoid", 10.0, {"start_noise": 0.0, "walk": ANY_MOTION, **settings})


@pytest.fixture(scope="module")
def walk():
    return built("walk")


def stood(task, seconds: float, velocity: float = 0.0) -> mujoco.MjData:
    """The robot after `seconds` with its servos at rest, given `velocity` m/s forward at the start."""
    data = mujoco.MjData(task.model)
    data.qpos[:], data.qvel[0] = task.start(np.random.default_rng(0), 1)[0][0], velocity
    for _ in range(round(seconds / task.model.opt.timestep)):
        mujoco.mj_step(task.model, data)
    return data


@pytest.mark.parametrize("velocity", [0.0, -0.2])
def test_it_stands_with_its_servos_at_rest(walk, velocity):
    data = stood(walk, 5.0, velocity)
    start = walk.start(np.random.default_rng(0), 1)[0][0]
    assert data.qpos[2] == pytest.approx(start[2], abs=0.01)
    np.testing.assert_allclose(data.qpos[7:], start[7:], atol=0.02)
    assert np.abs(data.qvel).max() < 0.02
    assert (np.abs(data.actuator_force) < 0.2 * walk.model.actuator_forcerange[:, 1]).all()


def test_the_angle_of_a_knee_is_that_of_its_joint(walk):
    data, model = mujoco.MjData(walk.model), walk.model
    for angle in (0.0, 0.3, 1.2):
        data.joint("left_knee").qpos[0] = angle
        data.qpos[3:7] = [0.9, 0.1, -0.3, 0.2]
        mujoco.mj_kinematics(model, data)
        places = [data.body(b).xpos[None] for b in ("left_thigh", "left_shank", "left_foot")]
        assert knee_angle(*places)[0] == pytest.approx(angle, abs=1e-6)


def moved(task, xyz: np.ndarray, **joints: float) -> list[np.ndarray]:
    """Postures [T] of the start with the pelvis moved by `xyz` [T, 3] m and joints at given angles."""
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    for joint, angle in joints.items():
        qpos[task.model.joint(joint).qposadr[0]] = angle
    return [base_move(task, qpos, ahead=x, left=y, up=z) for x, y, z in xyz]


def test_another_robot_is_a_setting(tmp_path, walk):
    """Links called as robots' makers call them, no head, another file: the same task all the same."""
    text = HUMANOID.read_text()
    for ours, theirs in (("_thigh", "_hip_pitch_link"), ("_shank", "_knee_link"), ("_foot", "_ankle_roll_link")):
        text = text.replace(f't{ours}"', f't{theirs}"')
    text = text.replace('"head"', '"lidar"')
    path = tmp_path / "robot.xml"
    path.write_text(text)
    other = build_task("humanoid_walk", str(path), 10.0, {"start_noise": 0.0})
    assert other.roles["left_thigh"] == "left_hip_pitch_link"
    assert other.roles["right_shank"] == "right_knee_link"
    assert other.roles["head"] == "torso"
    ours, theirs = (task.start(np.random.default_rng(0), 1)[0] for task in (walk, other))
    np.testing.assert_allclose(theirs, ours, atol=1e-6)
    path = np.linspace([0, 0, 0], [10, 0, 0], 21)
    found = [task.scoring.measure(episode_of(task, moved(task, path)), task) for task in (walk, other)]
    assert found[0] == pytest.approx(found[1])


def test_a_level_counts_once_its_landing_is_reached():
    task = built("stairs", level=2)
    ends = landings(2)
    found = []
    for end, up in ((ends[0] - 0.05, 0.0), (ends[0] + 0.05, 0.06), (ends[1] + 0.05, 0.18)):
        path = np.linspace([0, 0, 0], [end, 0, up], 101)
        path[:, 2] = np.interp(path[:, 0], [0, 0.7, *ends], [0, 0, 0.06, 0.18]) + 0.05
        found.append(task.scoring.measure(episode_of(task, moved(task, path)), task))
    assert [m["terrain_level"] for m in found] == [0, 1, 2]
    assert [m["success"] for m in found] == [0, 0, 1]
    scores = [task.scoring.score(m) for m in found]
    assert scores == sorted(scores)


def test_a_turn_is_done_beyond_the_doorway():
    task = built("turn")
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    first = [base_move(task, qpos, ahead=x) for x in np.linspace(0, 2, 50)]
    for end, success in ((1.0, 0), (1.7, 1)):
        second = [base_move(task, qpos, ahead=2.0, left=y, yaw=np.pi / 2) for y in np.linspace(0, end, 50)]
        metrics = task.scoring.measure(episode_of(task, [*first, *second]), task)
        assert metrics["past_door_m"] == pytest.approx(end - 1.2, abs=1e-3)
        assert metrics["fell"] == 0
        assert metrics["success"] == success
    # through the wall beside it
    wall = [base_move(task, qpos, ahead=1.0, left=y) for y in (0.0, 0.6, 1.1)]
    assert task.scoring.measure(episode_of(task, wall), task)["fell"] == 1


def test_pushes_come_again_and_again_any_way():
    task = built("walk", randomise=True, push_m_s=0.4, push_every_s=2.0)
    assert task.course.perturb is not None
    qpos = task.start(np.random.default_rng(0), 1)[0].repeat(3, axis=0)
    qpos[1, 8], qpos[2, 9] = 0.01, 0.01  # rows differ
    interval, pushed = 0.32, []
    for i in range(20):  # 6.4 s
        state = SimState(
            time=np.full(3, i * interval),
            qpos=qpos,
            qvel=np.zeros((3, task.model.nv)),
            act=np.zeros((3, 0)),
            sensors=np.zeros((3, 1)),
            prev_action=np.zeros((3, 12)),
            diverged=np.zeros(3, bool),
        )
        qvel = np.asarray(task.course.perturb(state, interval).qvel)
        if qvel.any():
            pushed.append((i * interval, qvel[:, :3]))
    assert [t <= due < t + interval for (t, _), due in zip(pushed, (2.0, 4.0, 6.0), strict=True)] == [True] * 3
    for _, velocity in pushed:
        np.testing.assert_allclose(np.linalg.norm(velocity, axis=1), 0.4, rtol=1e-6)
        assert len(np.unique(velocity.round(3), axis=0)) == 3
    assert built("walk").course.perturb is None
