"""Evaluations of finished episodes: one that diverged, or has non-finite metrics, ranks last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cli_cases import SUPPORT
from made_gait import DT, Gait, replaced, walk, walker_of_boxes

from movlr_jax.config.compose import compose
from movlr_jax.engine.parts import task_and_optimizer
from movlr_jax.evolution.evaluation import evaluate, measure, middle
from movlr_jax.evolution.gates import merit
from movlr_jax.evolution.pairwise import rank
from movlr_jax.evolution.scripted.metrics import MetricsJudge
from movlr_jax.records import Evaluation, Program, Trial
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.tasks import Task
from movlr_jax.types import Trajectory


@pytest.fixture(scope="module")
def task() -> Task:
    return walker_of_boxes()


def outcome(task: Task, made: Trajectory) -> Trial:
    program = RewardProgram("", "", {"a": 2.0}, lambda state, action: {}, "")
    terms = {"a": np.full(len(made.actions), 0.5, np.float32)}
    return measure(task, program, made, terms, ({"a": 0}, {"a": 0}), DT)


def poor(task: Task) -> Task:
    return task.replace(measure=lambda episode, task: {"success": 0.0, "distance_m": -100.0})


@pytest.mark.parametrize("place", [0, 2])
def test_a_perfect_episode_that_diverged_is_the_last(task: Task, place: int):
    """However good it was until then, any that ran is before it."""
    made = walk(task, Gait(seconds=2.0))
    ran = [outcome(poor(task), made), outcome(poor(task), made)]
    lost = outcome(task, replace(made, valid=np.asarray(len(made.actions) - 1)))
    entrants = [Evaluation.of(Program(0, 0), trial) for trial in (*ran[:place], lost, *ran[place:])]
    judge = MetricsJudge()
    result = rank(range(3), lambda pairs: [judge.compare(task, entrants[i], entrants[j]) for i, j in pairs])
    assert result.order[-1] == place
    assert lost.failed
    assert lost.metrics["distance_m"] > 5.9


def test_an_episode_that_diverged_is_measured_up_to_there_and_has_no_success(task: Task):
    """MuJoCo sets a body back that diverged: it stands, where it may have been about to fall."""
    counts = task.replace(measure=lambda e, task: {"success": 1.0, "steps": float(len(e.steps.qpos))})
    made = walk(task, Gait(seconds=2.0))
    for valid, steps in ((len(made.actions), len(made.actions)), (40, 40), (0, 2)):
        found = outcome(counts, replace(made, valid=np.asarray(valid)))
        lost = valid < len(made.actions)
        assert (found.metrics["steps"], found.metrics["success"], found.failed) == (steps, float(not lost), lost)
        assert found.metrics["diverged_fraction"] == float(lost)


def test_measures_that_are_not_finite_are_a_failure(task: Task):
    made = walk(task, Gait(seconds=2.0))
    act = np.array(made.steps.act)
    act[7] = np.nan
    result = outcome(task, replaced(made, act=act))
    assert result.reason
    assert "not finite" in result.reason
    assert result.series["effort"].count(None) == 1
    assert all(np.isfinite(v) for v in result.metrics.values())


def test_a_trial_has_the_series_and_the_terms(task: Task):
    own: Callable = lambda episode, task: {"error_m": np.linspace(0.0, 1.0, len(episode.actions))}  # noqa: E731
    result = outcome(task.replace(series=own), walk(task))
    points = len(result.curve_time)
    assert points == 200
    assert {len(values) for values in result.series.values()} == {points}
    assert result.series["error_m"][-1] == 1.0
    assert len(result.terms["a"]["curve"]) == points
    assert {"effort", "speed_m_s", "left_foot_force_n", "error_m"} <= set(result.series)


UP = 'WEIGHTS = {"up": 1.0}\ndef reward(state, action):\n    return {"up": state.pos("foot")[2]}\n'


@pytest.mark.slow
def test_a_trial_of_evosax_alone_and_in_a_batch_is_bitwise_the_same():
    """As test_workers.py shows it of MPPI; trials of other seeds differ."""
    config = compose([f"+task={SUPPORT / 'tiny_task.py'}", "optimizer=mppi", "optimizer.mppi.rule=evosax",
                      "optimizer.mppi.samples=4", "optimizer.horizon_s=0.08", "episode_s=0.16"])  # fmt: skip
    task, optimizer = task_and_optimizer(config)
    verdicts = [Verdict("probe", None, 0.0, load(parse(text))) for text in (UP, UP.replace("1.0", "-1.0"))]
    seeds = (7, 8, 9)
    rows = evaluate(optimizer, task, verdicts, seeds)
    assert [[trial.seed for trial in row] for row in rows] == [[*seeds]] * 2
    for k, n in ((0, 0), (1, 2)):
        ((alone,),) = evaluate(optimizer, task, [verdicts[k]], [seeds[n]])
        assert replace(alone, timing={}) == replace(rows[k][n], timing={})
    for row in rows:
        assert len({task.scoring.score(dict(e.metrics)) for e in row}) == len(seeds)


def test_the_middle_trial_stands_for_a_program(task: Task):
    """Of three, the one with the middle score; of two, the worse; one that failed is below all."""
    trials = [Trial(seed=i, metrics={"distance_m": d}) for i, d in enumerate((3.0, 1.0, 2.0))]
    assert middle(task, trials) is trials[2]
    assert middle(task, trials[:2]) is trials[1]
    assert middle(task, [replace(trials[0], reason="late"), *trials[1:]]) is trials[1]


def test_a_fault_counts_before_the_score(task: Task):
    fell = Evaluation(0, 0, "", metrics={"distance_m": 6.0, "fell": 1.0, "success": 0.0})
    ran = Evaluation(0, 0, "", metrics={"distance_m": 1.0, "fell": 0.0, "success": 0.0})
    assert merit(task, fell) < merit(task, ran)
    assert merit(task, replace(ran, reason="late")) < merit(task, fell)
