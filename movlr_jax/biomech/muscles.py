"""MuJoCo's muscle model as pure JAX functions, and its inverse.

The forward functions follow the MuJoCo documentation (Modeling, Muscles) and are tested against
`mju_muscleGain`, `mju_muscleBias` and `mju_muscleDynamics`. The inverse gives the excitation that brings
an activation to a target in one step (Wei et al., MPC2, ICLR 2025, section on the low level).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.types import Array, Replaceable

_MIN = 1e-15  # mjMINVAL
_GROUPS = 31  # groups of actuators that a model can disable


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ForceParams(Replaceable):
    """Constants of the active force (gainprm) or the passive force (biasprm) of every muscle, each [nu]."""

    length_min: Array  # m, actuator_lengthrange[0]
    range_min: Array  # operating range in units of the optimal length
    optimal_length: Array  # m, L0
    peak_force: Array  # N, F0
    lmin: Array
    lmax: Array
    vmax: Array  # L0/s
    fpmax: Array
    fvmax: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MuscleParams(ForceParams):
    """Constants of every muscle of a model, each [nu]; its own of `ForceParams` are those of the active force."""

    passive: ForceParams
    tau_act: Array  # s
    tau_deact: Array  # s
    tau_width: Array  # width of the smooth switch between the two, 0 for a hard switch


def muscle_params(model: mujoco.MjModel) -> MuscleParams:
    """Return the muscle constants of `model`; every actuator must be a muscle.

    Raises UserError if the model has no muscles, or actuators that are not muscles.
    """
    muscle = (
        (model.actuator_gaintype == mujoco.mjtGain.mjGAIN_MUSCLE)
        & (model.actuator_dyntype == mujoco.mjtDyn.mjDYN_MUSCLE)
        & np.isin(model.actuator_biastype, (mujoco.mjtBias.mjBIAS_MUSCLE, mujoco.mjtBias.mjBIAS_NONE))
    )
    if model.nu == 0 or not muscle.all():
        others = [model.actuator(i).name or f"#{i}" for i in np.flatnonzero(~muscle)[:5]]
        raise UserError(
            f"optimizer=mpc2 controls only muscles, but this model has {int(muscle.sum())} muscles among its "
            f"{model.nu} actuators{' (not muscles: ' + ', '.join(others) + ')' if others else ''}; "
            "use optimizer=mppi, which supports all actuators"
        )
    dyn = model.actuator_dynprm
    return MuscleParams(
        **_force_params(model, model.actuator_gainprm),
        passive=ForceParams(**_force_params(model, model.actuator_biasprm)),
        tau_act=dyn[:, 0],
        tau_deact=dyn[:, 1],
        tau_width=dyn[:, 2],
    )


def _force_params(model: mujoco.MjModel, prm: np.ndarray) -> dict[str, np.ndarray]:
    """Return the fields of `ForceParams` of the parameters [nu, 10] of a gain or a bias."""
    lr, scaled = model.actuator_lengthrange, prm[:, 3] / np.maximum(_MIN, model.actuator_acc0)
    return {
        "length_min": lr[:, 0],
        "range_min": prm[:, 0],
        "optimal_length": np.maximum(_MIN, (lr[:, 1] - lr[:, 0]) / np.maximum(_MIN, prm[:, 1] - prm[:, 0])),
        "peak_force": np.where(prm[:, 2] >= 0, prm[:, 2], scaled),
        "lmin": prm[:, 4],
        "lmax": prm[:, 5],
        "vmax": prm[:, 6],
        "fpmax": prm[:, 7],
        "fvmax": prm[:, 8],
    }


def enabled_actuators(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu] whether each actuator may act: neither its group nor actuation as a whole is disabled."""
    if model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_ACTUATION):
        return np.zeros(model.nu, bool)
    group = model.actuator_group
    known = (group >= 0) & (group < _GROUPS)
    return ~(known & (model.opt.disableactuator >> np.where(known, group, 0) & 1).astype(bool))


def pose(model: mujoco.MjModel, data: mujoco.MjData, qpos: np.ndarray) -> mujoco.MjData:
    """Return `data` at the posture `qpos` [nq], with positions and the lengths and moment arms of actuators."""
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_tendon(model, data)
    mujoco.mj_transmission(model, data)
    return data


def moment_arms(model: mujoco.MjModel, data: mujoco.MjData, qpos: np.ndarray) -> np.ndarray:
    """Return moment arms [R, nu, nv] m of all actuators at postures `qpos` [R, nq]; `data` is overwritten."""
    found = np.empty((len(qpos), model.nu, model.nv))
    for q, dense in zip(qpos, found, strict=True):
        pose(model, data, q)
        dense_moments(model, data, dense)
    return found


