"""Static optimisation: the smallest muscle activations that hold a posture against gravity.

The standard inverse problem of biomechanics (Crowninshield and Brand, 1981): minimise sum a^2 over a in [0, 1] with
R^T F(a) + R^T J^T f = tau, where tau are the joint torques that balance gravity and passive joint torques. For a body
on the ground, the contact forces f within their friction cones are optimised together with a.
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np
from scipy.optimize import nnls

_EFFORT = 0.02  # weight of activations relative to torque errors, both scaled to order 1
_LOAD = 1e-3  # weight of contact forces in body weights, so that many points share a load
_REACH = 0.005  # m, a foot closer than this to the ground counts as in contact
_LEVER = 0.1  # m, lever arm that scales moments on the floating base relative to forces


def coupling_jacobian(model: mujoco.MjModel, planned: np.ndarray, qpos: np.ndarray) -> np.ndarray:
    """Return the Jacobian [nv, nz] of all joint velocities with respect to those of the planned dofs [nz].

    It is evaluated at `qpos` [nq]. Joints that equalities couple to a planned joint, directly or indirectly, move
    with it.
    """
    jacobian = np.zeros((model.nv, len(planned)))
    jacobian[planned, np.arange(len(planned))] = 1.0
    couplings = (model.eq_type == mujoco.mjtEq.mjEQ_JOINT) & (model.eq_active0 != 0) & (model.eq_obj2id >= 0)
    for e in np.flatnonzero(couplings):
        driven, driver = model.eq_obj1id[e], model.eq_obj2id[e]
        x = qpos[model.jnt_qposadr[driver]] - model.qpos0[model.jnt_qposadr[driver]]
        slope = np.polynomial.polynomial.polyval(x, np.polynomial.polynomial.polyder(model.eq_data[e, :5]))
        jacobian[model.jnt_dofadr[driven]] += slope * jacobian[model.jnt_dofadr[driver]]
    return jacobian


def base_dofs(model: mujoco.MjModel, planned: np.ndarray) -> np.ndarray:
    """Return the dofs of the floating base of the planned dofs [nz]; empty for a body fixed to the world.

    These are the dofs between the world and the first planned joint of each chain. Dofs driven by equalities, as in a
    shoulder, do not belong to the base.
    """
    driven = {model.jnt_dofadr[j] for j in model.eq_obj1id[model.eq_type == mujoco.mjtEq.mjEQ_JOINT]}
    base: set[int] = set()
    for dof in planned:
        above = model.dof_parentid[dof]
        while above >= 0:
            base.add(int(above))
            above = model.dof_parentid[above]
    return np.array(sorted(base - driven - {int(d) for d in planned}), int)


class StaticOptimiser:
    """Static optimisation for one model and its planned dofs [nz]."""

    def __init__(self, model: mujoco.MjModel, planned: np.ndarray):
        self._model = model = copy.copy(model)
        self._model.geom_margin += _REACH
        self._data = mujoco.MjData(model)
        base = base_dofs(model, planned)
        self._dofs = np.concatenate([base, planned])
        tree = model.dof_treeid[planned[0]] if len(planned) else -1
        self._ours = model.body_treeid == tree
        mass = float(model.body_mass[self._ours].sum())
        self._weight = max(mass * float(np.linalg.norm(model.opt.gravity)), 1e-6)  # N
        joint, offset = model.dof_jntid[base], base - model.jnt_dofadr[model.dof_jntid[base]]
        kind = model.jnt_type[joint]
        slides = (kind == mujoco.mjtJoint.mjJNT_SLIDE) | ((kind == mujoco.mjtJoint.mjJNT_FREE) & (offset < 3))
        self._base_scale = self._weight * np.where(slides, 1.0, _LEVER)

    def __call__(self, qpos: np.ndarray) -> np.ndarray:
        """Return activations [nu] that hold the posture `qpos` [nq] at rest, with its ground contacts."""
        m, d, base = self._model, self._data, len(self._base_scale)
        mujoco.mj_resetData(m, d)
        d.qpos[:] = qpos
        mujoco.mj_fwdPosition(m, d)
        mujoco.mj_fwdVelocity(m, d)
        moment = np.zeros((m.nu, m.nv))
        mujoco.mju_sparse2dense(moment, d.actuator_moment, d.moment_rownnz, d.moment_rowadr, d.moment_colind)
        reduce = coupling_jacobian(m, self._dofs, qpos)
        passive, active = np.empty(m.nu), np.empty(m.nu)
        for i in range(m.nu):
            length, lr, acc0 = d.actuator_length[i], m.actuator_lengthrange[i], m.actuator_acc0[i]
            active[i] = mujoco.mju_muscleGain(length, 0.0, lr, acc0, m.actuator_gainprm[i, :9])
            passive[i] = mujoco.mju_muscleBias(length, lr, acc0, m.actuator_biasprm[i, :9])
        arms = (moment @ reduce).T  # [base + nz, nu]
        torque = reduce.T @ (d.qfrc_bias - d.qfrc_passive) - arms @ passive
        scale = np.maximum(np.abs(arms * active).max(axis=1), 1e-6)
        scale[:base] = self._base_scale
        support = (self._ground_forces() @ reduce).T if base else np.zeros((len(scale), 0))
        columns = np.hstack([arms * active, support * self._weight]) / scale[:, None]
        costs = np.concatenate([np.full(m.nu, _EFFORT), np.full(support.shape[1], _LOAD)])
        target = np.concatenate([torque / scale, np.zeros(len(costs))])
        solution, _ = nnls(np.vstack([columns, np.diag(costs)]), target)
        return np.minimum(solution[: m.nu], 1.0)  # static postures rarely need more than full activation

    def _ground_forces(self) -> np.ndarray:
        """Return joint forces [4 contacts, nv] per newton along the edges of each friction cone with the world."""
        m, d = self._model, self._data
        rows = []
        for c in range(d.ncon):
            contact = d.contact[c]
            first, second = m.geom_bodyid[contact.geom]
            if m.body_weldid[first] and m.body_weldid[second]:
                continue
            body, side = (second, 1.0) if self._ours[second] else (first, -1.0)
            if not self._ours[body]:
                continue
            jacobian = np.zeros((3, m.nv))
            mujoco.mj_jac(m, d, jacobian, None, contact.pos, body)
            normal, *tangents = side * contact.frame.reshape(3, 3)
            rows += [(normal + s * contact.friction[0] * t) @ jacobian for t in tangents for s in (-1, 1)]
        return np.array(rows).reshape(-1, m.nv)
