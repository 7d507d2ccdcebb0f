"""Settings of a planner that suit a body: chosen from facts about its model, where the user has not set them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import mujoco
import numpy as np

from movlr_jax.biomech.world import lowest, up_of
from movlr_jax.control.settings import MppiSettings
from movlr_jax.models.actuators import servos
from movlr_jax.models.derived import base_joints, lies, root_of, solid_of
from movlr_jax.models.motors import of_joints, swing_s, targetable
from movlr_jax.tasks import Task

M = TypeVar("M", bound=MppiSettings)
_FALLS = 2.4  # horizon of a body on its feet, in times sqrt(h / g) of a pendulum as high as its centre of mass
_HORIZONS = (0.3, 0.7)  # s
_FREE_S, _FREE_KNOTS = 0.64, 6  # of other bodies; a shorter horizon ends before a hopping body lands
_LONGEST_S = 1.6  # of a body that swings
_REPLAN = 2  # control steps between plans; of a body that swings 1, for its upright pole falls meanwhile
# with more joints than this, samples of a body on its feet move few of them, so that the others keep it upright
_MANY, _MOVED, _SMOOTH = 19, 3.5, 0.9  # joints; those that a sample moves on average; correlation between knots
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


def facts_of(task: Task, space: str = "auto") -> BodyFacts:
    """Return the facts of the body of a task at its start."""
    model, data = task.model, mujoco.MjData(task.model)
    data.qpos[:] = posture = task.start(np.random.default_rng(0), 1)[0][0]
    mujoco.mj_forward(model, data)
    root = root_of(model)
    joints = [int(model.jnt_type[j]) for j in base_joints(model, root)]
    travels = int(mujoco.mjtJoint.mjJNT_FREE) in joints or int(mujoco.mjtJoint.mjJNT_SLIDE) in joints
    up = up_of(model, data)
    com = float(data.subtree_com[root] @ up)
    low = min((lowest(model, data, g, up) for g in solid_of(model, root)), default=com)
    served = servos(model) & of_joints(model)
    return BodyFacts(
        actuators=model.nu,
        base="free" if travels else "fixed",
        targets=0 if space == "controls" else int((served | targetable(model, posture)).sum()),
        height_m=max(0.0, com - low),
        swing_s=swing_s(model, posture),
        lies=travels and lies(model, data, root),
    )


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
        few = stands and facts.targets > _MANY
        density, smooth = (_MOVED / facts.targets, rule.smooth or _SMOOTH) if few else (1.0, rule.smooth)
        rule = replace(rule, density=round(density, 2), smooth=smooth)
    return replace(config, horizon_s=horizon, knots=config.knots or knots, replan_every=every, mppi=rule)
