"""Measures of how a body moves: a walker of boxes whose steps are known, and energy that C MuJoCo conserves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import mujoco
import numpy as np
import pytest

from movlr_jax import evaluation
from movlr_jax.language.metrics import MetricsCritic, MetricsJudge
from movlr_jax.models import ModelAdapter
from movlr_jax.ranking import rank
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.rewards.state import instrument, layout_of
from movlr_jax.tasks import Task, biomechanics
from movlr_jax.tasks.base import joint_limit_fraction, joints_at_limit
from movlr_jax.types import Evaluation, SimState, Step, Trajectory

DT = 0.01  # s
WEIGHT = 51.0 * 9.81  # N: a trunk of 50 kg and two feet of half a kilogram
AXES = {"x": "1 0 0", "y": "0 1 0", "z": "0 0 1"}
SLIDES = "".join(f'<joint name="{{0}}_{axis}" type="slide" axis="{way}"/>' for axis, way in AXES.items())
XML = f"""
<mujoco><option gravity="0 0 -9.81" timestep="0.001"/><worldbody>
  <geom name="floor" type="plane" size="0 0 1" contype="1" conaffinity="1"/>
  <body name="walker">
    <body name="trunk" pos="0 0 1">{SLIDES.format("trunk")}<geom size="0.1" mass="50" contype="0" conaffinity="0"/>
      <site name="origin" pos="0 0 0.5"/>
      <body name="weight"><joint name="pull" type="slide" axis="0 0 1" range="-1 1" limited="true"/>
        <geom size="0.05" mass="1e-6" contype="0" conaffinity="0"/><site name="insertion"/></body></body>
    <body name="foot_l" pos="0 0 0">{SLIDES.format("left")}
      <geom type="box" size="0.1 0.04 0.02" mass="0.5" conaffinity="0"/></body>
    <body name="foot_r" pos="0 0 0">{SLIDES.format("right")}
      <geom type="box" size="0.1 0.04 0.02" mass="0.5" conaffinity="0"/></body>
  </body></worldbody>
  <tendon><spatial name="rope"><site site="origin"/><site site="insertion"/></spatial></tendon>
  <actuator><muscle name="muscle" tendon="rope" force="100" lengthrange="0.2 0.8"/></actuator>
</mujoco>"""


def good(metrics: dict[str, float]) -> float:
    return metrics["distance_m"]


@pytest.fixture(scope="module")
def task() -> Task:
    """A walker of boxes: its feet go wherever they are put."""
    adapter = ModelAdapter(
        name="boxes",
        load=lambda: mujoco.MjSpec.from_string(XML),
        root="walker",
        planned_joints=(),
        roles={"pelvis": "trunk", "left_foot": "foot_l", "right_foot": "foot_r"},
        touch={"left_foot": ("foot_l",), "right_foot": ("foot_r",)},
    )
    spec = adapter.load()
    instrument(spec, root=adapter.root, touch=adapter.touch, sites=())
    model = spec.compile()
    return Task(
        name="walk",
        description="walk",
        focus="",
        adapter=adapter,
        model=model,
        layout=layout_of(model, {}),
        goals={},
        episode_s=5.0,
        start=lambda rng, n: (np.zeros((n, model.nq)), np.zeros((n, model.nv)), np.zeros((n, model.na))),
        measure=lambda episode, task: {"success": 1.0, "distance_m": 6.0},
        score=good,
        cameras=(),
        initial_reward="",
        human_reward="",
        diagnose=biomechanics.biomechanical_needs,
        roles=adapter.roles,
    )


@dataclass(frozen=True)
class Gait:
    """A gait whose measures follow from its numbers. Times in s, lengths in m, angles in rad."""

    seconds: float = 6.0
    stride_s: float = 1.0
    speed: float = 1.2
    width: float = 0.14
    lift: float = 0.08  # how high a foot swings
    stands: tuple[float, float] = (0.6, 0.6)  # share of its cycle that each foot is on the ground
    strikes: tuple[float, float] = (0.2, 0.7)  # when each foot lands first
    ahead: tuple[float, float] = (0.0, 0.0)  # where each lands, from below the trunk
    heading: float = 0.0
    climb: float = 0.0  # m up for each m


def foot(gait: Gait, time: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Where a foot is [T, 3] in the frame of the path, and whether it stands [T]."""
    cycle = (time - gait.strikes[side] + 1e-9) / gait.stride_s
    landed = gait.speed * (np.floor(cycle) * gait.stride_s + gait.strikes[side]) + gait.ahead[side]
    phase = np.clip((cycle % 1.0 - gait.stands[side]) / (1 - gait.stands[side]), 0.0, 1.0)
    x = landed + phase * gait.speed * gait.stride_s
    z = gait.climb * x + gait.lift * np.sin(np.pi * phase)
    y = np.full_like(x, gait.width / 2 * (1 if side == 0 else -1))
    return np.stack([x, y, z], axis=-1), phase == 0.0


