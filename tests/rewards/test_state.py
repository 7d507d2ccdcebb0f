"""What rewards may read: each call against C MuJoCo, and the table that goes into the prompt."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from movlr_jax.errors import ProgramError, UserError
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.state import STATE_CALLS, State, instrument, layout_of, rotation, state_table
from movlr_jax.tasks.readout import Readout
from movlr_jax.types import SimState, Step

ROWS = 6
# A free body, a ball joint and a motor: shapes that the muscle leg does not have.
ODD = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
<body name="box" pos="0 0 0.095"><freejoint name="free"/><geom name="box" type="box" size=".1 .1 .1"/></body>
<body name="arm" pos="1 0 1"><joint name="shoulder" type="ball"/><geom size=".05" pos="0 0 .2"/>
<body name="hand"><joint name="wrist" axis="1 0 0"/><geom size=".05" pos="0 .1 0"/></body></body>
</worldbody><actuator><motor name="push" joint="wrist" ctrlrange="-1 1"/></actuator></mujoco>"""


def read(layout, goals, now: SimState | Step, initial: Step, call):
    """`call(state)` for every row, as rewards are run: inside vmap, in float32."""
    step = now.step if isinstance(now, SimState) else now
    step, initial = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (step, initial))
    goals = jax.tree.map(jnp.asarray, goals)
    return jax.vmap(lambda a, b: call(State(layout, a, goals, b)))(step, initial)


@pytest.fixture(scope="module")
def scene(tiny):
    """(state now, its C data per row, state at the start): states measured exactly where they stand."""
    qpos, qvel, act = tiny.states(ROWS)
    start = tiny.physics.start(*tiny.states(ROWS, seed=9))
    now = tiny.physics.start(qpos, qvel, act).replace(
        time=np.linspace(0.5, 1.0, ROWS), prev_action=act[:, ::-1].astype(np.float32)
    )
    datas = []
    for row in range(ROWS):
        data = mujoco.MjData(tiny.physics.model)
        data.qpos[:], data.qvel[:], data.act[:] = qpos[row], qvel[row], act[row]
        mujoco.mj_forward(tiny.physics.model, data)
        mujoco.mj_subtreeVel(tiny.physics.model, data)
        datas.append(data)
    return now, datas, start


def object_velocity(model, data, name: str) -> np.ndarray:
    """[6] angular, linear, world frame."""
    result = np.zeros(6)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, model.body(name).id, result, 0)
    return result


def foot_force(model, data) -> float:
    total, force = 0.0, np.zeros(6)
    for c in range(data.ncon):
        if model.body("foot").id in model.geom_bodyid[data.contact[c].geom]:
            mujoco.mj_contactForce(model, data, c, force)
            total += force[0]
    return total


# call in the table -> (read from State, read from C: (model, data) -> value)
READ = {
    "state.q(joint)": (lambda s: s.q("knee"), lambda m, d: d.joint("knee").qpos[0]),
    "state.qd(joint)": (lambda s: s.qd("hip"), lambda m, d: d.joint("hip").qvel[0]),
    "state.pos(body)": (lambda s: s.pos("foot"), lambda m, d: d.body("foot").xpos),
    "state.vel(body)": (lambda s: s.vel("shank"), lambda m, d: object_velocity(m, d, "shank")[3:]),
    "state.angvel(body)": (lambda s: s.angvel("shank"), lambda m, d: object_velocity(m, d, "shank")[:3]),
    "state.rot(body)": (lambda s: s.rot("shank"), lambda m, d: d.body("shank").xmat.reshape(3, 3)),
    "state.height(body)": (
        lambda s: s.height("shank"),
        lambda m, d: d.body("shank").xpos[2] - d.geom("floor").xpos[2],
    ),
    "state.com": (lambda s: s.com, lambda m, d: d.subtree_com[m.body("pelvis").id]),
    "state.com_vel": (lambda s: s.com_vel, lambda m, d: d.subtree_linvel[m.body("pelvis").id]),
    "state.capture_point": (
        lambda s: s.capture_point,
        lambda m, d: (
            d.subtree_com[m.body("pelvis").id]
            + d.subtree_linvel[m.body("pelvis").id] * np.sqrt(d.subtree_com[m.body("pelvis").id][2] / 9.81)
        )[:2],
    ),
    "state.activation(muscle)": (lambda s: s.activation("vasti"), lambda m, d: d.act[m.actuator("vasti").actadr[0]]),
    "state.force(muscle)": (lambda s: s.force("vasti"), lambda m, d: -d.actuator("vasti").force[0]),
    "state.length(muscle)": (lambda s: s.length("rect_fem"), lambda m, d: d.actuator("rect_fem").length[0]),
    "state.muscles": (lambda s: s.muscles, lambda m, d: d.act),
    "state.touch(name)": (lambda s: s.touch("foot"), foot_force),
    "state.site(name)": (lambda s: s.site("sole"), lambda m, d: d.site("sole").xpos),
    "state.sensor(name)": (lambda s: s.sensor("knee_angle"), lambda m, d: d.sensor("knee_angle").data[0]),
    "state.qpos": (lambda s: s.qpos, lambda m, d: d.qpos),
    "state.qvel": (lambda s: s.qvel, lambda m, d: d.qvel),
}
ELSEWHERE = {
    "state.time",
    "state.up",  # tests/tasks/test_worlds.py
    "state.gait_phase",
    "state.goal_heading",
    "state.prev_action",
    "state.goal(name)",
    "state.reference(joint)",
    "state.initial",
}


