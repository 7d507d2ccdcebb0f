"""MPC2 (Wei et al., ICLR 2025): plans over target postures, with a muscle controller beneath.

High level: MPPI over target postures z of the planned joints, one per plan or several in time. Low level: a
proportional controller that turns z into muscle excitations at every control step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.control.knots import between
from movlr_jax.control.muscle import MuscleParams, bias, excitation_for, gain, muscle_params
from movlr_jax.control.static import StaticOptimiser, coupling_jacobian
from movlr_jax.control.torque import resolve
from movlr_jax.models.adapter import follow_couplings, with_columns
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, Physics, SimState, Step


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


def muscle_policy(
    law: MuscleLaw,
    p: MuscleParams,
    layout: Layout,
    planned: Array,
    dofs: Array,
    sim_dt: float,
    ctrl_dt: float,
    horizon_s: float | None = None,
):
    """The low-level controller: excitations [nu] in [0, 1] that realise `posture_pull`.

    a* = (F - bias) / gain with gain <= -1; the excitation inverts one step of the activation dynamics.
    Lengths were measured one sim_dt ago and are carried forward by their velocity. With horizon_s the target moves
    between the knots [knots, ...] of params["target"].
    """
    index = jnp.asarray(layout.activations)

    def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
        target = params["target"]
        if horizon_s is not None:
            target = between(target, view.time - params["start"], horizon_s)
        velocity = layout.velocities(view.sensors)
        length = layout.lengths(view.sensors) + sim_dt * velocity
        passive = bias(p, length)
        pull = jnp.minimum(gain(p, length, velocity), -1.0)
        if law.law == "torque":
            wanted = torque_activation(law, p, params, target, pull, view.qpos[planned], view.qvel[dofs])
        else:
            held = gain(p, length, jnp.zeros_like(length)) * params["hold"] + passive
            force = jnp.minimum(
                0.0, held + posture_pull(law, p, target, length, velocity, view.qpos[planned])
            )
            wanted = jnp.clip((force - passive) / pull, 0.0, 1.0)
        return excitation_for(p, view.act[index], wanted, ctrl_dt)

    return policy


def torque_activation(
    law: MuscleLaw, p: MuscleParams, params: Any, target: Any, pull: Array, q: Array, qd: Array
) -> jax.Array:
    """Activations [nu] that turn the joints at q [nz] rad, qd [nz] rad/s towards target["posture"] [nz].

    pull [nu] N is each muscle's force per activation, params["moment"] [nu, nz] m the moment arms where the plan was
    made and params["hold"] [nu] the activations that hold that posture.
    """
    moment = params["moment"]
    strength = p.peak_force @ jnp.abs(moment) + 1e-6
    wanted = law.kp * (target["posture"] - q) - law.kd * qd
    return resolve((moment * pull[:, None] / strength).T, wanted, params["hold"])


def synergy_mixing(planned: Sequence[str], synergies: Sequence[Sequence[str]], share: float) -> np.ndarray:
    """[nz, nz] noise mixing under which joints of a synergy correlate by `share`; every variance stays 1.

    A hand grasps by closing all fingers (Santello et al., 1998): noise that does so is found by few samples.
    """
    covariance = np.eye(len(planned))
    for group in synergies:
        members = [planned.index(joint) for joint in group]
        covariance[np.ix_(members, members)] += share * (1 - np.eye(len(members)))
    return np.linalg.cholesky(covariance).T.astype(np.float32)


class PostureSpace:
    """The numbers an MPC2 plan consists of: target angles of the planned joints."""

    def __init__(
        self,
        law: MuscleLaw,
        model: mujoco.MjModel,
        layout: Layout,
        planned: Sequence[str],
        synergies: Sequence[Sequence[str]] = (),
        share: float = 0.0,
        kept: Mapping[str, float] | None = None,
        knots: int = 1,
        horizon_s: float = 0.4,
    ):
        """kept: joint -> rad, where muscles hold what no plan moves. knots: postures of a plan over horizon_s."""
        joints, kept = [model.joint(name) for name in planned], kept or {}
        self.law, self._model, self.knots, self.horizon_s = law, model, knots, horizon_s
        self._muscles = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), muscle_params(model))
        self._layout = layout
        self.qpos = np.array([j.qposadr[0] for j in joints])
        self._dofs = np.array([j.dofadr[0] for j in joints])
        self._kept = np.array([model.joint(name).qposadr[0] for name in kept], int)
        self._kept_at = np.array(list(kept.values()))
        held = np.array([model.joint(name).dofadr[0] for name in kept], int)
        self._static = StaticOptimiser(model, np.concatenate([self._dofs, held]))
        self.mixing = synergy_mixing(planned, synergies, share)
        self.lower, self.upper = (np.array([j.range[i] for j in joints], np.float32) for i in (0, 1))
        self._targets_on_device = jax.jit(self._targets)

    def policy(self, physics: Physics):
        return muscle_policy(
            self.law,
            self._muscles,
            self._layout,
            self.qpos,
            self._dofs,
            physics.sim_dt,
            physics.ctrl_dt,
            self.horizon_s if self.knots > 1 else None,
        )

    def held(self, state: SimState) -> np.ndarray:
        """[R, knots, nz] the posture of each row now, as a plan."""
        posture = np.asarray(state.qpos)[:, None, self.qpos].astype(np.float32)
        return np.repeat(posture, self.knots, axis=1)

    def params(self, physics: Physics, state: SimState, plans: Array) -> dict[str, Any]:
        """Policy parameters [R * n, ...] for plans [R, n, knots, nz] from the R rows of `state`.

        Plans on a device stay there; what holds the posture of the moment is found once per row, on the host.
        """
        qpos = np.asarray(state.qpos)
        hold = [self._static(q) if self.law.hold else np.zeros(self._model.nu) for q in qpos]
        hold, targets = np.asarray(hold, np.float32), self._targets
        if isinstance(plans, jax.Array):
            hold, qpos, targets = jnp.asarray(hold), jnp.asarray(qpos, jnp.float32), self._targets_on_device
        n, now = plans.shape[1], qpos
        length, moment = physics.kinematics(targets(qpos, plans))
        target = {"length": length.astype(np.float32)}
        if self.law.law == "product":
            target["moment"] = moment[:, :, self._dofs].astype(np.float32)
        if self.law.law != "linear":
            target["posture"] = plans.reshape(length.shape[0], -1).astype(np.float32)
        params: dict[str, Any] = {"target": target, "hold": hold.repeat(n, axis=0)}
        if self.law.law == "torque":
            params["moment"] = self._moments(physics, now).repeat(n, axis=0)
        if self.knots > 1:
            rows = len(qpos) * n
            params["target"] = {k: v.reshape(rows, self.knots, *v.shape[1:]) for k, v in target.items()}
            params["start"] = np.repeat(np.asarray(state.time, np.float32), n)
        return params

    def _moments(self, physics: Physics, qpos: Array) -> Any:
        """[R, nu, nz] moment arms about the planned joints, and what follows them, at `qpos` [R, nq]."""
        moment = physics.kinematics(qpos)[1]
        follow = [coupling_jacobian(self._model, self._dofs, np.asarray(q)) for q in qpos]
        return (moment @ np.asarray(follow, np.float32)).astype(np.float32)

    def _targets(self, qpos: Array, plans: Array) -> Any:
        """[R * n * knots, nq] whole postures that `plans` [R, n, knots, nz] ask for from `qpos` [R, nq]."""
        rows, n, knots = plans.shape[:3]
        target = with_columns(qpos.repeat(n * knots, axis=0), self.qpos, plans.reshape(rows * n * knots, -1))
        return follow_couplings(self._model, with_columns(target, self._kept, self._kept_at))
