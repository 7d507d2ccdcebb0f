"""Native physics: closed-loop rollouts in C MuJoCo on all cores.

Each control step is one call of `mujoco.rollout`'s thread pool and one call of the jitted policy, and the constraint
solver has no warm start there. While the policy runs for a part of the batch, largely on one core, MuJoCo steps the
other parts. A policy that does not read the state is called once, and all its control steps are one call of the pool,
with the warm starts of MuJoCo. The values that policies and rewards read are sensors (`rewards.state.instrument`).
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import mujoco
import numpy as np
from mujoco import rollout as mj_rollout

from movlr_jax._util.machine import cores
from movlr_jax.biomech.muscles import dense_moments, pose
from movlr_jax.errors import UserError
from movlr_jax.models.spec import quiet
from movlr_jax.physics.common import clock_sensors, planning_model, whole_substeps
from movlr_jax.physics.domain import Domain, late_steps, variants
from movlr_jax.physics.policy import HostPolicy, shared
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, Policy, SimState, Step, Trajectory

_FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS.value
_BLOCK = 2**24  # bytes of states and sensors that one call of MuJoCo writes, for each thread
_COPIED = 2**19  # values that a thread copies at least: fewer take less time than starting it
_PART = 32  # rows of a part of a batch at least; each call of a compiled policy takes 0.2 ms besides its rows
_Pool = tuple[mj_rollout.Rollout, list[mujoco.MjData]]  # a thread pool of MuJoCo, and data for each thread


@dataclass
class _Run:
    """A rollout of B rows for T control steps."""

    worlds: list[mujoco.MjModel]  # [B]
    measured: list[slice]  # the sensor values that are kept
    late: np.ndarray  # [B, substeps] bool, whether a simulation step still uses the control of the step before
    clock: np.ndarray  # [T + 1, B] s, times of the control steps
    full: np.ndarray  # [B, nstate] the states from which they continue
    kept: np.ndarray  # [B, T, nstate] float32, the states at which sensors were computed
    sensors: np.ndarray  # [B, T, ns] float32
    valid: np.ndarray  # [B] control steps before divergence, T if there is none

    def part(self, at: slice) -> _Run:
        """Return the run of these rows. It writes into the arrays of this one, except `full`."""
        return replace(
            self,
            worlds=self.worlds[at],
            late=self.late[at],
            clock=self.clock[:, at],
            full=self.full[at],
            kept=self.kept[at],
            sensors=self.sensors[at],
            valid=self.valid[at],
        )


class NativePhysics:
    """Simulation of `model` with time step `sim_dt` and control step `ctrl_dt` (an integer multiple of it).

    The model is copied. If `coarse`, the integrator is implicitfast, which is stable at larger time steps: a planner
    may use larger steps than the simulation that it plans for.
    """

    name = "native"
    xp = np  # array module of states and plans

    def __init__(
        self,
        model: mujoco.MjModel,
        layout: Layout,
        *,
        sim_dt: float,
        ctrl_dt: float,
        coarse: bool = False,
        threads: int | None = None,
        domain: Domain | None = None,
    ):
        """domain: N worlds, row r uses world r modulo N; if None, all rows use the model unchanged."""
        self.substeps = whole_substeps(sim_dt, ctrl_dt)
        self.layout, self.sim_dt, self.ctrl_dt = layout, sim_dt, ctrl_dt
        self.model = planning_model(model, sim_dt, coarse)
        self._clocks = clock_sensors(model)
        self._state_size = 1 + model.nq + model.nv + model.na
        if mujoco.mj_stateSize(model, _FULL) != self._state_size:
            raise UserError("this model has state in plugins or delays, which physics=native does not support")
        self.worlds = [self.model] if domain is None else variants(self.model, domain)
        self._lean: list[mujoco.MjModel] = []  # copies of the worlds that measure less
        self._measured: np.ndarray | None = None  # [ns] bool, the values that they measure
        self._late = np.zeros(1, int) if domain is None else late_steps(domain, sim_dt, self.substeps)
        self.threads = threads or cores()
        self._pool = self._new_pool(self.threads)
        self._pools: dict[int, list[_Pool]] = {}  # for batches in n parts
        self._workers = ThreadPoolExecutor(self.threads)
        self._most = max(2, self.threads // 2) if self.threads > 1 else 1  # parts of a batch
        self._turns = ThreadPoolExecutor(self._most)
        self._policies: dict[tuple[Policy, int], HostPolicy] = {}
        self._device = _host_device()
        self._spaces: dict[str, np.ndarray] = {}
        self.traces: Counter[str] = Counter()
        self.steps_done = 0  # total number of simulation steps over all rows

    def start(self, qpos: Array, qvel: Array, act: Array) -> SimState:
        qpos, qvel, act = (np.asarray(x, np.float64) for x in (qpos, qvel, act))
        rows = len(qpos)
        full = np.concatenate([np.zeros((rows, 1)), qpos, qvel, act], axis=1)
        sensors = np.empty((rows, 1, self.model.nsensordata))
        control = np.zeros((rows, 1, self.model.nu))
        worlds = list(itertools.islice(itertools.cycle(self.worlds), rows))
        with quiet():
            self._advance(self._pool, full, control, np.empty((rows, 1, full.shape[1])), sensors, worlds)
        self.steps_done += rows
        return SimState(
            time=full[:, 0],
            qpos=qpos,
            qvel=qvel,
            act=act,
            sensors=sensors[:, 0].astype(np.float32),
            prev_action=np.zeros((rows, self.model.nu), np.float32),
            diverged=np.zeros(rows, bool),
        )

    def rollout(
        self,
        start: SimState,
        policy: Policy,
        params: Any,
        *,
        steps: int,
        key: jax.Array,
        candidates: int = 1,
        read: np.ndarray | None = None,
    ) -> Trajectory:
        # a row that diverges continues from the state to which MuJoCo reset it
        rows = len(start.time)
        if (policy, candidates) not in self._policies:
            self._policies[policy, candidates] = HostPolicy(policy, candidates, self.traces)
        compiled = self._policies[policy, candidates]
        if self._device is not None:
            params, key = jax.device_put((params, key), self._device)
        parts = (np.asarray(start.time)[:, None], start.qpos, start.qvel, start.act)
        full = np.concatenate(parts, axis=1, dtype=np.float64)
        clock = np.cumsum(np.vstack([full[:, 0], np.full((steps, rows), self.ctrl_dt)]), axis=0)  # [T + 1, B]
        previous = np.asarray(start.prev_action)
        view = self._step(full.astype(np.float32), np.asarray(start.sensors), previous)
        reads = compiled.reads(params, view, key)
        models, measured = self._measuring(None if read is None else read | reads.sensors)
        sensors = np.empty((rows, steps, self.model.nsensordata), np.float32)
        if read is not None:
            sensors[:] = np.nan  # those that are not measured
        run = _Run(
            worlds=list(itertools.islice(itertools.cycle(models), rows)),
            measured=measured,
            late=np.arange(self.substeps) < self._late[np.arange(rows) % len(self._late), None],
            clock=clock,
            full=full,
            kept=np.empty((rows, steps, self._state_size), np.float32),
            sensors=sensors,
            valid=np.where(start.diverged, 0, steps),
        )
        with quiet():  # `diverged` reports diverging rows
            if reads.others or reads.sensors.any():
                policy_of = partial(compiled.every_step, params, rows, key, self._device)
                actions, extras = self._in_turns(run, policy_of, view, shared(params, rows))
            else:
                actions, extras = compiled.ahead(params, view, key, clock[:-1].astype(np.float32))
                self._open_loop(run, actions, previous)
        self.steps_done += rows * steps * self.substeps
        previous_actions = np.concatenate([previous[:, None], actions[:, :-1]], axis=1)
        now, last = self._split(run.full), actions[:, -1]
        final = SimState(*now, sensors=run.sensors[:, -1], prev_action=last, diverged=run.valid < steps)
        return Trajectory(
            steps=self._step(run.kept, run.sensors, previous_actions),
            actions=actions,
            valid=run.valid,
            final=final,
            extras=extras,
        )

    def _in_turns(
        self, run: _Run, policy: Callable[[slice], Callable[[Step, int], Any]], view: Step, whole: bool
    ) -> tuple[np.ndarray, Any]:
        """Simulate parts of a batch that take turns, or the `whole` batch. Return actions [B, T, nu] and extras."""
        rows = len(run.full)
        most = 1 if whole else min(self._most, rows // _PART)
        count = next((n for n in range(most, 1, -1) if rows % n == 0), 1)  # parts of one size compile once
        if count == 1:
            return self._closed_loop(run, policy(slice(0, rows)), view, self._pool)
        if count not in self._pools:  # while some wait for their policies, the others use all cores
            self._pools[count] = [self._new_pool(-(-2 * self.threads // count)) for _ in range(count)]
        compiling, stopped = threading.Lock(), threading.Event()

        def work(i: int) -> tuple[np.ndarray, Any]:
            at = slice(rows * i // count, rows * (i + 1) // count)
            part, mine = run.part(at), jax.tree.map(lambda x: x[at], view)
            now = policy(at)

            def act(view: Step, t: int) -> Any:
                if stopped.is_set():
                    raise CancelledError
                with contextlib.nullcontext() if t else compiling:  # the first call compiles for all
                    return now(view, t)

            done = self._closed_loop(part, act, mine, self._pools[count][i])
            run.full[at] = part.full
            return done

        working = [self._turns.submit(work, i) for i in range(count)]
        try:
            for future in wait(working, return_when=FIRST_EXCEPTION).done:
                future.result()  # raises the error of a part that failed
        finally:  # after it or Ctrl-C no part goes on
            stopped.set()
            wait(working)
        parts = [future.result() for future in working]
        return jax.tree.map(lambda *x: np.concatenate(x), *parts)

    def _closed_loop(
        self, run: _Run, now: Callable[[Step, int], tuple[np.ndarray, Any]], view: Step, pool: _Pool
    ) -> tuple[np.ndarray, Any]:
        """Call the policy `now` and MuJoCo at every control step. Return actions [B, T, nu] and extras."""
        m, substeps, (rows, steps) = self.model, self.substeps, run.kept.shape[:2]
        states = np.empty((rows, substeps, run.full.shape[1]))
        sensed = np.empty((rows, substeps, m.nsensordata))
        control = np.empty((rows, substeps, m.nu))
        actions, extras = np.empty((rows, steps, m.nu), np.float32), []
        late = run.late.any()
        for t in range(steps):
            actions[:, t], extra = now(view, t)
            extras.append(extra)
            control[:] = actions[:, t, None]
            if late:
                np.copyto(control, view.prev_action[:, None], where=run.late[..., None])
            whole = self._advance(pool, run.full, control, states, sensed, run.worlds)
            np.minimum(run.valid, t, out=run.valid, where=whole < substeps)
            self._keep(run, slice(t, t + 1), slice(0, rows), run.full, states, sensed)
            run.full = states[:, -1].copy()
            run.full[:, 0] = run.clock[t + 1]
            view = self._step(run.full.astype(np.float32), run.sensors[:, t], actions[:, t])
        self._keep_clock(run)
        return actions, jax.tree.map(lambda *x: np.stack(x, axis=1), *extras)

    def _open_loop(self, run: _Run, actions: np.ndarray, previous: np.ndarray) -> None:
        """Step MuJoCo through all `actions` [B, T, nu] in one call for as many rows as fit into `_BLOCK`."""
        m, substeps, (rows, steps) = self.model, self.substeps, run.kept.shape[:2]
        number, size = steps * substeps, run.full.shape[1] + m.nsensordata
        most = max(1, _BLOCK // (number * size * 8)) * self.threads
        control = np.empty((rows, steps, substeps, m.nu))
        control[:] = actions[:, :, None]
        if run.late.any():
            before = np.concatenate([previous[:, None], actions[:, :-1]], axis=1)
            np.copyto(control, before[:, :, None], where=run.late[:, None, :, None])
        control = control.reshape(rows, number, m.nu)
        for first in range(0, rows, most):
            at = slice(first, min(first + most, rows))
            count = at.stop - first
            states = self._space("states", (count, number, run.full.shape[1]))
            sensed = self._space("sensors", (count, number, m.nsensordata))
            begin = run.full[at]
            whole = self._advance(self._pool, begin, control[at], states, sensed, run.worlds[at])
            run.valid[at] = np.minimum(run.valid[at], whole // substeps)
            self._keep(run, slice(0, steps), at, begin, states, sensed)
            run.full[at] = states[:, -1]
        run.full[:, 0] = run.clock[-1]
        self._keep_clock(run)

    def _keep_clock(self, run: _Run) -> None:
        """Restore the times of rows that diverged: MuJoCo resets their clock."""
        lost = run.valid < run.kept.shape[1]
        run.kept[lost, :, 0] = run.clock[:-1, lost].T + (self.substeps - 1) * self.sim_dt

    def _keep(
        self, run: _Run, at: slice, rows: slice, begin: np.ndarray, states: np.ndarray, sensed: np.ndarray
    ) -> None:
        """Copy the control steps `at` of `rows` into `run`, on all threads.

        begin [R, nstate]: where they began. states, sensed [R, T * substeps, ...]: the simulation steps.
        """
        count, substeps = len(states), self.substeps

        def copy(part: slice) -> None:
            into = slice(rows.start + part.start, rows.start + part.stop)
            if substeps == 1:  # sensors belong to the state before a step
                run.kept[into, at.start] = begin[part]
                run.kept[into, at.start + 1 : at.stop] = states[part, :-1]
            else:
                run.kept[into, at] = states[part, substeps - 2 :: substeps]
            for values in run.measured:
                run.sensors[into, at, values] = sensed[part, substeps - 1 :: substeps, values]

        measured = sum(len(range(*values.indices(sensed.shape[2]))) for values in run.measured)
        values = count * (at.stop - at.start) * (begin.shape[1] + measured)
        parts = max(1, min(self.threads, count, values // _COPIED))
        ends = [count * i // parts for i in range(parts + 1)]
        if parts == 1:
            copy(slice(0, count))
        else:
            list(self._workers.map(copy, map(slice, ends, ends[1:])))

    def _space(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array of `shape` whose memory is used again by the next call."""
        size = int(np.prod(shape))
        if len(self._spaces.get(name, ())) < size:
            self._spaces[name] = np.empty(size)
        return self._spaces[name][:size].reshape(shape)

    def lengths(self, qpos: Array) -> np.ndarray:
        lengths = np.empty((len(qpos), self.model.nu))

        def record(i: int, data: mujoco.MjData) -> None:
            lengths[i] = data.actuator_length

        self._at(qpos, record)
        return lengths

    def kinematics(self, qpos: Array) -> tuple[np.ndarray, np.ndarray]:
        lengths, moments = (np.empty((len(qpos), self.model.nu)), np.empty((len(qpos), self.model.nu, self.model.nv)))

        def record(i: int, d: mujoco.MjData) -> None:
            lengths[i] = d.actuator_length
            dense_moments(self.model, d, moments[i])

        self._at(qpos, record)
        return lengths, moments

    def _at(self, qpos: Array, record: Callable[[int, mujoco.MjData], None]) -> None:
        """Call `record` for each posture of `qpos` [B, nq], with its index and the data of its transmissions."""
        qpos = np.asarray(qpos, np.float64)

        def work(data: mujoco.MjData, rows: range) -> None:
            for i in rows:
                record(i, pose(self.model, data, qpos[i]))

        datas, count = self._pool[1], self.threads
        list(self._workers.map(work, datas, [range(i, len(qpos), count) for i in range(count)]))

    def parts(self, rows: int, steps: int) -> int:
        """Return 1: only the recorded states need memory, and main memory is large enough for them."""
        return 1

    def collect(self, x: Any) -> Any:
        return x

    def close(self) -> None:
        """Stop the threads; the object cannot be used afterwards."""
        for threads, _ in (self._pool, *itertools.chain(*self._pools.values())):
            threads.close()
        self._workers.shutdown()
        self._turns.shutdown()

    def _new_pool(self, threads: int) -> _Pool:
        return mj_rollout.Rollout(nthread=threads), [mujoco.MjData(self.model) for _ in range(threads)]

    def _step(self, full: np.ndarray, sensors: np.ndarray, previous: np.ndarray) -> Step:
        return Step(*self._split(full), sensors=sensors, prev_action=previous)

    def _split(self, full: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return time [...], qpos, qvel and act of states [..., nstate]."""
        velocities = 1 + self.model.nq
        activations = velocities + self.model.nv
        parts = (full[..., 1:velocities], full[..., velocities:activations], full[..., activations:])
        return full[..., 0], *parts

    def _measuring(self, read: np.ndarray | None) -> tuple[list[mujoco.MjModel], list[slice]]:
        """Return models that measure only the values `read` [ns], None for all, and where these values are.

        A sensor without a stage is not computed. So another set of sensors is one more array in the same models: no
        model is compiled, and the sizes of all arrays stay the same.
        """
        if read is None:
            return self.worlds, [slice(None)]
        # blocks of values, which copy quickly
        ends = np.flatnonzero(np.diff(read, prepend=False, append=False))
        places = [slice(*block) for block in ends.reshape(-1, 2).tolist()]
        if self._measured is not None and np.array_equal(read, self._measured):
            return self._lean, places
        m, self._measured = self.model, read
        self._lean = self._lean or [copy.copy(world) for world in self.worlds]
        used = np.array([read[a : a + n].any() for a, n in zip(m.sensor_adr, m.sensor_dim, strict=True)], bool)
        for world in self._lean:
            world.sensor_needstage[:] = np.where(used, m.sensor_needstage, mujoco.mjtStage.mjSTAGE_NONE)
        return self._lean, places

    def _advance(
        self,
        pool: _Pool,
        full: np.ndarray,
        control: np.ndarray,
        states: np.ndarray,
        sensed: np.ndarray,
        models: list[mujoco.MjModel],
    ) -> np.ndarray:
        """Step row r of `full` [B, nstate] in model r into `states` and `sensed` [B, substeps, ...].

        Return [B] the number of simulation steps before row r diverged, all if it did not.

        MuJoCo resets a diverged simulation, including its clock, and rollout then stops stepping it. During the call
        its clock is one control step ahead of ours, so the time of one sim_dt after a reset is never that of a valid
        row.
        """
        substeps = control.shape[1]
        ahead = full.copy()
        ahead[:, 0] += self.ctrl_dt
        threads, datas = pool
        threads.rollout(
            models, datas, ahead, control, nstep=substeps, skip_checks=True, state=states, sensordata=sensed
        )
        valid = np.full(len(full), substeps)
        reset = np.abs(states[:, -1, 0] - (ahead[:, 0] + substeps * self.sim_dt)) > 0.5 * self.sim_dt
        if reset.any():
            clock = ahead[reset, :1] + self.sim_dt * np.arange(1, substeps + 1)
            valid[reset] = np.argmax(np.abs(states[reset, :, 0] - clock) > 0.5 * self.sim_dt, axis=1)
        states[:, :, 0] -= self.ctrl_dt
        sensed[:, :, self._clocks] -= self.ctrl_dt
        return valid


def _host_device() -> Any:
    """Return JAX's CPU device, where policies run next to C MuJoCo.

    None if it is JAX's default device anyway, or if JAX has none.
    """
    try:
        return None if jax.default_backend() == "cpu" else jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None