def test_every_call_of_the_table_is_tested():
    assert {call for call, _, _ in state_table()} == set(READ) | ELSEWHERE


@pytest.mark.parametrize("name", READ)
def test_a_call_agrees_with_mujoco(tiny, scene, name: str):
    """In a reward at an instant, and in a measure of a whole episode."""
    now, datas, start = scene
    mine, theirs = READ[name]
    actual = read(tiny.layout, tiny.goals, now, start.step, mine)
    expected = np.array([theirs(tiny.physics.model, data) for data in datas])
    assert actual.dtype == jnp.float32
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, 1e-5, 2e-6 if name != "state.touch(name)" else 1e-3)
    assert np.ptp(expected, axis=0).max() > 0, "the rows do not differ: nothing was compared"
    whole = mine(Readout(tiny.layout, now.step, tiny.goals))
    assert isinstance(whole, np.ndarray)
    np.testing.assert_allclose(whole, actual, 1e-5, 1e-6)


def test_a_measure_can_read_all_that_rewards_can(tiny, scene):
    now, _, _ = scene
    goals = {
        **tiny.goals,
        "stride_frequency": np.float32(0.8),
        "turn_time": np.float32(0.0),
        "heading": np.float32(1.0),
    }
    episode = Readout(layout_of(tiny.model, goals), now.step, goals)
    assert episode.gait_phase.shape == (ROWS, 2)
    assert episode.goal_heading.shape == episode.time.shape == (ROWS,)
    np.testing.assert_array_equal(episode.initial.pos("foot"), episode.pos("foot")[0])
    assert isinstance(episode.initial.q("knee"), np.ndarray)
    for call, sentence in (
        (lambda: episode.q("kne"), "there is no joint 'kne'; did you mean 'knee'?"),
        (lambda: episode.qp, "episode has no 'qp': there is no call 'qp'; did you mean 'qpos'"),
    ):
        with pytest.raises(UserError) as caught:
            call()
        assert str(caught.value).startswith(sentence)
    assert all(name in str(caught.value) for name in STATE_CALLS)


def test_gait_phases_by_hand(tiny, scene):
    """0.8 strides a second: after 0.5 s the left one is at 0.4, after 1 s at 0.8; the right one half a stride off."""
    now, _, start = scene
    goals = {**tiny.goals, "stride_frequency": np.float32(0.8)}
    layout = layout_of(tiny.model, goals)
    at = now.replace(time=np.resize([0.5, 1.0, 1.25], ROWS))
    phases = read(layout, goals, at, start.step, lambda s: s.gait_phase)
    expected = np.resize([[0.4, 0.9], [0.8, 0.3], [0.0, 0.5]], (ROWS, 2))
    np.testing.assert_allclose(np.abs((phases - expected + 0.5) % 1 - 0.5), 0.0, atol=1e-6)
    with pytest.raises(ProgramError, match="this task has no goal 'stride_frequency'"):
        read(tiny.layout, tiny.goals, now, start.step, lambda s: s.gait_phase)


def test_the_heading_of_a_goal_by_hand(tiny, scene):
    """0.9 rad from 2 s on: a third of it after half a second, all after 1.5 s."""
    now, _, start = scene
    goals = {**tiny.goals, "heading": np.float32(0.9), "turn_time": np.float32(2.0)}
    at = now.replace(time=np.resize([1.9, 2.5, 8.0], ROWS))
    asked = read(layout_of(tiny.model, goals), goals, at, start.step, lambda s: s.goal_heading)
    np.testing.assert_allclose(asked, np.resize([0.0, 0.3, 0.9], ROWS), atol=1e-6)
    del goals["turn_time"]
    asked = read(layout_of(tiny.model, goals), goals, at, start.step, lambda s: s.goal_heading)
    np.testing.assert_allclose(asked, np.full(ROWS, 0.9), atol=1e-6, err_msg="without a turn, from the start on")
    with pytest.raises(ProgramError, match="this task has no goal 'heading'"):
        read(tiny.layout, tiny.goals, now, start.step, lambda s: s.goal_heading)


