"""Muscle controllers that track target postures for the MPC2 planner and for trained policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.biomech.muscles import MuscleParams, bias, excitation_for, gain, muscle_params
from movlr_jax.control.muscle_controllers.torque import resolve
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, Step


@dataclass(frozen=True)
class MuscleConfig:
    """Settings of the muscle controller, which converts a target posture z to muscle forces F.

    `product` is the published controller, F = min(0, k P (L* - L)) with P = sum_j |dL/dq_j| |z_j - q_j|, and moment
    arms dL/dq of the target posture; in `product_current` they are those of the posture at the start of the plan.
    `linear` scales with the strength of each muscle and has damping, F = min(0, F0 (kp (L* - L) - kd V) / L0).
    `torque` computes joint torques tau = S (kp (z - q) - kd dq/dt), where S is the sum of the maximum torques of all
    muscles of a joint, and resolves them into activations (`control.muscle_controllers.torque`).
    `hold` adds the static feed-forward: the smallest activations that hold the current posture against gravity
    (`biomech.static_optimisation`). Without it, an arm sags until the length errors balance its weight.
    """

    law: str = "linear"  # a name of LAWS
    kp: float = 5.0  # linear: 1; torque: 1/rad
    kd: float = 0.2  # linear: s; torque: s/rad
    product_gain: float = 1e4  # product: N/m per m, their k
    hold: bool = True
    iterations: int = 24  # torque: gradient steps; joints with more muscles need more
    held: float = 1.0  # torque: stiffness of joints that a policy holds, relative to those that it commands


@dataclass(frozen=True)
class Keeping:
    """Joints outside the plan that muscles keep at fixed angles, and their moment arms."""

    qpos: np.ndarray  # [nk] addresses
    dofs: np.ndarray  # [nk]
    at: np.ndarray  # [nk] rad
    moment: np.ndarray  # [nu, nk] m, moment arms at these angles

    @property
    def muscles(self) -> np.ndarray:
        """Indices of the muscles that cross the joints."""
        return np.flatnonzero(np.abs(self.moment).max(axis=1) > 1e-9)


class Actuation:
    """The muscle controller of one model: excitations [nu] in [0, 1] that move its planned joints to a target."""

    def __init__(self, config: MuscleConfig, model: mujoco.MjModel, layout: Layout, planned: Sequence[str]):
        joints = [model.joint(name) for name in planned]
        self.config, self.law = config, LAWS[config.law]
        self.muscles = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), muscle_params(model))
        self.qpos = np.array([j.qposadr[0] for j in joints])
        self.dofs = np.array([j.dofadr[0] for j in joints])
        self.lower, self.upper = (np.array([j.range[i] for j in joints], np.float32) for i in (0, 1))
        self._layout = layout

    def __call__(self, params: Any, target: Any, view: Step, sim_dt: float, ctrl_dt: float) -> jax.Array:
        """Return excitations [nu] for `target` (see `MuscleLaw`). `params` holds data of the current posture.

        The excitation inverts one step of the activation dynamics. Lengths were measured one sim_dt ago and are
        extrapolated with their velocity. The first control of a plan extrapolates by plan_dt what the episode
        measured, so it differs from the one that is applied; correcting that did not improve the tracking of an arm
        and a leg.
        """
        p, velocity = self.muscles, self._layout.velocities(view.sensors)
        length = self._layout.lengths(view.sensors) + sim_dt * velocity
        pull = jnp.minimum(gain(p, length, velocity), -1.0)
        now = Muscles(length, velocity, bias(p, length), pull, view)
        activation = self.law.activation(self, params, target, now)
        return excitation_for(p, view.act[jnp.asarray(self._layout.activations)], activation, ctrl_dt)


class Muscles(NamedTuple):
    """Muscles of one simulation at present."""

    length: Array  # [nu] m
    velocity: Array  # [nu] m/s
    passive: Array  # [nu] N
    pull: Array  # [nu] N per activation, at most -1
    view: Step


Force = Callable[[Actuation, Any, Muscles], Array]


def tracking(force: Force) -> Callable[[Actuation, Any, Any, Muscles], jax.Array]:
    """Return the activations of a law of muscle forces F [nu] N, to which those that hold the posture are added.

    a = (F - passive) / pull; negative forces pull.
    """

    def activation(actuation: Actuation, params: Any, target: Any, now: Muscles) -> jax.Array:
        still = gain(actuation.muscles, now.length, jnp.zeros_like(now.length))
        total = jnp.minimum(0.0, still * params["hold"] + now.passive + force(actuation, target, now))
        return jnp.clip((total - now.passive) / now.pull, 0.0, 1.0)

    return activation


def linear_force(actuation: Actuation, target: Any, now: Muscles) -> Array:
    p, config = actuation.muscles, actuation.config
    stretch = target["length"] - now.length
    return jnp.asarray(p.peak_force * (config.kp * stretch - config.kd * now.velocity) / p.optimal_length)


def product_force(actuation: Actuation, target: Any, now: Muscles) -> Array:
    return _product(actuation, target["moment"], target, now)


def _product(actuation: Actuation, moment: Array, target: Any, now: Muscles) -> Array:
    effort = jnp.abs(moment) @ jnp.abs(target["posture"] - now.view.qpos[actuation.qpos])
    return actuation.config.product_gain * effort * (target["length"] - now.length)


def current_product(actuation: Actuation, params: Any, target: Any, now: Muscles) -> jax.Array:
    """Return the activations [nu] of `product` with the moment arms of the posture at the start of the plan."""
    force = partial(_product, actuation, params["moment"])
    return tracking(lambda _, target, now: force(target, now))(actuation, params, target, now)


def resolved(actuation: Actuation, params: Any, target: Any, now: Muscles) -> jax.Array:
    """Return the activations [nu] of joint torques, also about the joints of params["kept"]."""
    a, view = actuation, now.view
    q, qd = view.qpos[a.qpos], view.qvel[a.dofs]
    activation = torque_activation(a.config, a.muscles, params, target, now.pull, q, qd)
    return keeping_activation(a, params, target, now, activation) if "kept" in params else activation


def torque_activation(
    config: MuscleConfig, p: MuscleParams, params: Any, target: Any, pull: Array, q: Array, qd: Array
) -> jax.Array:
    """Return activations [nu] that move the joints at q [nz] rad, qd [nz] rad/s towards target["posture"] [nz] rad.

    pull [nu] N is the force of each muscle per activation. params["moment"] [nu, nz] m are the moment arms, and
    params["hold"] [nu] the activations that hold the posture, both at the start of the plan or at the current posture
    of a policy. The optional params["stiffness"] [nz] multiplies kp, and its root kd, which keeps damping ratios.
    """
    moment = params["moment"]
    strength = p.peak_force @ jnp.abs(moment) + 1e-6
    stiffness = jnp.asarray(params.get("stiffness", 1.0))
    torque = stiffness * config.kp * (target["posture"] - q) - jnp.sqrt(stiffness) * config.kd * qd
    return resolve((moment * pull[:, None] / strength).T, torque, params["hold"], config.iterations)


def keeping_activation(
    actuation: Actuation, params: Any, target: Any, now: Muscles, activation: jax.Array
) -> jax.Array:
    """Replace the `activation` [nu] of muscles that cross the joints of params["kept"], to hold these too.

    These muscles may also cross planned joints.
    """
    kept, view, config = params["kept"], now.view, actuation.config
    of = kept.muscles
    moment = jnp.concatenate([params["moment"], kept.moment], axis=1)[of]
    q = view.qpos[np.append(actuation.qpos, kept.qpos)]
    qd = view.qvel[np.append(actuation.dofs, kept.dofs)]
    stiffness = jnp.append(params["stiffness"], jnp.full(len(kept.at), config.held))
    mine = {"moment": moment, "hold": params["hold"][of], "stiffness": stiffness}
    whole = {"posture": jnp.append(target["posture"], kept.at)}
    muscles = jax.tree.map(lambda x: x[of], actuation.muscles)
    held = torque_activation(config, muscles, mine, whole, now.pull[of], q, qd)
    return activation.at[of].set(held)


@dataclass(frozen=True)
class MuscleLaw:
    """How a target becomes activations, and what this reads.

    activation: (actuation, params, target, muscles) -> activations [nu].
    target: the fields of a target: length [nu] m, posture [nz] rad and moment [nu, nz] m, the moment arms there.
    arms: whether it reads params["moment"] [nu, nz] m, the moment arms at the start of the plan.
    """

    activation: Callable[[Actuation, Any, Any, Muscles], jax.Array]
    target: tuple[str, ...]
    arms: bool = False


LAWS = {
    "linear": MuscleLaw(tracking(linear_force), ("length",)),
    "product": MuscleLaw(tracking(product_force), ("length", "moment", "posture")),
    "product_current": MuscleLaw(current_product, ("length", "posture"), arms=True),
    "torque": MuscleLaw(resolved, ("posture",), arms=True),
}
