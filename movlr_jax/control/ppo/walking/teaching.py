"""The first policy imitates a teacher, which may have other observations, or follows a recorded stride.

DAgger (Ross et al., 2011): at first the teacher acts, then increasingly the learner. In all visited states,
the learner is fitted to the teacher's action distribution and value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import optax
from brax.training.acme import running_statistics
from brax.training.agents.ppo.networks import PPONetworks

from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.actions import ActionSpace
from movlr_jax.control.ppo.config import REFERENCE
from movlr_jax.control.ppo.observations import Observe, observation
from movlr_jax.control.ppo.policy_file import acting_settings, load_policy, other_actions, policy_settings
from movlr_jax.control.ppo.trainer import PpoTrainer
from movlr_jax.control.ppo.update import Learner
from movlr_jax.control.ppo.walking.anticipation import at_phase, learned_targets
from movlr_jax.control.ppo.walking.springs import assisted
from movlr_jax.control.ppo.walking.symmetry import made_networks
from movlr_jax.control.settings import PpoSettings
from movlr_jax.errors import UserError
from movlr_jax.tasks import Task
from movlr_jax.tasks.walking.walker import Walker
from movlr_jax.types import Array, Step

TEACHER, PRIOR = "optimizer.ppo.teacher", "optimizer.prior.policy"
# m above the ground, assist and carry, s: to learn a stride in the air
_HUNG, _HELD, _HELD_DT = (0.5, 20.0, 0.005)
ROUNDS = 6  # of collecting data and fitting
_GROWN_S = 0.8  # s, until the start posture has given way to the recorded motion
_MOST = 0.98  # largest action that is taught; the squashing never reaches 1
_MINIBATCH, _EPOCHS = (2048, 12)
_LEARNING_RATE = 1e-3  # initial value; it decays to 0


@dataclass(frozen=True)
class Teacher:
    """A trained policy: its observation function, networks and parameters."""

    observe: Observe
    network: PPONetworks
    learner: Learner

    def labels(self, view: Step) -> tuple[jax.Array, jax.Array]:
        """Return the logits [2 na] and the value [] of the teacher."""
        normalizer, params = self.learner.normalizer, self.learner.params
        seen = self.observe(view)
        logits = self.network.policy_network.apply(normalizer, params.policy, seen)
        return logits, self.network.value_network.apply(normalizer, params.value, seen)


@dataclass(frozen=True)
class ReferenceTeacher:
    """Commands target angles of a stride, from the start posture on."""

    stride_frequency: float  # Hz
    targets: np.ndarray  # [PHASES, n] rad
    space: ActionSpace
    network: PPONetworks
    noise: float  # standard deviation of the learner's actions before squashing

    def action(self, view: Step) -> jax.Array:
        """Return the action [n] that commands the targets of the stride, grown in from the start posture."""
        targets = self.space.targets
        assert targets is not None
        grown = jnp.clip(view.time / _GROWN_S, 0.0, 1.0)
        stride = at_phase(jnp.asarray(self.targets, jnp.float32), self.stride_frequency * view.time)
        return jnp.clip(targets.action(targets.rest + grown * (stride - targets.rest)), -_MOST, _MOST)

    def labels(self, view: Step) -> tuple[jax.Array, jax.Array]:
        """Return the logits [2 na] of these actions with the noise of the learner, and no value."""
        scale = jnp.full(self.targets.shape[1], jnp.log(jnp.expm1(self.noise)))
        return jnp.concatenate([jnp.arctanh(self.action(view)), scale]), jnp.zeros(())


def _mixed(teacher: Teacher | ReferenceTeacher, policy: Callable[..., Any]) -> Callable[..., Any]:
    """Return a policy that acts at random as `policy` or as the teacher, and always logs the teacher's output.

    Its parameters are those of `policy` and the share of control steps at which `policy` acts.
    """

    def act(params_and_share: Any, view: Step, key: jax.Array) -> Any:
        student_params, share = params_and_share
        choice_key, student_key, teacher_key = jax.random.split(key, 3)
        logits, value = teacher.labels(view)
        own_ctrl, extras = policy(student_params, view, student_key, None)
        raw = teacher.network.parametric_action_distribution.sample_no_postprocessing(logits, teacher_key)
        teacher_ctrl, _ = policy(student_params, view, student_key, raw)
        ctrl = jnp.where(jax.random.uniform(choice_key) < share, own_ctrl, teacher_ctrl)
        return ctrl, {**extras, "logits": logits, "value": value}

    return act


def divergence(network: PPONetworks, teacher: Array, student: Array) -> jax.Array:
    """Return KL(teacher | student) [...] of the actions before squashing, normal with logits [..., 2 na]."""
    p, q = (network.parametric_action_distribution.create_dist(x) for x in (teacher, student))
    return jnp.sum(jnp.log(q.scale / p.scale) + (p.scale**2 + (p.loc - q.loc) ** 2) / (2 * q.scale**2) - 0.5, axis=-1)


@dataclass(frozen=True)
class Imitation:
    """Teaches a learner to act as the teacher, in `steps` control steps."""

    teacher: Teacher | ReferenceTeacher
    steps: int

    def __call__(self, ppo: PpoTrainer, learner: Learner, key: jax.Array) -> Learner:
        """Return `learner` after `ROUNDS` rounds of collecting data and fitting to the teacher."""
        config, fleet, policy = ppo.config, ppo.fleet(ppo.config.envs), _mixed(self.teacher, ppo.explore)
        segments = -(-self.steps // (ROUNDS * config.envs * config.unroll))
        data: list[dict[str, np.ndarray]] = []  # observation, and the logits and value of the teacher, each [S, ...]
        for number in range(ROUNDS):
            collect_key, fit_key = jax.random.split(jax.random.fold_in(key, number))
            share = min(number / (ROUNDS - 2), 1.0)  # of the steps at which the learner acts
            params = jax.tree.map(lambda x: np.asarray(x)[None], ((learner.normalizer, learner.params.policy), share))
            fresh = []
            for segment_key in jax.random.split(collect_key, segments):
                segment, fleet = ppo.collect(params, fleet, segment_key, 1, policy)
                fresh.append({n: np.asarray(x)[segment.valid] for n, x in segment.trajectory.extras.items()})
            seen = jnp.asarray(np.concatenate([f["observation"] for f in fresh]))
            learner = learner.replace(normalizer=running_statistics.update(learner.normalizer, seen))
            data += fresh
            known = {n: jnp.asarray(np.concatenate([d[n] for d in data])) for n in ("observation", "logits", "value")}
            params, error = _fit(ppo.network, learner, known, fit_key)
            learner = learner.replace(params=params)
            ppo.say(
                f"  imitation: {len(known['value']):,} control steps, "
                f"KL divergence from the teacher {float(error):.3g} nats"
            )
        return learner


def _fit(network: PPONetworks, learner: Learner, data: dict[str, jax.Array], key: jax.Array) -> tuple[Any, jax.Array]:
    """Fit the networks and return their parameters and the mean divergence of the last epoch."""
    rows = min(len(data["value"]), _MINIBATCH)
    count = len(data["value"]) // rows
    optimizer = optax.adam(optax.linear_schedule(_LEARNING_RATE, 0.0, _EPOCHS * count))
    normalizer = learner.normalizer

    def loss(params: Any, part: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        logits = network.policy_network.apply(normalizer, params.policy, part["observation"])
        value = network.value_network.apply(normalizer, params.value, part["observation"])
        apart = divergence(network, part["logits"], logits).mean()
        return apart + jnp.square(value - part["value"]).mean(), apart

    def step(carry: Any, chosen: jax.Array) -> Any:
        params, state = carry
        grads, apart = jax.grad(loss, has_aux=True)(params, jax.tree.map(lambda x: x[chosen], data))
        change, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, change), state), apart

    def epoch(carry: Any, key: jax.Array) -> Any:
        order = jax.random.permutation(key, len(data["value"]))[: count * rows]
        return jax.lax.scan(step, carry, order.reshape(count, rows))

    @jax.jit
    def run(params: Any) -> Any:
        carry, apart = jax.lax.scan(epoch, (params, optimizer.init(params)), jax.random.split(key, _EPOCHS))
        return carry[0], apart[-1].mean()

    return run(learner.params)


def first_policy(
    optimizer: PpoSettings, task: Task, start: Step, space: ActionSpace, say: Callable[[str], object]
) -> Imitation | None:
    """Return what the first policy imitates by the settings, None for nothing. Raises UserError."""
    guidance = optimizer.ppo.guidance
    if not guidance.teacher:
        return None
    make = reference_teacher if guidance.teacher == REFERENCE else _trained_teacher
    return Imitation(make(optimizer, task, start, space, say), guidance.teach_steps)


def _trained_teacher(
    optimizer: PpoSettings, task: Task, start: Step, space: ActionSpace, say: Callable[[str], object]
) -> Teacher:
    """Load the teacher of the settings with the observations named in its file. Raises UserError."""
    config, name = optimizer.ppo, optimizer.ppo.guidance.teacher
    settings = policy_settings(name, config, TEACHER)
    if note := other_actions(name, acting_settings(optimizer), TEACHER):
        say(f"note: {note}")
    observe = observation(settings.policy, task, np.asarray(start.qpos))
    (observations,) = jax.eval_shape(observe, start).shape
    network = made_networks(settings, task, observations, space.size)
    fresh = learning.init(settings, network, observations, jax.random.key(0))
    return Teacher(observe, network, load_policy(name, fresh, TEACHER))


def reference_teacher(
    optimizer: PpoSettings,
    task: Task,
    start: Step,
    space: ActionSpace,
    say: Callable[[str], object],
    setting: str = TEACHER,
) -> ReferenceTeacher:
    """Return the teacher of a recorded stride, which `setting` names. Raises UserError."""
    if space.targets is None or not task.reference or task.layout.reference_by != "phase":
        posture = "" if setting == PRIOR else "optimizer.ppo.action=posture, and "
        raise UserError(
            f"{setting}={REFERENCE} needs joint targets as actions and a recorded stride: give {posture}"
            "reference=people or reference=FILE.mot reference_by=phase"
        )
    hung = Walker(task.model, task.adapter).moved(np.asarray(start.qpos, float), np.array([0.0, 0.0, _HUNG]))
    held = assisted(space.model, hung, _HELD, carry=_HELD)
    held.opt.timestep, held.opt.integrator = _HELD_DT, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    targets, left = learned_targets(task, space, held, hung, optimizer.ctrl_dt)
    say(f"  reference: targets of the stride learned in the air, {np.rad2deg(left):.1f} degrees off")
    frequency = float(task.goals["stride_frequency"])
    network = learning.networks(optimizer.ppo, 1, space.size)
    return ReferenceTeacher(frequency, targets, space, network, optimizer.ppo.update.noise or 0.3)
