"""Teachers by the settings: a trained policy, or the recorded stride of the task."""

from __future__ import annotations

from collections.abc import Callable

import jax
import mujoco
import numpy as np

from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.actions import ActionSpace
from movlr_jax.control.ppo.config import REFERENCE
from movlr_jax.control.ppo.interface import observation
from movlr_jax.control.ppo.policy_file import acting_settings, load_policy, other_actions, policy_settings
from movlr_jax.control.ppo.trainer import FirstPolicy
from movlr_jax.control.ppo.walking.anticipation import learned_targets
from movlr_jax.control.ppo.walking.springs import assisted
from movlr_jax.control.ppo.walking.symmetry import made_networks
from movlr_jax.control.ppo.walking.teaching import Imitation, ReferenceTeacher, Teacher
from movlr_jax.control.settings import PpoSettings
from movlr_jax.errors import UserError
from movlr_jax.tasks import Task
from movlr_jax.tasks.walking.walker import Walker
from movlr_jax.types import Step

TEACHER, PRIOR = "optimizer.ppo.teacher", "optimizer.prior.policy"
# m above the ground, assist and carry, s: to learn a stride in the air
_HUNG, _HELD, _HELD_DT = (0.5, 20.0, 0.005)


def first_policy(
    optimizer: PpoSettings, task: Task, start: Step, space: ActionSpace, say: Callable[[str], object]
) -> FirstPolicy | None:
    """Return what the first policy imitates by the settings, None for nothing. Raises UserError."""
    name, steps = optimizer.ppo.guidance.teacher, optimizer.ppo.guidance.teach_steps
    if not name:
        return None
    if name == REFERENCE:
        return Imitation(reference_teacher(optimizer, task, start, space, say), steps)
    return Imitation(_trained_teacher(optimizer, task, start, space, say), steps)


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
