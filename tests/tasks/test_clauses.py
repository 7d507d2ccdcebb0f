"""What each clause measures, on motions made by hand: the true quantity, its sign, and whether it is a success."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import pytest
from bodies import BODIES
from mujoco import mjx

import movlr_jax as mj
from movlr_jax.tasks import Task
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words import sentence
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.measure import Goal, Measure
from movlr_jax.types import Step

DT = 0.02  # s
SHADOW = Path(mjx.__file__).parent / "test_data" / "shadow_hand" / "right_hand.xml"


@cache
def made(body: str, words: str) -> Task:
    spec = mujoco.MjSpec.from_string(BODIES[body])
    return mj.simple_task(name="t", model=spec, description=words, start_noise=0.0)


def steps_of(task: Task, postures: np.ndarray) -> Step:
    """Return the steps of a motion through postures [T, nq], with the velocities that it has, without contacts."""
    model, data = task.model, mujoco.MjData(task.model)
    speeds = np.zeros((len(postures), model.nv))
    for i in range(1, len(postures)):
        mujoco.mj_differentiatePos(model, speeds[i], DT, postures[i - 1], postures[i])
    sensors = []
    for qpos, qvel in zip(postures, speeds, strict=True):
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_forward(model, data)
        sensors.append(data.sensordata.copy())
    t, none = len(postures), np.zeros((len(postures), 0))
    return Step(np.arange(t) * DT, postures, speeds, none, np.array(sensors), none)


def motion(task: Task, postures: np.ndarray) -> dict[str, float]:
    assert task.scoring.motion
    measured = task.scoring.motion.measure(Readout(task.layout, steps_of(task, postures)))
    return measured | {"success": float(task.scoring.motion.achieved(measured))}


def term_of(task: Task, clause: Clause, postures: np.ndarray) -> float:
    """Return the mean of the first term of a clause, with its weight, over a motion through postures [T, nq]."""
    (term, *_), steps = clause.measure.terms, steps_of(task, postures)
    expression = Measure("", "", term.expression.replace("shaping.smooth_abs", "jnp.abs"), Goal())
    values = sentence._curve(expression, sentence._moments(Readout(task.layout, steps)), np.asarray(steps.time))
    return term.weight * float(values[1:].mean())


def start(task: Task) -> np.ndarray:
    return task.start(np.random.default_rng(0), 1)[0][0]


def root(task: Task, *, x: object = 0.0, y: object = 0.0, z: object = 0.0, yaw: object = 0.0) -> np.ndarray:
    """Return postures [101, nq] whose free root moves from the start by x, y, z m and turns by yaw rad."""
    qpos = np.repeat(start(task)[None], 101, axis=0)
    for i, moved in enumerate((x, y, z)):
        qpos[:, i] += np.broadcast_to(np.asarray(moved, float), 101)
    half = np.broadcast_to(np.asarray(yaw, float), 101) / 2
    qpos[:, 3:7] = 0.0
    qpos[:, 3], qpos[:, 6] = np.cos(half), np.sin(half)
    return qpos


def joints(task: Task, **angles: float) -> np.ndarray:
    """Return postures [101, nq] in which joints go from the start to these values, and stay for half of the time."""
    qpos = np.repeat(start(task)[None], 101, axis=0)
    for joint, value in angles.items():
        at = int(task.model.joint(joint).qposadr[0])
        qpos[:, at] += np.minimum(RAMP * 2, 1.0) * (value - qpos[0, at])
    return qpos


def slid(task: Task, body: str, *way: float) -> np.ndarray:
    """Return postures [101, nq] in which a loose object moves by `way` [3] m."""
    qpos = np.repeat(start(task)[None], 101, axis=0)
    at = int(task.model.joint(int(task.model.body(body).jntadr[0])).qposadr[0])
    qpos[:, at : at + 3] += np.minimum(RAMP * 2, 1.0)[:, None] * np.array(way)
    return qpos


RAMP = np.linspace(0.0, 1.0, 101)
QUARTER = np.pi / 2


@pytest.mark.parametrize(
    ("words", "moved", "metric", "value", "success"),
    [
        ("turn right by 90 degrees", {"yaw": -QUARTER * RAMP}, "turned_rad", QUARTER, 1),
        ("walk forward 2 m", {"x": 2 * RAMP, "y": 0.2 * RAMP}, "distance_m", 2.0, 1),
        ("walk forward 2 m", {"x": 2 * RAMP, "y": -3.9 * RAMP}, "distance_m", 2.0 - 3.6, 0),
        ("turn right by 90 degrees", {"yaw": QUARTER * RAMP}, "turned_rad", -QUARTER, 0),
        ("turn right by 90 degrees", {"yaw": -2.6 * RAMP}, "turned_rad", 2.6, 0),
        ("spin left twice", {"yaw": 4 * np.pi * RAMP}, "turned_rad", 4 * np.pi, 1),
        ("turn left", {"yaw": 1.5 * RAMP}, "turned_rad", 1.5, 1),
        ("face left", {"yaw": QUARTER * np.minimum(2 * RAMP, 1)}, "heading_error_rad", 0.0, 1),
        ("face left", {"yaw": -QUARTER * np.minimum(2 * RAMP, 1)}, "heading_error_rad", np.pi, 0),
        ("walk forward 2 m", {"x": 3.0 * RAMP}, "distance_m", 3.0, 0),
        ("walk right 1 m", {"y": -1.0 * RAMP}, "distance_m", 1.0, 1),
        ("walk at 1 m/s", {"x": 2.0 * RAMP}, "progress_m_s", 1.0, 1),
        ("walk at 1 m/s", {"x": 1.7 * RAMP}, "progress_m_s", 0.85, 1),
        ("walk at 1 m/s", {"x": 1.5 * RAMP}, "progress_m_s", 0.75, 0),
        ("walk at 1 m/s", {"x": 4.0 * RAMP}, "progress_m_s", 2.0, 0),
        ("walk diagonally forward left", {"x": 2 * RAMP, "y": 2 * RAMP}, "progress_m_s", np.sqrt(2), 1),
        ("stand still", {"x": 0.1 * RAMP}, "drift_error_m", 0.1, 1),
        ("stand still", {"x": np.sin(np.pi * RAMP)}, "drift_error_m", 1.0, 0),
        ("jump", {"z": 0.3 * np.sin(np.pi * RAMP)}, "rise_m", 0.3, 1),
        ("jump", {"z": 0.05 * np.sin(np.pi * RAMP)}, "rise_m", 0.05, 0),
        ("jump by 20 cm", {"z": 0.5 * np.sin(np.pi * RAMP)}, "rise_m", 0.5, 0),
        ("squat by 20 cm twice", {"z": -0.2 * np.sin(2 * np.pi * RAMP) ** 2}, "down_times", 2.0, 1),
        ("squat by 20 cm twice", {"z": -0.2 * np.sin(np.pi * RAMP) ** 2}, "down_times", 1.0, 0),
        ("squat by 20 cm twice", {"z": -0.1 * np.sin(2 * np.pi * RAMP) ** 2}, "down_times", 0.0, 0),
        ("jump three times", {"z": 0.2 * np.sin(3 * np.pi * RAMP) ** 2}, "jumps", 3.0, 1),
        ("jump by 30 cm twice", {"z": 0.2 * np.sin(2 * np.pi * RAMP) ** 2}, "jumps", 0.0, 0),
        ("jump three times", {"z": 0.2 * np.sin(2 * np.pi * RAMP) ** 2}, "jumps", 2.0, 0),
        ("walk forward without turning", {"x": 2 * RAMP, "yaw": 0.1 * RAMP}, "never_turned_rad", 0.1, 1),
        ("walk forward without turning", {"x": 2 * RAMP, "yaw": -RAMP}, "never_turned_rad", 1.0, 0),
        ("walk forward without turning right", {"x": 2 * RAMP, "yaw": -RAMP}, "never_turned_rad", 1.0, 0),
        ("walk forward without turning right", {"x": 2 * RAMP, "yaw": RAMP}, "never_turned_rad", 0.0, 1),
        (
            "walk forward without turning more than 20 degrees",
            {"x": 2 * RAMP, "yaw": 0.3 * RAMP},
            "never_turned_rad",
            0.3,
            1,
        ),
        (
            "walk forward without turning more than 20 degrees",
            {"x": 2 * RAMP, "yaw": -0.4 * RAMP},
            "never_turned_rad",
            0.4,
            0,
        ),
        ("stand still for 1 s", {}, "lasted_s", 2.0, 1),
        ("stand still for 3 s", {}, "lasted_s", 2.0, 0),
        ("walk slowly", {"x": 1.1 * RAMP}, "progress_m_s", 0.55, 1),  # usual are 1.1 m/s
        ("walk slowly", {"x": 2.2 * RAMP}, "progress_m_s", 1.1, 0),
        ("walk forward slowly 1 m", {"x": 1.0 * RAMP}, "pace_m_s", 0.5, 1),
        ("walk forward slowly 1 m", {"x": np.minimum(2.2 * RAMP, 1.0)}, "pace_m_s", 1.1, 0),
        ("walk 1 m at 1 m/s", {"x": 1.0 * RAMP}, "pace_m_s", 0.5, 0),
        ("walk fast", {"x": 2.2 * RAMP}, "progress_m_s", 1.1, 0),
        ("walk fast", {"x": 3.3 * RAMP}, "progress_m_s", 1.65, 1),
        ("turn left in place", {"yaw": 1.5 * RAMP}, "drift_error_m", 0.0, 1),
        ("turn left in place", {"yaw": 1.5 * RAMP, "x": RAMP}, "drift_error_m", 1.0, 0),
        ("walk forward 5 cm", {}, "distance_m", 0.0, 0),
    ],
)
def test_body_measure_of_made_motion(words: str, moved: dict[str, object], metric: str, value: float, success: int):
    task = made("crawler", words)
    found = motion(task, root(task, **moved))  # pyright: ignore
    assert found[metric] == pytest.approx(value, abs=0.03)
    assert found["success"] == success


def test_walk_in_a_circle_is_a_whole_turn_while_going_forward():
    task, angle = made("crawler", "walk in a circle"), 2 * np.pi * RAMP
    radius = 2.2 / (2 * np.pi)
    circle = root(task, x=radius * np.sin(angle), y=radius * (1 - np.cos(angle)), yaw=angle)
    found = motion(task, circle)
    assert found["turned_rad"] == pytest.approx(2 * np.pi, abs=1e-3)
    assert found["progress_m_s"] == pytest.approx(1.1, abs=0.03)
    assert found["success"] == 1
    sideways = root(task, x=radius * np.sin(angle), y=radius * (1 - np.cos(angle)))
    assert motion(task, sideways)["success"] == 0


@pytest.mark.parametrize(
    ("words", "turns", "success"), [("", 1, 1), (" clockwise", 1, 0), (" clockwise", -1, 1), ("", 0.5, 0)]
)
def test_around_an_object_is_an_angle_seen_from_it(words: str, turns: float, success: int):
    """The post is at (2, 1) m: the body begins at 206.6 degrees, seen from there."""
    task, angle = made("rover", f"drive around the post{words}"), turns * 2 * np.pi * RAMP
    begin, far = np.arctan2(-1.0, -2.0), np.hypot(2.0, 1.0)
    found = motion(task, root(task, x=2 + far * np.cos(begin + angle), y=1 + far * np.sin(begin + angle)))
    assert found["around_post_rad"] == pytest.approx(turns * 2 * np.pi * (-1 if words else 1), abs=1e-3)
    assert found["success"] == success


@pytest.mark.parametrize(
    ("words", "metric", "height", "success"),
    [
        ("climb by 1 m", "raised_m", 1.0, 1),
        ("climb by 1 m", "raised_m", 0.5, 0),
        ("descend by 20 cm", "lowered_m", -0.2, 1),
        ("hover at 1 m", "height_m", 0.5, 1),
        ("hover at 1 m", "height_m", 1.0, 0),
    ],
)
def test_flight_measure_of_made_motion(words: str, metric: str, height: float, success: int):
    """The drone begins 0.5 m above the ground."""
    task = made("drone", words)
    found = motion(task, root(task, z=height * np.minimum(2 * RAMP, 1)))
    expected = {"raised_m": height, "lowered_m": -height, "height_m": 0.5 + height}[metric]
    assert (found[metric], found["success"]) == (pytest.approx(expected, abs=1e-5), success)


@pytest.mark.parametrize(
    ("body", "words", "angles", "metric", "value", "success"),
    [
        ("panda", "rotate joint1 by 30 degrees", {"joint1": np.deg2rad(30)}, "joint1_turned_rad", np.deg2rad(30), 1),
        (
            "panda",
            "rotate joint1 by -30 degrees",
            {"joint1": -np.deg2rad(30)},
            "joint1_turned_rad",
            np.deg2rad(30),
            1,
        ),
        (
            "panda",
            "rotate joint1 by 30 degrees",
            {"joint1": -np.deg2rad(30)},
            "joint1_turned_rad",
            -np.deg2rad(30),
            0,
        ),
        ("panda", "move finger_joint1 by 2 cm", {"finger_joint1": 0.02}, "finger_joint1_moved_m", 0.02, 1),
        ("panda", "move finger_joint1", {"finger_joint1": 0.035}, "finger_joint1_moved_m", 0.035, 1),
        ("panda", "move finger_joint1", {"finger_joint1": 0.01}, "finger_joint1_moved_m", 0.01, 0),
        ("arm", "rotate the elbow", {"elbow": -1.0}, "elbow_turned_rad", 1.0, 1),  # it only goes down from 0
        ("arm", "flex the elbow to 90 degrees", {"elbow": -QUARTER}, "elbow_angle_rad", QUARTER, 1),
        ("arm", "flex the elbow to 90 degrees", {"elbow": -2.0}, "elbow_angle_rad", 2.0, 0),
        ("arm", "bend the elbow by 30 degrees", {"elbow": -np.deg2rad(30)}, "elbow_bent_rad", np.deg2rad(30), 1),
        # it takes 1 s, and is within 5 degrees after 42 steps
        ("arm", "bend the elbow by 30 degrees over 1 s", {"elbow": -np.deg2rad(30)}, "took_s", 0.84, 1),
        ("arm", "bend the elbow by 30 degrees over 2 s", {"elbow": -np.deg2rad(30)}, "took_s", 0.84, 0),
        ("arm", "bend the elbow by 30 degrees in 1 s", {"elbow": -np.deg2rad(30)}, "took_s", 0.84, 1),
        ("arm", "bend the elbow by 30 degrees in 0.5 s", {"elbow": -np.deg2rad(30)}, "took_s", 0.84, 0),
        ("arm", "bend the elbow by 30 degrees in 3 s", {"elbow": 0.0}, "took_s", 2.0, 0),
        ("arm", "bend the elbow by 30 degrees", {"elbow": -1.5}, "elbow_bent_rad", 1.5, 0),
        ("person", "bend the right knee", {"right_knee": 0.8, "right_hip": -0.3}, "right_knee_bent_rad", 0.8, 1),
        ("person", "straighten the left knee", {"left_knee": 1.0}, "left_knee_angle_rad", 1.0, 0),
        ("person", "straighten the left knee", {"left_knee": 0.1}, "left_knee_angle_rad", 0.1, 1),
        (
            "person",
            "raise the left arm sideways",
            {"left_shoulder_x": QUARTER},
            "left_arm_direction_error_rad",
            0.0,
            1,
        ),
        ("person", "raise the left arm sideways", {"left_shoulder_x": 0.5}, "left_arm_direction_error_rad", 1.07, 0),
        ("person", "raise the right arm", {"right_shoulder_y": -3.0}, "right_arm_raised_m", 1.0746, 1),
        (
            "person",
            "raise the right arm",
            {"right_shoulder_y": -0.6},
            "right_arm_raised_m",
            0.094,
            0,
        ),  # of 1.08 m: a shrug
        ("person", "raise the right hand", {"right_shoulder_y": -0.6}, "right_hand_raised_m", 0.094, 0),
        ("person", "raise the right arm by 9 cm", {"right_shoulder_y": -0.6}, "right_arm_raised_m", 0.094, 1),
        ("person", "raise the right arm by 5 cm", {"right_shoulder_y": -0.6}, "right_arm_raised_m", 0.094, 0),
        ("person", "lower the right arm", {"right_shoulder_y": -3.0}, "right_arm_lowered_m", -1.0746, 0),
        # forward or to the side; it hangs straight down at the start
        (
            "person",
            "raise the right arm by 45 degrees",
            {"right_shoulder_y": -0.78},
            "right_arm_elevated_rad",
            0.78,
            1,
        ),
        ("person", "raise the left arm by 45 degrees", {"left_shoulder_x": 0.78}, "left_arm_elevated_rad", 0.78, 1),
        ("person", "raise the left arm by 45 degrees", {"left_shoulder_x": 1.4}, "left_arm_elevated_rad", 1.4, 0),
        ("person", "stand on the left leg", {"right_hip": -0.9, "right_knee": 1.2}, "right_foot_raised_m", 0.15, 1),
        ("person", "keep the left arm level", {}, "left_arm_tilt_error_rad", QUARTER, 0),  # it hangs down
        ("person", "keep the left arm level", {"left_shoulder_x": 1.4}, "left_arm_tilt_error_rad", QUARTER - 1.4, 1),
        ("person", "keep the left arm still", {"left_elbow": -0.1}, "left_arm_still_error_rad", 0.1, 1),
        ("person", "do not move the left arm", {"left_elbow": -0.5}, "left_arm_still_error_rad", 0.5, 0),
        ("person", "do not move the left arm", {"right_elbow": -0.5}, "left_arm_still_error_rad", 0.0, 1),
        ("cart", "keep the pole upright", {"hinge": 0.4}, "pole_tilt_error_rad", 0.4, 0),
        (
            "person",
            "raise the left arm forward by 45 degrees",
            {"left_shoulder_y": -np.pi / 4},
            "left_arm_direction_error_rad",
            0.0,
            1,
        ),
        (
            "person",
            "raise the left arm forward by 45 degrees",
            {"left_shoulder_x": np.pi / 4},
            "left_arm_direction_error_rad",
            np.pi / 3,
            0,
        ),
        (
            "person",
            "raise the left arm to the side by 30 degrees",
            {"left_shoulder_x": 0.40},
            "left_arm_direction_error_rad",
            np.pi / 6 - 0.40,
            0,
        ),
    ],
)
def test_part_measure_of_made_motion(
    body: str, words: str, angles: dict[str, float], metric: str, value: float, success: int
):
    task = made(body, words)
    found = motion(task, joints(task, **angles))
    assert found[metric] == pytest.approx(value, abs=0.03)
    assert found["success"] == success


def fingers(base: float, tip: float, but: dict[str, float] | None = None) -> dict[str, float]:
    """Return angles in rad of all fingers of the hand but the thumb, at their base and tip."""
    names = [f"{finger}_{joint}" for finger in ("index", "middle", "ring") for joint in ("base", "tip_joint")]
    return {name: base if "base" in name else tip for name in names} | (but or {})


@pytest.mark.parametrize(
    ("words", "angles", "metric", "value", "success"),
    [
        ("make a fist", fingers(1.3, 1.2), "hand_closed_fraction", 1.25 / QUARTER, 1),
        ("make a fist", fingers(1.3, 0.8), "hand_closed_fraction", 1.05 / QUARTER, 0),
        ("make a fist", fingers(1.3, 1.2, {"index_base": 0.1}), "hand_closed_fraction", 0.65 / QUARTER, 0),
        ("make a fist", {}, "hand_closed_fraction", 0.0, 0),
        ("turn the palm down", {"wrist": 0.2}, "palm_direction_error_rad", 0.2, 1),  # positive angles lower fingers
        ("turn the palm down", {"wrist": 0.6}, "palm_direction_error_rad", 0.6, 0),
        ("turn the palm up", {"wrist": 0.6}, "palm_direction_error_rad", np.pi - 0.6, 0),
        ("turn the palm to the left", {"wrist": 1.0}, "palm_direction_error_rad", QUARTER - 1.0, 0),
        ("open the hand", fingers(0.2, 0.1), "hand_closed_fraction", 0.2 / QUARTER, 1),
        ("open the hand", fingers(0.2, 0.1, {"thumb_base": 1.0}), "hand_closed_fraction", 1.0 / QUARTER, 0),
        ("bend the thumb", {"thumb_base": 0.5, "thumb_tip_joint": 0.5}, "thumb_base_turned_rad", 0.5, 1),
        ("extend the thumb", {"thumb_base": 0.5}, "thumb_closed_fraction", 0.5 / QUARTER, 0),
        (
            "point with the index finger",
            fingers(1.3, 1.3, {"index_base": 0.0, "index_tip_joint": 0.1}),
            "index_finger_closed_fraction",
            0.1 / QUARTER,
            1,
        ),
        ("point with the index finger", fingers(0, 0), "other_fingers_closed_fraction", 0.0, 0),
        ("point with the index finger", fingers(1.3, 1.3), "index_finger_closed_fraction", 1.3 / QUARTER, 0),
    ],
)
def test_hand_measure_of_made_motion(words: str, angles: dict[str, float], metric: str, value: float, success: int):
    """The joints of this hand bend from 0 to 90 degrees: a fist by at least 63, an open hand by at most 18."""
    task = made("hand", words)
    found = motion(task, joints(task, **angles))
    assert (found[metric], found["success"]) == (pytest.approx(value, abs=1e-3), success)


def test_a_hand_that_waves_is_paid_by_its_speed_wherever_it_is():
    """By hand: a hand 0.54 m below its shoulder swings to the side by 0.54 m times the angle."""
    task = made("person", "wave with the left hand")
    assert task.scoring.motion
    (waves,) = (clause for clause in task.scoring.motion.clauses if clause.row is c.waves)
    swing, at = waves["far"] / 0.54 * np.sin(2 * np.pi * c.WAVES_HZ * np.arange(101) * DT), []
    for angle in (np.zeros(101), swing, 0.5 + swing):
        at.append(np.repeat(start(task)[None], 101, axis=0))
        at[-1][:, task.model.joint("left_shoulder_x").qposadr[0]] = angle
    paid = [term_of(task, waves, postures) for postures in at]
    assert paid[1] > paid[0] + 1.0
    assert paid[2] == pytest.approx(paid[1], abs=0.3)


@pytest.mark.parametrize(
    ("words", "body", "toward"),
    [
        ("abduct the left hip by 10 degrees", "toes_l", (0, 1, 0)),
        ("abduct the right hip by 10 degrees", "toes_r", (0, -1, 0)),
        ("adduct the right hip by 10 degrees", "toes_r", (0, 1, 0)),
        ("dorsiflex the left ankle by 10 degrees", "toes_l", (0, 0, 1)),
        ("plantarflex the right ankle by 10 degrees", "toes_r", (0, 0, -1)),
    ],
)
def test_anatomical_words_move_the_foot_that_way(words: str, body: str, toward: tuple[int, ...]):
    """The legs face along x at the start."""
    task = mj.simple_task(name="t", model="myolegs26", description=words, start_noise=0.0)
    assert task.scoring.motion
    (asked,) = (clause for clause in task.scoring.motion.clauses if clause.row is c.joint)
    data, moved = mujoco.MjData(task.model), []
    for angle in (0.0, asked["sign"] * asked["by"]):
        data.qpos[:] = start(task)
        data.joint(asked["name"]).qpos[0] += angle
        mujoco.mj_kinematics(task.model, data)
        moved.append(data.body(body).xpos.copy())
    assert (moved[1] - moved[0]) @ np.array(toward) > 0.01


@pytest.mark.skipif(not SHADOW.exists(), reason="this version of mujoco-mjx has no Shadow Hand")
@pytest.mark.parametrize("angle", [0.3, -0.3])
def test_fingers_spread_where_their_ends_are_farther_apart_than_at_the_start(angle: float):
    """FFJ4 and MFJ4 turn about an axis against that of RFJ4 and LFJ4, so outer fingers go apart or together."""
    task = mj.simple_task(name="t", model=SHADOW, description="spread the fingers", start_noise=0.0)
    outer = {"rh_FFJ4": angle, "rh_MFJ4": angle / 3, "rh_RFJ4": angle / 3, "rh_LFJ4": angle}
    postures, data, gaps = joints(task, **outer), mujoco.MjData(task.model), []
    for qpos in (postures[0], postures[-1]):
        data.qpos[:] = qpos
        mujoco.mj_kinematics(task.model, data)
        ends = np.array([data.body(f"rh_{finger}distal").xpos for finger in ("ff", "mf", "rf", "lf")])
        gaps.append(np.linalg.norm(np.diff(ends, axis=0), axis=1))
    farther, found = float((gaps[1] - gaps[0]).min()), motion(task, postures)
    assert found["right_hand_spread_m"] == pytest.approx(farther, rel=0.3)
    assert found["success"] == (farther > 0.01)
    assert abs(farther) > 0.005


@pytest.mark.parametrize(
    ("words", "left", "right", "value", "success"),
    [
        ("open the gripper", 0.04, 0.035, 0.125, 1),
        ("open the gripper", 0.04, 0.0, 1.0, 0),
        ("close the gripper", 0.004, 0.002, 0.9, 1),
        ("close the gripper", 0.03, 0.0, 0.25, 0),
        ("open the gripper halfway", 0.02, 0.018, 0.55, 1),
        ("close the gripper halfway", 0.04, 0.018, 0.0, 0),
        ("fully open the gripper", 0.04, 0.038, 0.05, 1),
        ("fully open the gripper", 0.04, 0.035, 0.125, 0),
        ("close the gripper all the way", 0.006, 0.0, 0.85, 0),
    ],
)
def test_gripper_measure_of_made_motion(words: str, left: float, right: float, value: float, success: int):
    """Each jaw is closed at 0 and open at 4 cm."""
    task = made("panda", words)
    found = motion(task, joints(task, finger_joint1=left, finger_joint2=right))
    assert (found["gripper_closed_fraction"], found["success"]) == (pytest.approx(value, abs=1e-3), success)


@pytest.mark.parametrize(
    ("words", "axis", "angle", "yaw", "value", "success"),
    [
        ("lean forward by 20 degrees", (0, 1, 0), 20, 0, 20, 1),
        ("lean forward by 20 degrees", (0, 1, 0), -20, 0, -20, 0),
        ("lean forward by 20 degrees", (0, 1, 0), 20, 90, 20, 1),  # forward is where the body faces
        ("lean forward by 20 degrees", (1, 0, 0), 20, 0, 0, 0),
        ("lean to the left", (1, 0, 0), -15, 0, 15, 1),
        ("bow", (0, 1, 0), 30, 0, 30, 1),
        ("bow", (0, 1, 0), 5, 0, 5, 0),
    ],
)
def test_lean_is_measured_against_gravity(
    words: str, axis: tuple[float, ...], angle: float, yaw: float, value: float, success: int
):
    """By hand: to turn about y, which is to the left, tips z towards x, which is ahead; about x, away from y."""
    task = made("person", words)
    turned, tilted, both = np.zeros(4), np.zeros(4), np.zeros(4)
    mujoco.mju_axisAngle2Quat(turned, np.array([0.0, 0.0, 1.0]), np.deg2rad(yaw))
    mujoco.mju_axisAngle2Quat(tilted, np.array(axis, float), np.deg2rad(angle))
    mujoco.mju_mulQuat(both, turned, tilted)
    qpos = np.repeat(start(task)[None], 101, axis=0)
    qpos[1:, 3:7] = both
    found = motion(task, qpos)
    (lean,) = (metric for metric in found if "_lean_" in metric)
    assert (np.rad2deg(found[lean]), found["success"]) == (pytest.approx(value, abs=0.01), success)


@pytest.mark.parametrize(("shoulder", "height", "success"), [(-np.pi, 0.39, 1), (-QUARTER, -0.15, 0)])
def test_hand_above_the_head_is_a_height(shoulder: float, height: float, success: int):
    """By hand: the shoulder is 0.15 m below the middle of the head, of 0.1 m, and the hand 0.54 m from it."""
    task = made("person", "raise the right hand above the head")
    found = motion(task, joints(task, right_shoulder_y=shoulder))
    assert (found["right_hand_above_head_m"], found["success"]) == (pytest.approx(height, abs=1e-3), success)


@pytest.mark.parametrize(("x", "gap", "success"), [(-0.3, 0.053, 1), (-0.41, -0.05, 0)])
def test_nothing_of_the_body_touches_what_it_should_not(x: float, gap: float, success: int):
    """By hand: a ball of 0.1 m comes to the tip of a foot, 0.15 m ahead and up to 0.03 m below its middle."""
    task = made("person", "raise the right arm without touching the red ball")
    qpos = slid(task, "red_ball", x, -0.1, 0.0)
    qpos[:, int(task.model.joint("right_shoulder_y").qposadr[0])] = -3.0 * RAMP
    found = motion(task, qpos)
    assert (found["red_ball_gap_m"], found["success"]) == (pytest.approx(gap, abs=0.015), success)


def test_a_kick_with_a_foot_counts_where_the_foot_met_the_ball():
    """By hand: the ball is 0.6 m ahead, and meets the right foot, or goes on from where it is."""
    task = made("person", "kick the red ball forward with the right foot")
    met = slid(task, "red_ball", 0.5, 0.0, 0.0)
    at = int(task.model.joint(int(task.model.body("red_ball").jntadr[0])).qposadr[0])
    assert motion(task, met)["success"] == 0
    met[30:35, at : at + 2] = 0.255, -0.1  # 5 mm before the tip of the foot, 0.15 m ahead
    assert motion(task, met)["success"] == 1


@pytest.mark.parametrize(("angle", "success"), [(-QUARTER, 1), (QUARTER, 0)])
def test_lying_on_the_back_is_face_up(angle: float, success: int):
    task = made("person", "lie down on your back")
    lying = root(task, z=-0.85 * np.minimum(2 * RAMP, 1))
    lying[:, 3], lying[:, 5] = np.cos(angle * RAMP / 2), np.sin(angle * RAMP / 2)
    lying[50:, 3:7] = np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0
    assert motion(task, lying)["success"] == success


def test_touching_is_a_distance_between_surfaces():
    task = made("person", "touch the red ball with the right foot")
    assert task.scoring.motion
    # by hand: from the middle of the foot it is 0.1 m to its tip, and 0.1 m from there to the middle of the ball
    data = mujoco.MjData(task.model)
    data.qpos[:] = start(task)
    mujoco.mj_forward(task.model, data)
    foot = data.body("right_foot").xipos - data.body("red_ball").xpos
    for gap, success in ((0.02, 1), (0.05, 0)):
        found = motion(task, slid(task, "red_ball", *(foot + (0.2 + gap, 0, 0))))
        assert found["right_foot_to_red_ball_gap_m"] == pytest.approx(gap, abs=1e-3)
        assert found["success"] == success


@pytest.mark.parametrize(
    ("words", "thing", "way", "metric", "value", "success"),
    [
        ("lift the cube by 10 cm", "cube", (0, 0, 0.1), "cube_raised_m", 0.1, 1),
        ("lift the cube by 10 cm", "cube", (0, 0, 0.3), "cube_raised_m", 0.3, 0),
        ("lift the cube by 10 cm", "cube", (0, 0, 0), "cube_raised_m", 0.0, 0),
        ("push the cube to the left", "cube", (0, 0.2, 0), "cube_moved_m", 0.2, 1),
        ("push the cube forward by 10 cm", "cube", (0.1, 0, 0), "cube_moved_m", 0.1, 1),
        ("put the red ball on the cube", "red_ball", (0, 0.3, 0.04), "red_ball_on_cube_error_m", 0.0, 1),
        ("put the cube on the red ball", "red_ball", (0, 0.3, 0.04), "cube_on_red_ball_error_m", 0.1, 0),
        ("put the cube on the table", "cube", (0.15, 0.1, 0), "cube_on_table_error_m", 0.0, 1),
        ("lift the cube 10 cm above the table", "cube", (0.1, 0.2, 0.1), "cube_above_table_error_m", 0.0, 1),
        ("lift the cube 10 cm above the table", "cube", (0, 0, 0), "cube_above_table_error_m", 0.1, 0),
        ("put the cube 10 cm above the table", "cube", (0, 0.5, 0.1), "cube_above_table_error_m", 0.25, 0),
        ("hold the cube above the table", "cube", (0, 0, 0.4), "cube_above_table_error_m", 0.0, 1),
        ("hold the cube above the table", "cube", (0, 0, 0.02), "cube_above_table_error_m", 0.08, 0),
        ("raise the cube 10 cm above the red ball", "cube", (0, -0.3, 0.16), "cube_above_red_ball_error_m", 0.0, 1),
        ("raise the cube 10 cm above the red ball", "cube", (0, 0, 0.16), "cube_above_red_ball_error_m", 0.3, 0),
    ],
)
def test_object_measure_of_made_motion(
    words: str, thing: str, way: tuple[float, ...], metric: str, value: float, success: int
):
    """By hand: the cube is 0.02 m to each side; the ball of 0.03 m is 0.3 m to its right and 0.01 m higher.

    The cube lies on the table, of which the edges are 0.3 m to its left, 0.5 m to its right and 0.1 m behind it. What
    is above the table may be at most 5 cm outside of that.
    """
    task = made("panda", words)
    found = motion(task, slid(task, thing, *way))
    assert found[metric] == pytest.approx(value, abs=0.011)
    assert found["success"] == success


def test_kicked_ball_with_a_body_on_the_ground_is_no_success():
    task = made("person", "kick the red ball")
    kicked = slid(task, "red_ball", 0.5, 0.0, 0.0)
    assert motion(task, kicked)["success"] == 1
    kicked[50:, 2:7] = 0.1, np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0  # it lies there
    fallen = motion(task, kicked)
    assert (fallen["success"], fallen["fell"], fallen["time_to_fall_s"]) == (0, 1, pytest.approx(50 * DT))
    assert task.scoring.motion
    assert task.scoring.motion.verdict(fallen).startswith("fell at 1 s; ")
    assert task.scoring.motion.verdict(fallen).endswith("; not achieved")


def test_steps_in_place_are_counted():
    """By hand: each foot is lifted twice in 2 s: four swings of the difference of their heights, but for the ends."""
    task = made("person", "march in place")
    qpos = np.repeat(start(task)[None], 101, axis=0)
    for joint, share, phase in (
        ("left_hip", -1.0, 0), ("left_knee", 1.5, 0), ("right_hip", -1.0, np.pi), ("right_knee", 1.5, np.pi),
    ):  # fmt: skip
        at = int(task.model.joint(joint).qposadr[0])
        qpos[:, at] = share * np.maximum(np.sin(4 * np.pi * RAMP + phase), 0.0)
    found = motion(task, qpos)
    assert found["steps_hz"] == pytest.approx(2.0, abs=0.51)
    assert found["success"] == 1
    assert motion(task, np.repeat(start(task)[None], 101, axis=0))["success"] == 0


def test_lying_down_is_low_and_no_fall():
    task = made("person", "lie down")
    lying = root(task, z=-0.85 * np.minimum(2 * RAMP, 1))
    found = motion(task, lying)
    assert (found["height_m"], found["success"]) == (pytest.approx(0.11, abs=0.01), 1)
    assert "fell" not in found
    assert motion(task, root(task))["success"] == 0


def test_to_stand_up_counts_after_lying_down():
    """By hand: it begins 0.96 m high and lies below 0.336 m; it stands from 0.864 m, and sits at 0.56 m."""
    task = made("person", "lie down, then stand up")

    def lies_then(up_to: float, tilt: float = 0.0) -> dict[str, float]:
        qpos = root(task, z=np.interp(RAMP, [0, 0.3, 0.6, 1], [0, -0.85, up_to, up_to]))
        qpos[60:, 3], qpos[60:, 5] = np.cos(tilt / 2), np.sin(tilt / 2)
        return motion(task, qpos)

    assert (lies_then(-0.05)["second_height_m"], lies_then(-0.05)["success"]) == (pytest.approx(0.91), 1)
    assert lies_then(-0.4)["success"] == 0
    assert lies_then(-0.05, tilt=0.6)["success"] == 0
    assert motion(task, root(task, z=-0.85 * np.minimum(2 * RAMP, 1)))["success"] == 0


@pytest.mark.parametrize(
    ("words", "body", "high"), [("touch the cube", "left_finger", 0.03), ("touch the die", "", 0)]
)
def test_a_hand_touches_with_what_is_nearest(words: str, body: str, high: float):
    """By hand: a thing 5 mm above the tip of a finger, or of the palm, is touched; one 5 cm above is not."""
    task = made("panda" if body else "hand", words)
    data = mujoco.MjData(task.model)
    data.qpos[:] = start(task)
    mujoco.mj_forward(task.model, data)
    thing, half = words.split()[-1], 0.02 if body else 0.015
    tip = data.body(body).xpos if body else data.body("palm").xpos + (0.04, 0.0, 0.01 + 0.03)  # a ball of 4 cm
    for gap, success in ((0.005, 1), (0.05, 0)):
        there = tip + (0.0, 0.0, high + half + gap) - data.body(thing).xpos
        found = motion(task, slid(task, thing, *there))
        assert (found[f"hand_to_{thing}_gap_m"], found["success"]) == (pytest.approx(gap, abs=1e-3), success)


@pytest.mark.parametrize(("turns", "off", "success"), [(True, 0.0, 1), (False, np.arctan2(2, 3), 0)])
def test_facing_a_place_while_moving_turns_with_the_way_to_it(turns: bool, off: float, success: int):
    """By hand: the tower is 3 m ahead; after 2 m to the left it is 34 degrees to the right."""
    task = made("drone", "fly 2 m to the left while facing the tower")
    yaw = -np.arctan2(2 * RAMP, 3) if turns else 0.0 * RAMP
    found = motion(task, root(task, y=2 * RAMP, yaw=yaw))
    assert (found["heading_error_rad"], found["success"]) == (pytest.approx(off, abs=0.03), success)


def test_after_facing_a_place_forward_is_towards_it():
    """By hand: the post is 2 m ahead and 1 m to the left."""
    task = made("rover", "face the post, then drive forward 1 m")
    halves, yaw = np.maximum(2 * RAMP - 1, 0), np.arctan2(1, 2)
    there = {"yaw": yaw * np.minimum(2 * RAMP, 1), "x": np.cos(yaw) * halves, "y": np.sin(yaw) * halves}
    assert motion(task, root(task, **there))["success"] == 1
    assert motion(task, root(task, **{**there, "x": halves, "y": 0.0}))["second_distance_m"] == pytest.approx(
        np.cos(yaw) - (np.sin(yaw) - 0.3),
        abs=0.01,  # it ends 15 cm farther aside than it may
    )


@pytest.mark.parametrize(
    ("first", "second", "success"),
    [((1, 0), (0, 1), 1), ((0, 1), (1, 0), 0), ((1, 0), (0, 0), 0), ((0, 0), (0, 1), 0)],
)
def test_second_phase_counts_after_the_first(first: tuple[int, int], second: tuple[int, int], success: int):
    """A quarter turn to the left, then 1 m forward, which is +y; each pair says (turns, walks) in its half."""
    task = made("crawler", "turn left by 90 degrees, then walk forward 1 m")
    halves = np.minimum(2 * RAMP, 1), np.maximum(2 * RAMP - 1, 0)
    yaw = sum(turns * half for (turns, _), half in zip((first, second), halves, strict=True))
    y = sum(walks * half for (_, walks), half in zip((first, second), halves, strict=True))
    found = motion(task, root(task, yaw=QUARTER * yaw, y=y))
    assert found["success"] == success
    assert found["parts_done"] == float(first[0] or (second[0] and not second[1]))


@pytest.mark.parametrize(("aside", "success"), [(0.0, 1), (1.0, 0)])
def test_a_way_is_measured_from_where_its_phase_begins(aside: float, success: int):
    task = made("crawler", "walk left 1 m, then walk forward 2 m")
    halves = np.minimum(2 * RAMP, 1), np.maximum(2 * RAMP - 1, 0)
    found = motion(task, root(task, y=halves[0] + aside * halves[1], x=2 * halves[1]))
    assert found["success"] == success
    assert found["second_distance_m"] == pytest.approx(2.0 - max(0.0, aside - 0.3), abs=0.05)


def test_the_rest_of_a_turn_does_not_count_in_the_next_phase():
    """By hand: a quarter turn is a success from 80 degrees, and goes on to 90; then it turns back."""
    task = made("crawler", "turn left by 90 degrees, then turn right by 90 degrees")
    found = motion(task, root(task, yaw=QUARTER * (1 - np.abs(2 * RAMP - 1))))
    assert found["turned_rad"] == pytest.approx(QUARTER, abs=0.02)
    assert found["second_turned_rad"] == pytest.approx(QUARTER, abs=0.02)
    assert found["success"] == 1


def test_what_slowly_gets_better_does_not_delay_the_next_phase():
    """By hand: it has turned by 85 degrees after 1 s, and by 5 degrees more while it walks 1 m."""
    task = made("crawler", "turn left by 90 degrees, then walk forward 1 m")
    halves = np.minimum(2 * RAMP, 1), np.maximum(2 * RAMP - 1, 0)
    found = motion(task, root(task, yaw=np.deg2rad(85 * halves[0] + 5 * halves[1]), y=halves[1]))
    assert (found["second_distance_m"], found["success"]) == (pytest.approx(1.0, abs=0.03), 1)


def test_down_and_up_is_done_when_it_is_up_again():
    task = made("person", "squat and stand up, then raise the right arm")
    qpos = root(task, z=-0.3 * np.sin(np.pi * np.minimum(2 * RAMP, 1)))
    qpos[:, int(task.model.joint("right_shoulder_y").qposadr[0])] = -3.0 * np.maximum(2 * RAMP - 1, 0)
    found = motion(task, qpos)
    assert (found["down_and_up_m"], found["success"]) == (pytest.approx(0.3, abs=0.03), 1)
    qpos[25:, 2] = qpos[25, 2]  # it stays down
    assert motion(task, qpos)["success"] == 0


@pytest.mark.parametrize(
    ("words", "begin", "end", "value", "success"),
    [
        ("hold the right arm up for 1 s", 0.4, 1.6, 1.2, 1),
        ("hold the right arm up for 1 s", 0.4, 0.9, 0.5, 0),
        ("hold the right arm up for 1 s", 0.8, 3.0, 1.2, 1),
        ("hold the right arm up for 1 s, then lower it", 0.2, 1.4, 1.0, 1),
        ("hold the right arm up for 1 s, then lower it", 1.2, 1.9, 0.7, 0),
    ],
)
def test_a_posture_for_some_time_is_held_without_a_break(
    words: str, begin: float, end: float, value: float, success: int
):
    task = made("person", words)
    qpos, time = np.repeat(start(task)[None], 101, axis=0), np.arange(101) * DT
    qpos[:, int(task.model.joint("right_shoulder_y").qposadr[0])] = -3.0 * ((time > begin) & (time < end))
    found = motion(task, qpos)
    assert (found["lasted_s"], found["success"]) == (pytest.approx(value, abs=0.06), success)


def test_there_and_back_ends_where_it_began():
    task = made("crawler", "walk forward 1 m, then walk backward 1 m")
    assert motion(task, root(task, x=1 - np.abs(2 * RAMP - 1)))["success"] == 1
    assert motion(task, root(task, x=-(1 - np.abs(2 * RAMP - 1))))["success"] == 0
    assert motion(task, root(task, x=np.minimum(2 * RAMP, 1)))["success"] == 0


def test_a_body_on_a_rail_keeps_away_from_its_ends_unless_it_should_travel():
    initial = made("cart", "swing up the pole").rewards.initial
    assert '-jnp.square((state.q("slide") - state.initial.q("slide")) / 2)' in initial
    for words in ("move the cart 1 m to the right", "move the slide by 0.5 m"):
        assert "centred" not in made("cart", words).rewards.initial
