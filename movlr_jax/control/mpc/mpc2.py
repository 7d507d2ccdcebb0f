"""MPC2 (Wei et al., ICLR 2025): plans over target postures, tracked by a muscle controller.

High level: MPPI over target postures z of the planned joints, one or several per plan. Low level: a muscle
controller that converts z to muscle excitations at every control step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.biomech.muscles import bias, excitation_for, gain, moment_arms, muscle_params
from movlr_jax.biomech.static_optimisation import StaticOptimiser, coupling_jacobian
from movlr_jax.control.mpc.knots import PlanSpace, between
from movlr_jax.control.muscle_controllers import MuscleLaw, Muscles
from movlr_jax.models.adapter import follow_couplings, nominal_qpos, with_columns
from movlr_jax.physics.base import Physics
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, Policy, SimState, Step

if TYPE_CHECKING:
    from movlr_jax.tasks import Task


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


def synergy_mixing(planned: Sequence[str], synergies: Sequence[Sequence[str]], share: float) -> np.ndarray:
    """Return the noise mixing matrix [nz, nz]: joints of a synergy correlate by `share`, and variances stay 1.

    Fingers close together in a grasp (Santello et al., 1998), so correlated noise needs fewer samples.
    """
    covariance = np.eye(len(planned))
    for group in synergies:
        members = [planned.index(joint) for joint in group]
        covariance[np.ix_(members, members)] += share * (1 - np.eye(len(members)))
    return np.linalg.cholesky(covariance).T.astype(np.float32)


class PostureSpace(PlanSpace):
    """Plans of MPC2: target angles of the planned joints, and the muscle controller that moves joints to them."""

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
        spline: str = "linear",
    ):
        """kept: joint -> rad, fixed targets of joints outside the plan. knots: postures of a plan over horizon_s."""
        kept = kept or {}
        self.law, self._model, self._layout = law, model, layout
        self.names, joints = tuple(planned), [model.joint(name) for name in planned]
        lower, upper = (np.array([j.range[i] for j in joints], np.float32) for i in (0, 1))
        super().__init__(lower, upper, knots, horizon_s, spline)
        self.muscles = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), muscle_params(model))
        self.qpos = np.array([j.qposadr[0] for j in joints])
        self.dofs = np.array([j.dofadr[0] for j in joints])
        self._kept = np.array([model.joint(name).qposadr[0] for name in kept], int)
        self._kept_at = np.array(list(kept.values()))
        self._held = np.array([model.joint(name).dofadr[0] for name in kept], int)
        self.static = StaticOptimiser(model, np.concatenate([self.dofs, self._held]))
        self.mixing = synergy_mixing(planned, synergies, share)
        self._data = mujoco.MjData(model)
        self._last: tuple[bytes, np.ndarray] | None = None  # a state and its static feed-forward
        self._arms: tuple[bytes, np.ndarray] | None = None  # a state and its moment arms
        self._targets_on_device = jax.jit(self._filled)

    def lengths(self, physics: Physics, qpos: np.ndarray, postures: np.ndarray) -> np.ndarray:
        """Return muscle lengths [S, nu] m at `postures` [S, nz] rad of the planned joints, the others at `qpos`."""
        return np.asarray(physics.lengths(self.targets(qpos[None], postures[None, :, None])))

    def keeping(self, physics: Physics, qpos: np.ndarray) -> Keeping | None:
        """Return the kept joints with their moment arms at `qpos` [nq], or None if there are none."""
        if not len(self._kept):
            return None
        moment = np.asarray(physics.kinematics(with_columns(qpos[None].copy(), self._kept, self._kept_at))[1][0])
        return Keeping(self._kept, self._held, self._kept_at, moment[:, self._held])

    def policy(self, physics: Physics) -> Policy:
        def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
            target = params["target"]
            if self.knots > 1:
                target = between(target, view.time - params["start"], self.horizon_s, self.spline)
            return self.excitations(params, target, view, physics.sim_dt, physics.ctrl_dt)

        return policy

    def excitations(self, params: Any, target: Any, view: Step, sim_dt: float, ctrl_dt: float) -> jax.Array:
        """Return excitations [nu] in [0, 1] for `target`, as the law made it. `params`: data of the current posture.

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

    def held(self, state: SimState) -> np.ndarray:
        """Return plans [R, knots, nz] that hold the current posture of each row."""
        posture = np.asarray(state.qpos)[:, None, self.qpos].astype(np.float32)
        return np.repeat(posture, self.knots, axis=1)

    def params(self, physics: Physics, state: SimState, plans: Array) -> dict[str, Any]:
        """Return policy parameters [R * n, ...] for plans [R, n, knots, nz] from the R rows of `state`.

        Plans on a device stay there.
        """
        now, device, n = np.asarray(state.qpos), isinstance(plans, jax.Array), plans.shape[1]
        qpos = jnp.asarray(now, jnp.float32) if device else now
        wanted = self.law.target(_Targets(self, physics, qpos, plans))
        target = {name: value.astype(np.float32) for name, value in wanted.items()}
        place = jnp.asarray if device else np.asarray
        params: dict[str, Any] = {"target": target, "hold": place(self._hold(now)).repeat(n, axis=0)}
        if self.law.arms:
            params["moment"] = place(self._moments(now)).repeat(n, axis=0)
        if self.knots > 1:
            rows = len(now) * n
            params["target"] = {k: v.reshape(rows, self.knots, *v.shape[1:]) for k, v in target.items()}
            params["start"] = np.repeat(np.asarray(state.time, np.float32), n)
        return params

    def _hold(self, qpos: np.ndarray) -> np.ndarray:
        """Return the static feed-forward [R, nu] at `qpos` [R, nq], float32, computed once for plans and action."""
        if not self.law.hold:
            return np.zeros((len(qpos), self._model.nu), np.float32)
        if self._last is None or self._last[0] != qpos.tobytes():
            self._last = qpos.tobytes(), np.array([self.static(q) for q in qpos], np.float32)
        return self._last[1]

    def _moments(self, qpos: np.ndarray) -> np.ndarray:
        """Return moment arms [R, nu, nz] about the planned joints, including coupled joints, at `qpos` [R, nq].

        They are computed once for plans and action, by C MuJoCo: a device would wait longer for its few rows.
        """
        if self._arms is None or self._arms[0] != qpos.tobytes():
            moment = moment_arms(self._model, self._data, qpos)
            follow = coupling_jacobian(self._model, self.dofs, qpos).astype(np.float32)
            self._arms = qpos.tobytes(), (moment @ follow).astype(np.float32)
        return self._arms[1]

    def targets(self, qpos: Array, plans: Array) -> Any:
        """Return the target postures [R * n * knots, nq] of `plans` [R, n, knots, nz] from `qpos` [R, nq]."""
        return (self._targets_on_device if isinstance(plans, jax.Array) else self._filled)(qpos, plans)

    def _filled(self, qpos: Array, plans: Array) -> Any:
        rows, n, knots = plans.shape[:3]
        target = with_columns(qpos.repeat(n * knots, axis=0), self.qpos, plans.reshape(rows * n * knots, -1))
        return follow_couplings(self._model, with_columns(target, self._kept, self._kept_at))


