"""The closed loop of a sampling planner, for K candidates in one batch.

Every `replan_every` control steps: sample N plans per row with the same noise for all candidates, roll all
K x N out, score each candidate's rows with its own reward program, update, act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.control import mppi
from movlr_jax.control.episode import World, by_candidate, play
from movlr_jax.control.mppi import MppiConfig
from movlr_jax.rewards.program import RewardProgram, Scorer
from movlr_jax.types import Array, Physics, Policy, Progress, SimState, Step, Trajectory


class PlanSpace(Protocol):
    """What the numbers of a plan mean."""

    lower: np.ndarray  # [dims]
    upper: np.ndarray  # [dims]
    mixing: np.ndarray  # [dims, dims] turns independent noise into the noise of plans, unit variance each

    def policy(self, physics: Physics) -> Policy: ...
    def held(self, state: SimState) -> Array: ...  # [R, knots, dims]
    def params(self, physics: Physics, state: SimState, plans: Array) -> Any: ...


@dataclass(frozen=True)
class PlannerConfig:
    """Horizon and rhythm of the planner."""

    mppi: MppiConfig
    horizon_s: float = 0.4
    replan_every: int = 2  # control steps


class Planner:
    """Plans with `plan_physics`, acts in `sim_physics`; holds everything that is compiled once."""

    def __init__(
        self,
        name: str,
        config: PlannerConfig,
        space: PlanSpace,
        plan_physics: Physics,
        sim_physics: Physics,
        scorer: Scorer,
        world: World | None = None,
    ):
        self.name, self.config, self.space, self.scorer = name, config, space, scorer
        self.plan_physics, self.sim_physics = plan_physics, sim_physics
        self.world = world or World()
        self.horizon = max(1, round(config.horizon_s / plan_physics.ctrl_dt))
        # One policy object each, made once: physics compiles per policy and shape.
        self.plan_policy, self.sim_policy = space.policy(plan_physics), space.policy(sim_physics)
        lower, upper, settings = jnp.asarray(space.lower), jnp.asarray(space.upper), config.mppi
        self.init = jax.jit(jax.vmap(lambda mean: mppi.init(settings, mean, lower, upper)))
        self.sample = jax.jit(
            jax.vmap(
                lambda plan, held, home, noise: mppi.sample(settings, plan, held, home, noise, lower, upper),
                in_axes=(0, 0, 0, None),
            )
        )
        elapsed = min(1.0, config.replan_every / self.horizon)
        self.shift = jax.jit(jax.vmap(lambda plan: mppi.shift(plan, elapsed)))
        self.update = jax.jit(jax.vmap(lambda plan, z, c: mppi.update(settings, plan, z, c, lower, upper)))

    @property
    def steps_done(self) -> int:
        """Simulation steps of both physics since they were built."""
        return self.plan_physics.steps_done + self.sim_physics.steps_done

    def optimise(
        self,
        programs: Sequence[RewardProgram],
        key: jax.Array,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> PlannedControllers:
        """K controllers, one per program. A planner learns nothing beforehand: the work is done as they act."""
        return PlannedControllers(self, tuple(programs), progress)


@dataclass(frozen=True)
class PlannedControllers:
    """K planners in closed loop."""

    planner: Planner
    programs: tuple[RewardProgram, ...]
    progress: Progress | None = None
    learning: tuple[Mapping[str, Any], ...] = ()

    def rollout(self, start: SimState, *, steps: int, key: jax.Array) -> Trajectory:
        """`steps` control steps of K x E rows (candidate k owns rows k*E:(k+1)*E), replanning as it goes."""
        p, initial, home = self.planner, start.step, self.planner.space.held(start)
        known = p.init(home)

        def replanned(state: SimState, keys: Sequence[jax.Array]) -> Any:
            nonlocal known
            plan = self.replan(known, state, initial, home, *keys)
            known = p.shift(plan)
            return p.space.params(p.sim_physics, state, np.asarray(plan.mean)[:, None])

        return play(
            p.sim_physics,
            p.sim_policy,
            p.world,
            start,
            replanned,
            steps=steps,
            every=p.config.replan_every,
            candidates=len(self.programs),
            key=key,
            progress=self.progress,
        )

    def replan(
        self,
        plan: mppi.Plan,
        state: SimState,
        initial: Step,
        home: Array,
        noise_key: jax.Array,
        plan_key: jax.Array,
    ) -> mppi.Plan:
        """The next plan of every row [R] of `state`: sample, roll out, score, update.

        `initial` [R] began the episode and `home` [R, knots, dims] is the plan that holds what was then.
        """
        p, n = self.planner, self.planner.config.mppi.samples
        rows, k = len(state.time), len(self.programs)
        noise = jax.random.normal(noise_key, (n, *plan.mean.shape[1:])) @ p.space.mixing
        plans = p.sample(plan, p.space.held(state), home, noise)  # [R, N, knots, dims]
        rollouts = p.plan_physics.rollout(
            jax.tree.map(partial(np.repeat, repeats=n, axis=0), state),
            p.plan_policy,
            p.space.params(p.plan_physics, state, np.asarray(plans)),
            steps=p.horizon,
            key=plan_key,
            candidates=k,
        )
        starts = jax.tree.map(lambda x: np.repeat(x, n, axis=0), initial)
        states, actions, starts = jax.tree.map(
            lambda x: by_candidate(x, k), (rollouts.steps, rollouts.actions, starts)
        )
        scores = p.scorer(self.programs, states, actions, starts)
        costs = -scores.totals.mean(axis=-1).reshape(rows, n)
        costs[np.asarray(rollouts.diverged).reshape(rows, n)] = np.inf
        return p.update(plan, plans, costs)
