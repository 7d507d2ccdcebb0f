"""Policies whose numbers are joint targets of muscles: geometry, the law beneath, and training; policies as files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from programs import program
from tiny_task import task as tiny_task

from movlr_jax._util.parts import check_ranges
from movlr_jax._util.settings import changed
from movlr_jax.biomech.geometry import fit_geometry
from movlr_jax.config.compose import compose
from movlr_jax.control import muscle_controllers as laws
from movlr_jax.control.mpc.mpc2 import PostureSpace
from movlr_jax.control.optimizers import Ppo
from movlr_jax.control.ppo import actions as spaces
from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.build import assisted, build_ppo
from movlr_jax.control.ppo.config import PdConfig, PpoConfig
from movlr_jax.control.ppo.policy_file import load_policy, policy_settings, save_policy
from movlr_jax.errors import UserError
from movlr_jax.models import model_adapter

PLANNED = ("hip", "knee")
KEY = jax.random.key(5)
SMALL = changed(
    PpoConfig(),
    env_steps=3 * 8 * 5 * 2,
    envs=8,
    unroll=5,
    unrolls=2,
    minibatches=2,
    epochs=2,
    hidden=(16,),
    value_hidden=(16,),
    action="posture",
    noise=0.3,
    starts=8,
)


BENT = program("-jnp.square(state.q('knee') - 1.0)")
STILL = program("-jnp.square(state.qd('knee'))")


def build(config: PpoConfig = SMALL, episode_s: float = 0.2, say: Any = lambda text: None, **changes: Any):
    settings = Ppo(sim_dt=0.002, ctrl_dt=0.01, ppo=config, pd=PdConfig(beta=0.8), muscle=laws.Torque(kp=10.0, kd=0.4))
    return build_ppo(settings, tiny_task().replace(episode_s=episode_s, **changes), say=say)


@pytest.fixture(scope="module")
def ppo():
    return build()


def test_fitted_moment_arms_are_those_of_mujoco(tiny):
    """Within 0.2 mm in length and 4 mm in moment arm, of 105; the worst is a tendon that wraps."""
    space = PostureSpace(laws.Torque(), tiny.model, tiny.layout, PLANNED)
    qpos = tiny.model.qpos0
    fitted = fit_geometry(lambda z: space.lengths(tiny.physics, qpos, z), space.lower, space.upper)
    postures = np.random.default_rng(7).uniform(space.lower, space.upper, (40, 2))
    whole = np.repeat(qpos[None], 40, axis=0)
    whole[:, space.qpos] = postures
    lengths, moments = tiny.physics.kinematics(whole)
    moments = moments[:, :, [tiny.model.joint(name).dofadr[0] for name in PLANNED]]
    found = jax.vmap(fitted.lengths)(jnp.asarray(postures, jnp.float32))
    assert np.abs(found - lengths).max() < 2e-4
    arms = np.asarray(jax.vmap(fitted.moments)(jnp.asarray(postures, jnp.float32)))
    assert np.abs(arms - moments).max() < 4e-3
    # a muscle turns no joint that it does not cross
    np.testing.assert_array_equal(arms == 0, np.abs(moments) < 1e-12)


@pytest.mark.parametrize("kind", ["linear", "product", "torque"])
def test_a_policy_commands_what_the_planners_law_does(tiny, kind):
    """The same target from the same state: the law alone, with moment arms and lengths of MuJoCo."""
    law, beta = laws.LAWS.read({"law": kind, "kp": 2.0, "kd": 0.1}, "optimizer.muscle"), 0.6
    space = PostureSpace(law, tiny.model, tiny.layout, PLANNED)
    rest = np.full(tiny.model.nu, 0.1)
    qpos = np.array([0.0, 0.4, 0.8])
    made = spaces.posture(space, tiny.physics, qpos, rest, beta)
    assert made.size == 2
    state = tiny.physics.start(*tiny.states(6, seed=2))
    actions = np.random.default_rng(3).uniform(-1, 1, (6, 2)).astype(np.float32)
    targets = np.clip(qpos[1:] + beta * actions, space.lower, space.upper).astype(np.float32)
    params = space.params(tiny.physics, state, targets[:, None, None])
    params = {"moment": np.zeros((6, tiny.model.nu, 2)), **params, "hold": np.tile(rest, (6, 1))}
    policy, view = space.policy(tiny.physics), jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), state.step)
    expected = jax.vmap(policy, in_axes=(0, 0, None))(params, view, KEY)
    found = jax.vmap(lambda a, v: made.controls(a, v, tiny.physics.sim_dt, tiny.physics.ctrl_dt))(actions, view)
    np.testing.assert_allclose(found, expected, atol=0.1)
    assert np.abs(np.asarray(found) - np.asarray(expected)).mean() < 0.01
    assert np.std(np.asarray(expected), axis=0).max() > 0.03, "excitations that are all alike would say little"


def bent(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts of a leg that stands with its knee bent."""
    hip, knee = 0.5 + 0.05 * rng.standard_normal(n), 0.9 + 0.05 * rng.standard_normal(n)
    height = 0.43 * (np.cos(hip) + np.cos(hip - knee)) - 0.86
    return np.stack([height, hip, knee], axis=1), np.zeros((n, 3)), np.full((n, 7), 0.1)