def walk(task: Task, gait: Gait = Gait()) -> Trajectory:
    """An episode of that gait; where bodies are is C MuJoCo's, the feet carry the weight in turn."""
    model, data = task.model, mujoco.MjData(task.model)
    time = DT * (1 + np.arange(round(gait.seconds / DT)))
    trunk = np.stack([gait.speed * time, 0.02 * np.sin(2 * np.pi * time / gait.stride_s), 0 * time], axis=-1)
    feet, stands = zip(*(foot(gait, time, side) for side in (0, 1)), strict=True)
    c, s = np.cos(gait.heading), np.sin(gait.heading)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    qpos, sensors = np.zeros((len(time), model.nq)), np.zeros((len(time), model.nsensordata), np.float32)
    for name, path in zip(("trunk", "left", "right"), (trunk, *feet), strict=True):
        for axis, values in zip("xyz", (path @ turn.T).T, strict=True):
            qpos[:, model.joint(f"{name}_{axis}").qposadr[0]] = values
    for t, q in enumerate(qpos):
        data.qpos[:] = q
        mujoco.mj_forward(model, data)
        sensors[t] = data.sensordata
    for part, standing in zip(biomechanics.FEET, stands, strict=True):
        sensors[:, task.layout.touch[part][0]] = WEIGHT * standing
    return episode(task, time, qpos, sensors)


def episode(task: Task, time: np.ndarray, qpos: np.ndarray, sensors: np.ndarray) -> Trajectory:
    zeros = np.zeros((len(time), task.model.nu), np.float32)
    step = Step(
        time=time.astype(np.float32),
        qpos=qpos.astype(np.float32),
        qvel=np.zeros((len(time), task.model.nv), np.float32),
        act=np.full((len(time), task.model.na), 0.5, np.float32),
        sensors=sensors.astype(np.float32),
        prev_action=zeros,
    )
    final = SimState(**{k: v[-1] for k, v in vars(step).items()}, diverged=np.False_)
    return Trajectory(steps=step, actions=zeros, diverged=np.False_, final=final)


# Foot strikes.


def strikes(values: list[float], dt: float = 0.1) -> list[int]:
    """Of a foot of a body of 100 N: it lands above 5 N and leaves below 2.5 N."""
    return biomechanics.foot_strikes(np.array(values), dt * np.arange(len(values)), 100.0).tolist()


def test_a_strike_is_where_the_force_begins():
    assert strikes([0, 0, 80, 80, 0, 0, 90, 90]) == [2, 6]
    assert strikes([80, 80, 0, 0, 80, 80]) == [4]  # it stood there when the episode began
    assert strikes([0, 0, 0]) == strikes([9, 9, 9]) == []


def test_a_force_that_trembles_about_one_threshold_is_one_strike():
    assert strikes([0, 3, 4.9, 5.1, 4.9, 3, 5.1, 3, 0, 0]) == [3]
    assert strikes([0, 3, 4.9, 3, 0]) == []
    assert strikes([0, 9, 2.4, 2.4, 9, 9]) == [1, 4]


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
    (strike,) = biomechanics.foot_strikes(np.array(force), np.array(time), 0.5 * 9.81)
    assert time[strike] == pytest.approx(np.sqrt(2 * 0.1 / 9.81), abs=0.003)


