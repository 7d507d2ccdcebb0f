"""From target postures to muscles: the controller beneath the planner of MPC2 and beneath trained policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.biomech.muscles import MuscleParams, bias, excitation_for, gain, muscle_params
from movlr_jax.control.muscle_controllers.torque import resolve
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, Step

MUSCLE_LAWS = ("linear", "product", "torque")


@dataclass(frozen=True)
class MuscleLaw:
    """How a target posture becomes muscle forces.

    `product` is the published law, F = min(0, k P (L* - L)) with P = sum_j |dL/dq_j| |z_j - q_j|.
    `linear` is scaled by each muscle's strength and damped, F = min(0, F0 (kp (L* - L) - kd V) / L0).
    `torque` asks the joints for tau = S (kp (z - q) - kd dq/dt), S the torque of all their muscles pulling one way,
    and resolves it into activations (`control.torque`).
    `hold` adds to each the least activations that hold the posture of the moment against gravity
    (`control.static`); without them an arm sags until stretch makes up for its weight.
    """

    law: Literal["linear", "product", "torque"] = "linear"
    kp: float = 5.0  # linear: 1; torque: 1/rad
    kd: float = 0.2  # linear: s; torque: s/rad
    product_gain: float = 1e4  # product: N/m per m, their k
    hold: bool = True
    iterations: int = 24  # torque: gradient steps; more muscles about a joint need more
    held: float = 1.0  # torque: stiffness of joints that a policy holds, beside those that it commands


@dataclass(frozen=True)
class Keeping:
    """Joints that no plan moves, and the moment arms that turn them back to where they are kept."""

    qpos: np.ndarray  # [nk] addresses
    dofs: np.ndarray  # [nk]
    at: np.ndarray  # [nk] rad
    moment: np.ndarray  # [nu, nk] m, moment arms there

    @property
    def muscles(self) -> np.ndarray:
        """Those that cross the joints."""
        return np.flatnonzero(np.abs(self.moment).max(axis=1) > 1e-9)


class Actuation:
    """The muscle controller of one model: excitations [nu] in [0, 1] that turn its planned joints to a target."""

    def __init__(self, law: MuscleLaw, model: mujoco.MjModel, layout: Layout, planned: Sequence[str]):
        joints = [model.joint(name) for name in planned]
        self.law = law
        self.muscles = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), muscle_params(model))
        self.qpos = np.array([j.qposadr[0] for j in joints])
        self.dofs = np.array([j.dofadr[0] for j in joints])
        self.lower, self.upper = (np.array([j.range[i] for j in joints], np.float32) for i in (0, 1))
        self._layout = layout

    def __call__(self, params: Any, target: Any, view: Step, sim_dt: float, ctrl_dt: float) -> jax.Array:
        """Excitations [nu] for `target` (see `posture_pull`), with what `params` says of the posture it is seen from.

        a* = (F - bias) / gain with gain <= -1; the excitation inverts one step of the activation dynamics. Lengths
        were measured one sim_dt ago and are carried forward by their velocity.
        """
        p, law = self.muscles, self.law
        velocity = self._layout.velocities(view.sensors)
        length = self._layout.lengths(view.sensors) + sim_dt * velocity
        passive = bias(p, length)
        pull = jnp.minimum(gain(p, length, velocity), -1.0)
        q = view.qpos[self.qpos]
        if law.law == "torque":
            wanted = torque_activation(law, p, params, target, pull, q, view.qvel[self.dofs])
            if "kept" in params:
                wanted = keeping_activation(law, p, params, target, pull, wanted, view, self.qpos, self.dofs)
        else:
            held = gain(p, length, jnp.zeros_like(length)) * params["hold"] + passive
            force = jnp.minimum(0.0, held + posture_pull(law, p, target, length, velocity, q))
            wanted = jnp.clip((force - passive) / pull, 0.0, 1.0)
        return excitation_for(p, view.act[jnp.asarray(self._layout.activations)], wanted, ctrl_dt)


def posture_pull(
    law: MuscleLaw, p: MuscleParams, target: Any, length: Array, velocity: Array, q: Array
) -> jax.Array:
    """Wanted muscle forces [nu] N beside those that hold the posture; negative ones pull.

    target["length"] [nu] m are the lengths at the target; for the product law also target["moment"] [nu, nz]
    m and target["posture"] [nz] rad. q [nz] rad is the posture now.
    """
    stretch = target["length"] - length
    if law.law == "product":
        effort = jnp.abs(target["moment"]) @ jnp.abs(target["posture"] - q)
        return law.product_gain * effort * stretch
    return jnp.asarray(p.peak_force * (law.kp * stretch - law.kd * velocity) / p.optimal_length)


def torque_activation(
    law: MuscleLaw, p: MuscleParams, params: Any, target: Any, pull: Array, q: Array, qd: Array
) -> jax.Array:
    """Activations [nu] that turn the joints at q [nz] rad, qd [nz] rad/s towards target["posture"] [nz].

    pull [nu] N is each muscle's force per activation, params["moment"] [nu, nz] m the moment arms where the plan was
    made, or the policy acts, and params["hold"] [nu] the activations that hold that posture.
    params["stiffness"] [nz], if there is one, multiplies kp, and its root kd: damping ratios stay.
    """
    moment = params["moment"]
    strength = p.peak_force @ jnp.abs(moment) + 1e-6
    stiffness = jnp.asarray(params.get("stiffness", 1.0))
    wanted = stiffness * law.kp * (target["posture"] - q) - jnp.sqrt(stiffness) * law.kd * qd
    return resolve((moment * pull[:, None] / strength).T, wanted, params["hold"], law.iterations)


def keeping_activation(
    law: MuscleLaw,
    p: MuscleParams,
    params: Any,
    target: Any,
    pull: Array,
    wanted: jax.Array,
    view: Step,
    qpos: np.ndarray,
    dofs: np.ndarray,
) -> jax.Array:
    """`wanted` [nu], but muscles that cross joints of params["kept"], a `Keeping`, turn these back as well.

    qpos, dofs [nz]: addresses of the planned joints, which those muscles may cross, too.
    """
    kept = params["kept"]
    of = kept.muscles
    moment = jnp.concatenate([params["moment"], kept.moment], axis=1)[of]
    q, qd = view.qpos[np.append(qpos, kept.qpos)], view.qvel[np.append(dofs, kept.dofs)]
    stiffness = jnp.append(params["stiffness"], jnp.full(len(kept.at), law.held))
    mine = {"moment": moment, "hold": params["hold"][of], "stiffness": stiffness}
    whole = {"posture": jnp.append(target["posture"], kept.at)}
    held = torque_activation(law, jax.tree.map(lambda x: x[of], p), mine, whole, pull[of], q, qd)
    return wanted.at[of].set(held)
