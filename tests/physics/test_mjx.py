"""MJX against native physics on the leg of the tests: 7 muscles, wraps, a foot on the floor."""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from programs import program
from tiny_task import task as tiny_task

from movlr_jax.config.compose import compose
from movlr_jax.control.build import build_planner
from movlr_jax.control.mpc import rules
from movlr_jax.control.optimizers import Mpc2
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.physics.choose import GRAPHS, planning_physics
from movlr_jax.physics.mjx import MjxPhysics
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.types import Trajectory

KEY, ROWS, STEPS = jax.random.key(3), 8, 40  # 40 control steps of 5 simulation steps each
FIELDS = ("time", "qpos", "qvel", "act", "sensors", "prev_action")


def shaky(params, view, key):
    """Open loop by the clock, feedback from the hip's height, and noise of its own."""
    wanted = params[jnp.round(view.time / 0.01).astype(int)]
    return jnp.clip(wanted + 2.0 * view.qpos[0] + 0.05 * jax.random.normal(key, wanted.shape), 0.0, 1.0)


def controls(tiny, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(1).uniform(0, 1, (rows, STEPS, tiny.model.nu)).astype(np.float32)


@pytest.fixture(scope="module")
def mjx(tiny) -> MjxPhysics:
    return MjxPhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01)


@pytest.fixture(scope="module")
def native_run(tiny) -> Trajectory:
    return tiny.physics.rollout(tiny.physics.start(*tiny.states(ROWS)), shaky, controls(tiny), steps=STEPS, key=KEY)


@pytest.fixture(scope="module")
def mjx_run(tiny, mjx) -> Trajectory:
    start = tiny.physics.start(*tiny.states(ROWS))
    return jax.tree.map(np.asarray, mjx.rollout(start, shaky, controls(tiny), steps=STEPS, key=KEY))


def test_200_steps_agree_with_native(tiny, native_run, mjx_run):
    """Single precision here, double there: within 0.02 mm and mrad although the foot strikes the floor."""
    touch = native_run.steps.sensors[..., tiny.layout.touch["foot"][0]]
    assert (touch > 100).any()
    assert (touch == 0).any()
    np.testing.assert_allclose(mjx_run.steps.qpos, native_run.steps.qpos, atol=2e-5)
    np.testing.assert_allclose(mjx_run.final.qpos, native_run.final.qpos, atol=2e-5)
    np.testing.assert_allclose(mjx_run.steps.qvel, native_run.steps.qvel, atol=2e-3)
    np.testing.assert_allclose(mjx_run.steps.act, native_run.steps.act, atol=1e-5)
    np.testing.assert_allclose(mjx_run.steps.time, native_run.steps.time, atol=1e-6)
    np.testing.assert_allclose(mjx_run.actions, native_run.actions, atol=1e-5)  # the noise is the same
    np.testing.assert_allclose(mjx_run.steps.prev_action, native_run.steps.prev_action, atol=1e-5)
    assert not mjx_run.diverged.any()


def test_every_sensor_of_a_reward_agrees(tiny, native_run, mjx_run):
    """Each block of the layout within 1e-4 of its own size; forces of contacts and muscles within 1 %."""
    edges = sorted([*tiny.layout.blocks.items(), ("end", tiny.model.nsensordata)], key=lambda item: item[1])
    for (name, begin), (_, end) in itertools.pairwise(edges):
        ours, theirs = mjx_run.steps.sensors[..., begin:end], native_run.steps.sensors[..., begin:end]
        size = max(1.0, float(np.abs(theirs).max()))
        assert np.abs(ours - theirs).max() < (1e-2 if name in ("force", "touch") else 2e-3) * size, name