def dense_moments(model: mujoco.MjModel, data: mujoco.MjData, into: np.ndarray) -> np.ndarray:
    """Write the moment arms of the transmissions in `data` into `into` [nu, nv] m and return it.

    Those of disabled actuators are 0: they move nothing.
    """
    d = data
    mujoco.mju_sparse2dense(into, d.actuator_moment, d.moment_rownnz, d.moment_rowadr, d.moment_colind)
    if not (acts := enabled_actuators(model)).all():
        into[~acts] = 0.0
    return into


def _normalised_length(p: ForceParams, length: Array) -> Array:
    return p.range_min + (length - p.length_min) / p.optimal_length


def gain(p: MuscleParams, length: Array, velocity: Array) -> Array:
    """Return the active force per unit of activation, [nu] N, which is <= 0 because muscles pull.

    length [nu] m, velocity [nu] m/s. -F0 FL(L) FV(V), as `mju_muscleGain`.
    """
    x = _normalised_length(p, length)
    a, b = 0.5 * (p.lmin + 1), 0.5 * (1 + p.lmax)
    rising = 0.5 * jnp.square((x - p.lmin) / (a - p.lmin))
    near_left = 1 - 0.5 * jnp.square((1 - x) / (1 - a))
    near_right = 1 - 0.5 * jnp.square((x - 1) / (b - 1))
    falling = 0.5 * jnp.square((p.lmax - x) / (p.lmax - b))
    fl = jnp.where(x <= a, rising, jnp.where(x <= 1, near_left, jnp.where(x <= b, near_right, falling)))
    fl = jnp.where((x >= p.lmin) & (x <= p.lmax), fl, 0.0)

    v = velocity / (p.optimal_length * p.vmax)
    y = p.fvmax - 1
    shortening = jnp.square(v + 1)
    lengthening = p.fvmax - jnp.square(y - v) / y
    fv = jnp.where(v <= -1, 0.0, jnp.where(v <= 0, shortening, jnp.where(v <= y, lengthening, p.fvmax)))
    return -p.peak_force * fl * fv


def bias(p: MuscleParams, length: Array) -> Array:
    """Return the passive force, [nu] N, <= 0. length [nu] m. As `mju_muscleBias`."""
    own = p.passive
    x = _normalised_length(own, length)
    b = 0.5 * (1 + own.lmax)
    quadratic = 0.5 * jnp.square((x - 1) / (b - 1))
    linear = 0.5 + (x - b) / (b - 1)
    fp = jnp.where(x <= 1, 0.0, jnp.where(x <= b, quadratic, linear))
    return -own.peak_force * own.fpmax * fp


def _time_constants(p: MuscleParams, activation: Array) -> tuple[Array, Array]:
    scale = 0.5 + 1.5 * jnp.clip(activation, 0.0, 1.0)
    return p.tau_act * scale, p.tau_deact / scale


def _time_constant(p: MuscleParams, activation: Array, drive: Array) -> Array:
    """Return the time constant, s, of activation (drive > 0) or deactivation (drive < 0).

    drive is excitation - activation.
    """
    up, down = _time_constants(p, activation)
    width = jnp.where(p.tau_width > 0, p.tau_width, 1.0)
    x = jnp.clip(drive / width + 0.5, 0.0, 1.0)
    smooth = down + (up - down) * x * x * x * (3 * x * (2 * x - 5) + 10)
    return jnp.where(p.tau_width > 0, smooth, jnp.where(drive > 0, up, down))


def excitation_for(p: MuscleParams, activation: Array, target: Array, dt: float) -> jax.Array:
    """Return the excitation in [0, 1], [nu], that brings `activation` as close to `target` as one step allows.

    MuJoCo integrates a' = (u - a) / tau(u - a) with one Euler step of `dt` seconds. With r = (target - a) / dt
    the drive d = u - a solves d = r tau(d). For a hard switch tau depends only on the sign of r and
    this is exact. For a smooth switch MPC2 linearises tau at d = 0; six Newton steps from there make it
    exact to rounding for any width. The clip to [0, 1] leaves an error if the target cannot be reached in one step.
    """
    rate = (target - activation) / dt
    up, down = _time_constants(p, activation)
    hard = rate * jnp.where(rate > 0, up, down)

    width = jnp.where(p.tau_width > 0, p.tau_width, 1.0)
    slope = 1.875 * (up - down) / width  # of tau at d = 0
    drive = rate * 0.5 * (up + down) / jnp.maximum(1 - rate * slope, 1e-3)
    drive = jnp.clip(drive, -1.0, 1.0)
    for _ in range(6):
        x = jnp.clip(drive / width + 0.5, 0.0, 1.0)
        dtau = (up - down) * 30 * jnp.square(x * (1 - x)) / width
        error = drive - rate * _time_constant(p, activation, drive)
        drive = jnp.clip(drive - error / jnp.maximum(1 - rate * dtau, 1e-3), -1.0, 1.0)
    drive = jnp.where(p.tau_width > 0, drive, hard)
    return jnp.clip(activation + drive, 0.0, 1.0)