# Gait, worked by hand.


@pytest.mark.parametrize("heading", [0.0, np.pi / 2, -2.4])
def test_a_regular_walk_in_any_direction(task: Task, heading: float):
    """Two steps in a stride of 1 s at 1.2 m/s: 2 Hz, 0.6 m; feet 0.14 m apart, swung 8 cm high."""
    measured = biomechanics.metrics(walk(task, Gait(heading=heading)), task)
    assert measured["cadence_hz"] == pytest.approx(2.0, rel=1e-3)
    assert measured["step_length_m"] == pytest.approx(0.6, abs=2e-3)
    assert measured["step_width_m"] == pytest.approx(0.14, abs=2e-3)
    assert measured["foot_clearance_m"] == pytest.approx(0.08, abs=1e-3)
    assert measured["symmetry"] == pytest.approx(1.0, abs=5e-3)


def test_a_quicker_walk(task: Task):
    """Strides of 0.8 s at 0.8 m/s: 2.5 Hz, 0.32 m."""
    quick = Gait(stride_s=0.8, speed=0.8, strikes=(0.1, 0.5), stands=(0.5, 0.5), width=-0.06)
    measured = biomechanics.metrics(walk(task, quick), task)
    assert measured["cadence_hz"] == pytest.approx(2.5, rel=1e-3)
    assert measured["step_length_m"] == pytest.approx(0.32, abs=2e-3)
    assert measured["step_width_m"] == pytest.approx(-0.06, abs=2e-3)  # each foot on the other's side


def test_a_run_is_measured_where_feet_landed(task: Task):
    """A foot has long left the ground when the other lands: the step is from where it was."""
    measured = biomechanics.metrics(walk(task, Gait(stands=(0.3, 0.3))), task)
    assert measured["step_length_m"] == pytest.approx(0.6, abs=2e-3)
    assert measured["symmetry"] == pytest.approx(1.0, abs=5e-3)


def test_a_slope_is_no_clearance(task: Task):
    """Rising 10 cm a metre, a foot that is swung 8 cm over its chord is as high as on the level."""
    measured = biomechanics.metrics(walk(task, Gait(climb=0.1)), task)
    assert measured["foot_clearance_m"] == pytest.approx(0.08, abs=2e-3)


