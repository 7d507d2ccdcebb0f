"""The muscle model and its inverse, against MuJoCo's own functions."""

from __future__ import annotations

import contextlib
from itertools import product

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from movlr_jax.biomech.muscles import MuscleParams, bias, excitation_for, gain, muscle_params
from movlr_jax.models import model_adapter

MODELS = ("myoarm_r", "other passive forces")


def cast(params: MuscleParams, dtype: type) -> MuscleParams:
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), params)


def take(params: MuscleParams, rows: np.ndarray) -> MuscleParams:
    return jax.tree.map(lambda x: np.asarray(x)[rows], params)


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> mujoco.MjModel:
    if request.param != "other passive forces":
        return model_adapter(request.param).load().compile()
    model = model_adapter("tiny_muscle").load().compile()
    model.actuator_biasprm[:, :9] *= [1.1, 0.9, 0.7, 1.0, 1.0, 1.2, 1.0, 1.3, 1.0]
    model.actuator_biastype[0], model.actuator_biasprm[0] = mujoco.mjtBias.mjBIAS_NONE, 0.0
    return model


@pytest.fixture(params=["float32", "float64"])
def precision(request: pytest.FixtureRequest):
    """(dtype, tolerance in units of the quantity's scale), with JAX switched accordingly."""
    with jax.enable_x64(True) if request.param == "float64" else contextlib.nullcontext():
        yield (np.float64, 1e-6) if request.param == "float64" else (np.float32, 1e-5)


def some_muscles(model: mujoco.MjModel) -> np.ndarray:
    """All of a small model, every ninth of a large one."""
    return np.arange(model.nu) if model.nu < 10 else np.arange(0, model.nu, 9)


