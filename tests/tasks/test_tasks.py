"""Every task on every model it is meant for: it loads, resets, steps, is measured and filmed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from movlr_jax._util.registry import Registry
from movlr_jax.control.build import build_planner
from movlr_jax.control.mpc import rules
from movlr_jax.control.optimizers import Mpc2, Mppi
from movlr_jax.evolution.evaluation import evaluate
from movlr_jax.evolution.film import clip_of
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import Style, film
from movlr_jax.film.renderer import renderer
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.tasks import TASKS, build_task

EPISODE_S = 0.064
# every task on its default model and flat_walk on the smaller ones; the other pairs are slow
SMALL = [("flat_walk", "myolegs26"), ("flat_walk", "ms_human_700_legs")]
CASES = [
    pytest.param(task, model, marks=() if model == entry.models[0] or (task, model) in SMALL else pytest.mark.slow)
    for task, entry in TASKS.items()
    for model in entry.models
]


@pytest.mark.parametrize(("name", "model"), CASES)
def test_it_runs_is_measured_and_filmed(name, model):
    task = build_task(name, model, EPISODE_S, {})
    kind = Mpc2 if task.model.na else Mppi
    config = kind(horizon_s=0.032, mppi=rules.Mppi(samples=3, keep=3))
    planner = build_planner(config, task)
    verdicts = [Verdict("probe", None, 0.0, load(parse(s))) for s in (task.rewards.human, task.rewards.initial)]
    try:
        outcomes = [outcome for (outcome,) in evaluate(planner, task, verdicts, [0])]
        for outcome in outcomes:
            assert outcome.reason is None
            assert all(np.isfinite(v) for v in outcome.metrics.values())
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
    together = [outcome for (outcome,) in evaluate(planner, task, programs, [0])]
    ((alone,),) = evaluate(planner, task, programs[1:], [0])
    assert (together[1].metrics, together[1].curve_time) == (alone.metrics, alone.curve_time)
    ends = [outcome.metrics["time_to_fall_s"] for outcome in together]
    for outcome, end in zip(together, ends, strict=True):
        assert outcome.metrics["fell"] == 1
        assert outcome.curve_time[-1] - outcome.curve_time[0] == pytest.approx(end, abs=1e-3)
    assert 0.2 < min(ends) < max(ends) < 2.9
    planner.physics.close()
    planner.sim_physics.close()
