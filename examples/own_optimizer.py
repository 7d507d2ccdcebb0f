"""An optimiser of one's own: the cross-entropy method on the controls of a whole episode, without feedback.

    python examples/own_optimizer.py TASK          # a name, or the path of a task file

Registering it makes `optimizer=cem` a choice like any other, in searches and evaluations.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import movlr_jax as mj
from movlr_jax.physics.base import Physics
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import Scorer

KNOTS = 8  # controls of an episode are interpolated between so many


@dataclass(frozen=True)
class CrossEntropy(mj.OptimizerSettings):
    """The settings of the optimiser, and how it is built."""

    samples: int = mj.setting(32, "episodes per round", least=2)
    rounds: int = mj.setting(12, "of samples, rollouts and update", least=1)

    def build(self, task, physics, say):
        return Optimizer(self, task)


class Optimizer:
    """Optimises control under K reward programs in one batch. Rewards only see rollouts that have ended."""

    name = "cem"

    def __init__(self, config, task):
        self.config, self.task = config, task
        self.sim_physics: Physics = NativePhysics(
            task.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt
        )
        self.physics: Physics = self.sim_physics  # plans in the physics of the evaluation
        self.scorer = Scorer(task.layout, task.data)
        self.notes: Mapping[str, Any] = {"knots": KNOTS}

    @property
    def steps_done(self) -> int:
        return self.sim_physics.steps_done

    def optimise(self, programs, key, progress=None, folder=None):
        return Controllers(self, programs, progress)


class Controllers:
    """K controllers. They seek their controls when an episode begins, because they need its start."""

    def __init__(self, optimizer: Optimizer, programs, progress):
        self.optimizer, self.programs, self.progress = optimizer, programs, progress
        self.learning = []  # nothing is trained
        self.nonfinite = [{} for _ in programs]

    def rollout(self, start, *, steps, key):
        """start: [K x E] states. key: one key, or the keys [E] of E trials. Returns the episodes, [K x E, steps]."""
        o, k, rows = self.optimizer, len(self.programs), len(start.time)
        n, rounds = o.config.samples, o.config.rounds
        low, high = o.task.model.actuator_ctrlrange.T
        seeds = np.atleast_2d(jax.random.key_data(key))
        rngs = [np.random.default_rng(seed) for seed in seeds]  # so a trial alone has the noise of the batch
        dt = o.sim_physics.ctrl_dt

        def policy(params, view, key):  # of one row: params [steps, nu] -> [nu]
            return params[jnp.clip(jnp.round(view.time / dt).astype(int), 0, steps - 1)]

        def play(knots, start):
            at = np.linspace(0, KNOTS - 1, steps)
            i = np.minimum(at.astype(int), KNOTS - 2)
            share = (at - i)[:, None]
            controls = (1 - share) * knots[:, i] + share * knots[:, i + 1]
            return o.sim_physics.rollout(start, policy, np.float32(controls), steps=steps, key=key, candidates=rows)

        mean = np.tile((low + high) / 2, (rows, KNOTS, 1))
        deviation = np.tile((high - low) / 4, (rows, KNOTS, 1))
        many = jax.tree.map(lambda x: np.repeat(np.asarray(x), n, axis=0), start)
        for done in range(rounds):
            noise = [rng.normal(size=(n, KNOTS, len(low))) for rng in rngs] * (rows // len(rngs))
            knots = np.clip(mean[:, None] + deviation[:, None] * np.array(noise), low, high)
            played = play(knots.reshape(rows * n, KNOTS, -1), many)
            by_program = jax.tree.map(
                lambda x: np.asarray(x).reshape(k, -1, *np.shape(x)[1:]), (played.steps, played.actions, many.step)
            )
            returns = o.scorer(self.programs, *by_program).totals.reshape(rows, n, -1).sum(axis=-1)
            best = np.argsort(-returns, axis=1)[:, : max(2, n // 8), None, None]
            elite = np.take_along_axis(knots, best, axis=1)
            mean, deviation = elite.mean(axis=1), elite.std(axis=1) + 0.02 * (high - low)
            if self.progress:
                self.progress(done + 1, rounds)
        return play(mean, start)


mj.register_optimizer("cem", CrossEntropy, replace=True)

if __name__ == "__main__":
    task = mj.load_task(sys.argv[1])
    print(mj.evaluate_reward("human", task, optimizer="cem"))
    print(mj.run_search(task, optimizer="cem", films=False))