class _Targets:
    """Target postures of plans, as `TargetPostures`; one call of physics computes what a law reads."""

    def __init__(self, space: PostureSpace, physics: Physics, qpos: Array, plans: Array):
        self._space, self._physics, self._qpos, self._plans = space, physics, qpos, plans

    @property
    def posture(self) -> Array:
        return self._plans.reshape(-1, self._plans.shape[-1])

    @property
    def length(self) -> Array:
        if "_kinematics" in vars(self):  # for the moment arms
            return self._kinematics[0]
        return self._physics.lengths(self._space.targets(self._qpos, self._plans))

    @property
    def moment(self) -> Array:
        return self._kinematics[1][:, :, self._space.dofs]

    @cached_property
    def _kinematics(self) -> tuple[Array, Array]:
        return self._physics.kinematics(self._space.targets(self._qpos, self._plans))


def posture_space(law: MuscleLaw, task: Task, **settings: Any) -> PostureSpace:
    """Return the posture space of the task's model. Kept joints stay at their angles in the nominal posture."""
    model, adapter = task.model, task.adapter
    nominal = nominal_qpos(model, adapter)
    kept = {name: float(nominal[model.joint(name).qposadr[0]]) for name in adapter.kept_joints}
    return PostureSpace(law, model, task.layout, adapter.planned_joints, adapter.synergies, kept=kept, **settings)
