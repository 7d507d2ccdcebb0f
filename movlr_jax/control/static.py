"""Static optimisation: the least muscle activations that hold a posture against gravity.

The standard inverse problem of biomechanics (Crowninshield and Brand, 1981): find a in [0, 1] with
R^T F(a) = tau and sum a^2 least, where tau are the joint torques that gravity and passive joints ask for.
"""

from __future__ import annotations

import mujoco
import numpy as np
from scipy.optimize import nnls

_EFFORT = 0.02  # weight of the activations beside torque errors, both scaled to order 1


def coupling_jacobian(model: mujoco.MjModel, planned: np.ndarray, qpos: np.ndarray) -> np.ndarray:
    """[nv, nz] velocities of all joints per velocity of the planned dofs [nz] at `qpos` [nq].

    Joints that an equality ties to a planned one move along, directly or through another.
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


class StaticOptimiser:
    """Holds what is constant: the model and its planned dofs [nz]."""

    def __init__(self, model: mujoco.MjModel, planned: np.ndarray):
        self._model, self._planned, self._data = model, planned, mujoco.MjData(model)

    def __call__(self, qpos: np.ndarray) -> np.ndarray:
        """Activations [nu] that hold the posture `qpos` [nq] at rest, contacts left out."""
        m, d = self._model, self._data
        mujoco.mj_resetData(m, d)
        d.qpos[:] = qpos
        mujoco.mj_fwdPosition(m, d)
        mujoco.mj_fwdVelocity(m, d)
        moment = np.zeros((m.nu, m.nv))
        mujoco.mju_sparse2dense(moment, d.actuator_moment, d.moment_rownnz, d.moment_rowadr, d.moment_colind)
        reduce = coupling_jacobian(m, self._planned, qpos)
        passive, active = np.empty(m.nu), np.empty(m.nu)
        for i in range(m.nu):
            length, lr, acc0 = d.actuator_length[i], m.actuator_lengthrange[i], m.actuator_acc0[i]
            active[i] = mujoco.mju_muscleGain(length, 0.0, lr, acc0, m.actuator_gainprm[i, :9])
            passive[i] = mujoco.mju_muscleBias(length, lr, acc0, m.actuator_biasprm[i, :9])
        arms = (moment @ reduce).T  # [nz, nu]
        torque = reduce.T @ (d.qfrc_bias - d.qfrc_passive) - arms @ passive
        scale = np.maximum(np.abs(arms * active).max(axis=1), 1e-6)
        rows = np.vstack([arms * active / scale[:, None], _EFFORT * np.eye(m.nu)])
        solution, _ = nnls(rows, np.concatenate([torque / scale, np.zeros(m.nu)]))
        return np.minimum(solution, 1.0)  # holding a posture seldom asks for more than a muscle has
