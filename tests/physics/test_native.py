"""Native physics against plain MuJoCo, and against itself one row at a time."""

from __future__ import annotations

import threading
from collections import Counter

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from movlr_jax.errors import UserError
from movlr_jax.physics import native
from movlr_jax.physics.native import NativePhysics
from movlr_jax.tasks import simple_task
from movlr_jax.types import SimState, Trajectory

KEY = jax.random.key(0)
STEPS = 12


def play(params, view, key):
    """Open loop: params["ctrl"] [T, nu], by the clock."""
    return params["ctrl"][jnp.round(view.time / 0.01).astype(int)]


def watch(params, view, key):
    """The same controls from a policy that looks at the state, so it must be called at every control step."""
    return play(params, view, key) + 0.0 * view.qpos[0]


def stretch(params, view, key):
    """Feedback from sensors, activations, the control before and a matrix product."""
    lengths = view.sensors[params["length"]]
    drive = params["gain"] @ (lengths - params["rest"]) + 0.1 * view.qvel.sum() + 0.2 * view.act
    return jax.nn.sigmoid(4.0 * drive + 0.5 * view.prev_action)


def controls(tiny, rows: int, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"ctrl": rng.uniform(0, 1, (rows, STEPS, tiny.model.nu)).astype(np.float32)}


def feedback(tiny, rows: int, seed: int = 2) -> dict[str, np.ndarray]:
    rng, nu = np.random.default_rng(seed), tiny.model.nu
    at = tiny.layout.blocks["length"] + np.arange(nu)
    return {
        "length": np.tile(at, (rows, 1)),
        "rest": rng.uniform(0.1, 0.5, (rows, nu)).astype(np.float32),
        "gain": rng.normal(size=(rows, nu, nu)).astype(np.float32),
    }


def step_in_c(
    physics: NativePhysics, start: SimState, row: int, actions: np.ndarray, warm: bool = True
) -> mujoco.MjData:
    """`actions` [T, nu] stepped with mj_step alone.

    mujoco.rollout zeroes the constraint solver's warm start at each call: once per rollout of known controls, once
    per control step of a policy that looks at the state. Within a call it carries over, as in mj_step.
    """
    model = physics.model
    data = mujoco.MjData(model)
    data.time, data.qpos[:], data.qvel[:] = start.time[row], start.qpos[row], start.qvel[row]
    data.act[:] = start.act[row]
    for action in actions:
        if not warm:
            data.qacc_warmstart[:] = 0
        data.ctrl[:] = action
        mujoco.mj_step(model, data, nstep=physics.substeps)
    return data


def rows_of(tree, rows):
    return jax.tree.map(lambda x: np.asarray(x)[rows], tree)


def assert_same(a: Trajectory, b: Trajectory) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(scope="module")
def start(tiny) -> SimState:
    return tiny.physics.start(*tiny.states(8))


def test_a_rollout_is_plain_mujoco_bit_by_bit(tiny, start):
    params = controls(tiny, 8)
    result = tiny.physics.rollout(start, play, params, steps=STEPS, key=KEY)
    np.testing.assert_array_equal(result.actions, params["ctrl"])
    touched = 0
    for row in range(8):
        data = step_in_c(tiny.physics, start, row, params["ctrl"][row])
        np.testing.assert_array_equal(result.final.qpos[row], data.qpos)
        np.testing.assert_array_equal(result.final.qvel[row], data.qvel)
        np.testing.assert_array_equal(result.final.act[row], data.act)
        np.testing.assert_allclose(result.final.time[row], data.time, atol=1e-12)
        touched += data.ncon > 0
    assert touched, "no row touches the floor: contacts were not compared"
    assert not result.diverged.any()
    np.testing.assert_array_equal(result.final.prev_action, params["ctrl"][:, -1])


