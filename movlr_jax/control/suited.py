"""Settings of a planner that suit a body: chosen from facts about its model, where the user has not set them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import mujoco
import numpy as np

from movlr_jax.biomech.world import lowest, up_of
from movlr_jax.control.settings import MppiSettings
from movlr_jax.control.targets import joint_targets
from movlr_jax.models.actuators import servos
from movlr_jax.models.derived import base_joints, has_moving_base, lies, root_of, solid_of
from movlr_jax.models.load import with_load
from movlr_jax.models.motors import TargetSettings, of_joints, swing_s, targetable
from movlr_jax.models.spec import quiet
from movlr_jax.tasks import Task

_SCALAR = (int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE))
M = TypeVar("M", bound=MppiSettings)
_FALLS = 2.6  # horizon of a body on its feet, in times sqrt(h / g) of a pendulum as high as its centre of mass
_HORIZONS = (0.3, 0.7)  # s
_FREE_S, _FREE_KNOTS = 0.64, 6  # of other bodies; a shorter horizon ends before a hopping body lands
_LONGEST_S = 1.6  # of a body that swings
_REPLAN = 2  # control steps between plans; of a body that swings 1, for its upright pole falls meanwhile
# with more joints than this, samples of a body on its feet, or of a hand, move few of them, so that the others stay
_MANY, _MANY_FIXED, _MOVED = 19, 11, 3.5  # joints; of a fixed base; those that a sample moves on average
_SMOOTH = 0.9  # correlation between knots
_STEPS, _FINE = (0.008, 0.004, 0.002), 0.001  # s, time steps of plans, and one that they are compared with
_HELD_S, _APART, _SHAKES = 0.4, 0.025, 0.5  # s; rad or m, and rad/s or m/s, by which they may differ
_NUDGE = 0.1  # rad/s or m/s, of all joints at the start: without it, nothing would shake
_KNOT_S = 0.13  # s between knots of joint targets, at which limbs can follow, and of a body that swings


@dataclass(frozen=True)
class BodyFacts:
    """What the choice of a planner's settings depends on."""

    actuators: int
    base: str  # fixed, or free: a floating or planar base
    targets: int  # actuators whose controls are, or become, joint targets
    height_m: float  # of the centre of mass above the lowest point
    swing_s: float = 0.0  # longest period of a limb that no motor can hold, as that of a pole on a cart
    lies: bool = False  # whether it starts lying, so that no limb carries it
    plan_dt: float = _STEPS[0]  # s, the longest time step in which its servos hold it without shaking


def facts_of(task: Task, space: str = "auto") -> BodyFacts:
    """Return the facts of the body of a task at its start."""
    model, data = task.model, mujoco.MjData(task.model)
    data.qpos[:] = posture = task.start(np.random.default_rng(0), 1)[0][0]
    mujoco.mj_forward(model, data)
    root = root_of(model)
    travels = has_moving_base(model, root)
    up = up_of(model, data)
    com = float(data.subtree_com[root] @ up)
    low = min((lowest(model, data, g, up) for g in solid_of(model, root)), default=com)
    served = servos(model) & of_joints(model)
    targets = 0 if space == "controls" else int((served | targetable(model, posture)).sum())
    return BodyFacts(
        actuators=model.nu,
        base="free" if travels else "fixed",
        targets=targets,
        height_m=max(0.0, com - low),
        swing_s=swing_s(model, posture),
        lies=travels and lies(model, data, root),
        plan_dt=_step(task, posture, space, travels) if targets or servos(model).any() else _STEPS[0],
    )


def _step(task: Task, posture: np.ndarray, space: str, travels: bool) -> float:
    """Return the longest time step in s, of those of plans, in which servos hold `posture` [nq] without shaking."""
    found, _ = joint_targets(TargetSettings(), task, space)
    model, resting = (found.model, partial(found.resting, task)) if found else (task.model, task.resting)
    controls = with_load(model, posture, resting)(posture)
    base = base_joints(model, root_of(model)) if travels else []
    joints = [j for j in range(model.njnt) if int(model.jnt_type[j]) in _SCALAR and j not in base]

    def held(step: float) -> tuple[np.ndarray, np.ndarray]:
        stepped, data = copy.copy(model), mujoco.MjData(model)
        stepped.opt.timestep = step
        data.qpos[:], data.ctrl[:] = posture, controls
        data.qvel[model.jnt_dofadr[joints]] = _NUDGE
        with quiet():
            mujoco.mj_step(stepped, data, nstep=round(_HELD_S / step))
        if any(warning.number for warning in data.warning):  # it diverged, and began anew
            return np.full(len(joints), np.inf), np.full(len(joints), np.inf)
        return data.qpos[model.jnt_qposadr[joints]], np.abs(data.qvel[model.jnt_dofadr[joints]])

    angles, speeds = held(_FINE)
    for step in _STEPS[:-1]:
        there, fast = held(step)
        if np.isfinite(fast).all() and max(np.abs(there - angles)) < _APART and max(fast - speeds) < _SHAKES:
            return step
    return _STEPS[-1]


def suited(config: M, facts: BodyFacts) -> M:
    """Return the settings with those that are 0 (auto) chosen for a body with these `facts`."""
    horizon, knots = _FREE_S, _FREE_KNOTS
    stands = facts.base == "free" and not facts.lies
    if facts.targets and stands:
        horizon = float(np.clip(_FALLS * np.sqrt(facts.height_m / 9.81), *_HORIZONS))
    elif facts.swing_s > horizon:
        horizon = min(facts.swing_s, _LONGEST_S)
    horizon = config.horizon_s or round(horizon / config.ctrl_dt) * config.ctrl_dt
    if facts.targets or facts.swing_s > _FREE_S:
        knots = 1 + max(1, round(horizon / _KNOT_S))
    every = config.replan_every or (1 if facts.swing_s else _REPLAN)
    rule = config.mppi
    if not rule.density:
        few = not facts.lies and facts.targets > (_MANY if facts.base == "free" else _MANY_FIXED)
        density, smooth = (_MOVED / facts.targets, rule.smooth or _SMOOTH) if few else (1.0, rule.smooth)
        rule = replace(rule, density=round(density, 2), smooth=smooth)
    return replace(
        config,
        plan_dt=config.plan_dt or facts.plan_dt,
        horizon_s=horizon,
        knots=config.knots or knots,
        replan_every=every,
        mppi=rule,
    )
