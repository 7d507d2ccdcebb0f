"""Joint torques of a PD controller, resolved into muscle activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax._util.parts import setting
from movlr_jax.biomech.muscles import MuscleParams
from movlr_jax.control.muscle_controllers.law import Body, MuscleLaw, Muscles, TargetPostures
from movlr_jax.control.muscle_controllers.least_squares import resolve
from movlr_jax.types import Array


@dataclass(frozen=True, kw_only=True)
class Torque(MuscleLaw):
    """Torques tau = S (kp (z - q) - kd dq/dt) in all muscles at once, by bounded least squares (`least_squares`).

    S is the sum of the maximum torques of all muscles of a joint.
    """

    kp: float = setting(5.0, "1/rad; stiffness, in maximum torques", least=0)
    kd: float = setting(0.2, "s/rad; damping", least=0)
    iterations: int = setting(24, "gradient steps; joints with more muscles need more", least=1)
    held: float = setting(1.0, "stiffness of joints that a policy holds, relative to those that it commands", least=0)
    arms: ClassVar[bool] = True

    def target(self, at: TargetPostures) -> dict[str, Array]:
        return {"posture": at.posture}

    def activation(self, body: Body, params: Any, target: Any, now: Muscles) -> jax.Array:
        """Return activations [nu] in [0, 1], which also hold the joints of the optional params["kept"]."""
        q, qd = now.view.qpos[body.qpos], now.view.qvel[body.dofs]
        activation = self.resolved(body.muscles, params, target, now.pull, q, qd)
        return self._keeping(body, params, target, now, activation) if "kept" in params else activation

    def resolved(self, p: MuscleParams, params: Any, target: Any, pull: Array, q: Array, qd: Array) -> jax.Array:
        """Return activations [nu] that move joints at q [nz] rad, qd [nz] rad/s to target["posture"] [nz] rad.

        pull [nu] N is the force of each muscle per activation. params["moment"] [nu, nz] m are the moment arms, and
        params["hold"] [nu] the activations that hold the posture, both at the start of the plan or at the current
        posture of a policy. The optional params["stiffness"] [nz] multiplies kp, and its root kd, which keeps damping
        ratios.
        """
        moment = params["moment"]
        strength = p.peak_force @ jnp.abs(moment) + 1e-6
        stiffness = jnp.asarray(params.get("stiffness", 1.0))
        torque = stiffness * self.kp * (target["posture"] - q) - jnp.sqrt(stiffness) * self.kd * qd
        return resolve((moment * pull[:, None] / strength).T, torque, params["hold"], self.iterations)

    def _keeping(self, body: Body, params: Any, target: Any, now: Muscles, activation: jax.Array) -> jax.Array:
        """Replace the `activation` [nu] of muscles that cross the joints of params["kept"], to hold these too.

        These muscles may also cross planned joints.
        """
        kept, view = params["kept"], now.view
        of = kept.muscles
        moment = jnp.concatenate([params["moment"], kept.moment], axis=1)[of]
        q = view.qpos[np.append(body.qpos, kept.qpos)]
        qd = view.qvel[np.append(body.dofs, kept.dofs)]
        stiffness = jnp.append(params["stiffness"], jnp.full(len(kept.at), self.held))
        mine = {"moment": moment, "hold": params["hold"][of], "stiffness": stiffness}
        whole = {"posture": jnp.append(target["posture"], kept.at)}
        muscles = jax.tree.map(lambda x: x[of], body.muscles)
        return activation.at[of].set(self.resolved(muscles, mine, whole, now.pull[of], q, qd))

    def stiffness(self, commanded: Array) -> Array:
        return jnp.where(commanded, jnp.float32(1.0), jnp.float32(self.held))
