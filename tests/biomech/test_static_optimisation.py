"""Static optimisation against non-negative least squares of scipy, assembled muscle by muscle."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from scipy.optimize import nnls

from movlr_jax.biomech.static_optimisation import StaticOptimiser, coupling_jacobian, least_forces
from movlr_jax.models import ModelAdapter, follow_couplings, model_adapter, nominal_qpos

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("order", [("BA", "CB"), ("CB", "BA")])
def test_joints_coupled_to_coupled_joints_move_in_whatever_order_the_file_names_them(order: tuple[str, str]):
    equalities = {
        "BA": 'joint1="B" joint2="A" polycoef="0 0.5 0 0 0"',
        "CB": 'joint1="C" joint2="B" polycoef="0 2 0 0 0"',
    }
    links = (
        "".join(f'<body><joint name="{n}" axis="0 1 0"/><geom size=".1" pos="0 0 -.3"/>' for n in "ABC")
        + 3 * "</body>"
    )
    chosen = "".join(f"<joint {equalities[name]}/>" for name in order)
    model = mujoco.MjModel.from_xml_string(
        f"<mujoco><worldbody>{links}</worldbody><equality>{chosen}</equality></mujoco>"
    )
    qpos = np.array([0.4, 0.0, 0.0])
    np.testing.assert_allclose(follow_couplings(model, qpos), [0.4, 0.2, 0.4])
    np.testing.assert_allclose(coupling_jacobian(model, np.array([0]), qpos)[:, 0], [1.0, 0.5, 1.0])


def by_nnls(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """min |columns y - target|^2 + |y|^2, y >= 0, by adding one column at a time (Lawson and Hanson)."""
    stacked = np.vstack([columns, np.eye(columns.shape[1])])
    return nnls(stacked, np.append(target, np.zeros(columns.shape[1])))[0]


class ByNnls(StaticOptimiser):
    """The same problem with MuJoCo's muscle functions, one muscle after the other, solved in primal variables."""

    def __call__(self, qpos: np.ndarray) -> np.ndarray:
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
        arms = (moment @ reduce).T
        torque = reduce.T @ (d.qfrc_bias - d.qfrc_passive) - arms @ passive
        scale = np.maximum(np.abs(arms * active).max(axis=1), 1e-6)
        scale[:base] = self._base_scale
        support = (self._ground_forces() @ reduce).T if base else np.zeros((len(scale), 0))
        columns = np.hstack([arms * active, support * self._weight]) / scale[:, None]
        costs = np.append(np.full(m.nu, 0.02), np.full(support.shape[1], 1e-3))
        target = np.append(torque / scale, np.zeros(len(costs)))
        return np.minimum(nnls(np.vstack([columns, np.diag(costs)]), target)[0][: m.nu], 1.0)


def postures(model: mujoco.MjModel, adapter: ModelAdapter, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Dofs of the planned and kept joints, and n postures around the nominal one, with the lowest point at 0."""
    joints = [model.joint(name) for name in (*adapter.planned_joints, *adapter.kept_joints)]
    qpos, data = np.repeat(nominal_qpos(model, adapter)[None], n, axis=0), mujoco.MjData(model)
    for joint in joints:
        column = joint.qposadr[0]
        qpos[:, column] = np.clip(qpos[:, column] + 0.1 * RNG.standard_normal(n), *joint.range)
    free = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
    for q in qpos[:, None] if len(free) else ():
        data.qpos[:] = q[0]
        mujoco.mj_kinematics(model, data)
        solid = model.geom_bodyid > 0
        q[0, model.jnt_qposadr[free[0]] + 2] -= (data.geom_xpos[:, 2] - model.geom_rbound)[solid].min()
    return np.array([joint.dofadr[0] for joint in joints]), qpos


def raise_floor(model: mujoco.MjModel, qpos: np.ndarray) -> None:
    """Raise the geom `floor` until the body touches it at `qpos`."""
    data, floor = mujoco.MjData(model), model.geom("floor").id
    while not (data.contact.geom == floor).any():
        model.geom_pos[floor, 2] += 0.005
        data.qpos[:] = qpos
        mujoco.mj_fwdPosition(model, data)


@pytest.mark.parametrize("shape", [(3, 8), (20, 100), (27, 63), (43, 700)])
def test_newtons_method_finds_the_active_set(shape):
    """Columns of very different sizes, as contacts and weak muscles are; some targets are out of reach."""
    for _ in range(8):
        columns = RNG.standard_normal(shape) * 10.0 ** RNG.uniform(-1, 2, shape[1])
        columns[0] = np.abs(columns[0])
        target = RNG.standard_normal(shape[0])
        expected = by_nnls(columns, target)
        found = least_forces(columns, target)
        np.testing.assert_allclose(found, expected, atol=1e-9 * expected.max())
        np.testing.assert_array_equal(found > 0, expected > 0)


def test_no_force_is_needed_where_none_helps():
    assert not least_forces(np.ones((2, 5)), np.array([-1.0, -1.0])).any()


@pytest.mark.parametrize(
    ("model", "contacts"),
    [
        ("tiny_muscle", False),
        ("myoarm_r", False),
        pytest.param("ms_human_700_legs", True, marks=pytest.mark.slow),
        pytest.param("ms_human_700", False, marks=pytest.mark.slow),
    ],
)
def test_activations_are_those_of_nnls(model, contacts):
    adapter = model_adapter(model)
    spec = adapter.load()
    if contacts:
        spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5, 5, 0.1], pos=[0, 0, -2])
    compiled = spec.compile()
    dofs, qpos = postures(compiled, adapter, 4)
    if contacts:
        raise_floor(compiled, qpos[0])
    optimiser, reference = StaticOptimiser(compiled, dofs), ByNnls(compiled, dofs)
    expected = np.array([reference(q) for q in qpos])
    assert expected.max() > 1e-3
    np.testing.assert_allclose([optimiser(q) for q in qpos], expected, atol=1e-8)
    if contacts:
        assert max(optimiser.problem(q)[0].shape[1] for q in qpos) > compiled.nu


@pytest.mark.parametrize("model", ["tiny_muscle", "myoarm_r"])
def test_couplings_move_as_finite_differences_say(model):
    """A small change of each planned joint, followed by MuJoCo's equalities; many postures at once and each alone."""
    adapter = model_adapter(model)
    compiled = adapter.load().compile()
    dofs, qpos = postures(compiled, adapter, 3)
    found, step = coupling_jacobian(compiled, dofs, qpos), 1e-6
    for i, dof in enumerate(dofs):
        there, back = qpos.copy(), qpos.copy()
        column = compiled.jnt_qposadr[compiled.dof_jntid[dof]]
        there[:, column] += step
        back[:, column] -= step
        moved = follow_couplings(compiled, there) - follow_couplings(compiled, back)
        for j in range(compiled.njnt):
            slope = moved[:, compiled.jnt_qposadr[j]] / (2 * step)
            np.testing.assert_allclose(found[:, compiled.jnt_dofadr[j], i], slope, atol=1e-7)
    np.testing.assert_array_equal(found, [coupling_jacobian(compiled, dofs, q) for q in qpos])