def test_a_foot_whose_toes_stay_down_is_not_lifted(task: Task):
    """The trunk stands in for toes that keep their height, however high the heel goes."""
    dragging = replace(task, roles={**task.roles, "left_toes": "trunk", "right_toes": "trunk"})
    assert biomechanics.metrics(walk(task), dragging)["foot_clearance_m"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("limp", "symmetry"),
    [
        (Gait(strikes=(0.2, 0.9)), 0.6),  # 0.7 s and 0.84 m to the right, 0.3 s and 0.36 m to the left
        (Gait(stands=(0.6, 0.4)), 0.8),  # 1 - 0.2 / 1.0
        (Gait(ahead=(0.0, -0.1)), 1 - 0.2 / 1.2),  # 0.5 m and 0.7 m
        (Gait(ahead=(0.0, -0.6)), 0.0),  # the right foot is only brought beside the left
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
    assert measured["cadence_hz"] == pytest.approx(1.0 if landed == 0 else 6 / 5, rel=1e-3)


def replaced(made: Trajectory, **fields: np.ndarray) -> Trajectory:
    return replace(made, steps=replace(made.steps, **fields))


@pytest.mark.parametrize(
    ("seconds", "present"),
    [
        (0.05, set()),
        (0.9, {"cost_of_transport"}),  # two strikes
        (1.3, {"cost_of_transport", "cadence_hz", "step_length_m", "step_width_m"}),
        (1.9, {"cost_of_transport", "cadence_hz", "step_length_m", "step_width_m", "symmetry", "foot_clearance_m"}),
    ],
)  # fmt: skip
def test_measures_that_need_more_steps_are_absent(task: Task, seconds: float, present: set[str]):
    made = walk(task, Gait(seconds=seconds))
    assert set(biomechanics.metrics(made, task)) - {"foot_clearance_m"} == present - {"foot_clearance_m"}


def test_who_stands_has_no_gait_and_no_cost(task: Task):
    assert biomechanics.metrics(walk(task, Gait(speed=0.0, stands=(0.999, 0.999), lift=0.0)), task) == {}


@pytest.mark.parametrize("speed", [0.0, 0.015])
def test_stepping_in_place_has_a_cadence_but_no_length(task: Task, speed: float):
    measured = biomechanics.metrics(walk(task, Gait(speed=speed)), task)
    assert measured["cadence_hz"] == pytest.approx(2.0, rel=1e-3)
    assert measured["symmetry"] == pytest.approx(1.0, abs=5e-3)
    assert not {"step_length_m", "step_width_m", "cost_of_transport"} & set(measured)


def test_what_has_no_feet_has_no_gait(task: Task):
    blind = replace(task, layout=replace(task.layout, touch={}))
    assert biomechanics.metrics(walk(task), blind) == {}
    assert set(biomechanics.series(walk(task), blind)) == {"effort", "joint_limit_fraction"}


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
@pytest.mark.filterwarnings("error")
def test_an_episode_that_is_no_motion_has_no_measures_that_are_none(task: Task, bad: float):
    made = walk(task)
    sensors = np.array(made.steps.sensors)
    sensors[300:] = bad
    measured = biomechanics.metrics(replaced(made, sensors=sensors), task)
    assert all(np.isfinite(v) for v in measured.values())


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


def test_limits_over_time_add_up(task: Task):
    qpos = np.zeros((4, task.model.nq))
    qpos[:, task.model.joint("pull").qposadr[0]] = [0.0, 0.97, -0.99, 0.0]
    np.testing.assert_array_equal(joints_at_limit(task.model, qpos), [0.0, 1.0, 1.0, 0.0])
    assert joint_limit_fraction(task.model, qpos) == 0.5


def test_a_joint_that_follows_another_has_no_limit_of_its_own():
    """The knee leans on its limit, and the kneecap that it drives with it: half of the joints that move freely."""
    model = mujoco.MjModel.from_xml_string("""
        <mujoco><default><joint range="0 90" limited="true"/></default><worldbody>
          <body><joint name="hip"/><geom size="0.1"/>
            <body><joint name="knee"/><geom size="0.1"/><body><joint name="kneecap"/><geom size="0.1"/></body></body>
          </body></worldbody>
          <equality><joint joint1="kneecap" joint2="knee"/></equality></mujoco>""")
    assert joint_limit_fraction(model, np.array([[np.deg2rad(30), 0.0, 0.0]])) == 0.5


# What is said of it.

SOUND = {
    "success": 1.0,
    "distance_m": 6.0,
    "symmetry": 0.95,
    "cadence_hz": 1.8,
    "step_length_m": 0.6,
    "step_width_m": 0.1,
    "foot_clearance_m": 0.05,
    "joint_limit_fraction": 0.05,
    "effort": 0.02,
    "cost_of_transport": 0.2,
}


def test_a_sound_gait_lacks_nothing():
    assert biomechanics.biomechanical_needs(SOUND) == []
    assert biomechanics.biomechanical_needs({}) == []


@pytest.mark.parametrize(
    ("name", "allowed", "value", "kind", "words"),
    [
        ("symmetry", 0.8, 0.55, "gait", "0.55"),
        ("cadence_hz", 3.0, 4.2, "gait", "4.2"),
        ("foot_clearance_m", 0.02, 0.004, "gait", "0.4 cm"),
        ("step_width_m", 0.0, -0.03, "gait", "cross"),
        ("step_width_m", 0.25, 0.31, "gait", "31 cm"),
        ("joint_limit_fraction", 0.2, 0.34, "economy", "34 %"),
        ("effort", 0.1, 0.2, "economy", "harder"),
        ("cost_of_transport", 1.0, 1.5, "economy", "harder"),
    ],
)
def test_each_limit(name: str, allowed: float, value: float, kind: str, words: str):
    assert biomechanics.biomechanical_needs(SOUND | {name: allowed}) == []
    (need,) = biomechanics.biomechanical_needs(SOUND | {name: value})
    assert need.kind == kind
    assert words in need.problem


# Divergence costs the worst.


def outcome(task: Task, made: Trajectory) -> evaluation.Outcome:
    program = RewardProgram("", "", {"a": 2.0}, lambda state, action: {}, "")
    terms = {"a": np.full(len(made.actions), 0.5, np.float32)}
    return evaluation._outcome(task, program, made, terms, ({"a": 0}, {"a": 0}), {}, DT)


def entry(result: evaluation.Outcome) -> Evaluation:
    return Evaluation(0, 0, "", result.reason, metrics=result.metrics)


def poor(task: Task) -> Task:
    return replace(task, measure=lambda episode, task: {"success": 0.0, "distance_m": -100.0})


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("scheme", ["active", "round_robin"])
def test_a_perfect_episode_that_diverged_is_the_last(task: Task, scheme: str, place: int):
    """Its numbers are those of a simulation that was set back: however good, any that ran is before it."""
    made = walk(task, Gait(seconds=2.0))
    ran = [entry(outcome(poor(task), made)), entry(outcome(poor(task), made))]
    lost = entry(outcome(task, replace(made, diverged=np.True_)))
    entrants = [*ran[:place], lost, *ran[place:]]
    judge = MetricsJudge()
    result = rank(3, lambda pairs: [judge.compare(task, entrants[i], entrants[j]) for i, j in pairs], scheme)
    assert result.order[-1] == place
    assert lost.failed
    assert lost.metrics["distance_m"] == 6.0


def test_a_mark_of_divergence_is_enough_to_lose(task: Task):
    """Where a record tells of divergence and gives no reason, as one of several episodes may."""
    lost = Evaluation(0, 0, "", metrics={"distance_m": 6.0, "diverged_fraction": 0.5})
    ran = Evaluation(0, 1, "", metrics={"distance_m": -100.0, "diverged_fraction": 0.0})
    judge = MetricsJudge()
    assert judge.compare(task, lost, ran).winner == "second"
    assert judge.compare(task, ran, lost).winner == "first"
    assert judge.compare(task, lost, lost).winner == "tie"


def test_a_score_that_is_no_number_loses(task: Task):
    ran, lost = (Evaluation(0, 0, "", metrics={"distance_m": d}) for d in (-100.0, np.nan))
    judge = MetricsJudge()
    assert judge.compare(task, lost, ran).winner == "second"
    assert judge.compare(task, ran, lost).winner == "first"
    assert judge.compare(task, lost, lost).winner == "tie"


def test_measures_that_are_not_finite_are_a_failure(task: Task):
    made = walk(task, Gait(seconds=2.0))
    act = np.array(made.steps.act)
    act[7] = np.nan
    result = outcome(task, replaced(made, act=act))
    assert result.reason
    assert "not finite" in result.reason
    assert result.series["effort"].count(None) == 1
    assert all(np.isfinite(v) for v in result.metrics.values())


def test_an_outcome_carries_the_series_beside_the_terms(task: Task):
    own: Callable = lambda episode, task: {"error_m": np.linspace(0.0, 1.0, len(episode.actions))}  # noqa: E731
    result = outcome(replace(task, series=own), walk(task))
    points = len(result.curve_time)
    assert points == 200
    assert {len(values) for values in result.series.values()} == {points}
    assert result.series["error_m"][-1] == 1.0
    assert len(result.terms["a"]["curve"]) == points
    assert {"effort", "speed_m_s", "left_foot_force_n", "error_m"} <= set(result.series)


def test_the_critic_does_not_ask_for_one_term_twice(task: Task):
    """Two needs that effort serves: the first gets it, the second what else there is."""
    metrics = SOUND | {"joint_limit_fraction": 0.5, "effort": 0.3}
    critique = MetricsCritic().criticise(task, Evaluation(0, 0, "", metrics=metrics))
    assert len(critique.problems) == 2
    assert [a.term for a in critique.advice] == ["effort", "smooth"]