def test_more_or_fewer_rows_compile_nothing(tiny, mjx, mjx_run):
    """Six rows run as a batch of eight, and are those of the eight."""
    start = tiny.physics.start(*tiny.states(ROWS))
    before, few = dict(mjx.traces), slice(0, 6)
    fewer = mjx.rollout(jax.tree.map(lambda x: x[few], start), shaky, controls(tiny)[few], steps=STEPS, key=KEY)
    assert mjx.traces == before
    assert fewer.actions.shape[0] == 6
    np.testing.assert_array_equal(fewer.steps.qpos, mjx_run.steps.qpos[few])


def test_a_row_that_diverges_is_marked_and_harms_no_other(tiny, mjx, mjx_run):
    start = tiny.physics.start(*tiny.states(ROWS))
    start.qvel[2] = 1e9
    result = mjx.rollout(start, shaky, controls(tiny), steps=STEPS, key=KEY)
    others = np.arange(ROWS) != 2
    np.testing.assert_array_equal(result.diverged, ~others)
    np.testing.assert_array_equal(result.valid, np.where(others, STEPS, 0))
    np.testing.assert_array_equal(np.asarray(result.steps.qpos)[others], mjx_run.steps.qpos[others])
    assert all(np.isfinite(getattr(result.steps, name)).all() for name in FIELDS)


@pytest.mark.slow
def test_steps_taken_one_by_one_inside_jit_are_the_rollout(tiny, mjx, mjx_run):
    """What a training loop does: its own scan over `control_step`."""
    simulator = mjx.simulator(ROWS)
    step = jax.jit(jax.vmap(simulator.control_step))
    state = jax.tree.map(jnp.asarray, tiny.physics.start(*tiny.states(ROWS)))
    state = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, state)
    for t in range(3):
        state, seen = step(state, mjx_run.actions[:, t])
        np.testing.assert_allclose(seen.qpos, mjx_run.steps.qpos[:, t], atol=1e-6)
    np.testing.assert_allclose(state.time, 0.03, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mjx", "warp"])
def test_candidates_that_share_their_policies_are_rolled_out_as_rows_of_their_own(tiny, mjx, name):
    """As trainings do it: two policies of four rows each, against eight rows with a policy each."""
    if name == "warp":
        pytest.importorskip("warp", reason="the extra warp is not installed")
        mjx = MjxPhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01, name="warp")
    start, two = tiny.physics.start(*tiny.states(ROWS)), controls(tiny, 2)
    settings = {"steps": 20, "key": KEY, "candidates": 2}
    together = mjx.rollout(start, shaky, two, **settings)
    each = mjx.rollout(start, shaky, two.repeat(4, axis=0), **settings)
    assert np.asarray(together.steps.sensors)[..., tiny.layout.touch["foot"][0]].max() > 100
    assert not together.diverged.any()
    for field, tolerance in {"qpos": 1e-5, "qvel": 2e-3, "act": 1e-5, "prev_action": 1e-5, "time": 0}.items():
        ours, theirs = (np.asarray(getattr(run.steps, field)) for run in (together, each))
        np.testing.assert_allclose(ours, theirs, atol=tolerance)


def test_the_graph_mode_of_warp_is_a_setting(tiny):
    for graph in GRAPHS[1:]:
        with pytest.raises(UserError, match=f"optimizer.warp_graph={graph} has no effect with physics=native"):
            planning_physics("native", tiny_task(), sim_dt=0.008, ctrl_dt=0.016, graph=graph)
    warp = pytest.importorskip("warp", reason="the extra warp is not installed")
    sizes = {"sim_dt": 0.002, "ctrl_dt": 0.01, "name": "warp"}
    modes = {g: MjxPhysics(tiny.model, tiny.layout, **sizes, graph=g).simulator(1).model for g in GRAPHS[1:]}
    assert {g: m.opt._impl.graph_mode for g, m in modes.items()} == {
        graph: warp.JaxCallableGraphMode[graph.upper()] for graph in GRAPHS[1:]
    }


def test_a_batch_that_does_not_fit_is_split(tiny, monkeypatch):
    memory = iter((2**34, 2**20))
    monkeypatch.setattr("movlr_jax.physics.mjx.free_memory", lambda device: next(memory))
    roomy, tight = (MjxPhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01) for _ in range(2))
    assert roomy.parts(64, 25) == 1
    assert 1 < tight.parts(64, 25) < 64
    assert tight.parts(64, 50) > tight.parts(64, 25)


