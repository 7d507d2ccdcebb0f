"""MPC2 (Wei et al., ICLR 2025): plans over target postures, with a muscle controller beneath.

High level: MPPI over target postures z of the planned joints, one per plan or several in time. Low level: a
proportional controller that turns z into muscle excitations at every control step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.biomech.static_optimisation import StaticOptimiser, coupling_jacobian
from movlr_jax.control.mpc.knots import between
from movlr_jax.control.muscle_controllers.actuation import Actuation, Keeping, MuscleLaw
from movlr_jax.models.adapter import follow_couplings, nominal_qpos, with_columns
from movlr_jax.physics.base import Physics
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, SimState, Step

if TYPE_CHECKING:
    from movlr_jax.tasks import Task


def muscle_policy(actuation: Actuation, sim_dt: float, ctrl_dt: float, horizon_s: float | None = None):
    """`actuation` under params["target"]; with horizon_s the target moves between its knots [knots, ...]."""

    def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
        target = params["target"]
        if horizon_s is not None:
            target = between(target, view.time - params["start"], horizon_s)
        return actuation(params, target, view, sim_dt, ctrl_dt)

    return policy


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
        kept = kept or {}
        self.law, self._model, self.knots, self.horizon_s = law, model, knots, horizon_s
        self.actuation = Actuation(law, model, layout, planned)
        self.qpos, self._dofs = self.actuation.qpos, self.actuation.dofs
        self._kept = np.array([model.joint(name).qposadr[0] for name in kept], int)
        self._kept_at = np.array(list(kept.values()))
        self._held = np.array([model.joint(name).dofadr[0] for name in kept], int)
        self._static = StaticOptimiser(model, np.concatenate([self._dofs, self._held]))
        self.mixing = synergy_mixing(planned, synergies, share)
        self.lower, self.upper = self.actuation.lower, self.actuation.upper
        self._targets_on_device = jax.jit(self._targets)

    def lengths(self, physics: Physics, qpos: np.ndarray, postures: np.ndarray) -> np.ndarray:
        """Muscle lengths [S, nu] m at `postures` [S, nz] rad of the planned joints, all else as at `qpos` [nq]."""
        return np.asarray(physics.kinematics(self._targets(qpos[None], postures[None, :, None]))[0])

    def keeping(self, physics: Physics, qpos: np.ndarray) -> Keeping | None:
        """What keeps the joints that no plan moves, with moment arms as at `qpos` [nq]; None where there are none."""
        if not len(self._kept):
            return None
        moment = np.asarray(
            physics.kinematics(with_columns(qpos[None].copy(), self._kept, self._kept_at))[1][0]
        )
        return Keeping(self._kept, self._held, self._kept_at, moment[:, self._held])

    def policy(self, physics: Physics):
        horizon_s = self.horizon_s if self.knots > 1 else None
        return muscle_policy(self.actuation, physics.sim_dt, physics.ctrl_dt, horizon_s)

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


def posture_space(law: MuscleLaw, task: Task, **settings: Any) -> PostureSpace:
    """Of the task's model: its planned joints, and those that muscles keep where its posture has them."""
    model, adapter = task.model, task.adapter
    nominal = nominal_qpos(model, adapter)
    kept = {name: float(nominal[model.joint(name).qposadr[0]]) for name in adapter.kept_joints}
    return PostureSpace(
        law, model, task.layout, adapter.planned_joints, adapter.synergies, kept=kept, **settings
    )
