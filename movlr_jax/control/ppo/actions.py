"""What a learner commands, by the settings: for the policies of the package and for environments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.biomech.geometry import fit_geometry
from movlr_jax.control.mpc.knots import control_ranges
from movlr_jax.control.mpc.mpc2 import PostureSpace, posture_space
from movlr_jax.control.muscle_controllers import LAWS
from movlr_jax.control.ppo.config import PdConfig
from movlr_jax.control.ppo.dynsyn import checked_groups, find_groups
from movlr_jax.control.settings import Mpc2Settings, PpoSettings
from movlr_jax.control.targets import JointTargets, joint_targets, posture_of, target_box
from movlr_jax.errors import UserError
from movlr_jax.models.actuators import servo_controls, servos
from movlr_jax.models.load import with_load
from movlr_jax.models.motors import TargetSettings
from movlr_jax.physics.native import NativePhysics
from movlr_jax.tasks import Task
from movlr_jax.tasks.simple import controls_text
from movlr_jax.types import Array, SimState, Step, Trajectory

Starts = tuple[np.ndarray, np.ndarray, np.ndarray]  # qpos [S, nq], qvel [S, nv], act [S, na]
_LEAST_REACH = 1e-3  # rad
_LEAST = 0.02  # smallest resting excitation of a muscle, so that a policy can also decrease it


class _Targets(NamedTuple):
    """One target posture, as `TargetPostures`."""

    posture: Array
    length: Array
    moment: Array


class Targets(NamedTuple):
    """The joints that actions command as target angles."""

    joints: tuple[str, ...]
    rest: jax.Array  # [size] rad, where actions are 0
    action: Callable[[jax.Array], jax.Array]  # target angles [size] rad -> action [size]


@dataclass(frozen=True)
class ActionSpace:
    """Maps actions of `size` numbers in [-1, 1] to the controls of `model`."""

    model: mujoco.MjModel
    size: int
    # (action [size], step, sim_dt, ctrl_dt) -> ctrl [nu]
    controls: Callable[[jax.Array, Step, float, float], jax.Array]
    notes: Mapping[str, Any]  # description of the action space, logged with the run
    targets: Targets | None = None  # if actions are target angles
    # [nu] controls that hold the start posture, of a `model` with other actuators than the task
    rest: np.ndarray | None = None
    # of a `model` whose motors are servos: how their forces become the controls of the task
    joints: JointTargets | None = None

    def recorded(self, start: SimState, made: Trajectory) -> Trajectory:
        """Return a trajectory from `start` with the controls of the task, and everything else as it is."""
        if self.joints is None:
            return made
        return replace(self.joints.recorded(np, start, made), extras=made.extras)


def action_space(config: PpoSettings, task: Task, starts: Starts) -> ActionSpace:
    """Return the action space of the settings, around the start states (qpos, qvel, act)."""
    kind, policy = config.action, config.ppo.policy
    if kind == "pd":
        return pd(task.model, config.pd, starts[0][0])
    if kind == "targets":
        return planned(task)
    if task.course.rest is None:
        rest = resting_controls(task.model, starts[0][0], starts[2].mean(axis=0))
    else:
        rest = np.asarray(task.course.rest)
    if kind not in ("groups", "posture"):
        return controls(task.model, rest)
    if kind == "groups" and policy.muscle_groups:
        of = checked_groups(policy.muscle_groups, task.model.nu)
        return grouped(task.model, rest, of, config.groups.correction)
    physics = NativePhysics(task.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    if kind == "posture":
        moved = [task.adapter.planned_joints.index(name) for name in policy.joints]
        made, limits = posture_space(config.muscle, task), policy.reach == "limits"
        return posture(made, physics, starts[0][0], rest, config.pd.beta, moved, limits)
    of, silhouette = find_groups(physics, starts, config.groups)
    physics.close()
    return grouped(task.model, rest, of, config.groups.correction, {"silhouette": silhouette})


def acting_task(config: Mpc2Settings | PpoSettings, task: Task) -> Task:
    """Return `task` with the actuators that joint targets (PD) command, which its measures then also read.

    The controls in the programs that the package wrote for the task become those targets.
    """
    if task.course.holds_controls:
        raise UserError(
            f"optimizer.ppo.action=pd commands joint targets, but {task.name} plays the torques of its own "
            "motors again; use optimizer.ppo.action=controls"
        )
    at = task.start(np.random.default_rng(0), config.ppo.starts)[0][0]
    space = pd(task.model, config.pd, at)
    acting = task.replace(model=space.model, rest=space.rest)
    if not task.rewards.controls:
        return acting
    commanded = controls_text(space.model, acting.resting(at))
    first = task.rewards.initial.replace(f"jnp.square({task.rewards.controls})", f"jnp.square({commanded})")
    human = first if task.rewards.human == task.rewards.initial else task.rewards.human
    return acting.replace(initial=first, human=human, controls=commanded)


def controls(model: mujoco.MjModel, rest: np.ndarray) -> ActionSpace:
    """Return the action space of plain controls: 0 maps to `rest` [nu], -1 and 1 to the ends of each range."""
    low, high = control_ranges(model)
    return ActionSpace(model, model.nu, _around(rest, rest - low, high - rest, low, high), {"action": "controls"})


def planned(task: Task) -> ActionSpace:
    """Return the action space of what a planner plans: joint targets around the posture of the start, where it can.

    0 maps to the controls that hold the posture, -1 and 1 to the limits of plans.
    """
    settings = TargetSettings()
    targets, _ = joint_targets(settings, task, "auto")
    model, resting = (targets.model, partial(targets.resting, task)) if targets else (task.model, task.resting)
    posture = posture_of(task)
    low, high, _ = target_box(model, posture, resting, settings.reach)
    rest = np.clip(with_load(model, posture, resting)(posture), low, high)
    down, up = np.maximum(rest - low, _LEAST_REACH), np.maximum(high - rest, _LEAST_REACH)
    around = _around(rest, down, up, low, high)
    return ActionSpace(model, model.nu, around, {"action": "targets of plans"}, joints=targets)


def pd(model: mujoco.MjModel, config: PdConfig, posture: np.ndarray) -> ActionSpace:
    """Return the action space of joint targets around `posture` [nq], tracked by PD at every simulation step.

    p_d = p0 + beta a;  tau = kp (p_d - p) - kd p', clipped to the limits of the motor. Motors become servos in a copy
    of the model; existing servos keep their gains. Raises UserError if an actuator does not act on a hinge or slide.
    """
    model = copy.copy(model)
    fixed, affine = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
    target, reach = np.zeros(model.nu), np.zeros((model.nu, 2))
    for i in range(model.nu):
        name, joint, gear = model.actuator(i).name, model.actuator_trnid[i, 0], model.actuator_gear[i, 0]
        turns = model.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT and model.jnt_type[joint] >= 2
        if not turns or model.actuator_dyntype[i] != mujoco.mjtDyn.mjDYN_NONE or gear == 0:
            raise UserError(
                f"optimizer.ppo.action=pd commands joint targets, but actuator {name!r} is not a motor or servo of a "
                "hinge or slide; use optimizer.ppo.action=controls"
            )
        if not servos(model)[i]:
            model.actuator_gaintype[i], model.actuator_biastype[i] = fixed, affine
            limit = np.abs(model.actuator_ctrlrange[i]).max() * abs(model.actuator_gainprm[i, 0])
            if model.actuator_ctrllimited[i] and not model.actuator_forcelimited[i]:
                model.actuator_forcelimited[i], model.actuator_forcerange[i] = True, (-limit, limit)
            # actuator length is gear x angle and torque is gear x force
            model.actuator_gainprm[i], model.actuator_biasprm[i] = 0.0, 0.0
            model.actuator_gainprm[i, 0] = config.kp / gear**2
            model.actuator_biasprm[i, 1:3] = -config.kp / gear**2, -config.kd / gear**2
        # the controls of a servo may be scaled, and not be angles
        model.actuator_gainprm[i, 0], model.actuator_biasprm[i, 0] = -model.actuator_biasprm[i, 1], 0.0
        target[i] = gear * posture[model.jnt_qposadr[joint]]
        limits = model.jnt_range[joint] if model.jnt_limited[joint] else np.array([-np.inf, np.inf])
        reach[i] = np.sort(gear * limits)
        model.actuator_ctrllimited[i] = bool(model.jnt_limited[joint])
        model.actuator_ctrlrange[i] = reach[i] if model.jnt_limited[joint] else 0.0
    # a positive action is a larger angle, whatever the gear's sign
    step = config.beta * model.actuator_gear[:, 0]
    return ActionSpace(
        model,
        model.nu,
        _around(target, step, step, reach[:, 0], reach[:, 1]),
        {"action": "joint targets", "kp": config.kp, "kd": config.kd, "beta": config.beta},
        rest=target,
    )


def grouped(
    model: mujoco.MjModel, rest: np.ndarray, of: np.ndarray, correction: float, notes: Mapping[str, Any] | None = None
) -> ActionSpace:
    """Return the action space of DynSyn: one action per group and a correction per muscle; size is groups + nu.

    a_i = clip(g_of(i) + rho c_i, -1, 1), with the group of[i] of muscle i.
    """
    plain, count = controls(model, rest), int(of.max()) + 1

    def command(a: jax.Array, *seen: Any) -> jax.Array:
        return plain.controls(jnp.clip(a[:count][of] + correction * a[count:], -1.0, 1.0), *seen)

    names = {model.actuator(i).name: int(group) for i, group in enumerate(of)}
    return ActionSpace(
        model, count + model.nu, command, {"action": "muscle groups", **(notes or {}), "groups": names}
    )


def posture(
    space: PostureSpace,
    physics: NativePhysics,
    qpos: np.ndarray,
    rest: np.ndarray,
    beta: float,
    moved: Sequence[int] | None = None,
    limits: bool = False,
) -> ActionSpace:
    """Return the action space of planned joint angles around `qpos` [nq], tracked by the muscle controller.

    z = z0 + beta a within the joint ranges. Muscle lengths and moment arms of the current posture come from fitted
    polynomials (`biomech.geometry`). rest [nu]: activations of quiet standing, used as static feed-forward.
    moved: indices of the planned joints that the policy commands (default: all); the others are held.
    """
    geometry = fit_geometry(lambda z: space.lengths(physics, qpos, z), space.lower, space.upper)
    z0, hold = (jnp.asarray(x, jnp.float32) for x in (qpos[space.qpos], rest if space.law.hold else 0 * rest))
    commanded = np.arange(len(z0)) if moved is None else np.array(moved, int)
    stiffness = space.law.stiffness(np.isin(np.arange(len(z0)), commanded))
    some = {"hold": hold, "stiffness": stiffness, "kept": space.keeping(physics, qpos)}
    fixed = {name: value for name, value in some.items() if value is not None}
    up, down = (
        jnp.minimum(beta, jnp.maximum(x, _LEAST_REACH))[commanded] if limits else jnp.full(len(commanded), beta)
        for x in (space.upper - z0, z0 - space.lower)
    )
    at = z0[commanded]

    def command(a: jax.Array, view: Step, sim_dt: float, ctrl_dt: float) -> jax.Array:
        z = jnp.clip(z0.at[commanded].add(jnp.where(a < 0, down, up) * a), space.lower, space.upper)
        target = space.law.target(_Targets(z, geometry.lengths(z), geometry.moments(z)))
        params = {**fixed, "moment": geometry.moments(view.qpos[space.qpos])}
        return space.excitations(params, target, view, sim_dt, ctrl_dt)

    def action_of(angles: jax.Array) -> jax.Array:
        off = angles - at
        return jnp.clip(off / jnp.where(off < 0, down, up), -1.0, 1.0)

    notes = {"action": "muscle postures", **LAWS.record(space.law), "beta": beta}
    targets = Targets(tuple(space.names[i] for i in commanded), at, action_of)
    return ActionSpace(physics.model, len(commanded), command, notes, targets)


def resting_controls(model: mujoco.MjModel, qpos: np.ndarray, act: np.ndarray) -> np.ndarray:
    """Return controls [nu] that approximately hold the start state (qpos [nq], act [na]).

    Muscles keep their activation, servos their position. All other controls are 0.
    """
    low, high = control_ranges(model)
    rest = servo_controls(model, qpos)
    for i in np.flatnonzero((model.actuator_actadr >= 0) & ~servos(model)):
        if model.actuator_dyntype[i] != mujoco.mjtDyn.mjDYN_INTEGRATOR:
            rest[i] = max(act[model.actuator_actadr[i]], low[i] + _LEAST * (high[i] - low[i]))
    return np.clip(rest, low, high)


def _around(
    rest: np.ndarray, down: np.ndarray, up: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Callable[..., jax.Array]:
    rest, down, up, low, high = (np.asarray(x, np.float32) for x in (rest, down, up, low, high))
    return lambda a, *_: jnp.clip(rest + jnp.where(a < 0, down, up) * a, low, high)