@pytest.mark.slow
def test_a_leg_learns_to_straighten_its_knee():
    """From 0.9 rad, where its first policy keeps it, to 0.4."""
    config = changed(
        SMALL, env_steps=8_000, envs=32, unroll=10, minibatches=4, epochs=4, learning_rate=3e-3, noise=0.6
    )
    straight = program("-jnp.square(state.q('knee') - 0.4)")
    curve = build(config, episode_s=0.3, start=bent).optimise([straight], KEY).learning[0]
    first, last = np.mean(curve["reward"][:2]), np.mean(curve["reward"][-3:])
    assert last > 0.6 * first, (first, last)


def test_a_policy_is_kept_as_a_file_and_begun_from(ppo, tmp_path: Path):
    trained = ppo.optimise([BENT, STILL], KEY, None, tmp_path)
    path = tmp_path / "policy_k01.npz"
    acting = build(changed(SMALL, init=str(path), env_steps=0)).optimise([BENT], KEY)
    for name in ("params", "normalizer"):
        jax.tree.map(
            lambda a, b: np.testing.assert_array_equal(np.asarray(a)[0], np.asarray(b)[1]),
            getattr(acting.learners, name),
            getattr(trained.learners, name),
        )
    other = build(changed(SMALL, init=str(path), hidden=(8,), observe=("qpos",)))
    assert other.config.policy == replace(SMALL.policy, joints=PLANNED)  # the file's own
    learner = jax.tree.map(lambda x: x[0], trained.learners)
    save_policy(tmp_path / "arm.npz", learner, changed(SMALL, joints=("elbow",)))
    with pytest.raises(UserError, match="planned joint 'elbow'"):
        build(changed(SMALL, init=str(tmp_path / "arm.npz")))
    save_policy(tmp_path / "one.npz", learner, changed(SMALL, joints=("knee",)))
    with pytest.raises(UserError, match="another model, or for other"):
        build(changed(SMALL, init=str(tmp_path / "one.npz"))).begin(1, KEY)
    with pytest.raises(UserError, match="cannot read a trained policy from this file"):
        build(changed(SMALL, init=str(tmp_path / "none.npz")))
    with pytest.raises(UserError, match="env_steps=0"):
        check_ranges(changed(SMALL, env_steps=0), "optimizer.ppo")


def test_a_policy_acts_by_its_mode_or_by_samples():
    actions = {}
    for acts in ("mode", "sample"):
        made = build(changed(SMALL, acts=acts))
        start = jax.tree.map(lambda x: x[:1], made.pool)
        params = (made.begin(1, KEY)[0].normalizer, made.begin(1, KEY)[0].params.policy)
        runs = [
            made.sim_physics.rollout(start, made.exploit, params, steps=4, key=jax.random.key(i)).actions
            for i in (0, 0, 1)
        ]
        np.testing.assert_array_equal(runs[0], runs[1])
        assert np.array_equal(runs[0], runs[2]) == (acts == "mode")
        actions[acts] = runs[0]
    assert not np.allclose(actions["mode"], actions["sample"])


