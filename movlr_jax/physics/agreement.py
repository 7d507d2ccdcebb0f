"""Comparison of MJX and Warp with C MuJoCo before they are used: an engine must not ignore what a model says.

Accelerations at a few random states are compared, instead of motions: contacts and the error of an integrator at a
coarse time step differ between the engines of any model, and much more than rounding. Without both, the engines agree
within 0.1 % of the forces at a joint, or one of them leaves something out.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import mujoco
import numpy as np
from mujoco import mjx

from movlr_jax._util.machine import cache_dir, versions
from movlr_jax.models.spec import quiet
from movlr_jax.physics.common import Scene, model_bytes, planning_model
from movlr_jax.physics.mjx_model import fit_for_jax, flatten_tree, limit_contacts

TOLERANCE = 0.01  # of the forces at a joint; models that engines compute as a whole agree within 0.001
_ROWS = 4  # start states
# standard deviations of displacements, rad or m, of half of the states each. At a start state itself, rounding may
# decide whether a joint is beyond its range
_NEAR, _FAR = 0.01, 0.1
# standard deviations of velocities, rad/s or m/s. MJX's equality constraints leave out the change of their Jacobians
# with time, which grows with the square of the velocity and moves little: they are inactive where velocities are high
_SLOW, _FAST = 0.3, 3.0
_SMALL = 0.1  # forces below this share of the largest one at their joint count as this share
_HELPS = 0.5  # a feature is named if the difference without it is less than this share of that with it
_ITERATIONS = (100, 50)  # of the constraint solver and of its line search, so that both engines converge
_QUICKLY: Any = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}  # of a program that runs once
_Bit, _Enable = mujoco.mjtDisableBit, mujoco.mjtEnableBit
_LEFT_OUT = int(_Bit.mjDSBL_CONTACT | _Bit.mjDSBL_SENSOR)

_DAMPING = ("dof_damping", "dof_dampingpoly", "tendon_damping", "tendon_dampingpoly")
_STIFFNESS = ("jnt_stiffness", "jnt_stiffnesspoly", "tendon_stiffness", "tendon_stiffnesspoly")
# flag of a model -> what an engine ignores that takes it for the flag of springs and dampers together
_TOGETHER = {
    int(_Bit.mjDSBL_SPRING): ('that <flag spring="disable"/> leaves damping on', _DAMPING),
    int(_Bit.mjDSBL_DAMPER): ('that <flag damper="disable"/> leaves springs on', _STIFFNESS),
}
# name of a feature -> the fields of a model, or of its options, that are zero without it
_FIELDS = {
    "actuatorgroupdisable": ("opt.disableactuator",),
    "armature of actuators": ("actuator_armature",),
    "damping of actuators": ("actuator_damping", "actuator_dampingpoly"),
    "polynomial damping of actuators": ("actuator_dampingpoly",),
    "force ranges of actuators": ("actuator_forcelimited",),
    "actearly": ("actuator_actearly",),
    "armature of joints": ("dof_armature",),
    "damping of joints": _DAMPING[:2],
    "polynomial damping of joints": ("dof_dampingpoly",),
    "stiffness of joints": _STIFFNESS[:2],
    "polynomial stiffness of joints": ("jnt_stiffnesspoly",),
    "dry friction of joints": ("dof_frictionloss",),
    "ranges of joints": ("jnt_limited",),
    "actuatorfrcrange of joints": ("jnt_actfrclimited",),
    "gravity compensation by actuators": ("jnt_actgravcomp",),
    "gravity compensation": ("body_gravcomp",),
    "armature of tendons": ("tendon_armature",),
    "damping of tendons": _DAMPING[2:],
    "polynomial damping of tendons": ("tendon_dampingpoly",),
    "stiffness of tendons": _STIFFNESS[2:],
    "polynomial stiffness of tendons": ("tendon_stiffnesspoly",),
    "dry friction of tendons": ("tendon_frictionloss",),
    "ranges of tendons": ("tendon_limited",),
    "actuatorfrcrange of tendons": ("tendon_actfrclimited",),
    "the ellipsoid model of fluids": ("geom_fluid",),
    "the density of the fluid": ("opt.density",),
    "the viscosity of the fluid": ("opt.viscosity",),
    "wind": ("opt.wind",),
}


@dataclass(frozen=True)
class Agreement:
    """How far an engine is from C MuJoCo."""

    difference: float  # the largest of a force at a joint, as a share of the forces there
    where: str = ""  # the joint or the actuator
    features: tuple[str, ...] = ()  # of the model, without which C MuJoCo does what the engine does
    seconds: float = 0.0

    @property
    def agrees(self) -> bool:
        return self.difference <= TOLERANCE

    def sentence(self, engine: str) -> str:
        """Return what is different, and why."""
        if self.features:
            why = f"because it ignores {' and '.join(self.features)}"
        else:
            why = "and leaving out no single feature of the model explains it"
        return (
            f"physics={engine} does not move this model as C MuJoCo does: from the same states, the forces at "
            f"{self.where} differ by {100 * self.difference:.3g} % (at most {100 * TOLERANCE:g} % is rounding), {why}"
        )


@dataclass(frozen=True)
class _States:
    """States of one model, single precision, with their controls."""

    qpos: np.ndarray  # [R, nq]
    qvel: np.ndarray  # [R, nv]
    act: np.ndarray  # [R, na]
    ctrl: np.ndarray  # [R, nu]
    eq_active: np.ndarray  # [R, neq] uint8


def compared(engine: str, scene: Scene, *, sim_dt: float, remember: bool = True) -> Agreement:
    """Compare `engine` (mjx, warp) with C MuJoCo from the start states of `scene` under random controls.

    The same accelerations are expected of the model that the engine gets (`fit_for_jax`), without contacts. That a
    model agrees is kept on this machine, unless `remember` is false. Raises NotImplementedError or ValueError if the
    engine cannot run the model.
    """
    begun = time.monotonic()
    model = planning_model(scene.model, sim_dt, coarse=True)
    if engine == "mjx":
        model, _ = fit_for_jax(model)
    model.opt.disableflags |= _LEFT_OUT
    model.opt.iterations, model.opt.ls_iterations = _ITERATIONS
    states = _states(model, scene)
    path = cache_dir() / "agreement" / f"{_digest(engine, model, states)}.json"
    if remember:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Agreement(**json.loads(path.read_text(encoding="utf-8")))
    found = _accelerations(engine, model, states)
    difference, where = _apart(model, states, *found)
    features = _ignored(model, states, found, difference) if difference > TOLERANCE else ()
    if remember and difference <= TOLERANCE:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"difference": difference, "where": where}) + "\n", encoding="utf-8")
    return Agreement(difference, where, features, time.monotonic() - begun)


def _states(model: mujoco.MjModel, scene: Scene) -> _States:
    """Return slow and fast states near the start states, with random activations and controls."""
    rng = np.random.default_rng(0)
    qpos, qvel, act = (np.tile(np.array(x, float), (2, 1)) for x in scene.start(rng, _ROWS))
    fast = np.arange(len(qpos)) >= _ROWS
    for i, row in enumerate(qpos):
        moved = (_NEAR, _FAR)[i % 2] * rng.normal(size=model.nv)
        mujoco.mj_integratePos(model, row, moved, 1.0)
    qvel = qvel + np.where(fast, _FAST, _SLOW)[:, None] * rng.normal(size=qvel.shape)

    def uniform(limited: np.ndarray, limits: np.ndarray) -> np.ndarray:
        low, high = np.where(limited[:, None].astype(bool), limits, (-1.0, 1.0)).T
        return rng.uniform(low, high, (len(qpos), len(low)))

    if model.na:
        owner = np.flatnonzero(model.actuator_actadr >= 0)
        muscles = (model.actuator_dyntype == mujoco.mjtDyn.mjDYN_MUSCLE)[owner]
        limits = np.where(muscles[:, None], (0.0, 1.0), model.actuator_actrange[owner])
        last = model.actuator_actadr[owner] + model.actuator_actnum[owner] - 1
        act[:, last] = uniform(model.actuator_actlimited[owner] | muscles, limits)
    ctrl = uniform(model.actuator_ctrllimited, model.actuator_ctrlrange)
    single = (x.astype(np.float32) for x in (qpos, qvel, act, ctrl))
    return _States(*single, eq_active=model.eq_active0 * ~fast[:, None])


def _accelerations(engine: str, model: mujoco.MjModel, states: _States) -> tuple[np.ndarray, np.ndarray]:
    """Return qacc [R, nv] and act_dot [R, na] of `states` in `engine`."""
    flat = copy.copy(model)
    flatten_tree(flat)
    impl = "jax" if engine == "mjx" else engine
    put = mjx.put_model(flat, impl=impl)
    if engine == "mjx":
        put, _ = limit_contacts(put)
    template = mjx.make_data(flat if engine == "warp" else put, impl=impl)

    def accelerations(put: mjx.Model, template: mjx.Data, state: Mapping[str, jax.Array]) -> Any:
        data = mjx.forward(put, template.replace(**state))
        return data.qacc, data.act_dot

    rows = vars(states) | {"eq_active": states.eq_active.astype(template.eq_active.dtype)}
    values = (put, template, rows)
    lowered = jax.jit(jax.vmap(accelerations, in_axes=(None, None, 0))).lower(*values)
    options = _QUICKLY if jax.default_backend() == "cpu" else None
    qacc, act_dot = lowered.compile(compiler_options=options)(*values)
    return np.asarray(qacc, float), np.asarray(act_dot, float)


def _apart(model: mujoco.MjModel, states: _States, qacc: np.ndarray, act_dot: np.ndarray) -> tuple[float, str]:
    """Return the largest difference from C MuJoCo of the forces M qacc and of act_dot, and at what.

    Each is a share of the magnitudes of all forces at its joint. M (qacc - C's) is local to the joint whose force or
    inertia is different, while qacc differs at all joints.
    """
    data, rows = mujoco.MjData(model), len(states.qpos)
    wrong, size = np.empty((rows, model.nv)), np.empty((rows, model.nv))
    rate, speed = np.empty((rows, model.na)), np.empty((rows, model.na))
    with quiet():
        for i in range(rows):
            for field, values in vars(states).items():
                getattr(data, field)[:] = values[i]
            data.qacc_warmstart[:] = 0.0
            mujoco.mj_forward(model, data)
            mujoco.mj_mulM(model, data, wrong[i], qacc[i] - data.qacc)
            forces = (data.qfrc_bias, data.qfrc_passive, data.qfrc_actuator, data.qfrc_constraint)
            size[i] = sum(np.abs(force) for force in forces)
            rate[i], speed[i] = act_dot[i] - data.act_dot, data.act_dot
    names = [f"the joint {model.joint(j).name or j}" for j in model.dof_jntid]
    for i in range(model.nu):
        names += [f"the activation of {model.actuator(i).name or i}"] * int(model.actuator_actnum[i])
    shares = np.concatenate([_shares(wrong, size), _shares(rate, speed)], axis=1)
    if not shares.size:
        return 0.0, ""
    shares = np.where(np.isfinite(shares), shares, np.inf).max(axis=0)
    worst = int(np.argmax(shares))
    return float(shares[worst]), names[worst]


def _shares(wrong: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return `wrong` [R, n] as a share of the magnitudes `size` [R, n] of the same row."""
    size = np.abs(size)
    return np.abs(wrong) / np.maximum(size, _SMALL * size.max(axis=0, initial=1e-9))


def _ignored(
    model: mujoco.MjModel, states: _States, found: tuple[np.ndarray, np.ndarray], difference: float
) -> tuple[str, ...]:
    """Return the features that the engine ignores: without them, C MuJoCo agrees with what it `found`."""
    named: list[str] = []
    while difference > TOLERANCE:
        without = {}
        for name, fields in _features(model).items():
            other = copy.copy(model)
            for field, value in fields.items():
                setattr(_owner(other, field), field.rpartition(".")[2], value)
            without[name] = (_apart(other, states, *found)[0], other)
        best = min(without, key=lambda name: without[name][0], default=None)
        if best is None or without[best][0] > _HELPS * difference:
            return ()
        difference, model = without[best]
        named.append(best)
    return tuple(named)


def _features(model: mujoco.MjModel) -> dict[str, dict[str, Any]]:
    """Return the features that `model` has, with the values of its fields without each."""
    features = {name: fields for flag, (name, fields) in _TOGETHER.items() if model.opt.disableflags & flag} | _FIELDS
    found: dict[str, dict[str, Any]] = {}
    for name, fields in features.items():
        values = {field: getattr(_owner(model, field), field.rpartition(".")[2]) for field in fields}
        if any(np.any(value) for value in values.values()) or name not in _FIELDS:
            found[name] = {field: np.zeros_like(v) if np.ndim(v) else 0 for field, v in values.items()}
    for kinds, field in ((_Bit, "disableflags"), (_Enable, "enableflags")):
        what, flags = field.removesuffix("flags"), getattr(model.opt, field)
        for key, bit in kinds.__members__.items():
            flag = int(bit)
            counts = not key.startswith("mjN") and not flag & _LEFT_OUT * (kinds is _Bit)
            if counts and flags & flag:
                word = key.rpartition("_")[2].lower()
                found[f'<flag {word}="{what}"/>'] = {f"opt.{field}": flags & ~flag}
    return found


def _owner(model: mujoco.MjModel, field: str) -> Any:
    return model.opt if field.startswith("opt.") else model


def _digest(engine: str, model: mujoco.MjModel, states: _States) -> str:
    """Return a hash of what a comparison depends on."""
    devices = [device.device_kind for device in jax.local_devices()]
    about = repr([engine, devices, versions(), TOLERANCE]).encode()
    parts = (about, model_bytes(model), *(x.tobytes() for x in vars(states).values()))
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]
