"""Joint targets for bodies with torque motors: which motors, with which gains, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from movlr_jax.control.mpc.knots import PLANNER, control_ranges
from movlr_jax.errors import UserError
from movlr_jax.models.actuators import servo_controls
from movlr_jax.models.derived import base_joints, lies, root_of
from movlr_jax.models.motors import (
    TargetSettings,
    angles_per_control,
    gains,
    mixed,
    motors,
    supporting,
    targetable,
    with_targets,
)
from movlr_jax.models.stance import crouched, over_feet
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, SimState, Trajectory

if TYPE_CHECKING:
    from movlr_jax.tasks import Task

SPACES = ("auto", "controls", "targets")
_STARTS = 9  # start states whose median is the posture around which targets lie


@dataclass(frozen=True)
class JointTargets:
    """A model whose motors are servos, and how their forces become the controls of the original model."""

    model: mujoco.MjModel
    layout: Layout
    which: np.ndarray  # [nu] bool, the actuators that are commanded by joint targets
    gain: np.ndarray  # [nu] force per control of the original model

    @property
    def read(self) -> np.ndarray:
        """Return [ns] bool, the sensor values that `used` needs."""
        found = np.zeros(self.model.nsensordata, bool)
        self.layout.block(found, "force", self.model.nu)[:] = self.which
        return found

    def resting(self, task: Task, qpos: np.ndarray) -> np.ndarray:
        """Return the controls [nu] that hold a start posture `qpos` [nq] of the task."""
        return np.where(self.which, servo_controls(self.model, qpos), task.resting(qpos))

    def used(self, xp: Any, sensors: Array, controls: Array) -> Any:
        """Return the controls [..., nu] of the original model with the forces that `sensors` [..., ns] measured."""
        force = self.layout.block(sensors, "force", self.model.nu)
        return xp.where(self.which, force / xp.asarray(self.gain, xp.float32), controls)

    def recorded(self, xp: Any, start: SimState, trajectory: Trajectory) -> Trajectory:
        """Return `trajectory` from `start` with the controls of the original model, and its targets as `extras`.

        The controls are those at the last simulation step of each control step.
        """
        steps = trajectory.steps
        actions = self.used(xp, steps.sensors, trajectory.actions)
        before = self.used(xp, start.sensors, start.prev_action)
        previous = xp.concatenate([before[:, None], actions[:, :-1]], axis=1)
        return replace(
            trajectory, steps=steps.replace(prev_action=previous), actions=actions, extras=trajectory.actions
        )


def posture_of(task: Task) -> np.ndarray:
    """Return the posture [nq] around which the targets of a task lie."""
    return np.median(task.start(np.random.default_rng(0), _STARTS)[0], axis=0)


def target_box(
    model: mujoco.MjModel,
    posture: np.ndarray,
    resting: Callable[[np.ndarray], np.ndarray],
    reach: float,
    sparse: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lower and upper limits of plans [nu], and what maps independent noise to that of controls [nu, nu].

    Servos of limbs on which a body stands stay within `reach` (rad or m) of `posture` [nq]: a leg that swings further
    cannot hold the body. Those of a body that lies use their whole range, so that it can get up. Their noise refers
    to 2 `reach`, that of other servos of joints to `reach`, for the range of a joint says little, and that of all
    other controls to half of their range. See `mixed` for rotors, and `over_feet` for `sparse` noise, of which each
    sample changes a few numbers.
    """
    low, high = control_ranges(model, PLANNER)
    per, rest = angles_per_control(model), resting(posture)
    data, root = mujoco.MjData(model), root_of(model)
    data.qpos[:] = posture
    mujoco.mj_kinematics(model, data)
    reach = np.inf if base_joints(model, root) and lies(model, data, root) else reach
    far = np.where(per > 0, reach / np.maximum(per, 1e-9), np.inf)
    bears = supporting(model, posture)
    bound = np.where(bears, far, np.inf)
    least, most = np.maximum(low, rest - bound), np.minimum(high, rest + bound)
    for joint, angle in crouched(model, posture).items() if sparse else ():  # it can squat
        of = (model.actuator_trnid[:, 0] == model.joint(joint).id) & bears
        there = rest + np.where(of, (angle - posture[model.joint(joint).qposadr[0]]) / np.maximum(per, 1e-9), 0.0)
        least, most = np.minimum(least, np.maximum(there, low)), np.maximum(most, np.minimum(there, high))
    low, high = least, most
    share = np.minimum(1.0, np.where(bears, 2, 1) * far / np.maximum(high - low, 1e-9))
    mixing = mixed(model, posture, high - low) * np.where(per > 0, share, 0.5)
    return low, high, over_feet(model, posture, high - low, mixing) if sparse else mixing


def joint_targets(settings: TargetSettings, task: Task, space: str) -> tuple[JointTargets | None, str]:
    """Return the joint targets of the setting `optimizer.space`, None for controls; and why, if a model has motors.

    Raises UserError.
    """
    model = task.model
    if space == "controls":
        return None, "plans are controls, as set"
    posture = posture_of(task)
    which = motors(model) if space == "targets" else targetable(model, posture)
    if not which.any():
        if space == "targets":
            raise UserError(
                "optimizer.space=targets commands joint targets, but the model has no motor that alone drives a "
                "hinge or slide; use optimizer.space=controls"
            )
        why = "plans are controls: no motor without a servo drives the joint of a limb"
        return None, why if motors(model).any() else ""
    kp, kd = gains(settings, model, which, posture)
    made = with_targets(model, which, (kp, kd), posture)
    found = JointTargets(made, task.layout, which, np.where(which, model.actuator_gainprm[:, 0], 1.0))
    few = f"{which.sum()} of {model.nu}" if which.sum() < model.nu else f"all {model.nu}"
    return found, (
        f"plans are joint targets for {few} motors, which have no servos: kp {_span(kp[which])}, kd "
        f"{_span(kd[which])}; optimizer.space=controls plans torques"
    )


def _span(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.3g}" if np.isclose(low, high, rtol=0.05) else f"{low:.3g} to {high:.3g}"
