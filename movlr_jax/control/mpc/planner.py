"""The closed loop of a sampling planner, for K candidates in one batch.

Every `replan_every` control steps: sample N plans per row with the same noise for all candidates, roll out all
rows together, score the rows of each candidate with its reward program, update the plans, and act.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.control.episode import Loop, fold_in, play
from movlr_jax.control.mpc.knots import PlanSpace
from movlr_jax.control.mpc.rules import PlanDistribution, shift
from movlr_jax.control.mpc.rules.base import RISKS
from movlr_jax.control.settings import PlanningSettings
from movlr_jax.control.targets import JointTargets
from movlr_jax.errors import UserError
from movlr_jax.physics.base import Physics
from movlr_jax.physics.programs import out_of_memory
from movlr_jax.rewards.program import RewardProgram, Scorer
from movlr_jax.tasks import Task
from movlr_jax.types import Array, Progress, SimState, Step, Trajectory

_UPDATES = 2**16  # number in the keys of the second update of a plan


class Planner:
    """Plans with `physics` and acts in `sim_physics`. Owns everything that is compiled once."""

    def __init__(
        self,
        config: PlanningSettings,
        task: Task,
        space: PlanSpace,
        physics: Physics,
        sim_physics: Physics,
        say: Callable[[str], object] = lambda text: None,
        targets: JointTargets | None = None,
    ):
        """targets: how the joint targets of plans become the controls that rewards read; None: they are controls."""
        self.targets = targets
        self.name, self.config, self.task, self.space = config.name, config, task, space
        self.physics, self.sim_physics, self.scorer = physics, sim_physics, Scorer(task.layout, task.data)
        self.notes: Mapping[str, Any] = {}
        self.horizon = max(1, round(config.horizon_s / physics.ctrl_dt))  # control steps of a plan
        self.batches = Batches(physics, self.horizon, say, config.mppi.worlds)
        # one policy object per physics, created once: physics compiles per policy and shape
        self.plan_policy, self.sim_policy = space.policy(physics), space.policy(sim_physics)
        lower, upper, rule = jnp.asarray(space.lower), jnp.asarray(space.upper), config.mppi
        self.traces: Counter[str] = Counter()

        def compiled(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            """Vectorise and compile `function` over rows."""

            def traced(*rows: Any) -> Any:
                self.traces[name] += 1
                return jax.vmap(function)(*rows)

            return jax.jit(traced)

        self.risk = RISKS[rule.risk]

        self.sample = self._sampler(lower, upper)
        self.init = compiled("init", lambda mean: rule.init(mean, lower, upper))
        xp = physics.xp
        # functions on NumPy arrays are not compiled
        jit = jax.jit if xp is jnp else lambda function, **_: function
        self.spread = jit(partial(_spread, xp), static_argnames="n")
        self.apart = jit(partial(_apart, xp), static_argnums=(0, 1))
        self.add = jit(partial(jax.tree.map, xp.add))
        self.recorded = jit(partial(targets.recorded, xp)) if targets else lambda _, played: played
        self.costs_of = jit(partial(_costs, xp), static_argnums=2)
        elapsed = min(1.0, config.replan_every / self.horizon)
        self.shift = compiled("shift", lambda plan: shift(plan, elapsed, config.spline))
        self.update = compiled("update", lambda plan, z, c: rule.update(plan, z, c, lower, upper))

    def _sampler(self, lower: Array, upper: Array) -> Callable[..., Array]:
        """Return the function that draws the samples of all rows, compiled."""
        rule, mixing = self.config.mppi, self.space.mixing

        @partial(jax.jit, static_argnums=4)
        def sample(plan: PlanDistribution, held: Array, home: Array, key: jax.Array, turn: int) -> Array:
            """Return plans [R, N, knots, dims] of R rows, with the same noise for all of them.

            key: one key, or the keys [E] of E trials; row r then has the noise of trial r % E.
            """
            self.traces["sample"] += 1

            def noise(key: jax.Array) -> Any:
                _, knots, dims = home.shape
                return rule.noise(key, (knots, dims), mixing, turn)

            def draw(plan: PlanDistribution, held: Array, home: Array, noise: Any) -> Array:
                return rule.sample(plan, held, home, noise, lower, upper)

            if not key.ndim:
                return jax.vmap(draw, in_axes=(0, 0, 0, None))(plan, held, home, noise(key))
            return jax.vmap(draw)(plan, held, home, jax.vmap(noise)(key)[jnp.arange(len(home)) % len(key)])

        return sample

    @property
    def steps_done(self) -> int:
        """Number of simulation steps of both physics so far."""
        return self.physics.steps_done + self.sim_physics.steps_done

    def optimise(
        self,
        programs: Sequence[RewardProgram],
        key: jax.Array,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> PlannedControllers:
        """Return K controllers, one per program. A planner plans while it acts."""
        self.scorer.prepare(programs)  # compiles during the first rollouts
        return PlannedControllers(self, tuple(programs), progress)


@dataclass(frozen=True)
class PlannedControllers:
    """K planners in closed loop, one per program."""

    planner: Planner
    programs: tuple[RewardProgram, ...]
    progress: Progress | None = None
    learning: tuple[Mapping[str, Any], ...] = ()
    # one tree with the numbers of replaced non-finite values; empty before the first rollouts
    counted: list[Any] = field(default_factory=list)

    @property
    def nonfinite(self) -> list[dict[str, int]]:
        """Per candidate: term -> number of non-finite values replaced in the rollouts of its plans."""
        if not self.counted:
            return [dict.fromkeys(program.terms, 0) for program in self.programs]
        sums = jax.device_get(self.counted[0])
        return [
            {name: int(n) for name, n in zip(program.terms, counts, strict=True)}
            for program, counts in zip(self.programs, sums, strict=True)
        ]

    def rollout(self, start: SimState, *, steps: int, key: jax.Array) -> Trajectory:
        """Run K x E rows for `steps` control steps with replanning; candidate k owns rows k*E:(k+1)*E.

        key: One key, with the same noise of plans for all rows, or the keys [E] of E trials.
        """
        p = self.planner
        start = p.space.begun(start)
        initial, home = start.step, p.space.held(start)
        rule = p.config.mppi
        known, updates = (p.init(home), rule.updates if rule.restarts else max(p.config.first_updates, rule.updates))

        def replanned(state: SimState, keys: Sequence[jax.Array]) -> Any:
            nonlocal known, updates
            sample, random = keys
            # the policies of plans draw nothing, so one key is enough
            plan = self.replan(known, state, initial, home, sample, random.reshape(-1)[0], updates)
            known, updates = p.shift(plan), rule.updates
            return p.space.params(p.sim_physics, state, np.asarray(plan.mean)[:, None])

        loop = Loop(p.sim_physics, p.sim_policy, replanned, p.config.replan_every, len(self.programs))
        played = play(loop, p.task, start, steps=steps, key=key, progress=self.progress)
        return p.targets.recorded(np, start, played) if p.targets else played

    def replan(
        self,
        plan: PlanDistribution,
        state: SimState,
        initial: Step,
        home: Array,
        noise_key: jax.Array,
        plan_key: jax.Array,
        updates: int = 0,
    ) -> PlanDistribution:
        """Return the next plan of every row [R] of `state`, after `updates`; 0: those of the settings.

        noise_key: one key, or the keys [E] of E trials. initial [R]: first step of the episode. home
        [R, knots, dims]: the plan that holds the initial state. On a device, no data is copied to the host.
        """
        p, n, xp = self.planner, self.planner.config.mppi.samples, self.planner.physics.xp
        held = p.space.held(state)
        for number in range(updates or p.config.mppi.updates):
            noise = fold_in(noise_key, _UPDATES + number) if number else noise_key
            plans, counted = xp.asarray(p.sample(plan, held, home, noise, number)), list(self.counted)

            def costs_of(part: slice, plans: Array = plans, counted: list[Any] = counted) -> Array:
                if part.start == 0:  # also after parts that were too large
                    self.counted[:] = counted
                return self.costs(plans[:, part], state, initial, plan_key)

            costs = p.batches.run(len(state.time), n, costs_of)
            plan = p.update(plan, plans, costs[0] if len(costs) == 1 else xp.concatenate(costs, axis=1))
        return plan

    @cached_property
    def _reads(self) -> np.ndarray | None:
        """Which sensor values the rollouts of plans must measure; None: all."""
        reads, targets = self.planner.scorer.reads(self.programs), self.planner.targets
        return reads | targets.read if targets else reads

    def costs(self, plans: Array, state: SimState, initial: Step, key: jax.Array) -> Array:
        """Return the costs [R, N] of `plans` [R, N, knots, dims] under each row's program; inf if diverged.

        With several worlds, each plan is rolled out in all of them, and `risk` makes one cost of its costs.
        """
        p, physics, k = self.planner, self.planner.physics, len(self.programs)
        (rows, n), worlds = plans.shape[:2], p.config.mppi.worlds
        params = p.space.params(physics, state, plans)
        begun = p.spread(state, n * worlds)
        rollouts = physics.rollout(
            begun,
            p.plan_policy,
            p.spread(params, worlds) if worlds > 1 else params,
            steps=p.horizon,
            key=key,
            candidates=k,
            read=self._reads,
        )
        seen = p.recorded(begun, rollouts)
        seen = p.apart(k, n * worlds, seen.steps, seen.actions, initial)
        totals, _, counts = p.scorer.on_device(self.programs, seen)
        self.counted[:] = [p.add(self.counted[0], counts) if self.counted else counts]
        costs = p.costs_of(totals, rollouts.diverged, rows)
        return physics.collect(p.risk(costs.reshape(rows, n, worlds), p.config.mppi.tail) if worlds > 1 else costs)


def _spread(xp: Any, tree: Any, n: int) -> Any:
    """Repeat every row n times, consecutively."""
    return jax.tree.map(lambda x: xp.asarray(x).repeat(n, axis=0), tree)


def _apart(xp: Any, k: int, n: int, steps: Step, actions: Array, initial: Step) -> list[Any]:
    """Return for each of K candidates its part of `steps` and `actions` [K * N', ...], and of `initial` [R, ...].

    Each row of `initial` is repeated n times, as in `_spread`; NumPy copies none if a candidate has one row.
    """

    def part(x: Array, i: int) -> Array:
        size = len(x) // k
        return x[i * size : (i + 1) * size]

    def begun(x: Array, i: int) -> Array:
        mine, shape = part(x, i), x.shape[1:]
        return xp.broadcast_to(mine[:, None], (len(mine), n, *shape)).reshape(len(mine) * n, *shape)

    return [
        (*jax.tree.map(partial(part, i=i), (steps, actions)), jax.tree.map(partial(begun, i=i), initial))
        for i in range(k)
    ]


def _costs(xp: Any, totals: Sequence[Array], diverged: Array, rows: int) -> Array:
    """Return costs [rows, N] from the totals [N', T] of K candidates and the divergence flags [K * N']."""
    costs = -xp.stack([xp.asarray(t) for t in totals]).mean(axis=-1).reshape(rows, -1)
    return xp.where(xp.asarray(diverged).reshape(rows, -1), xp.inf, costs)


class Batches:
    """Splits the N plans of a batch: by an estimate of their memory, and further if the device has not enough."""

    def __init__(self, physics: Physics, steps: int, say: Callable[[str], object], worlds: int = 1):
        """steps: control steps of a plan. worlds: rollouts of each plan."""
        self._physics, self._steps, self._say, self._worlds = physics, steps, say, worlds
        self._least: dict[tuple[int, int], int] = {}  # (rows, N) -> parts, of batches that did not fit
        self._known: set[tuple[int, int, int]] = set()  # (rows, N, parts) that have run
        self._said = 1

    def of(self, rows: int, n: int) -> list[slice]:
        """Split the N plans of `rows` rows into equal parts."""
        needed = max(self._physics.parts(rows * n * self._worlds, self._steps), self._least.get((rows, n), 1))
        count = next(c for c in range(1, n + 1) if n % c == 0 and (c >= needed or c == n))
        if count > self._said:
            self._said = count
            number = rows * n * self._worlds
            self._say(
                f"  memory: {number} rollouts of {self._steps} steps do not fit into memory together; they run in "
                f"{count} parts of {number // count}"
            )
        return [slice(i, i + n // count) for i in range(0, n, n // count)]

    def run(self, rows: int, n: int, function: Callable[[slice], Any]) -> list[Any]:
        """Return the results of `function` for all parts; smaller parts if the device runs out of memory.

        Raises UserError if the rollouts of a single plan do not fit.
        """
        while True:
            parts = self.of(rows, n)
            size = (rows, n, len(parts))
            try:
                done = [function(part) for part in parts]
                if size not in self._known:
                    jax.block_until_ready(done)  # a device reports its errors when it is done
                    self._known.add(size)
                return done
            except jax.errors.JaxRuntimeError as error:
                if not out_of_memory(error):
                    raise
                self._least[rows, n] = len(parts) + 1
                if len(parts) == n:
                    raise UserError(
                        f"physics={self._physics.name}: {rows * self._worlds} rollouts of {self._steps} steps do not "
                        "fit into the memory of the device; use fewer candidates or a smaller optimizer.horizon_s"
                    ) from None
