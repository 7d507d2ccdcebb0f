"""Plans over postures and over controls, the muscle laws beneath, and the planner's closed loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import mujoco
import numpy as np
import pytest
from programs import program
from tiny_task import task as tiny_task

from movlr_jax.control import muscle_controllers as laws
from movlr_jax.control.build import close
from movlr_jax.control.mpc import rules
from movlr_jax.control.mpc.knots import ControlSpace, PlanSpace
from movlr_jax.control.mpc.mpc2 import PostureSpace, synergy_mixing
from movlr_jax.control.mpc.planner import Planner
from movlr_jax.control.optimizers import Mpc2
from movlr_jax.errors import UserError
from movlr_jax.models import follow_couplings, model_adapter
from movlr_jax.models.spec import compile_spec
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.rewards.state import instrument, layout_of
from movlr_jax.types import SimState, Trajectory

PLANNED = ("hip", "knee")
LAWS = (laws.Linear(), laws.Linear(kp=2.0, kd=0.0, hold=False), laws.Product())
REWARDS = [
    program('-shaping.smooth_abs(state.q("knee") - 1.0)'),
    program('-10.0 * jnp.square(state.q("hip"))', "-0.05 * jnp.mean(state.muscles)"),
    program('3.0 * state.pos("foot")[0]'),
    program('-5.0 * jnp.linalg.norm(state.pos("foot") - state.goal("foot_pos"))'),
]


def lengths_at(model: mujoco.MjModel, qpos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths [nu] and moment arms [nu, nv] at a posture, as MuJoCo's own forward pass has them."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    moment = np.zeros((model.nu, model.nv))
    mujoco.mju_sparse2dense(moment, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind)
    return data.actuator_length.copy(), moment


def excitation_in_numpy(
    law: laws.MuscleLaw,
    model: mujoco.MjModel,
    physics: NativePhysics,
    state: SimState,
    row: int,
    target: np.ndarray,
    hold: np.ndarray,
) -> np.ndarray:
    """One muscle at a time, in float64, with MuJoCo's muscle functions; the excitation by bisection."""
    planned_q = [model.joint(j).qposadr[0] for j in PLANNED]
    planned_v = [model.joint(j).dofadr[0] for j in PLANNED]
    posture = np.array(state.qpos[row])
    posture[planned_q] = target
    wanted_length, moment = lengths_at(model, posture)
    velocities = np.asarray(physics.layout.velocities(state.sensors), np.float64)[row]
    lengths = np.asarray(physics.layout.lengths(state.sensors), np.float64)[row] + physics.sim_dt * velocities
    result = np.empty(model.nu)
    for i in range(model.nu):
        length, velocity = lengths[i], velocities[i]
        lr, acc0, prm = model.actuator_lengthrange[i], model.actuator_acc0[i], model.actuator_gainprm[i, :9]
        passive = mujoco.mju_muscleBias(length, lr, acc0, model.actuator_biasprm[i, :9])
        held = mujoco.mju_muscleGain(length, 0.0, lr, acc0, prm) * hold[i] + passive
        if isinstance(law, laws.Product):
            effort = sum(
                abs(moment[i, v]) * abs(z - state.qpos[row, q])
                for q, v, z in zip(planned_q, planned_v, target, strict=True)
            )
            pull = law.product_gain * effort * (wanted_length[i] - length)
        else:
            optimal = (lr[1] - lr[0]) / (prm[1] - prm[0])
            peak = prm[2] if prm[2] >= 0 else prm[3] / acc0
            pull = peak * (law.kp * (wanted_length[i] - length) - law.kd * velocity) / optimal
        force = min(0.0, held + pull)
        gain = min(mujoco.mju_muscleGain(length, velocity, lr, acc0, prm), -1.0)
        wanted = np.clip((force - passive) / gain, 0.0, 1.0)
        activation, low, high = state.act[row, i], 0.0, 1.0
        for _ in range(60):  # the activation after one step grows with the excitation
            middle = 0.5 * (low + high)
            rate = mujoco.mju_muscleDynamics(middle, activation, model.actuator_dynprm[i, :3])
            low, high = (middle, high) if activation + physics.ctrl_dt * rate < wanted else (low, middle)
        result[i] = 0.5 * (low + high)
    return result


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{type(law).__name__}-{'hold' if law.hold else 'free'}")
def test_the_muscle_law_is_the_equation(tiny, law: laws.MuscleLaw):
    """Two plans for each of six moving states, half of them nearly relaxed; every row has its own target."""
    space = PostureSpace(law, tiny.model, tiny.layout, PLANNED)
    qpos, qvel, activations = tiny.states(6, seed=3)
    activations[::2] *= 0.05
    state = tiny.physics.start(qpos, qvel, activations)
    plans = np.random.default_rng(4).uniform(space.lower, space.upper, (6, 2, 1, 2)).astype(np.float32)
    params = space.params(tiny.physics, state, plans)
    assert (params["hold"].any(axis=1) == law.hold).all()
    doubled = jax.tree.map(lambda x: np.repeat(x, 2, axis=0), state)
    one_step = tiny.physics.rollout(doubled, space.policy(tiny.physics), params, steps=1, key=jax.random.key(0))
    expected = [
        excitation_in_numpy(law, tiny.model, tiny.physics, doubled, r, plans[r // 2, r % 2, 0], params["hold"][r])
        for r in range(12)
    ]  # fmt: skip
    np.testing.assert_allclose(one_step.actions[:, 0], expected, atol=2e-3)
    between = (np.array(expected) > 0.01) & (np.array(expected) < 0.99)
    assert between.sum() >= 5, "excitations at their limits alone would say little"


@pytest.mark.parametrize("kind", ["linear", "product"])
def test_several_knots_move_the_target_between_postures(tiny, kind):
    """Where two equal knots stand, a plan is the plan of one; midway between two, its lengths are their mean."""
    law = laws.LAWS.read(kind, "")
    one = PostureSpace(law, tiny.model, tiny.layout, PLANNED)
    two = PostureSpace(law, tiny.model, tiny.layout, PLANNED, knots=2, horizon_s=0.4)
    state = tiny.physics.start(*tiny.states(3, seed=3))
    plans = np.random.default_rng(4).uniform(one.lower, one.upper, (3, 1, 2, 2)).astype(np.float32)
    first = one.params(tiny.physics, state, plans[:, :, :1])
    moving = two.params(tiny.physics, state, plans)
    for name, expected in first["target"].items():
        np.testing.assert_array_equal(moving["target"][name][:, 0], expected)
    still = two.params(tiny.physics, state, np.repeat(plans[:, :, :1], 2, axis=2))
    halfway = {**moving, "start": moving["start"] - 0.2}
    mean = {k: v.mean(axis=1) for k, v in moving["target"].items()}
    for params, expected in ((still, first), (halfway, {**first, "target": mean})):
        actions = [
            tiny.physics.rollout(state, space.policy(tiny.physics), given, steps=1, key=jax.random.key(0)).actions
            for space, given in ((two, params), (one, expected))
        ]
        np.testing.assert_allclose(*actions, atol=1e-5)
    np.testing.assert_array_equal(two.held(state)[:, 1], one.held(state)[:, 0])


def test_kept_joints_are_held_where_they_were_told_whatever_the_state_and_the_plan(tiny):
    space = PostureSpace(laws.Linear(), tiny.model, tiny.layout, ("hip",), kept={"knee": 0.6})
    state = tiny.physics.start(*tiny.states(3))
    plans = np.full((3, 1, 1, 1), 0.2, np.float32)
    assert space.held(state).shape == (3, 1, 1)
    expected = np.array(state.qpos)
    expected[:, 1], expected[:, 2] = 0.2, 0.6
    lengths, _ = tiny.physics.kinematics(expected)
    np.testing.assert_allclose(space.params(tiny.physics, state, plans)["target"]["length"], lengths, rtol=1e-6)


@pytest.fixture(scope="module")
def arm():
    """The arm and hand with nothing around, in the posture that grasps."""
    adapter = model_adapter("myoarm_r")
    spec = adapter.load()
    instrument(spec, root=adapter.root, touch=adapter.touch, sites=adapter.sites)
    model = compile_spec(spec)
    physics = NativePhysics(model, layout_of(model, {}), sim_dt=0.002, ctrl_dt=0.016, threads=2)
    qpos = model.qpos0.copy()
    for joint, value in adapter.posture.items():
        qpos[model.joint(joint).qposadr[0]] = value
    yield adapter, model, physics, follow_couplings(model, qpos)
    physics.close()


def test_an_arm_holds_its_posture_for_a_second(arm):
    """Shoulder to wrist stay within 0.05 rad, and sag further without `hold`; no finger leaves its posture.

    The little finger has no muscle for each of its joints and drifts most.
    """
    adapter, model, physics, qpos = arm
    worst, joints = {}, len(adapter.planned_joints)
    for hold in (True, False):
        space = PostureSpace(laws.Linear(hold=hold), model, physics.layout, adapter.planned_joints)
        target = qpos[None, None, None, space.qpos].astype(np.float32)
        act = space.params(
            physics, physics.start(qpos[None], np.zeros((1, model.nv)), np.zeros((1, model.na))), target
        )["hold"]
        state, policy = physics.start(qpos[None], np.zeros((1, model.nv)), act), space.policy(physics)
        worst[hold] = np.zeros(joints)
        for _ in range(31):  # as the planner does: two control steps, and a look at the posture again
            rollout = physics.rollout(
                state, policy, space.params(physics, state, target), steps=2, key=jax.random.key(0)
            )
            state = rollout.final
            away = np.abs(rollout.steps.qpos[0][:, space.qpos] - target[0, 0])
            worst[hold] = np.maximum(worst[hold], away.max(axis=0))
    assert float(state.time[0]) > 0.99
    assert worst[True][:7].max() < 0.05, worst
    assert worst[True].max() < 0.25, worst
    assert worst[False][:7].max() > 0.05, worst


def test_coupled_joints_follow_the_plan(arm):
    """The lengths at a target posture are those of the whole arm there, joints that equalities drive included."""
    adapter, model, physics, qpos = arm
    space = PostureSpace(laws.Linear(), model, physics.layout, adapter.planned_joints)
    state = physics.start(qpos[None], np.zeros((1, model.nv)), np.zeros((1, model.na)))
    plan = np.random.default_rng(0).uniform(space.lower, space.upper).astype(np.float32)
    posture = qpos.copy()
    posture[space.qpos] = plan
    for e in range(model.neq):  # q1 = q1_0 + c0 + c1 x + c2 x^2 + ..., x = q2 - q2_0
        one, two = (model.jnt_qposadr[j] for j in (model.eq_obj1id[e], model.eq_obj2id[e]))
        x = posture[two] - model.qpos0[two]
        posture[one] = model.qpos0[one] + sum(c * x**n for n, c in enumerate(model.eq_data[e, :5]))
    assert model.neq > 0
    expected, _ = lengths_at(model, posture)
    actual = space.params(physics, state, plan[None, None, None])["target"]["length"][0]
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_moment_arms_belong_to_the_state_of_each_call(arm):
    """How lengths change with each planned joint and those coupled to it, by differences of MuJoCo's forward pass.

    The law `torque` reads them; they are kept from one call to the next only for the same state.
    """
    adapter, model, physics, qpos = arm
    space = PostureSpace(laws.Torque(hold=False), model, physics.layout, adapter.planned_joints)
    first, second = qpos.copy(), qpos.copy()
    second[space.qpos] += 0.05
    for postures in ([first, second], [second, first], [first, second]):
        rest = (np.zeros((2, n)) for n in (model.nv, model.na))
        state = physics.start(follow_couplings(model, np.array(postures)), *rest)
        found = space.params(physics, state, np.repeat(space.held(state)[:, None], 3, axis=1))["moment"]
        assert found.shape == (2 * 3, model.nu, len(space.qpos))
        for q, rows in zip(state.qpos, found.reshape(2, 3, *found.shape[1:]), strict=True):
            np.testing.assert_array_equal(rows[1:], rows[:-1])
            for joint in (1, 3, 7, 12):
                step = 1e-6 * (np.arange(model.nq) == space.qpos[joint])
                ahead, behind = (lengths_at(model, follow_couplings(model, q + s))[0] for s in (step, -step))
                np.testing.assert_allclose(rows[0][:, joint], (ahead - behind) / 2e-6, atol=2e-6)


def test_noise_of_a_synergy_moves_together():
    names = ("a", "b", "c", "d", "e")
    mixing = synergy_mixing(names, [("b", "d", "e")], 0.6)
    expected = np.eye(5)
    for i, j in ((1, 3), (1, 4), (3, 4)):
        expected[i, j] = expected[j, i] = 0.6
    noise = np.random.default_rng(0).standard_normal((200_000, 5)) @ mixing
    np.testing.assert_allclose(np.cov(noise.T), expected, atol=0.01)
    np.testing.assert_array_equal(synergy_mixing(names, [], 0.6), np.eye(5))
    np.testing.assert_array_equal(synergy_mixing(names, [("b", "d")], 0.0), np.eye(5))


TORQUES = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <body name="cart">
      <joint name="x" type="slide" axis="1 0 0"/>
      <geom size="0.1" mass="1"/>
      <site name="tip"/>
    </body>
    <body name="flywheel" pos="0 0 1">
      <joint name="y" type="slide" axis="1 0 0" damping="1e11"/>
      <geom size="0.1" mass="1"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" joint="x" ctrlrange="-1 1" {limited}/>
    <motor name="bomb" joint="y" ctrlrange="-1 1" gear="1e11" ctrllimited="true"/>
  </actuator>
</mujoco>
"""


def torque_model(limited: bool = True) -> mujoco.MjModel:
    """A cart, and a motor that makes MuJoCo diverge (an acceleration beyond 1e10) where its control leaps by 0.1.

    Its wheel is so damped that a step later it turns as fast as the control says, and needs a further leap.
    """
    spec = mujoco.MjSpec.from_string(TORQUES.format(limited=f'ctrllimited="{str(limited).lower()}"'))
    instrument(spec, root="cart", touch={}, sites=("tip",))
    return compile_spec(spec)


def test_controls_between_knots_worked_by_hand():
    """Knots 0, 1, 0.5 over 0.4 s that begin at 1 s: linear between, the ends held outside."""
    model = torque_model()
    physics = NativePhysics(model, layout_of(model, {}), sim_dt=0.002, ctrl_dt=0.01, threads=1)
    space = ControlSpace(model, knots=3, horizon_s=0.4)
    state = physics.start(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 0)))
    state = state.replace(time=np.array([1.0]))
    plans = np.stack([[0.0, 1.0, 0.5], [0.0, -0.02, 0.06]], axis=-1)[None, None].astype(np.float32)
    params, policy = space.params(physics, state, plans), space.policy(physics)
    one = jax.tree.map(lambda x: x[0], params)
    for after, push, bomb in ((-0.1, 0.0, 0.0), (0.05, 0.25, -0.005), (0.3, 0.75, 0.02), (9.0, 0.5, 0.06)):
        view = jax.tree.map(lambda x: x[0], state.replace(time=np.array([1.0 + after], np.float32)).step)
        np.testing.assert_allclose(policy(one, view, jax.random.key(0)), [push, bomb], atol=1e-6)
    held = space.held(state.replace(prev_action=np.array([[0.3, 0.05]], np.float32)))
    np.testing.assert_allclose(held, [[[0.3, 0.05]] * 3])
    np.testing.assert_array_equal(params["knots"], plans[0])
    assert params["start"].tolist() == [1.0]
    physics.close()


def test_controls_without_limits_cannot_be_planned_over():
    with pytest.raises(UserError, match=r"these actuators have none: push; set ctrlrange"):
        ControlSpace(torque_model(limited=False), knots=3, horizon_s=0.4)


def planner_of(
    space: PlanSpace, model: mujoco.MjModel, layout, goals, mppi: rules.Mppi, horizon_s: float = 0.06
) -> Planner:
    return Planner(
        Mpc2(horizon_s=horizon_s, mppi=mppi),
        replace(tiny_task(), layout=layout, goals=goals),
        space,
        NativePhysics(model, layout, sim_dt=0.005, ctrl_dt=0.01, coarse=True, threads=2),
        NativePhysics(model, layout, sim_dt=0.002, ctrl_dt=0.01, threads=2),
    )


def act(planner: Planner, which: Sequence[RewardProgram], start, rows: int = 1, seed: int = 5) -> Trajectory:
    """Seven control steps of `rows` episodes of each program, all from the same states."""
    state = planner.sim_physics.start(*(np.tile(x[:rows], (len(which), 1)) for x in start))
    return planner.optimise(which, jax.random.key(seed)).rollout(state, steps=7, key=jax.random.key(seed))


def assert_same_bits(a: Trajectory, b: Trajectory) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize(
    "kind", ["linear", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("product", "controls"))]
)
def test_four_candidates_together_are_each_alone_bit_by_bit(tiny, kind: str):
    """And three of them, and with two episodes each; the same seed twice is the same, another seed is another."""
    space = (
        ControlSpace(tiny.model, 3, 0.06)
        if kind == "controls"
        else PostureSpace(laws.LAWS.read(kind, ""), tiny.model, tiny.layout, PLANNED, [PLANNED], 0.5)  # pyright: ignore
    )
    planner = planner_of(
        space, tiny.model, tiny.layout, tiny.goals, rules.Mppi(samples=8, adapt=0.2, temperature=0.1, sigma_min=0.05)
    )
    start, four = tiny.states(2, seed=1), REWARDS
    together = act(planner, four, start)
    assert together.actions.shape == (4, 7, tiny.model.nu)
    assert len(np.unique(together.actions[:, -1], axis=0)) == 4, "four rewards, four motions"
    for k in (0, 3):
        mine = jax.tree.map(lambda x, k=k: x[k : k + 1], together)
        assert_same_bits(act(planner, four[k : k + 1], start), mine)
    assert_same_bits(act(planner, four[1:], start), jax.tree.map(lambda x: x[1:], together))
    assert_same_bits(act(planner, four, start), together)
    assert not np.array_equal(act(planner, four, start, seed=6).actions, together.actions)
    twice = act(planner, four, start, rows=2)
    assert_same_bits(act(planner, four[2:3], start, rows=2), jax.tree.map(lambda x: x[4:6], twice))
    close(planner)


def test_rows_that_diverge_never_win():
    """The reward wants what makes MuJoCo diverge, and more of it scores higher; four samples of five do."""
    model = torque_model()
    layout = layout_of(model, {})
    space = ControlSpace(model, knots=1, horizon_s=0.05)
    planner = planner_of(space, model, layout, {}, rules.Mppi(samples=64, sigma=0.2), horizon_s=0.05)
    greedy = program("jnp.abs(action[1]) + 0.01 * action[0]")
    rest = np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 0))

    controls = np.array([[1.0, 0.09], [1.0, 0.2]], np.float32)
    open_loop = planner.sim_physics.rollout(
        planner.sim_physics.start(*rest), lambda p, view, key: p, controls, steps=3, key=jax.random.key(0)
    )
    assert open_loop.diverged.tolist() == [False, True]

    trajectory = act(planner, [greedy], rest)
    assert not trajectory.diverged.any()
    leaps = np.abs(np.diff(trajectory.actions[..., 1], prepend=0.0))
    assert 0.01 < leaps.max() <= 0.1
    close(planner)


def test_what_is_replaced_in_plans_is_counted(tiny):
    """A term without a number anywhere: every step of every rollout of every plan, under its own program alone."""
    broken = program("jnp.log(-1.0 - state.time)", 'state.q("knee")')
    space = PostureSpace(laws.Linear(), tiny.model, tiny.layout, PLANNED)
    config = Mpc2(horizon_s=0.04, mppi=rules.Mppi(samples=5))
    task = replace(tiny_task(), layout=tiny.layout, goals=tiny.goals)
    planner = Planner(config, task, space, tiny.physics, tiny.physics)
    controllers = planner.optimise([REWARDS[0], broken], jax.random.key(0))
    assert controllers.nonfinite == [{"t0": 0}, {"t0": 0, "t1": 0}]
    start = tiny.physics.start(*(np.repeat(x, 2, axis=0) for x in tiny.states(1)))
    controllers.rollout(start, steps=6, key=jax.random.key(0))
    assert controllers.nonfinite == [{"t0": 0}, {"t0": 3 * 5 * 4, "t1": 0}]
