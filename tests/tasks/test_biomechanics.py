"""Measures of how a body moves: a walker of boxes whose steps are known, and energy that C MuJoCo conserves."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from made_gait import DT, WEIGHT, Gait, foot, replaced, walk, walker_of_boxes
from moving import CRAWLER, episode_of

from movlr_jax.biomech.gait import events
from movlr_jax.tasks import Task, simple_task
from movlr_jax.tasks.walking import biomechanics


@pytest.fixture(scope="module")
def task() -> Task:
    return walker_of_boxes()


# Foot strikes.


def strikes(values: list[float], dt: float = 0.1) -> list[int]:
    """Of a foot of a body of 100 N: it lands above 5 N and leaves below 2.5 N."""
    contact = events.in_contact(np.array(values), dt * np.arange(len(values)), 100.0)
    return begins(contact)


def begins(contact: np.ndarray) -> list[int]:
    """Where a contact begins after there was none."""
    return [i for i in range(1, len(contact)) if contact[i] and not contact[i - 1]]


def test_a_strike_is_where_the_force_begins():
    assert strikes([0, 0, 80, 80, 0, 0, 90, 90]) == [2, 6]
    assert strikes([80, 80, 0, 0, 80, 80]) == [4]  # it stood there when the episode began
    assert strikes([0, 0, 0]) == strikes([9, 9, 9]) == []


def test_bounces_are_neither_strikes_nor_swings():
    """Samples of 10 ms: a contact or a swing of 50 ms is a bounce, one of 70 ms is none."""
    assert strikes([0] * 9 + [50] * 5 + [0] * 9, 0.01) == []
    assert strikes([0] * 9 + [50] * 7 + [0] * 9, 0.01) == [9]
    assert strikes([0] * 9 + [50] * 9 + [0] * 5 + [50] * 9, 0.01) == [9]
    assert strikes([0] * 9 + [50] * 9 + [0] * 7 + [50] * 9, 0.01) == [9, 25]
    assert strikes([0] * 9 + [50, 0] * 20 + [50] * 9, 0.01) == [9]


def test_a_foot_that_is_dropped_strikes_when_physics_says(task: Task):
    """0.1 m of free fall take sqrt(2 h / g) = 0.143 s; 400 N land on the plane of C MuJoCo."""
    model, data = task.model, mujoco.MjData(task.model)
    data.qpos[model.joint("left_z").qposadr[0]] = 0.12  # the box is 2 cm thick either way
    data.qpos[model.joint("trunk_z").qposadr[0]] = 100.0
    time, force = [], []
    for _ in range(600):
        mujoco.mj_step(model, data)
        time.append(data.time)
        force.append(data.sensordata[task.layout.touch["left_foot"][0]])
    (strike,) = begins(events.in_contact(np.array(force), np.array(time), 0.5 * 9.81))
    assert time[strike] == pytest.approx(np.sqrt(2 * 0.1 / 9.81), abs=0.003)


# Gait, worked by hand.


@pytest.mark.parametrize("heading", [0.0, -2.4])
def test_a_regular_walk_in_any_direction(task: Task, heading: float):
    """Two steps in a stride of 1 s at 1.2 m/s: 2 Hz, 0.6 m; feet 0.14 m apart, swung 8 cm high."""
    measured = biomechanics.metrics(walk(task, Gait(heading=heading)), task)
    assert measured["cadence_steps_min"] == pytest.approx(60 * 2.0, rel=1e-3)
    assert measured["step_length_m"] == pytest.approx(0.6, abs=2e-3)
    assert measured["step_width_m"] == pytest.approx(0.14, abs=2e-3)
    assert measured["foot_clearance_m"] == pytest.approx(0.08, abs=1e-3)
    assert measured["symmetry"] == pytest.approx(1.0, abs=5e-3)


@pytest.mark.parametrize(
    ("limp", "symmetry"),
    [
        (Gait(strikes=(0.2, 0.9)), 0.6),  # 0.7 s and 0.84 m to the right, 0.3 s and 0.36 m to the left
        (Gait(stands=(0.6, 0.4)), 0.8),  # 1 - 0.2 / 1.0
        (Gait(ahead=(0.0, -0.1)), 1 - 0.2 / 1.2),  # 0.5 m and 0.7 m
        (Gait(strikes=(0.2, 0.2)), 0.0),  # hops
    ],
)
def test_a_limp_is_less_symmetric(task: Task, limp: Gait, symmetry: float):
    assert biomechanics.metrics(walk(task, limp), task)["symmetry"] == pytest.approx(symmetry, abs=0.02)


@pytest.mark.parametrize("landed", [0, 70])
def test_a_dragged_leg_is_not_symmetric(task: Task, landed: int):
    """It stays on the ground from the beginning, or from where it landed once."""
    made = walk(task)
    sensors = np.array(made.steps.sensors)
    sensors[:, task.layout.touch["right_foot"][0]] = WEIGHT / 2 * (np.arange(len(sensors)) >= landed)
    measured = biomechanics.metrics(replaced(made, sensors=sensors), task)
    assert measured["symmetry"] == 0.0
    assert measured["cadence_steps_min"] == pytest.approx(60.0 if landed == 0 else 72.0, rel=1e-3)


@pytest.mark.parametrize(
    ("seconds", "present"),
    [
        (0.9, {"cost_of_transport"}),  # two strikes
        (1.3, {"cost_of_transport", "cadence_steps_min", "step_length_m", "step_width_m"}),
        # four strikes and two swings
        (1.9, {"cost_of_transport", "cadence_steps_min", "step_length_m", "step_width_m",
         "symmetry", "foot_clearance_m"}),
    ],
)  # fmt: skip
def test_measures_that_need_more_steps_are_absent(task: Task, seconds: float, present: set[str]):
    made = walk(task, Gait(seconds=seconds))
    assert set(biomechanics.metrics(made, task)) - {"foot_clearance_m"} == present - {"foot_clearance_m"}


# Work.


def test_work_of_a_muscle_by_hand():
    """100 N over 0.2 m/s for half a second is 10 J where it shortens, and none where it is stretched or slack."""
    time = np.arange(0.0, 0.501, 0.01)
    force = np.tile([-100.0, -100.0, 0.0], (len(time), 1))  # MuJoCo's muscles pull with negative forces
    velocity = np.tile([-0.2, 0.2, -0.2], (len(time), 1))
    assert biomechanics.positive_work(time, force, velocity) == pytest.approx(10.0)
    assert biomechanics.positive_work(time, -force, -velocity) == pytest.approx(10.0)  # a motor that pushes


def test_work_is_the_energy_that_a_muscle_gives(task: Task):
    """A muscle of C MuJoCo lifts a mass: what it does is what the mass gains, potential and kinetic."""
    model = mujoco.MjModel.from_xml_string("""
        <mujoco><option timestep="0.0005" gravity="0 0 -9.81"><flag contact="disable"/></option><worldbody>
          <site name="a" pos="0 0 2"/><body name="load" pos="0 0 1"><joint name="z" type="slide" axis="0 0 1"/>
          <geom size="0.05" mass="3"/><site name="b"/></body></worldbody>
          <tendon><spatial name="rope"><site site="a"/><site site="b"/></spatial></tendon>
          <actuator><muscle name="m" tendon="rope" force="120" lengthrange="0.3 1.4"/></actuator>
          <sensor><actuatorfrc actuator="m"/><actuatorvel actuator="m"/></sensor></mujoco>""")
    data = mujoco.MjData(model)
    data.act[:] = data.ctrl[:] = 0.6
    records = []
    for _ in range(400):
        mujoco.mj_step(model, data)
        records.append([data.time, *data.sensordata])
    time, force, velocity = np.array(records).T
    gained = 3 * 9.81 * data.qpos[0] + 0.5 * 3 * data.qvel[0] ** 2
    assert gained > 1.0
    work = biomechanics.positive_work(time, force[:, None], velocity[:, None])
    assert work == pytest.approx(gained, rel=0.02)


def test_cost_of_transport_by_hand(task: Task):
    """0.1 m/s under 100 N is 10 W; 51 kg at 1.2 m/s are 600.4 W: 0.01666, however long it goes on."""
    made = walk(task)
    sensors = np.array(made.steps.sensors)
    sensors[:, task.layout.blocks["force"]] = -100.0
    sensors[:, task.layout.blocks["velocity"]] = -0.1
    measured = biomechanics.metrics(replaced(made, sensors=sensors), task)
    assert biomechanics.weight_of(task) == pytest.approx(WEIGHT, rel=1e-6)
    assert measured["cost_of_transport"] == pytest.approx(10.0 / (WEIGHT * 1.2), rel=2e-3)
    assert biomechanics.cost_of_transport(5.0, 10.0, 0.099) is None
    assert biomechanics.cost_of_transport(5.0, 10.0, 2.0) == 0.25


def test_the_way_of_a_turn_is_longer_than_its_chord():
    """4 m east, then 3 m north at 1 m/s: 7 m, not 5; a sway of 2 cm once a second adds nothing."""
    time = np.arange(0.0, 7.0001, 0.01)
    east, north = np.minimum(time, 4.0), np.maximum(time - 4.0, 0.0)
    com = np.stack([east, north + 0.02 * np.sin(2 * np.pi * time), 0 * time], axis=-1)
    assert biomechanics.travelled(time, com) == pytest.approx(7.0, abs=0.02)


# Series.


def test_series_say_what_their_names_say(task: Task):
    made = walk(task)
    curves = biomechanics.series(made, task)
    assert all(values.shape == (len(made.actions),) for values in curves.values())
    np.testing.assert_allclose(curves["effort"], 0.25)
    np.testing.assert_allclose(curves["pelvis_height_m"], 1.0, atol=1e-6)
    _, stands = foot(Gait(), DT * (1 + np.arange(len(made.actions))), 0)
    np.testing.assert_allclose(curves["left_foot_force_n"], WEIGHT * stands, rtol=1e-6)
    assert curves["right_foot_height_m"].max() == pytest.approx(0.08, abs=1e-3)


def test_series_of_a_body_without_feet_tell_height_and_tilt_of_its_trunk():
    crawler = simple_task(name="crawler", model=mujoco.MjSpec.from_string(CRAWLER), description="walk forward")
    raised, turned = np.array(crawler.model.qpos0), np.array(crawler.model.qpos0)
    raised[2] += 0.2
    turned[3:7] = np.cos(0.25), 0.0, np.sin(0.25), 0.0  # by 0.5 rad about y
    curves = biomechanics.series(episode_of(crawler, [crawler.model.qpos0, raised, turned]), crawler)
    np.testing.assert_allclose(curves["trunk_height_m"], [0.45, 0.65, 0.45], atol=1e-6)
    np.testing.assert_allclose(curves["trunk_tilt_since_start_deg"], [0.0, 0.0, np.degrees(0.5)], atol=0.05)
    np.testing.assert_allclose(curves["speed_m_s"], 0.0, atol=1e-6)
