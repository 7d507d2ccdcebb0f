"""PPO under K rewards in one batch (Schulman et al., 2017): collect, relabel, update.

    collect   physics and K policies, compiled once; it knows nothing of rewards
    relabel   K reward programs over what was collected, compiled once a generation in a second
    update    K learners, compiled once

Episodes end where the task says so, or after episode_s. A row is put back to a start between two pieces of `unroll`
steps; what it does from its end to there is not counted, so the observation after the end is always the true one.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from movlr_jax.control.episode import EpisodeRules, by_candidate, play
from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.actions import ActionSpace, Observe
from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.control.ppo.policy_file import blind, load_policy, save_policy
from movlr_jax.control.ppo.teaching import ROUNDS, Teacher, taught
from movlr_jax.control.ppo.training import Training, Watch
from movlr_jax.control.ppo.update import Batch, Learner
from movlr_jax.physics.base import Physics
from movlr_jax.rewards.program import RewardProgram, Scorer
from movlr_jax.types import Array, Progress, SimState, Step, Trajectory

_TABLE = 4096  # episodes of one simulation, until its starts repeat
_SAID = 8  # times in a training that a person is told how it goes
_EVERY = 25  # control steps of an evaluation between two looks at whether all have ended


@struct.dataclass
class Fleet:
    """Where the K x N simulations of a training are."""

    state: SimState  # [B]
    initial: Step  # [B] start of each episode
    age: Array  # [B] control steps since then
    episode: Array  # [B] how many each has finished
    reward: Array  # [B] sum over the episode so far, as the program says it


@dataclass(frozen=True)
class Piece:
    """`unroll` steps of all simulations, [B, T, ...], and how far they count."""

    trajectory: Trajectory
    initial: Step  # [B]
    valid: np.ndarray  # [B, T]
    terminated: np.ndarray  # [B, T]
    ended: np.ndarray  # [B]


class Ppo:
    """Trains one policy per program. Built once: nothing here is compiled anew for new rewards."""

    def __init__(
        self,
        name: str,
        config: PpoConfig,
        physics: Physics,
        sim_physics: Physics,
        scorer: Scorer,
        observe: Observe,
        space: ActionSpace,
        starts: tuple[np.ndarray, np.ndarray, np.ndarray],
        *,
        episode_s: float,
        rules: EpisodeRules | None = None,
        teacher: Teacher | None = None,
        seed: int = 0,
        say: Callable[[str], object] = lambda text: None,
    ):
        """Policies are trained in `physics` and evaluated in `sim_physics`, which may be the same.

        starts: qpos [S, nq], qvel [S, nv], act [S, na] that episodes begin from, drawn under `seed`.
        teacher: whom the first policy is to act like."""
        self.name, self.config, self.scorer, self.space = name, config, scorer, space
        self.say = say
        self.physics, self.sim_physics, self.rules = physics, sim_physics, rules or EpisodeRules()
        self.limit = max(1, round(episode_s / physics.ctrl_dt))  # control steps of an episode
        self.pool = jax.tree.map(np.asarray, physics.start(*starts))
        # which start each episode of each simulation begins from: the same for all candidates
        self.order = np.random.default_rng(seed).integers(len(starts[0]), size=(config.envs, _TABLE))
        view = jax.tree.map(lambda x: jnp.asarray(x[0]), self.pool.step)
        self.observations = observe(view).shape[0]
        self.notes: Mapping[str, Any] = {
            **space.notes,
            "observations": self.observations,
            "actions": space.size,
        }
        self.network = learning.networks(config, self.observations, space.size)
        self.see, self.teacher = observe, teacher
        self.explore = self._policy(physics, sample=True)
        self.exploit = self._policy(sim_physics, sample=config.acts == "sample")
        self.traces: Counter[str] = Counter()
        self._init = jax.jit(lambda key: learning.init(config, self.network, self.observations, key))
        self._observe, self._seen = jax.jit(jax.vmap(observe)), jax.jit(jax.vmap(learning.seen))
        self._update = jax.jit(self._all_updates(learning.updater(config, self.network)))

    @property
    def steps_done(self) -> int:
        """Simulation steps since it was built."""
        return sum(p.steps_done for p in {self.physics, self.sim_physics})

    def acting_in(self, physics: Physics) -> Ppo:
        """The same trainer, whose episodes run in another engine."""
        other = copy.copy(self)
        other.sim_physics = physics
        return other

    def optimise(
        self,
        programs: Sequence[RewardProgram],
        key: jax.Array,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> TrainedControllers:
        """Trains K policies for `env_steps` control steps each, all from the same weights and random numbers.

        With a folder, checkpoints and TensorBoard events are kept there, and a training that was cut short goes on.
        """
        k = len(programs)
        self.scorer.prepare(programs)  # beside the first data
        begin_key, key = jax.random.split(key)
        watch = Watch(programs, self.config.batch, self.physics.ctrl_dt)
        with Training(folder, programs, self.config, key) as kept:
            state = kept.restored(self.begin(k, begin_key, teach=not kept.begun), watch)
            for batch in range(watch.batches, self.config.batches):
                state = self.step(programs, state, jax.random.fold_in(key, batch), watch)
                kept.saw(watch)
                if (batch + 1) * _SAID // self.config.batches > batch * _SAID // self.config.batches:
                    self.say(f"  {watch.said()}")
                if (batch + 1) % self.config.checkpoint_every == 0 or batch + 1 == self.config.batches:
                    kept.save(batch + 1, state, watch)
                if progress:
                    progress(batch + 1, self.config.batches)
        if folder is not None:
            for i in range(k):
                save_policy(
                    folder / f"policy_k{i:02d}.npz", jax.tree.map(lambda x, i=i: x[i], state[0]), self.config
                )
        return TrainedControllers(self, state[0], watch.curves)

    def begin(self, k: int, key: jax.Array, teach: bool = True) -> tuple[Learner, Fleet]:
        """K learners alike, who have seen what their first actions lead to, and their simulations at a start.

        teach: whether they learn from the teacher, if there is one.
        """
        init_key, first_key = jax.random.split(key)
        learner = self._init(init_key)
        if self.config.init:
            learner = load_policy(self.config.init, learner)
        elif self.teacher is not None and teach:
            learner = self._taught(learner, first_key)
        learners = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], k, axis=0), learner)
        fleet = self._fleet(k * self.config.envs)
        if self.config.init or self.teacher is not None:
            constant = self._observe(_float(fleet.initial)).mean(axis=0)
            return learners.replace(normalizer=blind(learners.normalizer, constant)), fleet
        piece, _ = self.collect((learners.normalizer, learners.params.policy), fleet, first_key, k)
        observation, valid = (
            by_candidate(x, k) for x in (piece.trajectory.extras["observation"], piece.valid)
        )
        return learners.replace(normalizer=self._seen(learners.normalizer, observation, valid)), fleet

    def _taught(self, learner: Learner, key: jax.Array) -> Learner:
        """`learner` once it acts as the teacher does."""
        teacher, config = self.teacher, self.config
        assert teacher is not None
        policy, fleet = teacher.beside(self.explore), [self._fleet(config.envs)]
        pieces = -(-config.teach_steps // (ROUNDS * config.envs * config.unroll))

        def watch(learner: Learner, share: float, key: jax.Array) -> dict[str, np.ndarray]:
            params = jax.tree.map(
                lambda x: np.asarray(x)[None], ((learner.normalizer, learner.params.policy), share)
            )
            found = []
            for piece_key in jax.random.split(key, pieces):
                piece, fleet[0] = self.collect(params, fleet[0], piece_key, 1, policy)
                found.append({n: np.asarray(x)[piece.valid] for n, x in piece.trajectory.extras.items()})
            return {
                name: np.concatenate([f[name] for f in found]) for name in ("observation", "logits", "value")
            }

        return taught(learner, self.network, watch, key, self.say)

    def _fleet(self, rows: int) -> Fleet:
        """`rows` simulations at a start."""
        state, zero = self._starts(np.zeros(rows, int)), np.zeros(rows, int)
        return Fleet(state, state.step, zero, zero, np.zeros(rows, np.float32))

    def step(
        self, programs: Sequence[RewardProgram], state: tuple[Learner, Fleet], key: jax.Array, watch: Watch
    ) -> tuple[Learner, Fleet]:
        """One batch of data and the updates on it; `watch` is told."""
        learners, fleet = state
        k, (update_key, *keys) = len(programs), jax.random.split(key, 1 + self.config.unrolls)
        params, pieces = (learners.normalizer, learners.params.policy), []
        for piece_key in keys:
            piece, fleet = self.collect(params, fleet, piece_key, k)
            pieces.append(piece)
        fleet, rewards = self.relabel(programs, pieces, fleet, watch)
        learners, measures = self._update(learners, self.batch(pieces, rewards, k), update_key)
        watch.learned(jax.tree.map(np.asarray, measures))
        return learners, fleet

    def collect(
        self, params: Any, fleet: Fleet, key: jax.Array, k: int, policy: Callable[..., Any] | None = None
    ) -> tuple[Piece, Fleet]:
        """`unroll` control steps under K policies, exploring ones unless another is given; those that have ended
        begin anew afterwards."""
        state, steps = fleet.state, self.config.unroll
        if self.rules.perturb:
            state = self.rules.perturb(state, steps * self.physics.ctrl_dt)
        done = self.physics.rollout(state, policy or self.explore, params, steps=steps, key=key, candidates=k)
        done = jax.tree.map(np.asarray, self.physics.collect(done))
        over = np.zeros(done.actions.shape[:2], bool)
        if self.rules.over is not None:
            over = np.asarray(self.rules.over(done.steps, fleet.initial))
        late = fleet.age[:, None] + np.arange(1, steps + 1) >= self.limit
        ends, diverged = over | late, done.diverged
        last = np.where(ends.any(axis=1), ends.argmax(axis=1), steps - 1)
        valid = (np.arange(steps) <= last[:, None]) & ~diverged[:, None]
        ended = ends.any(axis=1) | diverged
        piece = Piece(done, fleet.initial, valid, over & valid, ended)
        episode = fleet.episode + ended
        fresh = self._starts(episode)
        final = jax.tree.map(lambda new, old: _choose(ended, new, old), fresh, done.final)
        initial = jax.tree.map(lambda new, old: _choose(ended, new, old), fresh.step, fleet.initial)
        age = np.where(ended, 0, fleet.age + steps)
        return piece, Fleet(final, initial, age, episode, fleet.reward)

    def relabel(
        self, programs: Sequence[RewardProgram], pieces: Sequence[Piece], fleet: Fleet, watch: Watch
    ) -> tuple[Fleet, np.ndarray]:
        """What each program says of its candidate's pieces: rewards [M, B, T]."""
        k, count = len(programs), len(pieces)
        tall = [jax.tree.map(lambda x: by_candidate(x, k), (p.trajectory.steps, p.trajectory.actions, p.initial))
                for p in pieces]  # fmt: skip
        scores = self.scorer(programs, *jax.tree.map(lambda *x: np.concatenate(x, axis=1), *tall))
        rewards = scores.totals.reshape(k, count, -1, self.config.unroll).swapaxes(0, 1)
        rewards = rewards.reshape(count, -1, self.config.unroll)
        total = fleet.reward
        for piece, reward in zip(pieces, rewards, strict=True):
            total = total + np.where(piece.valid, reward, 0.0).sum(axis=1)
            counted = np.logical_and(piece.ended, piece.valid.any(axis=1))
            watch.ended(total, counted, np.asarray(piece.terminated.any(axis=1)))
            total = np.where(piece.ended, 0.0, total).astype(np.float32)
        valid = np.concatenate([by_candidate(p.valid, k) for p in pieces], axis=1)
        watch.scored(scores, valid)
        return fleet.replace(reward=total), rewards  # pyright: ignore[reportAttributeAccessIssue]

    def batch(self, pieces: Sequence[Piece], rewards: np.ndarray, k: int) -> Batch:
        """Data of the K candidates, [K, R, ...] with R = M x N."""

        def stacked(values: Sequence[Array]) -> jax.Array:
            return jnp.asarray(np.concatenate([by_candidate(x, k) for x in values], axis=1))

        seen = [p.trajectory.extras for p in pieces]
        return Batch(
            observation=stacked([e["observation"] for e in seen]),
            last=stacked([np.asarray(self._observe(_float(p.trajectory.final.step))) for p in pieces]),
            raw_action=stacked([e["raw_action"] for e in seen]),
            log_prob=stacked([e["log_prob"] for e in seen]),
            reward=stacked(list(rewards)),
            terminated=stacked([p.terminated for p in pieces]),
            valid=stacked([p.valid for p in pieces]),
            ended=stacked([p.ended for p in pieces]),
        )

    def _starts(self, episode: np.ndarray) -> SimState:
        """[B] where episode number `episode` [B] of each simulation begins."""
        env = np.arange(len(episode)) % self.config.envs
        return jax.tree.map(lambda x: x[self.order[env, episode % _TABLE]], self.pool)

    def acting(self) -> Callable[[Step, jax.Array], jax.Array]:
        """The policy of `init` as it is: its numbers [size] in [-1, 1] where it sees a step, and draws by a key."""
        learners, _ = self.begin(1, jax.random.key(0))
        first = jax.tree.map(lambda x: np.asarray(x)[0], (learners.normalizer, learners.params.policy))
        dist, sample = self.network.parametric_action_distribution, self.config.acts == "sample"

        def numbers(view: Step, key: jax.Array) -> jax.Array:
            logits = self.network.policy_network.apply(*first, self.see(view))
            return dist.sample(logits, key) if sample else dist.mode(logits)

        return numbers

    def _policy(self, physics: Physics, sample: bool) -> Callable[..., Any]:
        """The policy of one simulation: exploring, with what an update must know of it, or its mode."""
        network, sim_dt, ctrl_dt = self.network, physics.sim_dt, physics.ctrl_dt
        dist = network.parametric_action_distribution

        def command(action: jax.Array, view: Step) -> jax.Array:
            return self.space.controls(action, view, sim_dt, ctrl_dt)

        def policy(params: Any, view: Step, key: jax.Array, raw: jax.Array | None = None) -> Any:
            seen = self.see(view)
            logits = network.policy_network.apply(*params, seen)
            if not sample:
                return command(dist.mode(logits), view)
            raw = dist.sample_no_postprocessing(logits, key) if raw is None else raw
            extras = {"observation": seen, "raw_action": raw, "log_prob": dist.log_prob(logits, raw)}
            return command(dist.postprocess(raw), view), extras

        return policy

    def _all_updates(self, update: Callable[..., Any]) -> Callable[..., Any]:
        """K updates under one key: at once on an accelerator; one after another on a CPU, in half the time there."""

        def updates(learners: Learner, data: Batch, key: jax.Array) -> Any:
            self.traces["update"] += 1
            if jax.default_backend() == "cpu":
                return jax.lax.map(lambda mine: update(*mine, key), (learners, data))
            return jax.vmap(update, in_axes=(0, 0, None))(learners, data, key)

        return updates