def test_goals_and_the_first_state(tiny, scene):
    now, _, start = scene
    height = read(tiny.layout, tiny.goals, now, start.step, lambda s: s.goal("height"))
    np.testing.assert_array_equal(height, np.full(ROWS, tiny.goals["height"]))
    place = read(tiny.layout, tiny.goals, now, start.step, lambda s: s.goal("foot_pos"))
    np.testing.assert_array_equal(place, np.tile(tiny.goals["foot_pos"], (ROWS, 1)))
    first = read(tiny.layout, tiny.goals, now, start.step, lambda s: s.initial.q("knee"))
    np.testing.assert_array_equal(first, np.float32(start.qpos[:, 2]))
    assert not read(tiny.layout, tiny.goals, now, start.step, lambda s: s.initial.initial.time).any()


@pytest.fixture(scope="module")
def odd():
    spec = mujoco.MjSpec.from_string(ODD)
    instrument(spec, root="arm", touch={"box": ("box",), "both": ("box", "arm")}, sites=())
    model = spec.compile()
    physics = NativePhysics(model, layout_of(model, {}), sim_dt=0.002, ctrl_dt=0.002, threads=1)
    rng = np.random.default_rng(0)
    qpos = np.tile(model.qpos0, (2, 1))
    qpos[:, 7:11] = rng.normal(size=(2, 4))
    qpos[:, 7:11] /= np.linalg.norm(qpos[:, 7:11], axis=1, keepdims=True)
    start = physics.start(qpos, rng.normal(size=(2, model.nv)), np.zeros((2, 0)))
    yield model, physics.layout, start
    physics.close()


def test_free_and_ball_joints(odd):
    _, layout, start = odd
    for call, expected in (
        (lambda s: s.q("free"), start.qpos[:, :7]),
        (lambda s: s.q("shoulder"), start.qpos[:, 7:11]),
        (lambda s: s.q("wrist"), start.qpos[:, 11]),
        (lambda s: s.qd("free"), start.qvel[:, :6]),
        (lambda s: s.qd("shoulder"), start.qvel[:, 6:9]),
        (lambda s: s.qd("wrist"), start.qvel[:, 9]),
    ):
        np.testing.assert_array_equal(read(layout, {}, start, start.step, call), np.float32(expected))


def test_touch_adds_up_the_bodies_of_a_part(odd):
    _, layout, start = odd
    box = read(layout, {}, start, start.step, lambda s: s.touch("box"))
    assert (box > 0).all()
    np.testing.assert_array_equal(read(layout, {}, start, start.step, lambda s: s.touch("both")), box)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda s: s.pos("fot"), "no body 'fot'; did you mean 'foot'"),
        (lambda s: s.q("knee_angle"), "no joint 'knee_angle'; did you mean 'knee'"),
        (lambda s: s.force("Vasti"), "no muscle 'Vasti'; did you mean 'vasti'"),
        (lambda s: s.goal(3), "no goal 3"),
        (lambda s: s.muscle_forces, "state has no 'muscle_forces'.*did you mean.*'muscles'"),
        (lambda s: s.pos("sole"), r"'sole' is a site, not a body; use state.site\('sole'\)"),
        (lambda s: s.site("foot"), r"'foot' is a body, not a site; use state.pos\('foot'\)"),
        (lambda s: s.pos("xyzzy"), "no body 'xyzzy'; there are: pelvis, thigh, shank, foot"),
    ],
)
def test_unknown_names_give_near_matches(tiny, scene, call, sentence: str):
    now, _, start = scene
    with pytest.raises(ProgramError, match=sentence):
        read(tiny.layout, tiny.goals, now, start.step, call)


def test_a_state_cannot_be_written_to(tiny, scene):
    now, _, start = scene
    state = State(tiny.layout, now.step, tiny.goals, start.step)
    with pytest.raises(AttributeError):
        state.com = 1.0
    with pytest.raises(AttributeError):
        state.note = 1.0


def test_the_table_and_the_class_hold_together():
    public = [name for name, _ in inspect.getmembers(State) if not name.startswith("_")]
    assert sorted(STATE_CALLS) == sorted(public)
    rows = state_table()
    assert [row[0].removeprefix("state.").partition("(")[0] for row in rows] == list(STATE_CALLS)
    for name, (call, shape, meaning) in zip(STATE_CALLS, rows, strict=True):
        assert " | " in (inspect.getdoc(inspect.getattr_static(State, name)) or ""), name
        assert shape, call
        assert meaning, call


@given(arrays(np.float64, 4, elements=st.floats(-1, 1)).filter(lambda q: np.linalg.norm(q) > 0.1))
@settings(max_examples=30, deadline=None)
def test_rotation_is_that_of_mujoco(quat: np.ndarray):
    quat = quat / np.linalg.norm(quat)
    expected = np.zeros(9)
    mujoco.mju_quat2Mat(expected, quat)
    np.testing.assert_allclose(rotation(quat), expected.reshape(3, 3), atol=2e-6)
