"""One MJX simulation as pure functions, for the batches of `physics.mjx` and for training loops inside jit.

MJX computes sensors and integrates in the same order as C MuJoCo, so sensors belong to the start of the last
simulation step. As in `physics.native`, the constraint solver has no warm start at the beginning of a control step: a
`SimState` is the only state that is kept between control steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from mujoco import mjx

from movlr_jax.physics.policy import controls_of
from movlr_jax.types import Array, Policy, Replaceable, SimState, Step, Trajectory

_LARGEST = 1e10  # mjMAXVAL: C MuJoCo treats larger values as divergence
_Carry = tuple[SimState, mjx.Data]
_Instant = tuple[Array, Array, Array, Array]  # time, qpos, qvel, act


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Played(Replaceable):
    """A rollout as its loop records it: the control steps come first, and the state after each is kept.

    What a loop returns only at its end may share memory with the data of a step, here nothing can. So all arrays of
    a step lie in one block, and Warp captures it anew only if that block moves.
    """

    steps: Step  # [T, ..., n]
    after: _Instant  # [T, ..., n] at the end of each control step
    actions: Array  # [T, ..., nu]
    diverged: Array  # [T, ...] bool
    extras: Any  # [T, ..., n]

    def trajectory(self) -> Trajectory:
        """Return the trajectory, with T after the axes of the rows."""
        rows = self.diverged.ndim - 1
        steps, actions, extras = jax.tree.map(
            lambda x: jnp.moveaxis(x, 0, rows), (self.steps, self.actions, self.extras)
        )
        last = jax.tree.map(lambda x: x[-1], self)
        final = _state(last.after, last.steps.sensors, last.actions, last.diverged)
        valid = jnp.sum(~self.diverged, axis=0)
        return Trajectory(steps=steps, actions=actions, valid=valid, final=final, extras=extras)


def _played(after: SimState, step: Step, extras: Any) -> Played:
    """Return what one control step adds."""
    instant = (after.time, after.qpos, after.qvel, after.act)
    return Played(step, instant, after.prev_action, after.diverged, extras)


def _state(instant: _Instant, sensors: Array, action: Array, diverged: Array) -> SimState:
    time, qpos, qvel, act = instant
    return SimState(time=time, qpos=qpos, qvel=qvel, act=act, sensors=sensors, prev_action=action, diverged=diverged)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class World(Replaceable):
    """The randomised parameters of one simulation (`physics.domain`)."""

    fields: Mapping[str, Array]  # fields of the model and their values
    late: Array  # [] simulation steps of a control step that still use the previous command


@dataclass(frozen=True)
class ComVelocity:
    """The velocity of the centre of mass of some bodies, in place of MuJoCo's sensor.

    The sensor first computes the momenta of all subtrees, a quarter of the kernels of a step in Warp.
    """

    address: int  # of the value in the sensor vector
    bodies: np.ndarray  # [n]
    roots: np.ndarray  # [n] body that each velocity in `cvel` refers to
    shares: np.ndarray  # [n] of the total mass

    def __call__(self, data: mjx.Data) -> Array:
        """Return the velocity [3] m/s."""
        angular, linear = data.cvel[self.bodies, :3], data.cvel[self.bodies, 3:]
        lever = data.xipos[self.bodies] - data.subtree_com[self.roots]
        velocity = linear + jnp.cross(angular, lever)
        return jnp.sum(self.shares[:, None].astype(velocity.dtype) * velocity, axis=0)


@dataclass(frozen=True)
class Simulator:
    """Functions of one row; vmap them over B. `template` is the data of a new simulation."""

    model: mjx.Model
    template: mjx.Data
    substeps: int
    ctrl_dt: float
    com_velocity: ComVelocity | None = None

    def begin(self, qpos: Array, qvel: Array, act: Array) -> SimState:
        """Return the state at time 0 with qpos [nq], qvel [nv], act [na], and its sensors with zero control."""
        time = jnp.zeros((), self.template.qpos.dtype)
        still = jnp.zeros_like(self.template.ctrl)
        data = mjx.forward(self.model, self.template.replace(time=time, qpos=qpos, qvel=qvel, act=act, ctrl=still))
        instant = (time, data.qpos, data.qvel, data.act)
        return _state(instant, self._sensors(data), still, jnp.zeros((), bool))

    def control_step(self, state: SimState, action: Array, world: World | None = None) -> tuple[SimState, Step]:
        """Apply `action` [nu] for one control step. Returns the next state, and the step that rewards read.

        A simulation that diverges is marked and stays in the model's initial posture; its values have no meaning.
        """
        after, step, _ = self._control_step(state, action, self.template, world)
        return after, step

    def _control_step(
        self, state: SimState, action: Array, data: mjx.Data, world: World | None
    ) -> tuple[SimState, Step, mjx.Data]:
        """As `control_step`, in `data` of the step before or in the template, and return the data.

        A loop that carries its data only writes the state into it, while the template would be copied for every row
        at every step. What a step reads of the data besides the state is constant, or is set here.
        """
        before: _Instant = (state.time, state.qpos, state.qvel, state.act)
        model = self.model if world is None else self.model.replace(**world.fields)

        def substep(carry: tuple[mjx.Data, _Instant], i: Array) -> tuple[tuple[mjx.Data, _Instant], None]:
            data = carry[0]
            if world is not None:
                data = data.replace(ctrl=jnp.where(i < world.late, state.prev_action, action))
            return (mjx.step(model, data), (data.time, data.qpos, data.qvel, data.act)), None

        time, qpos, qvel, act = before
        data = data.replace(
            time=time, qpos=qpos, qvel=qvel, act=act, ctrl=action, qacc_warmstart=self.template.qacc_warmstart
        )
        (data, seen), _ = jax.lax.scan(substep, (data, before), jnp.arange(self.substeps))
        valid = [jnp.all(jnp.abs(x) < _LARGEST) for x in (data.qpos, data.qvel, data.qacc)]  # false for nan
        diverged = state.diverged | ~jnp.stack(valid).all()
        kept = lambda value, instead: jnp.where(diverged, instead, value)  # noqa: E731
        sensors = kept(self._sensors(data), 0.0)
        rest = (kept(data.qpos, self.template.qpos), kept(data.qvel, 0.0), kept(data.act, 0.0))
        after = _state((state.time + self.ctrl_dt, *rest), sensors, action, diverged)
        time, qpos, qvel, act = seen
        rest = (kept(qpos, self.template.qpos), kept(qvel, 0.0), kept(act, 0.0))
        return after, Step(time, *rest, sensors, state.prev_action), data

    def rollout(
        self, start: SimState, policy: Policy, params: Any, keys: jax.Array, world: World | None = None
    ) -> Played:
        """Run T control steps in closed loop, one per entry of `keys` [T]."""

        def advance(carry: _Carry, key: jax.Array) -> tuple[_Carry, Played]:
            state, data = carry
            action, extras = controls_of(policy(params, state.step, key))
            action = action.astype(state.prev_action.dtype)
            after, step, data = self._control_step(state, action, data, world)
            return (after, data), _played(after, step, extras)

        return jax.lax.scan(advance, (start, self.template), keys)[1]

    def rollout_of_candidates(
        self, start: SimState, policy: Policy, params: Any, keys: jax.Array, world: World | None = None
    ) -> Played:
        """Run `rollout` for simulations [N, K]; those of candidate k share params [K, ...].

        keys: [N, T], the same for all candidates, or [N, K, T]. Simulation [n, k] uses world n. Returns arrays
        [T, N, K, ...].

        One policy on many rows is a matrix product; applying it row by row would need many times the memory.
        """
        n, k = start.time.shape
        worlds = jax.tree.map(lambda x: jnp.repeat(x, k, axis=0), world)
        own = 0 if keys.ndim == 3 else None
        each = jax.vmap(jax.vmap(policy, in_axes=(0, 0, own)), in_axes=(None, 0, 0))

        def advance(carry: _Carry, keys: jax.Array) -> tuple[_Carry, Played]:
            state, data = carry
            action, extras = controls_of(each(params, state.step, keys))
            flat = jax.tree.map(lambda x: x.reshape(n * k, *x.shape[2:]), (state, action))
            *done, data = jax.vmap(self._control_step)(flat[0], flat[1].astype(state.prev_action.dtype), data, worlds)
            after, step = jax.tree.map(lambda x: x.reshape(n, k, *x.shape[1:]), done)
            return (after, data), _played(after, step, extras)

        data = jax.vmap(lambda _: self.template)(jnp.arange(n * k))
        return jax.lax.scan(advance, (start, data), jnp.moveaxis(keys, -1, 0))[1]

    def lengths(self, qpos: Array) -> Array:
        """Return actuator lengths [nu] m at the posture `qpos` [nq]."""
        return self._transmission(qpos).actuator_length

    def kinematics(self, qpos: Array) -> tuple[Array, Array]:
        """Return actuator lengths [nu] m and moment arms [nu, nv] m at the posture `qpos` [nq]."""
        data = self._transmission(qpos)
        if self.model.impl != mjx.Impl.JAX:
            return data.actuator_length, self._dense_moment(data)
        return data.actuator_length, data._impl.actuator_moment

    def _sensors(self, data: mjx.Data) -> Array:
        """Return the sensor vector [ns] of the start of the last simulation step."""
        com = self.com_velocity
        if com is None:
            return data.sensordata
        return data.sensordata.at[com.address : com.address + 3].set(com(data))

    def _transmission(self, qpos: Array) -> mjx.Data:
        data = self.template.replace(qpos=qpos)
        if self.model.impl != mjx.Impl.JAX:
            return mjx.forward(self.model, data)
        data = mjx.com_pos(self.model, mjx.kinematics(self.model, data))
        return mjx.transmission(self.model, mjx.tendon(self.model, data))

    def _dense_moment(self, data: mjx.Data) -> Array:
        """Return moment arms [nu, nv] from Warp's compressed rows."""
        sparse = data._impl
        entry = jnp.arange(sparse.actuator_moment.shape[-1])
        starts, lengths = sparse.moment_rowadr, sparse.moment_rownnz
        row = jnp.clip(jnp.searchsorted(starts, entry, side="right") - 1, 0, len(starts) - 1)
        used = entry < starts[row] + lengths[row]
        dense = jnp.zeros((self.model.nu, self.model.nv), sparse.actuator_moment.dtype)
        return dense.at[row, sparse.moment_colind].add(jnp.where(used, sparse.actuator_moment, 0.0))
