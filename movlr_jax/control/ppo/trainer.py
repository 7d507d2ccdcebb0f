"""PPO under K rewards in one batch (Schulman et al., 2017): collect, relabel, update.

    collect   roll out K policies; compiled once, independent of the rewards
    relabel   score the data with K reward programs; compiled once per generation, in about a second
    update    update K learners; compiled once

Episodes end when the task terminates them, or after episode_s. Rows restart only between two segments of `unroll`
steps. The steps between the end of an episode and the end of the segment are masked, so the observation after the
last valid step is always the true next observation.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.training.agents.ppo.networks import PPONetworks

from movlr_jax._util.progress import SILENT_S
from movlr_jax.control.episode import Loop, by_candidate, fold_in, play, split
from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.actions import ActionSpace, Starts
from movlr_jax.control.ppo.observations import Observe
from movlr_jax.control.ppo.policy_file import acting_settings, load_policy, save_policy
from movlr_jax.control.ppo.training import CurveRecorder, Training
from movlr_jax.control.ppo.update import Batch, Learner
from movlr_jax.control.settings import PpoSettings
from movlr_jax.errors import UserError
from movlr_jax.physics.base import Physics
from movlr_jax.physics.programs import out_of_memory
from movlr_jax.rewards.program import RewardProgram, Scorer
from movlr_jax.tasks import Task
from movlr_jax.tasks.readout import Readout
from movlr_jax.types import Array, Progress, Replaceable, SimState, Step, Trajectory

_POOR = 0.05  # quantile of the rewards of a batch that a body gets which has fallen
_LONGEST = 0.999  # discount above which the time after a fall counts no more
_TABLE = 4096  # episodes of one simulation before its start states repeat
_SUMMARIES = 8  # progress messages per training, at least
_EVERY = 25  # control steps of an evaluation between two checks whether all episodes have ended


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Fleet(Replaceable):
    """State of the K x N simulations of a training."""

    state: SimState  # [B]
    initial: Step  # [B] start of each episode
    age: Array  # [B] control steps since the start of the episode
    episode: Array  # [B] number of finished episodes
    reward: Array  # [B] sum of the rewards of the episode so far
    steps: Array  # [B] number of these rewards


@dataclass(frozen=True)
class Segment:
    """A segment of `unroll` steps of all simulations, [B, T, ...], with the mask of valid steps."""

    trajectory: Trajectory
    initial: Step  # [B]
    valid: np.ndarray  # [B, T]
    terminated: np.ndarray  # [B, T]
    ended: np.ndarray  # [B]


@dataclass(frozen=True)
class Agent:
    """What a policy sees and commands, and how it begins."""

    observe: Observe
    space: ActionSpace
    network: PPONetworks
    starts: Starts
    times: np.ndarray  # [S] s, when the episodes of the training begin
    # teaches a learner with random weights before the training; None: nothing
    first: Callable[[PpoTrainer, Learner, jax.Array], Learner] | None = None


class PpoTrainer:
    """Trains one policy per program. Built once; new rewards do not recompile it."""

    def __init__(
        self,
        config: PpoSettings,
        task: Task,
        agent: Agent,
        physics: Physics,
        sim_physics: Physics,
        say: Callable[[str], object] = lambda text: None,
    ):
        """Train policies in `physics` and evaluate them in `sim_physics`, which may be the same."""
        self.name, self.task, self.say = config.name, task, say
        self.config, observe, space = config.ppo, agent.observe, agent.space
        self._acting = acting_settings(config)
        self.physics, self.sim_physics, self.scorer = physics, sim_physics, Scorer(task.layout, task.data)
        # a second program, whose reward is recorded beside each candidate's own; nothing is trained on it
        self.yardstick: RewardProgram | None = None
        self.limit = max(1, round(task.episode_s / physics.ctrl_dt))  # control steps of an episode
        # a fall ends an episode of a sentence in training, where it should stay on its feet
        motion = task.scoring.motion
        self.falls = motion if motion and motion.balance and task.course.over is None else None
        pool: SimState = jax.tree.map(np.asarray, physics.start(*agent.starts))
        self.pool = pool.replace(time=agent.times.astype(pool.time.dtype))
        self._pool = self._beside_physics(self.pool)
        self._restarted = jax.jit(_restarted) if physics.xp is jnp else _restarted
        # index of the start state of each episode of each simulation, the same for all candidates
        self.order = np.random.default_rng(0).integers(len(agent.starts[0]), size=(self.config.envs, _TABLE))
        view = jax.tree.map(lambda x: jnp.asarray(x[0]), self.pool.step)
        self.observations = observe(view).shape[0]
        self.notes: Mapping[str, Any] = {**space.notes, "observations": self.observations, "actions": space.size}
        self.network = agent.network
        self.see, self.space, self.first = observe, space, agent.first
        self.explore = self._policy(physics, sample=True)
        self.exploit = self._policy(sim_physics, sample=self.config.acts == "sample")
        self.traces: Counter[str] = Counter()
        self._init = jax.jit(lambda key: learning.init(self.config, self.network, self.observations, key))
        self._observe, self._seen = jax.jit(jax.vmap(observe)), jax.jit(jax.vmap(learning.seen))
        self._update = jax.jit(self._all_updates(learning.updater(self.config, self.network)))

    @property
    def steps_done(self) -> int:
        """Number of simulation steps so far."""
        return sum(p.steps_done for p in {self.physics, self.sim_physics})

    def acting_in(self, physics: Physics) -> PpoTrainer:
        """Return a copy of this trainer whose evaluation episodes run in `physics`."""
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
        """Train K policies for `env_steps` control steps each, with the same initial weights and random numbers.

        key: One key, or the keys [R] of R trainings of each program; those of program k are k*R:(k+1)*R.
        With a folder, checkpoints and TensorBoard events are written there, and an interrupted training is resumed.
        """
        self.scorer.prepare(programs)  # compiles while the first data is collected
        if key.ndim:
            programs = [program for program in programs for _ in range(len(key))]
        k = len(programs)
        begin_key, key = split(key, 2)
        recorder = CurveRecorder(programs, self.config.batch, self.physics.ctrl_dt)
        with contextlib.closing(Training(folder, programs, self.config, key)) as training:
            state = training.restored(self.begin(k, begin_key, teach=not training.begun), recorder)
            if progress:
                progress(recorder.batches, self.config.batches)
            told = time.monotonic()
            for batch in range(recorder.batches, self.config.batches):
                try:
                    state = self.step(programs, state, fold_in(key, batch), recorder)
                except jax.errors.JaxRuntimeError as error:
                    if not out_of_memory(error):
                        raise
                    raise UserError(
                        f"physics={self.physics.name}: {k} trainings of {self.config.envs} simulations do not fit "
                        "into the memory of the device; use a smaller optimizer.ppo.envs or fewer candidates"
                    ) from None
                training.write_events(recorder)
                eighths = [n * _SUMMARIES // self.config.batches for n in (batch, batch + 1)]
                if eighths[0] < eighths[1] or time.monotonic() - told > SILENT_S:
                    self.say(f"  {recorder.summary()}")
                    told = time.monotonic()
                if (batch + 1) % self.config.checkpoint_every == 0 or batch + 1 == self.config.batches:
                    training.save(batch + 1, state, recorder)
                if progress:
                    progress(batch + 1, self.config.batches)
        if folder is not None:
            for i in range(k):
                one = jax.tree.map(lambda x, i=i: x[i], state[0])
                save_policy(folder / f"policy_k{i:02d}.npz", one, self.config, self._acting)
        return TrainedControllers(self, state[0], recorder.curves)

    def begin(self, k: int, key: jax.Array, teach: bool = True) -> tuple[Learner, Fleet]:
        """Return K learners, with observation statistics of their first steps, and simulations at start states.

        They are equal; given the keys [R] of R trainings, learner k is that of key k % R if its weights are random.
        teach: whether they first learn what `Agent.first` teaches, if there is any.
        """
        init_keys, first_key = split(key, 2)
        each = [self._init(one) for one in (init_keys if key.ndim else [init_keys])]
        if self.config.init:
            each = [load_policy(self.config.init, each[0])]
        elif self.first is not None and teach:
            each = [self.first(self, each[0], first_key[0] if key.ndim else first_key)]
        learners = jax.tree.map(lambda *x: np.stack([np.asarray(x[i % len(x)]) for i in range(k)]), *each)
        fleet = self.fleet(k * self.config.envs)
        if self.config.guidance.stagger:  # the first episodes end at different times
            fleet = fleet.replace(age=np.tile(np.arange(self.config.envs) * self.limit // self.config.envs, k))
        if self.config.init or self.first is not None:
            return learners, fleet
        segment, _ = self.collect((learners.normalizer, learners.params.policy), fleet, first_key, k)
        observation, valid = (by_candidate(x, k) for x in (segment.trajectory.extras["observation"], segment.valid))
        return learners.replace(normalizer=self._seen(learners.normalizer, observation, valid)), fleet

    def fleet(self, rows: int) -> Fleet:
        """Return `rows` simulations at start states."""
        zero = np.zeros(rows, int)
        state = self._starts(zero)
        return Fleet(state, _begun(state), zero, zero, np.zeros(rows, np.float32), zero)

    def step(
        self, programs: Sequence[RewardProgram], state: tuple[Learner, Fleet], key: jax.Array, recorder: CurveRecorder
    ) -> tuple[Learner, Fleet]:
        """Collect one batch, update the learners and record the learning curves."""
        learners, fleet = self._beside_physics(state[0]), state[1]
        k, (update_key, *keys) = len(programs), split(key, 1 + self.config.unrolls)
        params, segments = (learners.normalizer, learners.params.policy), []
        for segment_key in keys:
            segment, fleet = self.collect(params, fleet, segment_key, k)
            segments.append(segment)
        fleet, rewards = self.relabel(programs, segments, fleet, recorder)
        if self.falls is not None:
            rewards = self._lasting(rewards, segments, k)
        learners, measures = self._update(learners, self.batch(segments, rewards, k), update_key)
        recorder.learned(jax.tree.map(np.asarray, measures))
        return learners, fleet

    def collect(
        self, params: Any, fleet: Fleet, key: jax.Array, k: int, policy: Callable[..., Any] | None = None
    ) -> tuple[Segment, Fleet]:
        """Run one segment under K policies (default: exploring ones), then restart the rows whose episodes ended."""
        state, steps = fleet.state, self.config.unroll
        if self.task.course.perturb:
            state = self.task.course.perturb(state, steps * self.physics.ctrl_dt)
        done = self.physics.rollout(state, policy or self.explore, params, steps=steps, key=key, candidates=k)
        # what a device holds stays there; the host gets small arrays [B, T]
        done = self.space.recorded(state, self.physics.collect(done))
        over = np.zeros(done.actions.shape[:2], bool)
        if self.task.course.over is not None:
            over = np.asarray(self.task.course.over(done.steps, fleet.initial))
        elif self.falls is not None:
            over = self.falls.fallen(*(Readout(self.task.layout, steps) for steps in (done.steps, fleet.initial)))
        late = fleet.age[:, None] + np.arange(1, steps + 1) >= self.limit
        ends = over | late
        last = np.where(ends.any(axis=1), ends.argmax(axis=1), steps - 1)
        diverged = np.asarray(done.valid) <= last
        valid = (np.arange(steps) <= last[:, None]) & ~diverged[:, None]
        ended = ends.any(axis=1) | diverged
        segment = Segment(done, fleet.initial, valid, over & valid, ended)
        episode = np.asarray(fleet.episode + ended)
        fresh = self._starts(episode)
        final, initial = self._restarted(ended, (fresh, _begun(fresh)), (done.final, fleet.initial))
        age = np.where(ended, 0, fleet.age + steps)
        return segment, Fleet(final, initial, age, episode, fleet.reward, fleet.steps)

    def relabel(
        self, programs: Sequence[RewardProgram], segments: Sequence[Segment], fleet: Fleet, recorder: CurveRecorder
    ) -> tuple[Fleet, np.ndarray]:
        """Return the rewards [M, B, T] of M segments, each candidate's under its own program."""
        k, count = len(programs), len(segments)
        tall = [jax.tree.map(lambda x: by_candidate(x, k), (p.trajectory.steps, p.trajectory.actions, p.initial))
                for p in segments]  # fmt: skip
        states = jax.tree.map(lambda *x: self.physics.xp.concatenate(x, axis=1), *tall)
        scores = self.scorer(programs, *states)
        rewards = scores.totals.reshape(k, count, -1, self.config.unroll).swapaxes(0, 1)
        rewards = rewards.reshape(count, -1, self.config.unroll)
        total, steps = fleet.reward, fleet.steps
        for segment, reward in zip(segments, rewards, strict=True):
            total = total + np.where(segment.valid, reward, 0.0).sum(axis=1)
            steps = steps + segment.valid.sum(axis=1)
            counted = np.logical_and(segment.ended, segment.valid.any(axis=1))
            recorder.ended(total, steps, counted, np.asarray(segment.terminated.any(axis=1)))
            total = np.where(segment.ended, 0.0, total).astype(np.float32)
            steps = np.where(segment.ended, 0, steps)
        valid = np.concatenate([by_candidate(p.valid, k) for p in segments], axis=1)
        recorder.scored(scores, valid, self.scorer([self.yardstick] * k, *states) if self.yardstick else None)
        return fleet.replace(reward=total, steps=steps), rewards

    def _lasting(self, rewards: np.ndarray, segments: Sequence[Segment], k: int) -> np.ndarray:
        """Return the rewards [M, B, T], at a fall also of the time after it, as the poorest of the program.

        Whether a reward is above or below 0 would else decide whether to fall is good.
        """
        valid, over = (np.stack([getattr(p, name) for p in segments]) for name in ("valid", "terminated"))
        every, known = (np.stack([by_candidate(x, k) for x in of], axis=1) for of in (rewards, valid))  # [K, M, N, T]
        poor = [np.quantile(mine[of], _POOR) if of.any() else 0.0 for mine, of in zip(every, known, strict=True)]
        discount = min(self.config.update.discount, _LONGEST)
        after = discount / (1.0 - discount)
        return rewards + after * np.repeat(poor, rewards.shape[1] // k)[None, :, None].astype(np.float32) * over

    def batch(self, segments: Sequence[Segment], rewards: np.ndarray, k: int) -> Batch:
        """Return the data of the K candidates, [K, R, ...] with R = M x N."""

        def stacked(values: Sequence[Array]) -> jax.Array:
            xp = jnp if isinstance(values[0], jax.Array) else np
            return jnp.asarray(xp.concatenate([by_candidate(x, k) for x in values], axis=1))

        seen = [p.trajectory.extras for p in segments]
        # in single precision, as a policy observes them
        final = [jax.tree.map(lambda x: x.astype(np.float32), p.trajectory.final.step) for p in segments]
        return Batch(
            observation=stacked([e["observation"] for e in seen]),
            last=stacked([self._observe(step) for step in final]),
            raw_action=stacked([e["raw_action"] for e in seen]),
            log_prob=stacked([e["log_prob"] for e in seen]),
            reward=stacked(list(rewards)),
            terminated=stacked([p.terminated for p in segments]),
            valid=stacked([p.valid for p in segments]),
            ended=stacked([p.ended for p in segments]),
        )

    def _beside_physics(self, tree: Any) -> Any:
        """Return the arrays where those of the simulations are.

        JAX compiles a program once for arrays that belong to a device, as results of MJX do, and again for others.
        """
        if self.physics.xp is np:
            return tree
        return jax.device_put(tree, jax.local_devices()[0])

    def _starts(self, episode: np.ndarray) -> SimState:
        """Return the start states [B] of episode number `episode` [B] of each simulation."""
        chosen = self.order[np.arange(len(episode)) % self.config.envs, episode % _TABLE]
        return jax.tree.map(lambda x: x[chosen], self._pool)

    def acting(self, sample: bool = False) -> Callable[[Step, jax.Array], jax.Array]:
        """Return the policy of `init` untrained: (step, key) -> action [size] in [-1, 1], its mode or a sample."""
        learners, _ = self.begin(1, jax.random.key(0))
        first = jax.tree.map(lambda x: np.asarray(x)[0], (learners.normalizer, learners.params.policy))
        dist = self.network.parametric_action_distribution

        def numbers(view: Step, key: jax.Array) -> jax.Array:
            logits = self.network.policy_network.apply(*first, self.see(view))
            return dist.sample(logits, key) if sample else dist.mode(logits)

        return numbers

    def _policy(self, physics: Physics, sample: bool) -> Callable[..., Any]:
        """Return the policy of one simulation: sampling, with the extras that an update needs, or its mode."""
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
        """Apply K updates: vectorised on an accelerator, sequential on a CPU (half the time there).

        key: one for all, or the keys [R] of R trainings; update k has key k % R.
        """

        def updates(learners: Learner, data: Batch, key: jax.Array) -> Any:
            self.traces["update"] += 1
            keys = key.reshape(-1)[jnp.arange(len(data.last)) % key.size]
            if jax.default_backend() == "cpu":
                return jax.lax.map(lambda mine: update(*mine), (learners, data, keys))
            return jax.vmap(update)(learners, data, keys)

        return updates


@dataclass(frozen=True)
class TrainedControllers:
    """K trained policies. They act with the mode of their distribution, or with samples, as set by `acts`."""

    ppo: PpoTrainer
    learners: Learner  # [K]
    learning: Sequence[Mapping[str, Any]]
    nonfinite: Sequence[Mapping[str, int]] = ()  # counted in the learning curves

    def rollout(self, start: SimState, *, steps: int, key: jax.Array) -> Trajectory:
        """Run K x E rows for `steps` control steps; candidate k owns rows k*E:(k+1)*E."""
        params = (self.learners.normalizer, self.learners.params.policy)
        loop = Loop(self.ppo.sim_physics, self.ppo.exploit, lambda state, keys: params, _EVERY, len(self.learning))
        return self.ppo.space.recorded(start, play(loop, self.ppo.task, start, steps=steps, key=key))


def _restarted(ended: np.ndarray, fresh: Any, old: Any) -> Any:
    """Return the arrays of `fresh` in the rows `ended` [B], those of `old` in the others, with the types of `old`."""

    def choose(new: Array, old: Array) -> Array:
        xp = jnp if isinstance(old, jax.Array) else np
        return xp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), new.astype(old.dtype), old)

    return jax.tree.map(choose, fresh, old)


def _begun(state: SimState) -> Step:
    """Return the first step of episodes at time 0, also of those that begin in the middle of a stride."""
    return state.step.replace(time=0 * state.time)