def test_a_policy_that_looks_at_the_state_has_no_warm_start_at_each_control_step(tiny, start):
    """The test above would not pass whatever the warm start: without it, the bits are others."""
    params = controls(tiny, 8)
    planned = tiny.physics.rollout(start, play, params, steps=STEPS, key=KEY)
    result = tiny.physics.rollout(start, watch, params, steps=STEPS, key=KEY)
    for row in range(8):
        data = step_in_c(tiny.physics, start, row, params["ctrl"][row], warm=False)
        np.testing.assert_array_equal(result.final.qpos[row], data.qpos)
        np.testing.assert_array_equal(result.final.qvel[row], data.qvel)
    assert (planned.final.qpos != result.final.qpos).any()
    np.testing.assert_allclose(planned.final.qpos, result.final.qpos, atol=1e-4)
    np.testing.assert_allclose(planned.steps.time, result.steps.time, atol=1e-6)
    np.testing.assert_allclose(planned.steps.qpos, result.steps.qpos, atol=1e-4)


@pytest.mark.parametrize("substeps", [1, 5])
def test_known_controls_are_stepped_in_calls_of_any_size(tiny, monkeypatch, substeps: int):
    """Calls that hold two rows, or all of them, give the same bits; one and many steps per control step.

    So do results that one thread or two copy, all of them or half of the sensors.
    """
    physics = NativePhysics(tiny.model, tiny.layout, sim_dt=0.01 / substeps, ctrl_dt=0.01, threads=2)
    begin, params = physics.start(*tiny.states(7)), controls(tiny, 7)
    whole = physics.rollout(begin, play, params, steps=STEPS, key=KEY)
    stepped = physics.rollout(begin, watch, params, steps=STEPS, key=KEY)
    monkeypatch.setattr(native, "_BLOCK", 1)
    monkeypatch.setattr(native, "_COPIED", 1)
    assert_same(physics.rollout(begin, play, params, steps=STEPS, key=KEY), whole)
    assert_same(physics.rollout(begin, watch, params, steps=STEPS, key=KEY), stepped)
    read = np.random.default_rng(0).random(tiny.model.nsensordata) < 0.5
    for policy, all_of_them in ((play, whole), (watch, stepped)):
        half = physics.rollout(begin, policy, params, steps=STEPS, key=KEY, read=read)
        np.testing.assert_array_equal(half.steps.sensors[..., read], all_of_them.steps.sensors[..., read])
        assert np.isnan(half.steps.sensors[..., ~read]).all()
    np.testing.assert_allclose(whole.steps.sensors, stepped.steps.sensors, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(whole.steps.qvel, stepped.steps.qvel, atol=1e-3)
    physics.close()


def measured(model: mujoco.MjModel, qpos, qvel, act, ctrl) -> dict[str, np.ndarray]:
    """What State speaks of, straight from mj_forward at one state."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.act[:], data.ctrl[:] = qpos, qvel, act, ctrl
    mujoco.mj_forward(model, data)
    velocities = np.zeros((model.nbody, 6))
    for body in range(1, model.nbody):
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, velocities[body], 0)
    touch, force, foot = 0.0, np.zeros(6), model.body("foot").id
    for c in range(data.ncon):
        if foot in model.geom_bodyid[data.contact[c].geom]:
            mujoco.mj_contactForce(model, data, c, force)
            touch += force[0]
    mujoco.mj_subtreeVel(model, data)
    pelvis = model.body("pelvis").id
    return {
        "pos": data.xpos[1:].ravel(),
        "quat": data.xquat[1:].ravel(),
        "vel": velocities[1:, 3:].ravel(),
        "angvel": velocities[1:, :3].ravel(),
        "length": data.actuator_length,
        "velocity": data.actuator_velocity,
        "force": data.actuator_force,
        "com": data.subtree_com[pelvis],
        "com_vel": data.subtree_linvel[pelvis],
        "touch": np.array([touch]),
        "site": np.concatenate([data.site(s).xpos for s in ("pelvis", "sole")]),
    }


def assert_measured(tiny, sensors, *state) -> dict[str, np.ndarray]:
    """Compare sensors [nsensordata] with what MuJoCo says of a state (qpos, qvel, act, ctrl), which it returns."""
    expected = measured(tiny.physics.model, *state)
    for block, value in expected.items():
        at, close = tiny.layout.blocks[block], 1e-5 if block != "touch" else 0.05
        np.testing.assert_allclose(sensors[at : at + len(value)], value, 1e-5, close, err_msg=block)
    return expected


def test_sensors_belong_to_the_state_beside_them(tiny, start):
    """Trajectory.steps: sensors, qpos, qvel and act are of one instant, the start of the last simulation step."""
    params = controls(tiny, 8)
    result = tiny.physics.rollout(start, play, params, steps=STEPS, key=KEY)
    steps, touches = result.steps, []
    np.testing.assert_allclose(steps.time, np.tile(0.01 * np.arange(1, STEPS + 1) - 0.002, (8, 1)), atol=1e-6)
    for row in range(8):
        for t in (0, 3, STEPS - 1):
            # the state is kept in float32, so the comparison starts from the state that C itself reaches
            data = step_in_c(tiny.physics, start, row, params["ctrl"][row, :t])
            data.ctrl[:] = params["ctrl"][row, t]
            for _ in range(tiny.physics.substeps - 1):
                mujoco.mj_step(tiny.physics.model, data)
            np.testing.assert_array_equal(steps.qpos[row, t], np.float32(data.qpos))
            np.testing.assert_array_equal(steps.qvel[row, t], np.float32(data.qvel))
            np.testing.assert_array_equal(steps.act[row, t], np.float32(data.act))
            told = assert_measured(tiny, steps.sensors[row, t], data.qpos, data.qvel, data.act, data.ctrl)
            touches.append(told["touch"][0])
    assert max(touches) > 100, "the foot never pressed on the floor"
    assert min(touches) == 0


def test_two_rollouts_in_a_row_are_one(tiny, start):
    """Nothing but SimState carries over, the action before among it."""
    params = controls(tiny, 8)
    whole = tiny.physics.rollout(start, watch, params, steps=6, key=KEY)
    first = tiny.physics.rollout(start, watch, params, steps=2, key=KEY)
    second = tiny.physics.rollout(first.final, watch, params, steps=4, key=KEY)
    for name in ("qpos", "qvel", "act", "sensors"):
        np.testing.assert_array_equal(getattr(whole.final, name), getattr(second.final, name))
    np.testing.assert_array_equal(whole.steps.prev_action[:, 0], 0)
    np.testing.assert_array_equal(whole.steps.prev_action[:, 1:], whole.actions[:, :-1])
    np.testing.assert_array_equal(second.steps.prev_action[:, 0], first.actions[:, -1])


def test_a_batch_equals_each_row_alone_bit_by_bit(tiny):
    """K x N = 4 x 3 rows under feedback from sensors; the rows alone are simulated on one thread."""
    one = NativePhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01, threads=1)
    start = tiny.physics.start(*tiny.states(12, seed=5))
    params = feedback(tiny, 12)
    together = tiny.physics.rollout(start, stretch, params, steps=STEPS, key=KEY)
    assert np.ptp(np.asarray(together.actions)) > 0.5, "the feedback does nothing"
    for rows in (slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 12), slice(7, 8)):
        alone = one.rollout(rows_of(start, rows), stretch, rows_of(params, rows), steps=STEPS, key=KEY)
        assert_same(rows_of(together, rows), alone)
    one.close()


@pytest.mark.parametrize(
    ("harm", "substeps", "when"), [("velocity", 1, "later"), ("position", 5, "first step"), ("nan", 5, "later")]
)
def test_a_row_that_explodes_is_marked_and_leaves_the_others_alone(tiny, substeps: int, when: str, harm: str):
    physics = NativePhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.002 * substeps, threads=2)
    qpos, qvel, act = tiny.states(4)
    params = feedback(tiny, 4)
    healthy = physics.start(qpos, qvel, act)
    if when == "later":
        healthy = physics.rollout(healthy, stretch, params, steps=3, key=KEY).final
    ill = jax.tree.map(np.array, healthy)
    where = ill.qvel if harm == "velocity" else ill.qpos
    where[1, 2] = np.nan if harm == "nan" else 1e11  # MuJoCo gives up at 1e10
    expected = physics.rollout(healthy, stretch, params, steps=4, key=KEY)
    result = physics.rollout(ill, stretch, params, steps=4, key=KEY)
    np.testing.assert_array_equal(result.diverged, [False, True, False, False])
    np.testing.assert_array_equal(result.valid, [4, 0, 4, 4])
    assert not expected.diverged.any()
    others = np.array([0, 2, 3])
    assert_same(rows_of(result, others), rows_of(expected, others))
    np.testing.assert_allclose(result.steps.time[1], expected.steps.time[1], atol=1e-6)  # MuJoCo resets its clock
    again = physics.rollout(result.final, stretch, params, steps=2, key=KEY)
    np.testing.assert_array_equal(again.diverged, [False, True, False, False])  # once true, never false again
    physics.close()


def test_a_row_that_explodes_on_the_way_is_marked(tiny, start):
    """A state that MuJoCo accepts, and that runs away from there."""
    ill = jax.tree.map(np.array, start)
    ill.qvel[5] = 3e6
    result = tiny.physics.rollout(ill, play, controls(tiny, 8), steps=STEPS, key=KEY)
    np.testing.assert_array_equal(np.flatnonzero(result.diverged), [5])


def test_a_policy_is_traced_once_per_batch_shape(tiny):
    physics = NativePhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01, threads=2)
    for rows in (3, 5):
        start = physics.start(*tiny.states(rows))
        for generation in range(3):
            physics.rollout(start, stretch, feedback(tiny, rows, seed=generation), steps=2, key=KEY)
    assert dict(physics.traces) == {"policy[3]": 1, "policy[5]": 1}
    assert physics.steps_done == (3 + 5) * (1 + 3 * 2 * 5)  # one to measure the start, five a control step
    physics.close()


@pytest.mark.parametrize("shared", [False, True], ids=["per row", "per candidate"])
def test_a_policy_on_parts_of_a_batch_gives_what_it_gives_on_the_whole(tiny, monkeypatch, shared):
    """Of 22 rows of two candidates, in two parts that take turns; one that candidates share is not divided."""

    def noisy(params, view, key):
        control = stretch(params, view, key) + 0.01 * jax.random.normal(key, (tiny.model.nu,))
        return control, {"drawn": control - 0.5}

    rows, params = 22, feedback(tiny, 2 if shared else 22)
    start, runs = tiny.physics.start(*tiny.states(rows)), []
    for part in (1000, 7):
        monkeypatch.setattr(native, "_PART", part)
        physics = NativePhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01, threads=2)
        runs.append(physics.rollout(start, noisy, params, steps=3, key=KEY, candidates=2))
        assert dict(physics.traces) == {f"policy[{11 if part == 7 and not shared else rows}]": 1}
        physics.close()
    whole, parts = runs
    jax.tree.map(np.testing.assert_array_equal, whole, parts)
    assert not np.array_equal(whole.actions[0], whole.actions[1])


def test_parts_of_a_batch_end_together(tiny, monkeypatch):
    """Ctrl-C comes in one part; the other stops within a step, and the next rollout is as if nothing had been."""
    monkeypatch.setattr(native, "_PART", 2)
    physics = NativePhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01, threads=2)
    start, params = physics.start(*tiny.states(4)), feedback(tiny, 4)
    advance, calls, steps = physics._advance, Counter[int](), 1000
    both, stop = threading.Barrier(2, timeout=60), threading.Lock()

    def interrupted(pool, *arrays):
        calls[id(pool)] += 1
        if calls[id(pool)] == 1:
            both.wait()  # neither goes on before the other has begun
        if calls[id(pool)] == 5 and stop.acquire(blocking=False):
            raise KeyboardInterrupt
        return advance(pool, *arrays)

    whole = physics.rollout(start, stretch, params, steps=3, key=KEY)
    monkeypatch.setattr(physics, "_advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        physics.rollout(start, stretch, params, steps=steps, key=KEY)
    assert sum(calls.values()) < steps
    monkeypatch.setattr(physics, "_advance", advance)
    again = physics.rollout(start, stretch, params, steps=3, key=KEY)
    np.testing.assert_array_equal(again.actions, whole.actions)
    physics.close()


@pytest.mark.parametrize(("sim_dt", "ctrl_dt"), [(0.002, 0.005), (0.002, 0.001)])
def test_a_control_step_that_is_no_multiple_is_refused(tiny, sim_dt: float, ctrl_dt: float):
    with pytest.raises(UserError, match=r"ctrl_dt is 0\.\d+ s, which is not an integer multiple"):
        NativePhysics(tiny.model, tiny.layout, sim_dt=sim_dt, ctrl_dt=ctrl_dt)


def test_the_callers_model_is_left_alone(tiny):
    integrator = tiny.model.opt.integrator
    coarse = NativePhysics(tiny.model, tiny.layout, sim_dt=0.008, ctrl_dt=0.008, coarse=True, threads=1)
    assert coarse.model.opt.timestep == 0.008
    assert coarse.model.opt.integrator == mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    assert tiny.model.opt.timestep == 0.002
    assert tiny.model.opt.integrator == integrator
    coarse.close()


def test_kinematics(tiny):
    """Lengths and moment arms against mj_forward, for a number of rows that threads do not divide."""
    qpos, _, _ = tiny.states(7)
    lengths, moments = tiny.physics.kinematics(qpos)
    data = mujoco.MjData(tiny.model)
    dense = np.zeros((tiny.model.nu, tiny.model.nv))
    for row in range(7):
        data.qpos[:] = qpos[row]
        mujoco.mj_forward(tiny.model, data)
        mujoco.mju_sparse2dense(
            dense, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind
        )
        np.testing.assert_array_equal(lengths[row], data.actuator_length)
        np.testing.assert_array_equal(moments[row], dense)


def test_start_measures_where_it_stands(tiny):
    qpos, qvel, act = tiny.states(3)
    start = tiny.physics.start(qpos, qvel, act)
    assert not start.diverged.any()
    for given, kept in ((qpos, start.qpos), (qvel, start.qvel), (act, start.act), (np.zeros(3), start.time)):
        np.testing.assert_array_equal(given, kept)
    for row in range(3):
        assert_measured(tiny, start.sensors[row], qpos[row], qvel[row], act[row], np.zeros(tiny.model.nu))


def test_a_clock_among_the_sensors_shows_the_time_of_the_step(tiny):
    spec = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body><joint name="turn"/><geom size="0.1"/></body></worldbody>'
        '<actuator><motor joint="turn" ctrlrange="-1 1"/></actuator><sensor><clock name="clk"/></sensor></mujoco>'
    )
    task = simple_task(name="timed", model=spec, description="stand still")
    physics = NativePhysics(task.model, task.layout, sim_dt=0.002, ctrl_dt=0.01)
    start = physics.start(*task.start(np.random.default_rng(0), 2))
    for policy in (play, watch):
        still = {"ctrl": np.zeros((2, STEPS, 1), np.float32)}
        done = physics.rollout(start, policy, still, steps=STEPS, key=KEY)
        clock = np.asarray(done.steps.sensors)[..., physics.model.sensor("clk").adr[0]]
        np.testing.assert_allclose(clock, np.asarray(done.steps.time), atol=1e-6)
    physics.close()