def grid(model: mujoco.MjModel, muscle: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and velocities far beyond what the muscle can do, knots of the curves included."""
    prm, (short, long) = model.actuator_gainprm[muscle], model.actuator_lengthrange[muscle]
    optimal = (long - short) / (prm[1] - prm[0])
    a, b = 0.5 * (prm[4] + 1), 0.5 * (prm[5] + 1)
    knots = np.concatenate([np.linspace(0.2, 2.0, 46), [prm[4], a, 1.0, b, prm[5]]])
    speeds = np.concatenate([np.linspace(-1.5, 1.5, 31), [-1.0, 0.0, prm[8] - 1]])
    length, velocity = np.meshgrid(short + (knots - prm[0]) * optimal, speeds * optimal * prm[6], indexing="ij")
    return length.ravel(), velocity.ravel()


def test_gain_and_bias_are_those_of_mujoco(model: mujoco.MjModel, precision):
    dtype, tolerance = precision
    params = muscle_params(model)
    gains, biases = jax.jit(gain), jax.jit(bias)
    for i in some_muscles(model):
        length, velocity = grid(model, i)
        span, acc0, prm = model.actuator_lengthrange[i], model.actuator_acc0[i], model.actuator_gainprm[i, :9]
        expected_gain = [mujoco.mju_muscleGain(x, v, span, acc0, prm) for x, v in zip(length, velocity, strict=True)]
        prm = model.actuator_biasprm[i, :9]
        passive = model.actuator_biastype[i] == mujoco.mjtBias.mjBIAS_MUSCLE
        expected_bias = [mujoco.mju_muscleBias(x, span, acc0, prm) if passive else 0.0 for x in length]
        mine = cast(take(params, np.full(len(length), i)), dtype)
        at = jnp.asarray(length, dtype)
        peak = params.peak_force[i]
        np.testing.assert_allclose(
            gains(mine, at, jnp.asarray(velocity, dtype)) / peak, np.array(expected_gain) / peak, 0, tolerance
        )
        np.testing.assert_allclose(biases(mine, at) / peak, np.array(expected_bias) / peak, 0, tolerance)


def one_step(model: mujoco.MjModel, data: mujoco.MjData, act: np.ndarray, ctrl: np.ndarray) -> np.ndarray:
    """Activations after one C step from rest."""
    mujoco.mj_resetData(model, data)
    data.act[:], data.ctrl[:] = act, ctrl
    mujoco.mj_step(model, data)
    return data.act.copy()


@pytest.mark.parametrize("dt", [0.001, 0.002, 0.008])
def test_the_excitation_brings_the_activation_where_it_is_wanted(dt: float):
    """Reachable targets to 1e-6 by one C step; the others to the bound that excitation 0 or 1 reaches."""
    model = model_adapter("tiny_muscle").load().compile()
    model.opt.timestep = dt
    for muscle, width in enumerate((0.0, 0.01, 0.05, 0.2, 1.0, 5.0, 20.0)):
        model.actuator_dynprm[muscle, 2] = width
    data = mujoco.MjData(model)
    with jax.enable_x64(True):
        params = cast(muscle_params(model), np.float64)
        inverse = jax.jit(excitation_for)
        for a, wanted in product(np.linspace(0, 1, 11), np.linspace(0, 1, 41)):
            now, target = np.full(model.nu, a), np.full(model.nu, wanted)
            u = np.asarray(inverse(params, jnp.asarray(now), jnp.asarray(target), dt))
            assert ((u >= 0) & (u <= 1)).all()
            low, high = (one_step(model, data, now, np.full(model.nu, x)) for x in (0.0, 1.0))
            reached = one_step(model, data, now, u)
            np.testing.assert_allclose(reached, np.clip(target, low, high), 0, 1e-6, err_msg=f"{a} -> {wanted}")


def test_in_single_precision_the_excitation_is_good_enough(tiny):
    """Float32, as the controller uses it: within 1e-5 of activation."""
    model, data = tiny.model, mujoco.MjData(tiny.model)
    params = cast(muscle_params(model), np.float32)
    rng = np.random.default_rng(0)
    for _ in range(50):
        now, target = rng.uniform(size=(2, model.nu))
        u = excitation_for(params, jnp.float32(now), jnp.float32(target), float(np.float32(model.opt.timestep)))
        low, high = (one_step(model, data, now, np.full(model.nu, x)) for x in (0.0, 1.0))
        reached = one_step(model, data, now, np.asarray(u))
        np.testing.assert_allclose(reached, np.clip(target, low, high), 0, 1e-5)


def test_the_published_reachable_interval():
    """MPC2 gives [a - dt a / (t2 - t1 a), a + dt (1 - a) / (t2 + t1 (1 - a))] for a smoothing width of 5.

    That takes the switch S(z + 1/2) = 1/2 + 1.875 z - 5 z^3 + 6 z^5, z = drive / width, to first order. At a drive
    of 1 the rest is 0.038 of the step from one time constant to the other: 17 % of the interval at the worst
    activation (a = 0, where they are 16 : 1 apart), and 2 % from a = 0.3 on. At drives up to 0.4 it is below
    0.003 of that step.
    """
    model = model_adapter("tiny_muscle").load().compile()
    dt = model.opt.timestep
    model.actuator_dynprm[:, :3] = (0.01, 0.04, 5.0)
    params = cast(muscle_params(model), np.float32)
    inverse = jax.jit(excitation_for)
    for a in np.linspace(0, 1, 21):
        up, down = 0.01 * (0.5 + 1.5 * a), 0.04 / (0.5 + 1.5 * a)
        t1, t2 = 1.875 * (up - down) / 5, (up + down) / 2
        low, high = a - dt * a / (t2 - t1 * a), a + dt * (1 - a) / (t2 + t1 * (1 - a))
        now = jnp.full(model.nu, a, jnp.float32)
        ours = [a + dt * mujoco.mju_muscleDynamics(u, a, model.actuator_dynprm[0, :3]) for u in (0.0, 1.0)]
        np.testing.assert_allclose(ours, [low, high], 0, (0.17 if a < 0.3 else 0.02) * (high - low))
        for drive in (-0.4, -0.1, 0.1, 0.4):
            wanted = a + dt * drive / (t2 + t1 * drive)
            theirs = np.clip(a + (wanted - a) * t2 / (dt - (wanted - a) * t1), 0, 1)
            mine = inverse(params, now, jnp.full(model.nu, wanted, jnp.float32), dt)
            np.testing.assert_allclose(mine, theirs, 0, 0.005)
