"""Static optimisation: the smallest muscle activations that hold a posture against gravity.

The standard inverse problem of biomechanics (Crowninshield and Brand, 1981): minimise sum a^2 over a in [0, 1] with
R^T F(a) + R^T J^T f = tau, where tau are the joint torques that balance gravity and passive joint torques. For a body
on the ground, the contact forces f within their friction cones are optimised together with a.
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np

from movlr_jax.biomech.contacts import contact_bodies
from movlr_jax.biomech.muscles import dense_moments

_EFFORT = 0.02  # weight of activations relative to torque errors, both scaled to order 1
_LOAD = 1e-3  # weight of contact forces in body weights, so that many points share a load
_REACH = 0.005  # m, a foot closer than this to the ground counts as in contact
_TURNS = 200  # of Newton's method at most; about five are usual
_SHARES = np.linspace(0.0, 1.0, 33)  # of a step that the line search tries
_LEVER = 0.1  # m, lever arm that scales moments on the floating base relative to forces


def joint_equalities(model: mujoco.MjModel) -> np.ndarray:
    """Return the joint equalities [n] that are active at the start: a clutch that is disengaged drives no joint."""
    off = mujoco.mjtDisableBit.mjDSBL_EQUALITY | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    active = (model.eq_active0 != 0) & (not model.opt.disableflags & int(off))
    return np.flatnonzero((model.eq_type == mujoco.mjtEq.mjEQ_JOINT) & active)


def couplings(model: mujoco.MjModel) -> list[int]:
    """Return the active joint equalities, that of a driving joint before those of the joints that it drives."""
    order: list[int] = []
    rest = joint_equalities(model).tolist()
    follower, leader = model.eq_obj1id.tolist(), model.eq_obj2id.tolist()
    while rest:
        driven = {follower[e] for e in rest}
        ready = [e for e in rest if leader[e] not in driven] or rest  # a circle has no first
        order += ready
        done = {*ready}
        rest = [e for e in rest if e not in done]
    return order


def coupling_jacobian(model: mujoco.MjModel, planned: np.ndarray, qpos: np.ndarray) -> np.ndarray:
    """Return the Jacobian [..., nv, nz] of all joint velocities with respect to those of the planned dofs [nz].

    It is evaluated at `qpos` [..., nq]. Joints that equalities couple to a planned joint, directly or indirectly,
    move with it.
    """
    jacobian = np.zeros((*qpos.shape[:-1], model.nv, len(planned)))
    jacobian[..., planned, np.arange(len(planned))] = 1.0
    found = [e for e in couplings(model) if model.eq_obj2id[e] >= 0]
    driven, driver = model.eq_obj1id[found], model.eq_obj2id[found]
    at, (_, a, b, c, d) = model.jnt_qposadr[driver], model.eq_data[found, :5].T
    x = qpos[..., at] - model.qpos0[at]
    slopes = a + x * (2 * b + x * (3 * c + x * (4 * d)))
    pairs = zip(model.jnt_dofadr[driven], model.jnt_dofadr[driver], strict=True)
    for e, (follower, leader) in enumerate(pairs):  # a follower may lead another
        jacobian[..., follower, :] += slopes[..., e, None] * jacobian[..., leader, :]
    return jacobian


def base_dofs(model: mujoco.MjModel, planned: np.ndarray) -> np.ndarray:
    """Return the dofs of the floating base of the planned dofs [nz]; empty for a body fixed to the world.

    These are the dofs between the world and the first planned joint of each chain. Dofs driven by equalities, as in a
    shoulder, do not belong to the base.
    """
    driven = {model.jnt_dofadr[j] for j in model.eq_obj1id[joint_equalities(model)]}
    base: set[int] = set()
    for dof in planned:
        above = model.dof_parentid[dof]
        while above >= 0:
            base.add(int(above))
            above = model.dof_parentid[above]
    return np.array(sorted(base - driven - {int(d) for d in planned}), int)


def least_forces(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return y [n] >= 0 that minimises |columns y - target|^2 + |y|^2, for columns [m, n] and target [m].

    With the dual variables x [m] = target - columns y, the solution is y = max(0, columns' x), and x is the root of
    x + columns max(0, columns' x) - target, which is piecewise linear. Newton's method changes the set of positive y
    as a whole and ends exactly at the solution after about five systems of m equations (an active-set method,
    Hintermueller et al., 2002), while NNLS adds one column at a time. It begins with all columns, so the result
    depends on nothing but the arguments. It needs double precision: where the ground carries a body, the systems have
    condition numbers of 1e9.
    """
    dual, forces, eye = np.zeros_like(target), np.ones(columns.shape[1]), np.eye(len(target))
    for turn in range(_TURNS):
        used = columns[:, forces > 0]
        step = np.linalg.solve(eye + used @ used.T, target) - dual
        change = columns.T @ step if turn else columns.T @ step - forces
        share, done = 1.0, ((forces + change > 0) == (forces > 0)).all()
        if turn and not done:
            along = _SHARES[:, None]  # slopes of the dual objective, which grow from below 0
            left = (forces + along * change).clip(0.0) @ change
            slopes = np.abs((dual + along * step - target) @ step + left)
            if slopes[-1] > 0.5 * slopes[0]:
                share = _SHARES[1 + np.argmin(slopes[1:])]
        dual, forces = dual + share * step, forces + share * change
        if done:
            break
    return np.maximum(forces, 0.0)


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
        forces = least_forces(*self.problem(qpos))
        # static postures rarely need more than full activation
        return np.minimum(forces[: self._model.nu] / _EFFORT, 1.0)

    def problem(self, qpos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns [m, nu + contacts] and the target [m] of `least_forces` at the posture `qpos` [nq].

        The unknowns are the activations and the contact forces in body weights, both times their costs.
        """
        m, d, base = self._model, self._data, len(self._base_scale)
        mujoco.mj_resetData(m, d)
        d.qpos[:] = qpos
        mujoco.mj_fwdPosition(m, d)
        mujoco.mj_fwdVelocity(m, d)
        reduce = coupling_jacobian(m, self._dofs, qpos)
        needed = reduce.T @ (d.qfrc_bias - d.qfrc_passive)
        support = (self._ground_forces() @ reduce).T if base else np.zeros((len(self._dofs), 0))
        moment = dense_moments(m, d, np.empty((m.nu, m.nv)))
        mujoco.mj_fwdActuation(m, d)
        passive = d.actuator_force.copy()
        d.act[:] = 1.0
        mujoco.mj_fwdActuation(m, d)
        active = d.actuator_force - passive
        arms = (moment @ reduce).T  # [base + nz, nu]
        torque = needed - arms @ passive
        scale = np.maximum(np.abs(arms * active).max(axis=1), 1e-6)
        scale[:base] = self._base_scale
        columns = np.hstack([arms * active / _EFFORT, support * (self._weight / _LOAD)])
        return columns / scale[:, None], torque / scale

    def _ground_forces(self) -> np.ndarray:
        """Return joint forces [4 contacts, nv] per newton along the edges of each friction cone with the world."""
        m, d = self._model, self._data
        rows = []
        for contact, (first, second) in zip(d.contact, contact_bodies(m, d), strict=True):
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
