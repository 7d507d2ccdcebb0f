"""Joint targets for bodies with torque motors: which motors, with which gains, and what is recorded of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from movlr_jax._util.parts import setting
from movlr_jax.errors import UserError
from movlr_jax.models.actuators import servo_controls
from movlr_jax.models.motors import motors, targetable, torque_limits, with_targets
from movlr_jax.models.spec import quiet
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, SimState, Trajectory

if TYPE_CHECKING:
    from movlr_jax.tasks import Task

SPACES = ("auto", "controls", "targets")
_STARTS = 9  # start states whose median is the posture around which targets lie
_HOLD_S = 0.4  # s, how long the start posture is held to see how far joints give way
_SAG = 0.1  # rad or m that a joint may give way under its load
_SHARPEST = 0.1  # rad or m of error at which a motor gives at most its full force
_ROUNDS = 8


@dataclass(frozen=True)
class TargetSettings:
    """PD that follows joint targets: torque = kp (target - q) - kd q', within the limits of the motor."""

    kp: float = setting(0.0, "N m/rad or N/m; 0: from the inertia of each joint, see bandwidth_hz", least=0)
    kd: float = setting(0.0, "N m s/rad or N s/m; 0: from the damping ratio", least=0)
    bandwidth_hz: float = setting(
        5.0,
        "natural frequency of a joint with its limb; stiffer where the load of the start needs it",
        above=0,
    )
    damping: float = setting(0.7, "damping ratio of a joint with its limb", least=0)
    reach: float = setting(
        1.0,
        "rad or m: sigma is a share of twice this, or of the range of a servo or joint if that is less",
        above=0,
    )


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
            trajectory,
            steps=steps.replace(prev_action=previous),  # pyright: ignore[reportAttributeAccessIssue]
            actions=actions,
            extras=trajectory.actions,
        )


def joint_targets(settings: TargetSettings, task: Task, space: str) -> tuple[JointTargets | None, str]:
    """Return the joint targets of the setting `optimizer.space`, None for controls; and why. Raises UserError."""
    model = task.model
    if space == "controls":
        return None, "plans are controls, as set"
    posture = np.median(task.start(np.random.default_rng(0), _STARTS)[0], axis=0)
    which = motors(model) if space == "targets" else targetable(model, posture)
    if not which.any():
        if space == "targets":
            raise UserError(
                "optimizer.space=targets commands joint targets, but the model has no motor that alone drives a "
                "hinge or slide; use optimizer.space=controls"
            )
        return None, "plans are controls: no motor without a servo drives the joint of a limb"
    kp, kd = gains(settings, model, which, posture)
    made = with_targets(model, which, (kp, kd), posture)
    found = JointTargets(made, task.layout, which, np.where(which, model.actuator_gainprm[:, 0], 1.0))
    few = f"{which.sum()} of {model.nu}" if which.sum() < model.nu else f"all {model.nu}"
    return found, (
        f"plans are joint targets for {few} motors, which have no servos: kp {_span(kp[which])}, kd "
        f"{_span(kd[which])}; optimizer.space=controls plans torques"
    )


def gains(
    settings: TargetSettings, model: mujoco.MjModel, which: np.ndarray, posture: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return kp and kd [nu] of servos in place of the motors `which` [nu], which hold `posture` [nq].

    With the inertia I of a joint and what it carries, kp = I (2 pi bandwidth)^2 and kd = 2 damping sqrt(kp I).
    Where a joint then gives way under the load of the start, kp is larger, as far as the limit of the motor allows.
    """
    inertia = _inertia(model, posture)
    most = torque_limits(model) / _SHARPEST
    kp = np.full(model.nu, settings.kp)
    if not settings.kp:
        kp = np.minimum(inertia * (2 * np.pi * settings.bandwidth_hz) ** 2, most)

    def with_damping(kp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kp = np.where(which, kp, 0.0)
        return kp, np.where(which, settings.kd or 2 * settings.damping * np.sqrt(kp * inertia), 0.0)

    for _ in range(0 if settings.kp else _ROUNDS):
        sag = _sag(with_targets(model, which, with_damping(kp), posture), which, posture)
        if (sag <= _SAG).all():
            break
        kp = np.minimum(kp * np.clip(sag / _SAG, 1.0, 2.0), most)
    return with_damping(kp)


def _inertia(model: mujoco.MjModel, posture: np.ndarray) -> np.ndarray:
    """Return [nu] the inertia that the joint of each actuator moves at `posture` [nq]; 0 for other actuators."""
    data, full = mujoco.MjData(model), np.zeros((model.nv, model.nv))
    data.qpos[:] = posture
    mujoco.mj_forward(model, data)
    mujoco.mj_fullM(model, data, full)
    dof = model.jnt_dofadr[np.maximum(model.actuator_trnid[:, 0], 0)]
    return np.where(motors(model), np.diag(full)[dof], 0.0)


def _sag(model: mujoco.MjModel, which: np.ndarray, posture: np.ndarray) -> np.ndarray:
    """Return [nu] how far the joints of the servos `which` [nu] are from `posture` [nq] after they have held it."""
    data = mujoco.MjData(model)
    data.qpos[:] = posture
    with quiet():
        mujoco.mj_step(model, data, nstep=round(_HOLD_S / model.opt.timestep))
    at = model.jnt_qposadr[np.maximum(model.actuator_trnid[:, 0], 0)]
    return np.where(which, np.abs(data.qpos[at] - posture[at]), 0.0)


def _span(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.3g}" if np.isclose(low, high, rtol=0.05) else f"{low:.3g} to {high:.3g}"
