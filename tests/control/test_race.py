"""Racing: the plan rollouts of a candidate that has ended go to the others, and nothing compiles again."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from test_mpc2 import programs
from tiny_task import task as tiny_task

from movlr_jax.control.build import build_planner
from movlr_jax.control.config import OptimizerConfig
from movlr_jax.control.mpc.mppi import MppiConfig
from movlr_jax.control.mpc.planner import Planner, gathered, lent
from movlr_jax.types import Step, Trajectory

SETTINGS = OptimizerConfig(
    "mppi", ctrl_dt=0.02, sim_dt=0.004, plan_dt=0.02, horizon_s=0.1, knots=2, mppi=MppiConfig(samples=6)
)
STEPS = 12


def planner(race: bool, lost: int | None) -> Planner:
    """Return a planner of the small leg; candidate `lost` has ended after 4 control steps."""

    def over(steps: Step, first: Step) -> np.ndarray:
        late = np.asarray(steps.time) > 0.079
        return late & (np.arange(len(late)) == (-1 if lost is None else lost))[:, None]

    return build_planner(replace(SETTINGS, race=race), replace(tiny_task(), over=over), "native")


def played(planner: Planner) -> Trajectory:
    """Return the episodes of four candidates."""
    k = len(programs())
    qpos, qvel, act = (np.repeat(x, k, axis=0) for x in planner.task.start(np.random.default_rng(0), 1))
    controllers = planner.optimise(programs(), jax.random.key(0))
    start = planner.sim_physics.start(qpos, qvel, act)
    return controllers.rollout(start, steps=STEPS, key=jax.random.key(1))


def test_rows_that_ended_work_for_the_others_in_turn():
    assert lent(np.zeros(4, bool)) is None
    assert lent(np.ones(4, bool)) is None
    assert list(lent(np.array([False, True, False, True]))) == [0, 0, 2, 2]
    assert list(lent(np.array([True, True, True, False]))) == [3, 3, 3, 3]


def test_an_owner_keeps_the_best_of_all_rows_that_worked_for_it():
    costs = np.array([[3.0, 1.0], [2.0, np.inf], [5.0, 6.0]])
    plans = np.arange(6.0).reshape(3, 2, 1, 1)
    best, cost = gathered(plans, costs, np.array([0, 0, 2]))
    assert cost[0].tolist() == [1.0, 2.0]
    assert best[0].ravel().tolist() == [1.0, 2.0]
    assert cost[2].tolist() == [5.0, 6.0], "no row worked for it but its own"


def test_nothing_changes_until_a_candidate_ends_and_nothing_compiles_again():
    alone, racing = planner(False, 1), planner(True, 1)
    a, b = played(alone), played(racing)
    np.testing.assert_array_equal(a.actions[:, :4], b.actions[:, :4])
    assert not np.array_equal(a.actions[0, 4:], b.actions[0, 4:]), "its plans are from more rollouts"
    assert racing.traces == alone.traces
    assert racing.physics.traces == alone.physics.traces
    assert racing.physics.steps_done == alone.physics.steps_done


def test_without_an_end_racing_changes_nothing():
    a, b = played(planner(False, None)), played(planner(True, None))
    np.testing.assert_array_equal(a.actions, b.actions)


def test_lent_rows_find_better_plans():
    """With all but one candidate lost at once, the other plans with four times the samples."""
    solo = planner(True, None)
    k, task = len(programs()), solo.task
    qpos, qvel, act = (np.repeat(x, k, axis=0) for x in task.start(np.random.default_rng(0), 1))
    start = solo.sim_physics.start(qpos, qvel, act)
    controllers = solo.optimise([programs()[3]] * k, jax.random.key(0))
    home = solo.space.held(start)
    keys = jax.random.key(3), jax.random.key(4)
    found = []
    for owners in (None, np.full(k, 0)):
        plan = controllers.replan(solo.init(home), start, start.step, home, *keys, owners)
        means = np.asarray(plan.mean)[:, None]
        found.append(float(controllers.costs(means, start, start.step, keys[1])[0, 0]))
    assert found[1] <= found[0] + 1e-6


@pytest.mark.parametrize("lost", [0, 3])
def test_counts_of_replaced_values_stay_those_of_each_program(lost: int):
    racing = planner(True, lost)
    k = len(programs())
    qpos, qvel, act = (np.repeat(x, k, axis=0) for x in racing.task.start(np.random.default_rng(0), 1))
    controllers = racing.optimise(programs(), jax.random.key(0))
    controllers.rollout(racing.sim_physics.start(qpos, qvel, act), steps=STEPS, key=jax.random.key(1))
    assert [list(counts) for counts in controllers.nonfinite] == [list(p.terms) for p in programs()]
