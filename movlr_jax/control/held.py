"""Joint targets for environments whose actions are torques that are held over a control step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import mujoco
import numpy as np

from movlr_jax.control.episode import concatenate
from movlr_jax.control.targets import JointTargets
from movlr_jax.physics.native import NativePhysics
from movlr_jax.types import Array, Policy, SimState, Step, Trajectory


class HeldTargets:
    """Simulation of `model`, whose motors hold at each control step the mean torque that servos would apply in it.

    A servo changes its torque within a control step, which no action of an environment can. So each control step is
    simulated with the servos of `targets` first, and then with the means of their torques: states are those that the
    environment reaches with these torques as its actions. Policies, states and actions speak of joint targets.
    """

    name = "native"
    xp = np

    def __init__(self, model: mujoco.MjModel, targets: JointTargets, *, sim_dt: float, ctrl_dt: float):
        self._plain = NativePhysics(model, targets.layout, sim_dt=sim_dt, ctrl_dt=ctrl_dt)
        self._served = NativePhysics(targets.model, targets.layout, sim_dt=sim_dt, ctrl_dt=sim_dt)
        self._targets, self.layout = targets, targets.layout
        self.sim_dt, self.ctrl_dt, self.substeps = sim_dt, ctrl_dt, self._plain.substeps
        self._range = np.where(
            model.actuator_ctrllimited[:, None] != 0, model.actuator_ctrlrange, (-np.inf, np.inf)
        ).T

    @property
    def model(self) -> mujoco.MjModel:
        return self._plain.model

    @property
    def steps_done(self) -> int:
        return self._plain.steps_done + self._served.steps_done

    @property
    def traces(self) -> Counter[str]:
        return self._plain.traces + self._served.traces

    def start(self, qpos: Array, qvel: Array, act: Array) -> SimState:
        return self._plain.start(qpos, qvel, act)

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
        """As in Physics. The recorded actions are joint targets; the sensors have the forces that were held."""
        state, played = start, []
        for _ in range(steps):
            tried = self._served.rollout(
                state, policy, params, steps=self.substeps, key=key, candidates=candidates, read=self._targets.read
            )
            targets = np.asarray(tried.actions)
            used = self._targets.used(np, tried.steps.sensors, targets).mean(axis=1)
            held = np.clip(used, *self._range).astype(np.float32)
            step = self._plain.rollout(state, _hold, held, steps=1, key=key, candidates=candidates, read=read)
            state = replace(step.final, prev_action=targets[:, -1])
            seen = step.steps.replace(prev_action=np.asarray(start.prev_action)[:, None])
            played.append(step.replace(steps=seen, actions=targets[:, -1:], final=state))
            start = state
        return concatenate(played)

    def parts(self, rows: int, steps: int) -> int:
        return self._plain.parts(rows, steps)

    def collect(self, x: Any) -> Any:
        return x

    def close(self) -> None:
        self._plain.close()
        self._served.close()

    def lengths(self, qpos: Array) -> np.ndarray:
        return self._plain.lengths(qpos)

    def kinematics(self, qpos: Array) -> tuple[np.ndarray, np.ndarray]:
        return self._plain.kinematics(qpos)


def _hold(params: Any, view: Step, key: jax.Array) -> jax.Array:
    return params
