"""Each muscle law alone, on what it is for: resolving torques, and following joints that move."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from movlr_jax.biomech.muscles import muscle_params
from movlr_jax.control import muscle_controllers as laws
from movlr_jax.control.mpc.mpc2 import PostureSpace
from movlr_jax.control.muscle_controllers.least_squares import in_one_kernel, resolve

PLANNED = ("hip", "knee")


@pytest.mark.parametrize("seed", range(2))
def test_torques_are_resolved_as_scipy_does(seed: int):
    rng = np.random.default_rng(seed)
    reach = rng.normal(size=(4, 12)) / 12
    wanted, rest = rng.normal(size=4) * 0.2, rng.uniform(0, 0.5, 12)
    stacked = np.vstack([reach, np.sqrt(1e-3) * np.eye(12)])
    right = np.concatenate([wanted + reach @ rest, np.sqrt(1e-3) * rest])
    exact = lsq_linear(stacked, right, (0, 1), tol=1e-12).x
    found = np.asarray(resolve(reach, wanted, rest, iterations=3000))
    np.testing.assert_allclose(found, exact, atol=2e-3)
    quick = np.asarray(resolve(reach, wanted, rest))
    missed = [np.linalg.norm(reach @ (a - rest) - wanted) for a in (rest, quick, exact)]
    assert missed[1] - missed[2] < 0.2 * (missed[0] - missed[2]), "the few steps do not come near"


@pytest.mark.parametrize(("joints", "muscles"), [(2, 7), (23, 63)])
def test_one_kernel_computes_the_same(joints: int, muscles: int):
    """The kernel of a GPU, interpreted on this machine, for a batch of rows."""
    rng = np.random.default_rng(joints)
    reach = -rng.random((4, joints, muscles), np.float32) * (rng.random((4, joints, muscles)) < 0.3)
    wanted = 0.2 * rng.normal(size=(4, joints)).astype(np.float32)
    rest = 0.3 * rng.random((4, muscles), np.float32)
    kernel = jax.vmap(lambda *x: in_one_kernel(*x, iterations=24, interpret=True))
    expected = jax.vmap(resolve)(reach, wanted, rest)
    assert np.ptp(expected - rest) > 0.05
    np.testing.assert_allclose(kernel(reach, wanted, rest), expected, atol=1e-5)


# what each came to, and a fifth more: 0.37, 0.72, 0.72, 0.10 rad
@pytest.mark.parametrize(
    ("law", "worst"),
    [(laws.Linear(), 0.45), (laws.Product(), 0.86), (laws.ProductCurrent(), 0.86), (laws.Torque(), 0.12)],
)
def test_a_swinging_leg_is_followed(tiny, law: laws.Linear, worst: float):
    """Root-mean-square error, rad, over a second of hip and knee swinging by 0.25 rad at 1 Hz."""
    space = PostureSpace(law, tiny.model, tiny.layout, PLANNED)
    policy = space.policy(tiny.physics)
    middle, turn = np.array([0.5, 0.8]), np.array([0.0, 1.0])

    def wanted(t: float) -> np.ndarray:
        return (middle + 0.25 * np.sin(2 * np.pi * t + turn)).astype(np.float32)

    qpos = np.array([0.3, *wanted(0.0)])[None]
    state, errors = tiny.physics.start(qpos, np.zeros((1, 3)), np.zeros((1, tiny.model.na))), []
    for _ in range(100):
        params = space.params(tiny.physics, state, wanted(float(state.time[0]) + 0.01)[None, None, None])
        state = tiny.physics.rollout(state, policy, params, steps=1, key=jax.random.key(0)).final
        errors.append(np.asarray(state.qpos)[0, 1:] - wanted(float(state.time[0])))
    found = float(np.sqrt(np.mean(np.square(errors))))
    assert found < worst, found


def test_a_stiffer_joint_keeps_its_damping_ratio(tiny):
    """Four times as stiff is as if it were four times as far off, and moved twice as fast."""
    law, p = laws.Torque(kp=3.0, kd=0.2), muscle_params(tiny.model)
    rng = np.random.default_rng(4)
    moment, pull = rng.normal(size=(tiny.model.nu, 2)) * 0.03, np.full(tiny.model.nu, -500.0)
    params = {"moment": moment, "hold": np.full(tiny.model.nu, 0.1)}
    q, off, qd = np.array([0.2, 0.5]), np.array([0.01, -0.02]), np.array([0.1, 0.3])
    stiff = law.resolved(p, {**params, "stiffness": np.array([4.0, 1.0])}, {"posture": q + off}, pull, q, qd)
    same = law.resolved(p, params, {"posture": q + off * [4, 1]}, pull, q, qd * [2, 1])
    np.testing.assert_allclose(stiff, same, atol=1e-6)
    plain = law.resolved(p, params, {"posture": q + off}, pull, q, qd)
    assert not np.allclose(stiff, plain, atol=1e-4)