@pytest.mark.parametrize(
    ("task", "model"), [("rough_walk", "ms_human_700_legs"), ("flat_walk", "ms_human_700"), ("flat_walk", "myolegs")]
)
def test_the_policies_of_the_package_fit_their_settings(task: str, model: str):
    config = compose([f"+task={task}", f"model={model}", "optimizer=ppo"]).optimizer
    assert (config.name, config.ppo.env_steps, config.ppo.acts) == ("ppo", 0, "mode")
    ppo = policy_settings(config.ppo.init, config.ppo)
    held = load_policy(ppo.init, learning.init(ppo, learning.networks(ppo, 47, 14), 47, KEY))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(held.params))
    assert set(ppo.policy.joints) <= set(model_adapter(model).planned_joints)  # 14 of 31 in the whole body


def test_what_no_plan_moves_is_turned_back_to_where_it_is_kept(tiny):
    """A knee that is kept at 0.6 rad, begun at 0.9 while the hip keeps where it is."""
    qpos, back = np.array([0.0, 0.4, 0.9]), {}
    for kept in (True, False):
        space = PostureSpace(
            laws.Torque(kp=10.0, kd=0.4), tiny.model, tiny.layout, ("hip",), kept={"knee": 0.6} if kept else {}
        )
        made = spaces.posture(space, tiny.physics, qpos, np.full(tiny.model.nu, 0.05), 0.5)
        assert made.size == 1

        def policy(params: Any, view: Any, key: jax.Array, made: spaces.ActionSpace = made) -> jax.Array:
            return made.controls(jnp.zeros(1), view, tiny.physics.sim_dt, tiny.physics.ctrl_dt)

        start = tiny.physics.start(qpos[None], np.zeros((1, 3)), np.full((1, tiny.model.na), 0.05))
        back[kept] = tiny.physics.rollout(start, policy, (), steps=30, key=KEY).final.qpos[0, 2]
    assert abs(back[True] - 0.6) < 0.1
    assert abs(back[False] - 0.6) > 0.2


def test_a_learner_is_held_upright_by_springs():
    """20 kg at 0.9 m above the ground: M g h = 176.6 N m/rad, half of it asked for."""
    text = """<mujoco><worldbody><body name="trunk" pos="0 0 0.9">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="pitch" axis="0 1 0"/><joint name="roll" axis="1 0 0"/>
      <geom type="sphere" size="0.1" mass="16"/>
      <body name="limb" pos="0 0 0"><joint name="hip" axis="0 1 0"/><geom type="sphere" size="0.05" mass="4"/></body>
    </body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    held = assisted(model, np.array([0.0, 0.1, 0.0, 0.0]), 0.5)
    data = mujoco.MjData(held)
    data.qpos[:] = 0.3, 0.2, -0.1, 0.5
    mujoco.mj_forward(held, data)
    np.testing.assert_allclose(data.qfrc_passive, [0.0, -88.29 * 0.1, 88.29 * 0.1, 0.0], atol=1e-6)
    assert not model.jnt_stiffness.any()
    # carried at 1.2 m/s, at 0.7 m/s and at rest: 2 M g = 392.4 N per m/s
    carried = assisted(model, np.array([0.0, 0.1, 0.0, 0.0]), 0.5, np.array([1.2, 0.0, 0.0]), carry=2.0)
    for speed in (0.7, 0.0):
        data.qpos[:], data.qvel[:] = (0.3, 0.2, -0.1, 0.5), (speed, 0.0, 0.0, 0.0)
        mujoco.mj_forward(carried, data)
        assert data.qfrc_passive[0] == pytest.approx(392.4 * (1.2 - speed), rel=1e-3)
    free = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body><freejoint/><geom size="0.1"/></body></worldbody></mujoco>'
    )
    with pytest.raises(UserError, match="this one has none"):
        assisted(free, free.qpos0, 1.0)
