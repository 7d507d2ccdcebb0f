"""One simulation under MJX as pure functions: what `physics.mjx` batches, and what training loops step inside jit.

MJX measures and integrates in the order of C MuJoCo, so sensors belong to the start of the last simulation step here,
too. As in `physics.native` the constraint solver starts cold at each control step: what lies between two control
steps is a `SimState` and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from mujoco import mjx

from movlr_jax.physics.policy import controls_of
from movlr_jax.types import Array, Policy, SimState, Step, Trajectory

_LARGEST = 1e10  # mjMAXVAL: beyond it C MuJoCo calls a simulation diverged
_Instant = tuple[Array, Array, Array, Array]  # time, qpos, qvel, act


@struct.dataclass
class World:
    """How one simulation differs from the model (`physics.domain`)."""

    fields: Mapping[str, Array]  # of the model
    late: Array  # [] simulation steps of a control step in which the command before it still holds


@dataclass(frozen=True)
class Simulator:
    """Functions of one row; vmap them over B. `template` holds what a fresh simulation does."""

    model: mjx.Model
    template: mjx.Data
    substeps: int
    ctrl_dt: float

    def begin(self, qpos: Array, qvel: Array, act: Array) -> SimState:
        """The state at rest in time: qpos [nq], qvel [nv], act [na], sensors measured there without control."""
        time = jnp.zeros((), self.template.qpos.dtype)
        still = jnp.zeros_like(self.template.ctrl)
        data = mjx.forward(self.model, self._data((time, qpos, qvel, act), still))
        return SimState(
            time=time,
            qpos=data.qpos,
            qvel=data.qvel,
            act=data.act,
            sensors=data.sensordata,
            prev_action=still,
            diverged=jnp.zeros((), bool),
        )

    def control_step(
        self, state: SimState, action: Array, world: World | None = None
    ) -> tuple[SimState, Step]:
        """`action` [nu] held for one control step: the state after it, and what a reward sees of it.

        A simulation that diverges is marked, and stays at the model's first posture: its numbers mean nothing.
        """
        before: _Instant = (state.time, state.qpos, state.qvel, state.act)
        model = self.model if world is None else self.model.replace(**world.fields)

        def substep(carry: tuple[mjx.Data, _Instant], i: Array) -> tuple[tuple[mjx.Data, _Instant], None]:
            data = carry[0]
            if world is not None:
                data = data.replace(ctrl=jnp.where(i < world.late, state.prev_action, action))
            return (mjx.step(model, data), (data.time, data.qpos, data.qvel, data.act)), None

        (data, seen), _ = jax.lax.scan(
            substep, (self._data(before, action), before), jnp.arange(self.substeps)
        )
        sound = [jnp.all(jnp.abs(x) < _LARGEST) for x in (data.qpos, data.qvel, data.qacc)]  # false for nan
        diverged = state.diverged | ~jnp.stack(sound).all()
        kept = lambda value, instead: jnp.where(diverged, instead, value)  # noqa: E731
        sensors = kept(data.sensordata, 0.0)
        after = SimState(
            time=state.time + self.ctrl_dt,
            qpos=kept(data.qpos, self.template.qpos),
            qvel=kept(data.qvel, 0.0),
            act=kept(data.act, 0.0),
            sensors=sensors,
            prev_action=action,
            diverged=diverged,
        )
        time, qpos, qvel, act = seen
        return after, Step(
            time=time,
            qpos=kept(qpos, self.template.qpos),
            qvel=kept(qvel, 0.0),
            act=kept(act, 0.0),
            sensors=sensors,
            prev_action=state.prev_action,
        )

    def rollout(
        self, start: SimState, policy: Policy, params: Any, keys: jax.Array, world: World | None = None
    ) -> Trajectory:
        """T control steps in closed loop, one per entry of `keys` [T]."""

        def advance(state: SimState, key: jax.Array) -> tuple[SimState, tuple[Step, Array, Any]]:
            action, extras = controls_of(policy(params, state.step, key))
            after, step = self.control_step(state, action.astype(state.prev_action.dtype), world)
            return after, (step, after.prev_action, extras)

        final, (steps, actions, extras) = jax.lax.scan(advance, start, keys)
        return Trajectory(steps=steps, actions=actions, diverged=final.diverged, final=final, extras=extras)

    def rollout_of_candidates(
        self, start: SimState, policy: Policy, params: Any, keys: jax.Array, world: World | None = None
    ) -> Trajectory:
        """The same for simulations [N, K], of which those of candidate k share params [K, ...]; keys [N, T].

        Simulation [n, k] lives in world n.

        One policy on many rows is a product of matrices; row by row it would be many times the memory.
        """
        n, k = start.time.shape
        worlds = jax.tree.map(lambda x: jnp.repeat(x, k, axis=0), world)
        each = jax.vmap(jax.vmap(policy, in_axes=(0, 0, None)), in_axes=(None, 0, 0))

        def advance(state: SimState, keys: jax.Array) -> tuple[SimState, tuple[Step, Array, Any]]:
            action, extras = controls_of(each(params, state.step, keys))
            flat = jax.tree.map(lambda x: x.reshape(n * k, *x.shape[2:]), (state, action))
            done = jax.vmap(self.control_step)(flat[0], flat[1].astype(state.prev_action.dtype), worlds)
            after, step = jax.tree.map(lambda x: x.reshape(n, k, *x.shape[1:]), done)
            return after, (step, after.prev_action, extras)

        final, seen = jax.lax.scan(advance, start, keys.swapaxes(0, 1))
        steps, actions, extras = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), seen)
        return Trajectory(steps=steps, actions=actions, diverged=final.diverged, final=final, extras=extras)

    def kinematics(self, qpos: Array) -> tuple[Array, Array]:
        """Actuator lengths [nu] m and moment arms [nu, nv] m at the posture `qpos` [nq]."""
        data = self.template.replace(qpos=qpos)
        if self.model.impl != mjx.Impl.JAX:
            data = mjx.forward(self.model, data)
            return data.actuator_length, self._dense_moment(data)
        data = mjx.com_pos(self.model, mjx.kinematics(self.model, data))
        data = mjx.transmission(self.model, mjx.tendon(self.model, data))
        return data.actuator_length, data._impl.actuator_moment

    def _data(self, instant: _Instant, action: Array) -> mjx.Data:
        time, qpos, qvel, act = instant
        return self.template.replace(time=time, qpos=qpos, qvel=qvel, act=act, ctrl=action)

    def _dense_moment(self, data: mjx.Data) -> Array:
        """Moment arms [nu, nv] from the compressed rows that Warp keeps."""
        sparse = data._impl
        entry = jnp.arange(sparse.actuator_moment.shape[-1])
        starts, lengths = sparse.moment_rowadr, sparse.moment_rownnz
        row = jnp.clip(jnp.searchsorted(starts, entry, side="right") - 1, 0, len(starts) - 1)
        used = entry < starts[row] + lengths[row]
        dense = jnp.zeros((self.model.nu, self.model.nv), sparse.actuator_moment.dtype)
        return dense.at[row, sparse.moment_colind].add(jnp.where(used, sparse.actuator_moment, 0.0))
