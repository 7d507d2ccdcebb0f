"""The first policy imitates a planner under the same reward program.

DAgger (Ross et al., 2011): the planner moves the body first, then increasingly the policy. In all states that are
visited, the planner goes on planning, and the policy is fitted to what it would have done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.control.mpc.planner import Planner
from movlr_jax.control.ppo.trainer import PpoTrainer
from movlr_jax.control.ppo.update import Learner
from movlr_jax.control.ppo.walking.teaching import ROUNDS, imitate
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.types import Step

_EPOCHS = 100  # of fitting in a round: labels are few and noisy
_MOST = 0.95  # largest action that is taught: noise of plans at their limits would outweigh the others


@dataclass(frozen=True)
class PlannerTeacher:
    """Teaches a policy that commands what the planner plans, in about `steps` control steps."""

    planner: Callable[[], AbstractContextManager[Planner]]  # made when it teaches, closed afterwards
    steps: int
    noise: float  # standard deviation of the policy's actions before squashing
    per_program: ClassVar[bool] = True

    def __call__(self, ppo: PpoTrainer, learner: Learner, key: jax.Array, program: RewardProgram) -> Learner:
        with self.planner() as planner:
            return self._taught(planner, ppo, learner, key, program)

    def _taught(
        self, planner: Planner, ppo: PpoTrainer, learner: Learner, key: jax.Array, program: RewardProgram
    ) -> Learner:
        inverse = ppo.space.action
        assert inverse is not None
        plans, physics, rule = planner.optimise([program], key), planner.sim_physics, planner.config.mppi
        scale, every = float(np.log(np.expm1(self.noise))), planner.config.replan_every
        rows = max(1, self.steps // (ROUNDS * ppo.limit))  # episodes of a round

        def act(params: Any, view: Step, key: jax.Array) -> Any:
            """Act as the planner or as the policy, and log what the planner commands."""
            own, planned = ppo.exploit(params["own"], view, key), planner.sim_policy(params["plan"], view, key)
            chosen = jnp.where(jax.random.uniform(key) < params["share"], own, planned)
            return chosen, {"observation": ppo.see(view), "action": inverse(planned)}

        def collect(learner: Learner, share: float, key: jax.Array) -> dict[str, np.ndarray]:
            policy = (learner.normalizer, learner.params.policy)
            own = jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (rows, *np.shape(x))), policy)
            start_key, key = jax.random.split(key)
            chosen = np.asarray(jax.random.randint(start_key, (rows,), 0, len(ppo.pool.time)))
            begun = jax.tree.map(lambda x: x[chosen], ppo.pool.step)
            state = planner.space.begun(physics.start(begun.qpos, begun.qvel, begun.act))
            initial, home = state.step, planner.space.held(state)
            plan, updates, found = planner.init(home), max(planner.config.first_updates, rule.updates), []
            for t in range(0, ppo.limit, every):
                plan_key, act_key = jax.random.split(jax.random.fold_in(key, t))
                plan = plans.replan(plan, state, initial, home, plan_key, plan_key, updates)
                params = {
                    "plan": planner.space.params(physics, state, np.asarray(plan.mean)[:, None]),
                    "own": own,
                    "share": np.full(rows, share, np.float32),
                }
                made = physics.rollout(state, act, params, steps=every, key=act_key, candidates=rows)
                plan, updates, state = planner.shift(plan), rule.updates, made.final
                valid = np.arange(every) < np.asarray(made.valid)[:, None]
                found.append({name: np.asarray(x)[valid] for name, x in made.extras.items()})
            seen, actions = (np.concatenate([f[name] for f in found]) for name in ("observation", "action"))
            raw = np.arctanh(np.clip(actions, -_MOST, _MOST))
            logits = np.concatenate([raw, np.full_like(raw, scale)], axis=1)
            return {"observation": seen, "logits": logits, "value": np.zeros(len(raw), np.float32)}

        return imitate(learner, ppo.network, collect, key, ppo.say, _EPOCHS)