@dataclass(frozen=True)
class TrainedControllers:
    """K policies that have been trained; they act by the mode of their distributions, or samples, as was set."""

    ppo: Ppo
    learners: Learner  # [K]
    learning: Sequence[Mapping[str, Any]]
    nonfinite: Sequence[Mapping[str, int]] = ()  # the curves of learning count them

    def rollout(self, start: SimState, *, steps: int, key: jax.Array) -> Trajectory:
        """`steps` control steps of K x E rows; candidate k owns rows k*E:(k+1)*E."""
        params = (self.learners.normalizer, self.learners.params.policy)
        return play(
            self.ppo.sim_physics,
            self.ppo.exploit,
            self.ppo.rules,
            start,
            lambda state, keys: params,
            steps=steps,
            every=_EVERY,
            candidates=len(self.learning),
            key=key,
        )


def _choose(rows: np.ndarray, new: Array, old: Array) -> np.ndarray:
    """`new` in the rows [B] that are marked, else `old`."""
    old = np.asarray(old)
    return np.where(rows.reshape(-1, *[1] * (old.ndim - 1)), np.asarray(new, old.dtype), old)


def _float(step: Step) -> Step:
    """As a policy sees it: single precision."""
    return jax.tree.map(lambda x: np.asarray(x, np.float32), step)
