"""What a trained policy sees and commands, and the groups of DynSyn, against C MuJoCo and numbers worked by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tiny_task import task as tiny_task

import movlr_jax as mj
from movlr_jax._util.settings import changed
from movlr_jax.control.episode import episode_of
from movlr_jax.control.optimizers import Dynsyn, Ppo
from movlr_jax.control.ppo import actions as spaces
from movlr_jax.control.ppo.build import build_ppo
from movlr_jax.control.ppo.config import GroupsConfig, PdConfig, PolicyConfig, PpoConfig
from movlr_jax.control.ppo.observations import observation
from movlr_jax.control.ppo.policy_file import save_policy
from movlr_jax.evolution.evaluation import _states
from movlr_jax.rewards.state import instrument, layout_of
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import build_task
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.simple import simple_task

LEG = """<mujoco><worldbody><body name="trunk"><freejoint name="root"/><geom size="0.1" mass="10"/>
<body name="thigh" pos="0 0 -0.1"><joint name="hip" type="hinge" axis="0 1 0" range="-60 60" limited="true"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.05" mass="3"/>
<body name="shank" pos="0 0 -0.4"><joint name="knee" type="hinge" axis="0 1 0" range="0 120" limited="true"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.04" mass="2"/></body></body></body></worldbody><actuator>
<motor name="hip" joint="hip" gear="4" ctrllimited="true" ctrlrange="-10 10"/>
<motor name="knee" joint="knee" ctrllimited="true" ctrlrange="-15 15"/></actuator></mujoco>"""
KEY = jax.random.key(0)


def forces(model: mujoco.MjModel, q: np.ndarray, v: np.ndarray, ctrl: np.ndarray) -> np.ndarray:
    """[2] N m that C MuJoCo puts on hip and knee."""
    data = mujoco.MjData(model)
    data.qpos[7:], data.qvel[6:], data.ctrl[:] = q, v, ctrl
    mujoco.mj_forward(model, data)
    return data.qfrc_actuator[6:]


def test_an_episode_records_the_forces_of_the_actuators_that_acted():
    """PD acts with gains of its own, so the model of the task would compute other forces from the same controls."""
    task = simple_task(name="leg", model=mujoco.MjSpec.from_string(LEG), description="stand")
    settings = changed(PpoConfig(), envs=4, minibatches=1, action="pd", hidden=(8,), value_hidden=(8,))
    ppo = build_ppo(Ppo(sim_dt=0.01, ctrl_dt=0.02, ppo=settings), task)
    learners, _ = ppo.begin(1, KEY)
    start = ppo.sim_physics.start(*task.start(np.random.default_rng(0), 1))
    params = (learners.normalizer, learners.params.policy)
    played = ppo.sim_physics.rollout(start, ppo.exploit, params, steps=5, key=KEY)
    episode = episode_of(played, 0, 5)
    measured = Readout(task.layout, episode.steps).actuator("force")
    record = EpisodeRecord.read(_states(episode, task), task.model, task.adapter)
    exported = record.forces().columns
    np.testing.assert_array_equal(exported["/forceset/hip|actuation"], measured[:, 0])
    others = replace(record, force=None).forces().columns["/forceset/hip|actuation"]
    assert np.abs(others - measured[:, 0]).max() > 0.1  # N m, of forces up to 0.5
    again = record.replayed(task.layout)
    np.testing.assert_array_equal(Readout(task.layout, again.steps).actuator("force"), measured)
    np.testing.assert_array_equal(again.steps.prev_action, episode.steps.prev_action)
    np.testing.assert_array_equal(again.final.prev_action, episode.final.prev_action)


@pytest.mark.parametrize("gear", ["4", "-4"])
def test_pd_is_the_law_worked_out_in_joint_space(gear: str):
    """tau = clip(kp (p_d - p) - kd v, the motor's limits), p_d = p0 + beta a within the joint's range."""
    leg = LEG.replace('gear="4"', f'gear="{gear}"')
    model, config = mujoco.MjModel.from_xml_string(leg), PdConfig(kp=50.0, kd=3.0, beta=0.4)
    posture = np.concatenate([model.qpos0[:7], [0.1, 0.5]])
    space = spaces.pd(model, config, posture)
    assert (space.size, space.model.nu) == (2, 2)
    rng, limit, clipped = np.random.default_rng(0), np.array([40.0, 15.0]), 0
    low, high = np.deg2rad([-60, 0]), np.deg2rad([60, 120])
    for _ in range(40):
        a, q, v = rng.uniform(-1, 1, 2), rng.uniform(low, high), rng.normal(size=2)
        wanted = np.clip([0.1, 0.5] + 0.4 * a, low, high)
        torque = 50.0 * (wanted - q) - 3.0 * v
        clipped += (np.abs(torque) > limit).any()
        np.testing.assert_allclose(
            forces(space.model, q, v, np.asarray(space.controls(jnp.asarray(a)))),
            np.clip(torque, -limit, limit),
            rtol=1e-4,
            atol=1e-4,
        )
    assert 0 < clipped < 40
    np.testing.assert_array_equal(model.actuator_biasprm, 0)  # the caller's model is left alone


ARM = """<mujoco><worldbody><geom type="plane" size="2 2 .1"/>
<body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0" range="-170 170" damping="1"/>
<geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass="1"/>
<body name="fore" pos=".3 0 0"><joint name="elbow" axis="0 1 0" range="-150 150" damping="1"/>
<geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass=".5"/></body></body></worldbody><actuator>
<motor name="shoulder" joint="shoulder" gear="20" ctrlrange="-1 1"/>
<motor name="elbow" joint="elbow" gear="10" ctrlrange="-.5 .5"/></actuator></mujoco>"""
SMALL = ("optimizer=ppo", "optimizer.ppo.env_steps=32", "optimizer.ppo.envs=4", "optimizer.ppo.unroll=4",
         "optimizer.ppo.unrolls=1", "optimizer.ppo.minibatches=1", "optimizer.ppo.hidden=[8]",
         "optimizer.ppo.value_hidden=[8]", "optimizer.ppo.starts=2", "optimizer.ppo.action=pd",
         "optimizer.pd.kp=60", "optimizer.pd.kd=3")  # fmt: skip


def test_measures_under_pd_are_those_of_what_the_motors_exert(tmp_path: Path):
    """Effort: torque of PD in joint space over the largest of each motor; smoothness: targets over joint ranges."""
    bent = {"shoulder": 1.9, "elbow": -2.2}  # rad, several times the range of each motor's control
    task = simple_task(
        name="arm", model=mujoco.MjSpec.from_string(ARM), description="hold still", start=bent, start_noise=0.0,
        episode_s=0.4,
    )  # fmt: skip
    result = mj.evaluate_reward("initial", task, *SMALL, f"run_dir={tmp_path / 'first'}", films=False)
    made, gear = result.trajectory, np.array([20.0, 10.0])
    wanted = made.ctrl / gear
    torque = 60.0 * (wanted - made.qpos) - 3.0 * made.qvel
    used = np.clip(torque, [-20, -5], [20, 5]) / [20, 5]
    assert result.metrics["effort"] == pytest.approx(np.square(used).mean(), rel=1e-3)
    assert 0 < result.metrics["effort"] < 1
    targets = (wanted - [1.9, -2.2]) / (np.deg2rad([170, 150]) + [1.9, 2.2])
    change = np.diff(targets, axis=0) / np.diff(made.time)[:, None]
    assert result.metrics["smoothness"] == pytest.approx(np.square(change).mean(), rel=1e-3)
    cost = result.terms["control"]["mean"]  # of the program that the package wrote for the task
    assert cost == pytest.approx(-np.square(targets).mean(), rel=1e-3)
    # a policy runs with the actions of its file, whatever the settings say
    again = mj.evaluate_reward(
        "initial", task, *(word for word in SMALL if "action" not in word and "steps" not in word),
        f"optimizer.ppo.init={result.policy_file}", "optimizer.ppo.env_steps=0",
        f"run_dir={tmp_path / 'again'}", films=False,
    )  # fmt: skip
    assert again.metrics["effort"] == pytest.approx(result.metrics["effort"], rel=1e-3)
    assert again.terms["control"]["mean"] == pytest.approx(cost, rel=1e-3)


def test_controls_reach_both_ends_and_rest_at_nothing():
    model = mujoco.MjModel.from_xml_string(LEG)
    space = spaces.controls(model, np.array([2.0, 0.0]))
    for a, expected in ((0.0, [2, 0]), (1.0, [10, 15]), (-1.0, [-10, -15]), (0.5, [6, 7.5])):
        np.testing.assert_allclose(space.controls(jnp.full(2, a)), expected)
    task = tiny_task()
    act = np.linspace(0.0, 0.6, task.model.na)
    rest = spaces.resting_controls(task.model, task.model.qpos0, act)
    np.testing.assert_allclose(rest, np.maximum(act, 0.02), atol=1e-6)  # muscles: what they are, and a little


@pytest.mark.parametrize(
    ("actuator", "rest"),
    [
        ('<position name="a" joint="h" kp="100" ctrlrange="-2 2"/>', 0.7),
        ('<position name="a" joint="h" kp="100" ctrlrange="-2 2" timeconst="0.05"/>', 0.7),
        ('<intvelocity name="a" joint="h" kp="100" actrange="-2 2" ctrlrange="-1 1"/>', 0.0),
        ('<motor name="a" joint="h" ctrlrange="-1 1"/>', 0.0),
    ],
)
def test_servos_rest_at_their_position_also_with_an_activation(actuator: str, rest: float):
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body><joint name="h" axis="0 1 0" range="-170 170"/>'
        f'<geom size="0.1"/></body></worldbody><actuator>{actuator}</actuator></mujoco>'
    )
    assert spaces.resting_controls(model, np.array([0.7]), np.zeros(model.na)) == pytest.approx([rest])


def test_a_walker_is_blind_to_where_it_stands_and_sees_what_the_model_says():
    spec = mujoco.MjSpec.from_string(LEG)
    instrument(spec, root="trunk", touch={"foot": ("shank",)}, sites=())
    model = spec.compile()
    goals = {"heading": np.float32(0.25), "shank_pos": np.array([0.0, 0.0, 1.0], np.float32)}
    layout = layout_of(model, goals)
    data = mujoco.MjData(model)
    data.qpos[:3], data.qvel[:] = [5.0, -3.0, 0.7], np.arange(8) / 10
    mujoco.mj_forward(model, data)
    step = spaces.Step(
        *(jnp.asarray(x, jnp.float32) for x in (0.0, data.qpos, data.qvel, data.act, data.sensordata, [0.3, -0.4]))
    )
    task: Any = SimpleNamespace(model=model, layout=layout, goals=goals, scoring=SimpleNamespace(motion=None))
    seen = np.asarray(observation(PolicyConfig(), task, model.qpos0)(step))
    way = [0.0, 0.0, 1.0] - data.body("shank").xpos
    expected = [*data.qpos[2:], *data.qvel, 0.0, 0.3, -0.4, 0.25, 0, 0, 1, *way]
    np.testing.assert_allclose(seen, expected, atol=1e-6)
    task.goals = {}
    placed = observation(PolicyConfig(observe=("qpos",)), task, model.qpos0)(step)
    np.testing.assert_allclose(placed, data.qpos, atol=1e-6)  # elsewhere the place matters


def test_muscles_of_a_leg_are_grouped_by_what_they_do():
    """The vasti together, the calf together, and none of either in one group."""
    task = build_task("flat_walk", "myolegs", 1.0, {})
    config = Dynsyn(ctrl_dt=0.02)
    config = replace(config, groups=replace(config.groups, seconds=12.0), ppo=replace(config.ppo, starts=6))
    trainer = build_ppo(config, task)
    groups = trainer.notes["groups"]
    assert trainer.space.size == len(set(groups.values())) + task.model.nu
    for side in ("_r", "_l"):
        assert len({groups[f"vas{part}{side}"] for part in ("int", "lat", "med")}) == 1
        assert groups[f"gaslat{side}"] == groups[f"gasmed{side}"]
        assert groups[f"gaslat{side}"] != groups[f"vasint{side}"]
        assert groups[f"tibant{side}"] != groups[f"soleus{side}"]
    assert trainer.notes["silhouette"] > 0.4
    assert 8 <= len(set(groups.values())) <= task.model.nu // 3


def test_one_action_moves_its_group_and_the_correction_is_bounded():
    task = tiny_task()
    of = np.array([0, 0, 1, 1, 1, 0, 1])
    rest = np.full(7, 0.2)
    space = spaces.grouped(task.model, rest, of, correction=0.1)
    assert space.size == 2 + 7
    ctrl = np.asarray(space.controls(jnp.array([1.0, -0.5, *np.zeros(7)])))
    np.testing.assert_allclose(ctrl, np.where(of == 0, 1.0, 0.1), atol=1e-6)
    moved = np.asarray(space.controls(jnp.array([0.5, -0.5, *np.ones(7)])))
    np.testing.assert_allclose(moved, np.where(of == 0, 0.2 + 0.8 * 0.6, 0.2 * 0.6), atol=1e-6)


def test_a_policy_keeps_the_groups_that_it_commands(tmp_path: Path):
    """Groups are found from the start states of a task: on another task, a policy would move other muscles."""
    task, path = tiny_task(), tmp_path / "policy_k00.npz"
    small = changed(PpoConfig(), envs=2, starts=2, hidden=(4,), value_hidden=(4,))
    config = Dynsyn(ctrl_dt=0.02, groups=GroupsConfig(seconds=2.0), ppo=small)
    first = build_ppo(config, task)
    learner, _ = first.begin(1, jax.random.key(0))
    save_policy(path, jax.tree.map(lambda x: x[0], learner), first.config)
    shown = changed(PpoConfig(), envs=2, starts=2, init=str(path), env_steps=0)
    again = build_ppo(Ppo(ctrl_dt=0.02, groups=GroupsConfig(count=7, seconds=0.1), ppo=shown), task)
    assert again.notes["groups"] == first.notes["groups"]
    assert len(set(first.notes["groups"].values())) < 7
    again.begin(1, jax.random.key(0))  # the file fits


def test_random_keys_follow_the_row_within_the_candidate(tiny):
    """The candidates draw the same; rows and steps do not."""

    def noisy(params, view, key):
        return params * jax.random.uniform(key, view.prev_action.shape)

    start = tiny.physics.start(*(np.tile(x[:3], (4, 1)) for x in tiny.states(3)))
    scale = np.array([0.2, 0.4, 0.6, 0.8], np.float32)[:, None] * np.ones((4, 7), np.float32)
    together = tiny.physics.rollout(start, noisy, scale, steps=3, key=KEY, candidates=4)
    drawn = together.actions.reshape(4, 3, 3, 7) / scale[:, None, None]
    np.testing.assert_allclose(drawn, np.broadcast_to(drawn[:1], drawn.shape), rtol=1e-5)
    assert len(np.unique(np.round(drawn[0], 5))) == drawn[0].size, "rows or steps share their noise"