TERMS = (
    "state.pos('foot')[2]",
    "-jnp.sum((state.pos('foot') - state.goal('foot_pos')) ** 2)",
    "-jnp.sum(state.muscles ** 2)",
    "-jnp.abs(state.qd('knee'))",
)


def rewards(generation: int) -> list[RewardProgram]:
    """Two programs that differ from those of every other generation."""
    return [program(term) for term in (TERMS[generation], f"{TERMS[generation]} * 2 + {generation}")]


@pytest.fixture(scope="module")
def planners():
    task, settings = tiny_task(), Mpc2(mppi=rules.Mppi(samples=8), horizon_s=0.16)
    return {name: build_planner(settings, task, name) for name in ("native", "mjx")}


def replan(planner, programs, seed: int = 0):
    rows = [np.repeat(x, 2, axis=0) for x in tiny_task().start(np.random.default_rng(0), 1)]
    start, key = planner.sim_physics.start(*rows), jax.random.key(seed)
    held = planner.space.held(start)
    controllers = planner.optimise(programs, key)
    return np.asarray(controllers.replan(planner.init(held), start, start.step, held, key, key).mean)


@pytest.mark.slow
def test_the_same_planner_reaches_the_same_plan(planners):
    """Within 5 mrad after one plan, of samples that are drawn with a spread of 200 mrad."""
    for seed in range(3):
        native, mjx = (replan(planners[name], rewards(1), seed) for name in ("native", "mjx"))
        assert np.isfinite(native).all()
        np.testing.assert_allclose(mjx, native, atol=5e-3)


def test_over_generations_physics_and_planner_are_traced_once_and_rewards_each_time(planners):
    planner = planners["mjx"]
    rows = [np.repeat(x, 2, axis=0) for x in tiny_task().start(np.random.default_rng(0), 1)]
    start, before = planner.sim_physics.start(*rows), planner.scorer.traces
    for generation in (0, 2):  # none of which another test has scored
        controllers = planner.optimise(rewards(generation), KEY)
        episode = controllers.rollout(start, steps=3 * planner.config.replan_every, key=KEY)
        assert not episode.diverged.any()
    assert planner.physics.traces.keys() >= {"rollout of 10 steps, 16 rows", "lengths, 16 rows"}
    assert set(planner.physics.traces.values()) == {1}
    assert set(planner.traces.values()) == {1}
    assert planner.scorer.traces - before == 2 * 2, "two programs each"


def test_a_plan_made_in_parts_is_the_plan(planners, monkeypatch):
    planner = planners["native"]
    whole = replan(planner, rewards(0))
    monkeypatch.setattr(planner.physics, "parts", lambda rows, steps: 3)
    said: list[str] = []
    monkeypatch.setattr(planner.batches, "_say", said.append)
    assert len(planner.batches.of(2, 8)) == 4  # 8 samples make no three equal parts
    planner.batches.of(2, 8)
    assert len(said) == 1, "told once"
    assert "4 parts of 4" in said[0]
    np.testing.assert_array_equal(replan(planner, rewards(0)), whole)


