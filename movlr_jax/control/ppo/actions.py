"""Observations and action spaces of trained policies."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.biomech.geometry import fit_geometry
from movlr_jax.biomech.world import up_of
from movlr_jax.control.muscle_controllers import LAWS
from movlr_jax.control.ppo.config import PdConfig
from movlr_jax.control.ranges import control_ranges
from movlr_jax.control.targets import JointTargets, joint_targets, posture_of, target_box
from movlr_jax.errors import UserError
from movlr_jax.models.actuators import servo_controls, servos
from movlr_jax.models.derived import on_base
from movlr_jax.models.load import with_load
from movlr_jax.models.motors import TargetSettings
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, SimState, Step, Trajectory

if TYPE_CHECKING:
    from movlr_jax.control.mpc.mpc2 import PostureSpace
    from movlr_jax.tasks import Task

Observe = Callable[[Step], jax.Array]  # observation [no] of one simulation
_LEAST_REACH = 1e-3  # rad
OFF = 0.5  # m, bound of the observed distance from a line
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


def observation(
    model: mujoco.MjModel,
    layout: Layout,
    goals: Mapping[str, Array],
    what: Sequence[str],
    more: Mapping[str, Observe] | None = None,
    aside: np.ndarray | None = None,
) -> Observe:
    """Return a function that concatenates the observations named in `what` to one vector [no].

    qpos, qvel, act, prev_action; touch: forces in body weights; goal: the goals of the task and, for each
    `<thing>_pos`, the vector from the thing to it. If the task has a heading, the horizontal position of a floating
    base is omitted, since the task is the same anywhere on the ground; of a travel without an end, all of it but
    how far to the left it is, along `aside` [3]. If it has a stride frequency, goal includes sine and cosine of the
    gait phase. more: further observations by name.
    """
    ground = travel(model) if "heading" in goals or aside is not None else {}
    kept, place = np.setdiff1d(np.arange(model.nq), list(ground)), np.array(list(ground), int)
    left = np.array([axis @ aside for axis in ground.values()]) if aside is not None else np.zeros(0)
    strays = np.abs(left).max(initial=0.0) > 0.5
    weight = max(float(model.body_mass.sum()) * float(np.linalg.norm(model.opt.gravity)), 1.0)
    parts = [np.array(addresses) for addresses in layout.touch.values()]
    aims = {name: jnp.asarray(value, jnp.float32) for name, value in goals.items()}
    ways = [
        (layout.blocks["pos"] + 3 * layout.bodies[thing] if thing in layout.bodies else layout.sites[thing], aim)
        for name, aim in aims.items()
        if (thing := name.removesuffix("_pos")) != name and (thing in layout.bodies or thing in layout.sites)
    ]

    def clock(time: Array) -> list[jax.Array]:
        if "stride_frequency" not in aims:
            return []
        phase = 2 * jnp.pi * aims["stride_frequency"] * time
        return [jnp.stack([jnp.sin(phase), jnp.cos(phase)])]

    def observe(view: Step) -> jax.Array:
        pieces = {
            "qpos": lambda: [
                view.qpos[kept],
                *([jnp.clip(view.qpos[place] @ left, -OFF, OFF)[None]] if strays else []),
            ],
            "qvel": lambda: [view.qvel],
            "act": lambda: [view.act],
            "touch": lambda: [view.sensors[part].sum()[None] / weight for part in parts],
            "prev_action": lambda: [view.prev_action],
            "goal": lambda: [
                *(jnp.ravel(aim) for aim in aims.values()),
                *(aim - view.sensors[at : at + 3] for at, aim in ways),
                *clock(view.time),
            ],
            **{name: lambda see=see: [see(view)] for name, see in (more or {}).items()},
        }
        seen = [jnp.asarray(x, jnp.float32) for name in what for x in pieces[name]()]
        if not seen:
            raise UserError(
                f"optimizer.ppo.observe=[{','.join(what)}] observes nothing of this model; add qpos and qvel"
            )
        return jnp.concatenate(seen)

    return observe


def travel(model: mujoco.MjModel) -> dict[int, np.ndarray]:
    """Return the qpos addresses and axes [3] of the horizontal position of floating bases (free joints, slides)."""
    addresses: dict[int, np.ndarray] = {}
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    up = up_of(model, data)
    for j in range(model.njnt):
        kind, at = model.jnt_type[j], int(model.jnt_qposadr[j])
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            addresses |= {at + i: np.eye(3)[i] for i in range(3) if abs(up[i]) < 0.5}
        slide = kind == mujoco.mjtJoint.mjJNT_SLIDE and on_base(model, int(model.jnt_bodyid[j]))
        if slide and abs(data.xaxis[j] @ up) < 0.5:
            addresses[at] = data.xaxis[j].copy()
    return addresses


def controls(model: mujoco.MjModel, rest: np.ndarray) -> ActionSpace:
    """Return the action space of plain controls: 0 maps to `rest` [nu], -1 and 1 to the ends of each range."""
    low, high = control_ranges(model)
    return ActionSpace(model, model.nu, _around(rest, rest - low, high - rest, low, high), {"action": "controls"})


def planned(task: Task, settings: TargetSettings) -> ActionSpace:
    """Return the action space of what a planner plans: joint targets around the posture of the start, where it can.

    0 maps to the controls that hold the posture, -1 and 1 to the limits of plans.
    """
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
    actuation = space.actuation
    geometry = fit_geometry(lambda z: space.lengths(physics, qpos, z), actuation.lower, actuation.upper)
    z0, hold = (jnp.asarray(x, jnp.float32) for x in (qpos[actuation.qpos], rest if space.law.hold else 0 * rest))

    commanded = np.arange(len(z0)) if moved is None else np.array(moved, int)
    stiffness = space.law.stiffness(np.isin(np.arange(len(z0)), commanded))
    keeping = space.keeping(physics, qpos)
    up, down = (
        jnp.minimum(beta, jnp.maximum(x, _LEAST_REACH))[commanded] if limits else jnp.full(len(commanded), beta)
        for x in (actuation.upper - z0, z0 - actuation.lower)
    )

    def command(a: jax.Array, view: Step, sim_dt: float, ctrl_dt: float) -> jax.Array:
        z = jnp.clip(z0.at[commanded].add(jnp.where(a < 0, down, up) * a), actuation.lower, actuation.upper)
        target = space.law.target(_Targets(z, geometry.lengths(z), geometry.moments(z)))
        arms = geometry.moments(view.qpos[actuation.qpos])
        params: dict[str, Any] = {"hold": hold, "moment": arms}
        if stiffness is not None:
            params["stiffness"] = stiffness
        if keeping is not None:
            params["kept"] = keeping
        return actuation(params, target, view, sim_dt, ctrl_dt)

    notes = {"action": "muscle postures", **LAWS.record(space.law), "beta": beta}
    names, at = tuple(space.names[i] for i in commanded), z0[commanded]
    targets = Targets(names, at, _shares(at, down, up))
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


def _shares(rest: Array, down: Array, up: Array) -> Callable[[jax.Array], jax.Array]:
    """Return the inverse of what lies around `rest`: (rest + up, rest - down) -> (1, -1)."""

    def inverse(value: jax.Array) -> jax.Array:
        off = value - rest
        return jnp.clip(off / jnp.where(off < 0, down, up), -1.0, 1.0)

    return inverse
