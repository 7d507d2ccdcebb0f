"""Every task on every model it is meant for: it loads, resets, steps, is measured and filmed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import mujoco
import numpy as np
import pytest

from movlr_jax._util.registry import Registry
from movlr_jax.config.compose import compose
from movlr_jax.control.build import build_planner
from movlr_jax.control.mpc import rules
from movlr_jax.control.optimizers import Mpc2, Mppi
from movlr_jax.evolution.evaluation import evaluate
from movlr_jax.evolution.film import clip_of
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import Style, film
from movlr_jax.film.renderer import renderer
from movlr_jax.physics.native import NativePhysics
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.tasks import TASKS, Task, build_task

EPISODE_S = 0.064
# every task on its default model and flat_walk on every model; the other pairs are slow
CASES = [
    pytest.param(task, model, marks=() if model == entry.models[0] or task == "flat_walk" else pytest.mark.slow)
    for task, entry in TASKS.items()
    for model in entry.models
]
UNITS = ("_m", "_s", "_rad", "_hz", "_m_s", "_s_per_sim_s", "_fraction", "_deg")
PLAIN = (
    "success",
    "fell",
    "effort",
    "smoothness",
    "symmetry",
    "cost_of_transport",
    "joint_limit_fraction",
    "terrain_level",
    "dropped",
)


def built(task: str, model: str, episode_s: float = EPISODE_S, settings: Mapping[str, Any] | None = None) -> Task:
    return build_task(task, model, episode_s, settings or {})


@pytest.fixture(scope="module", params=list(TASKS))
def as_set(request: pytest.FixtureRequest) -> Task:
    """Each task with its default settings."""
    config = compose([f"+task={request.param}"])
    return built(request.param, config.model, config.episode_s, config.task.settings)


@pytest.mark.parametrize(("name", "model"), CASES)
def test_it_runs_is_measured_and_filmed(name, model):
    task = built(name, model)
    kind = Mpc2 if task.model.na else Mppi
    config = kind(horizon_s=0.032, mppi=rules.Mppi(samples=3, keep=3))
    planner = build_planner(config, task)
    verdicts = [Verdict("probe", None, 0.0, load(parse(s))) for s in (task.rewards.human, task.rewards.initial)]
    try:
        outcomes = [outcome for (outcome,) in evaluate(planner, task, verdicts, [0])]
        for outcome in outcomes:
            assert outcome.reason is None
            assert all(np.isfinite(v) for v in outcome.metrics.values())
            assert all(k in PLAIN or k.endswith(UNITS) for k in outcome.metrics), outcome.metrics
            assert json.dumps(outcome.metrics)
            assert outcome.metrics["diverged_fraction"] == 0
            if "fell" in outcome.metrics:
                assert outcome.metrics["fell"] == 0
            for values in outcome.terms.values():
                assert np.isfinite(values["curve"]).all()
                assert values["nonfinite"] == 0
            assert np.isfinite(task.scoring.score(dict(outcome.metrics)))
            task.scoring.diagnose(dict(outcome.metrics))
        if renderer().name:
            mp4 = film(clip_of(task, outcomes[-1].states or b"", Caption(name)), Style((160, 120))).mp4
            assert mp4[4:8] == b"ftyp"
    finally:
        planner.physics.close()
        planner.sim_physics.close()


def test_native_physics_is_plain_mujoco_stepped_in_a_loop(as_set: Task):
    task = as_set
    physics = NativePhysics(task.model, task.layout, sim_dt=0.002, ctrl_dt=0.016)
    rng = np.random.default_rng(0)
    qpos, qvel, act = task.start(rng, 2)
    controls = rng.uniform(0, 1, (2, task.model.nu)).astype(np.float32)
    rollout = physics.rollout(
        physics.start(qpos, qvel, act), lambda params, view, key: params, controls, steps=3, key=jax.random.key(0)
    )
    physics.close()
    for row in range(2):
        data, model_ = mujoco.MjData(physics.model), physics.model
        data.qpos[:], data.qvel[:], data.act[:], data.ctrl[:] = qpos[row], qvel[row], act[row], controls[row]
        for _ in range(24):
            mujoco.mj_step(model_, data)
        np.testing.assert_array_equal(rollout.final.qpos[row], data.qpos)
        np.testing.assert_array_equal(rollout.final.qvel[row], data.qvel)
        np.testing.assert_array_equal(rollout.final.act[row], data.act)


def test_the_whole_body_model_means_the_one_with_fingers_to_a_task_of_the_hand(monkeypatch):
    for task, model in (("bottle_pour", "ms_human_700_manipulation"), ("stand", "ms_human_700")):
        entry = replace(TASKS[task], build=lambda adapter, *, episode_s: adapter.name)
        monkeypatch.setattr("movlr_jax.tasks.registry.TASKS", Registry("task", "nothing", {task: entry}))
        assert build_task(task, "ms_human_700", 1.0, {}) == model


def test_a_fall_ends_an_episode_and_what_others_do_meanwhile_does_not_matter():
    """Pushed over: the episode is cut at the fall, and its measures are those of the program alone."""
    task = build_task("stand", "myolegs", 3.0, {"push_m_s": 1.2, "push_s": 0.0})
    config = Mpc2(horizon_s=0.032, replan_every=4, mppi=rules.Mppi(samples=3, keep=3))
    planner = build_planner(config, task)
    fold = 'WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return {"a": -state.pos("head")[2]}\n'
    programs = [Verdict("probe", None, 0.0, load(parse(s))) for s in (task.rewards.human, fold)]
    together = evaluate(planner, task, programs, [0])
    alone = [evaluate(planner, task, [program], [0])[0] for program in programs]
    ends = []
    for (a,), (b,) in zip(together, alone, strict=True):
        assert a.metrics == b.metrics
        assert a.metrics["fell"] == 1
        assert a.curve_time == b.curve_time
        ends.append(a.metrics["time_to_fall_s"])
        assert a.curve_time[-1] - a.curve_time[0] == pytest.approx(ends[-1], abs=1e-3)
    assert 0.2 < min(ends) < max(ends) < 2.9
    planner.physics.close()
    planner.sim_physics.close()