@pytest.mark.slow
@pytest.mark.skipif(
    jax.__version_info__ >= (0, 11), reason="the compiler of jaxlib 0.11 crashes for several devices on a CPU"
)
def test_eight_devices_compute_what_one_does(mjx_run, tmp_path: Path):
    code = """
import sys, jax, numpy as np
import test_mjx, conftest
assert len(jax.local_devices()) == 8
tiny = next(conftest.tiny.__wrapped__())
physics = test_mjx.MjxPhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01)
assert physics.devices == 8
start = tiny.physics.start(*tiny.states(test_mjx.ROWS))
run = physics.rollout(start, test_mjx.shaky, test_mjx.controls(tiny), steps=test_mjx.STEPS, key=test_mjx.KEY)
assert len(run.actions.sharding.device_set) == 8
np.savez(sys.argv[1], **{name: getattr(run.steps, name) for name in test_mjx.FIELDS})
"""
    out, here = tmp_path / "run.npz", Path(__file__).parent
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    paths = os.pathsep.join(
        [str(here), str(here.parent), str(here.parent / "support"), os.environ.get("PYTHONPATH", "")]
    )
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with np.load(out) as run:
        for name, tolerance in {"qpos": 1e-5, "qvel": 2e-3, "act": 1e-6, "prev_action": 1e-5}.items():
            np.testing.assert_allclose(run[name], getattr(mjx_run.steps, name), atol=tolerance)


def test_warp_that_is_missing_is_a_sentence(tiny, monkeypatch):
    monkeypatch.setattr("mujoco.mjx.warp.WARP_INSTALLED", False)
    with pytest.raises(UserError, match="warp-lang"):
        MjxPhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01, name="warp")


@pytest.mark.slow
def test_a_solver_of_warp_at_its_limit_prints_nothing(tiny, capfd):
    pytest.importorskip("warp")
    model = copy.deepcopy(tiny.model)
    model.opt.iterations, model.opt.ls_iterations, model.opt.tolerance = 1, 1, 0.0
    warp = MjxPhysics(model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01, name="warp")
    start = tiny.physics.start(*tiny.states(ROWS))
    capfd.readouterr()
    jax.block_until_ready(warp.rollout(start, shaky, controls(tiny), steps=STEPS, key=KEY))
    assert "iterations" not in "".join(capfd.readouterr())


@pytest.mark.slow
def test_warp_agrees_with_native(tiny, native_run):
    pytest.importorskip("warp")
    warp = MjxPhysics(tiny.model, tiny.layout, sim_dt=0.002, ctrl_dt=0.01, name="warp")
    start = tiny.physics.start(*tiny.states(ROWS))
    run = warp.rollout(start, shaky, controls(tiny), steps=STEPS, key=KEY)
    np.testing.assert_allclose(run.steps.qpos, native_run.steps.qpos, atol=2e-5)
    qpos = tiny.states(ROWS)[0]
    for ours, theirs in zip(warp.kinematics(qpos), tiny.physics.kinematics(qpos), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.slow
def test_a_bottle_in_the_hand_moves_in_warp_as_in_native():
    """63 muscles and elliptic cones: the posture at the start is held for 0.4 s, and three others are approached.

    The bottle stands on its feet by 0.2 mm more than in the task, where rounding decides whether they touch.
    """
    pytest.importorskip("warp")
    config = compose(["task=bottle_pour", "films=false"])
    task = task_of(config)
    (bottle,) = np.flatnonzero(task.model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
    at = task.model.jnt_qposadr[bottle] + np.arange(3)
    qpos, qvel, act = task.start(np.random.default_rng(0), 4)
    qpos[:, at[2]] -= 2e-4
    paths, rng = list[np.ndarray](), np.random.default_rng(1)
    for name in ("native", "warp"):
        planner = build_planner(config.optimizer, task, name)
        start = planner.sim_physics.start(qpos, qvel, act)
        plans = planner.space.held(start)
        if not paths:
            noise = 0.15 * rng.standard_normal(plans.shape).astype(np.float32)
            noise[0] = 0.0
        place = planner.physics.xp.asarray
        start = jax.tree.map(place, start)
        params = planner.space.params(planner.physics, start, place(plans + noise)[:, None])
        run = planner.physics.rollout(start, planner.plan_policy, params, steps=planner.horizon, key=KEY)
        paths.append(np.asarray(jax.block_until_ready(run.steps.qpos)))
    native, warp = paths
    moved = np.linalg.norm(native[:, -1, at] - native[:, 0, at], axis=-1)
    assert moved[1:].min() > 0.01
    np.testing.assert_allclose(warp, native, atol=1e-4)
