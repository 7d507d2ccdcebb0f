"""Native physics: closed-loop rollouts in C MuJoCo on all cores.

Each control step is one call of `mujoco.rollout`'s thread pool for the whole batch and one call of the
jitted policy. The values that policies and rewards read are sensors (`rewards.state.instrument`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import mujoco
import numpy as np
from mujoco import rollout as mj_rollout

from movlr_jax.errors import UserError
from movlr_jax.machine import cores
from movlr_jax.models.spec import quiet
from movlr_jax.physics.common import planning_model, whole_substeps
from movlr_jax.physics.domain import Domain, late_steps, variants
from movlr_jax.physics.policy import act
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, Policy, SimState, Step, Trajectory

_FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS.value
_CTRL = mujoco.mjtState.mjSTATE_CTRL.value


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
        nstate = 1 + model.nq + model.nv + model.na
        if mujoco.mj_stateSize(model, _FULL) != nstate:
            raise UserError(
                "this model has state in plugins or delays, which physics=native does not support"
            )
        self.worlds = [self.model] if domain is None else variants(self.model, domain)
        self._late = np.zeros(1, int) if domain is None else late_steps(domain, sim_dt, self.substeps)
        self.threads = threads or cores()
        self._datas = [mujoco.MjData(self.model) for _ in range(self.threads)]
        self._pool = mj_rollout.Rollout(nthread=self.threads)
        self._workers = ThreadPoolExecutor(self.threads)
        self._policies: dict[tuple[Policy, int], Callable[..., tuple[np.ndarray, Any]]] = {}
        self.traces: Counter[str] = Counter()
        self.steps_done = 0  # total number of simulation steps over all rows

    def start(self, qpos: Array, qvel: Array, act: Array) -> SimState:
        qpos, qvel, act = (np.asarray(x, np.float64) for x in (qpos, qvel, act))
        rows = len(qpos)
        full = np.concatenate([np.zeros((rows, 1)), qpos, qvel, act], axis=1)
        sensors = np.empty((rows, 1, self.model.nsensordata))
        control = np.zeros((rows, 1, self.model.nu))
        self._advance(full, control, np.empty((rows, 1, full.shape[1])), sensors)
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
        self, start: SimState, policy: Policy, params: Any, *, steps: int, key: jax.Array, candidates: int = 1
    ) -> Trajectory:
        # a row that diverges continues from the state to which MuJoCo reset it
        m, substeps = self.model, self.substeps
        rows = len(start.time)
        act_policy = self._jitted(policy, candidates)
        params = jax.device_put(params)
        full = np.concatenate([np.asarray(start.time)[:, None], start.qpos, start.qvel, start.act], axis=1)
        states = np.empty((rows, substeps, full.shape[1]))
        sensed = np.empty((rows, substeps, m.nsensordata))
        control = np.empty((rows, substeps, m.nu))
        diverged = np.array(start.diverged)
        late = (np.arange(substeps) < self._late[np.arange(rows) % len(self._late), None])[..., None]

        kept = np.empty((rows, steps, full.shape[1]), np.float32)
        sensors = np.empty((rows, steps, m.nsensordata), np.float32)
        actions = np.empty((rows, steps, m.nu), np.float32)
        latest, previous = np.asarray(start.sensors), np.asarray(start.prev_action)
        extras = []
        for t in range(steps):
            view = self._step(full.astype(np.float32), latest, previous)
            command, extra = act_policy(params, view, key, np.int32(t))
            control[:] = np.where(late, previous[:, None], command[:, None])
            actions[:, t] = previous = command
            extras.append(extra)
            clock = full[:, 0] + self.ctrl_dt
            diverged |= self._advance(full, control, states, sensed)
            kept[:, t] = full if substeps == 1 else states[:, -2]  # the state at which sensors were computed
            sensors[:, t] = latest = sensed[:, -1].astype(np.float32)
            full = states[:, -1].copy()
            full[:, 0] = clock
        time, qpos, qvel, act = np.split(full, np.cumsum([1, m.nq, m.nv]), axis=1)
        previous_actions = np.concatenate([np.asarray(start.prev_action)[:, None], actions[:, :-1]], axis=1)
        return Trajectory(
            steps=self._step(kept, sensors, previous_actions),
            actions=actions,
            diverged=diverged,
            final=SimState(
                time=time[:, 0],
                qpos=qpos,
                qvel=qvel,
                act=act,
                sensors=latest,
                prev_action=previous,
                diverged=diverged,
            ),
            extras=jax.tree.map(lambda *x: np.stack(x, axis=1), *extras),
        )

    def kinematics(self, qpos: Array) -> tuple[np.ndarray, np.ndarray]:
        m, qpos = self.model, np.asarray(qpos, np.float64)
        lengths = np.empty((len(qpos), m.nu))
        moments = np.empty((len(qpos), m.nu, m.nv))

        def work(data: mujoco.MjData, rows: range) -> None:
            for i in rows:
                data.qpos[:] = qpos[i]
                mujoco.mj_kinematics(m, data)
                mujoco.mj_comPos(m, data)
                mujoco.mj_tendon(m, data)
                mujoco.mj_transmission(m, data)
                lengths[i] = data.actuator_length
                mujoco.mju_sparse2dense(
                    moments[i],
                    data.actuator_moment,
                    data.moment_rownnz,
                    data.moment_rowadr,
                    data.moment_colind,
                )

        count = len(self._datas)
        list(self._workers.map(work, self._datas, [range(i, len(qpos), count) for i in range(count)]))
        return lengths, moments

    def parts(self, rows: int, steps: int) -> int:
        """Return 1: only the recorded states need memory, and main memory is large enough for them."""
        return 1

    def collect(self, x: Any) -> Any:
        return x

    def close(self) -> None:
        """Stop the threads; the object cannot be used afterwards."""
        self._pool.close()
        self._workers.shutdown()

    def _step(self, full: np.ndarray, sensors: np.ndarray, previous: np.ndarray) -> Step:
        m = self.model
        time, qpos, qvel, act = np.split(full, np.cumsum([1, m.nq, m.nv]), axis=-1)
        return Step(time=time[..., 0], qpos=qpos, qvel=qvel, act=act, sensors=sensors, prev_action=previous)

    def _advance(
        self, full: np.ndarray, control: np.ndarray, states: np.ndarray, sensed: np.ndarray
    ) -> np.ndarray:
        """Step every row of `full` [B, nstate] into `states` and `sensed` [B, substeps, ...]; returns `diverged` [B].

        MuJoCo resets a diverged simulation, including its clock, and rollout then stops stepping it. During the call
        its clock is one control step ahead of ours, so the time of one sim_dt after a reset is never that of a valid
        row.
        """
        rows, substeps = control.shape[:2]
        ahead = full.copy()
        ahead[:, 0] += self.ctrl_dt
        with quiet():  # `diverged` reports diverging rows
            self._pool.rollout(
                list(itertools.islice(itertools.cycle(self.worlds), rows)),
                self._datas,
                ahead,
                control,
                nstep=substeps,
                skip_checks=True,
                state=states,
                sensordata=sensed,
            )
        self.steps_done += rows * substeps
        reset = np.abs(states[:, -1, 0] - (ahead[:, 0] + substeps * self.sim_dt)) > 0.5 * self.sim_dt
        states[:, :, 0] -= self.ctrl_dt
        return reset

    def _jitted(self, policy: Policy, candidates: int) -> Callable[..., tuple[np.ndarray, Any]]:
        """Return `policy` for the whole batch, compiled once per policy and batch shape: (controls, extras).

        One row runs as two. With one row, constants have the shape of the whole batch, and XLA folds chains of them
        that it does not fold if they are broadcast, so the results would be rounded differently than in a batch.
        """
        if (policy, candidates) not in self._policies:

            @jax.jit
            def batched(params: Any, view: Step, key: jax.Array, t: jax.Array) -> Any:
                self.traces[f"policy[{len(view.time)}]"] += 1
                return act(policy, params, view, jax.random.fold_in(key, t), candidates)

            def run(params: Any, view: Step, key: jax.Array, t: np.int32) -> tuple[np.ndarray, Any]:
                rows = len(view.time)
                if rows == 1:
                    params, view = jax.tree.map(lambda x: np.repeat(np.asarray(x), 2, axis=0), (params, view))
                return jax.tree.map(lambda x: np.asarray(x)[:rows], batched(params, view, key, t))

            self._policies[policy, candidates] = run
        return self._policies[policy, candidates]
