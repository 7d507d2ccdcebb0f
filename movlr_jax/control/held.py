"""Joint targets for environments whose actions are torques that are held over a control step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import mujoco
import numpy as np

from movlr_jax.control.episode import concatenate
from movlr_jax.control.targets import JointTargets
from movlr_jax.models.actuators import limits
from movlr_jax.physics.native import NativePhysics
from movlr_jax.types import Policy, SimState, Step, Trajectory


class HeldTargets(NativePhysics):
    """Simulation of `model`, whose motors hold at each control step the mean torque that servos would apply in it.

    A servo changes its torque within a control step, which no action of an environment can. So each control step is
    simulated with the servos of `targets` first, and then with the means of their torques: states are those that the
    environment reaches with these torques as its actions. Policies, states and actions speak of joint targets.
    """

    def __init__(self, model: mujoco.MjModel, targets: JointTargets, *, sim_dt: float, ctrl_dt: float):
        super().__init__(model, targets.layout, sim_dt=sim_dt, ctrl_dt=ctrl_dt)
        self._served = NativePhysics(targets.model, targets.layout, sim_dt=sim_dt, ctrl_dt=sim_dt)
        self._served.traces, self._targets = self.traces, targets
        self._range = limits(model.actuator_ctrllimited, model.actuator_ctrlrange)

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
        state, played, before = start, [], self._served.steps_done
        for _ in range(steps):
            tried = self._served.rollout(
                state, policy, params, steps=self.substeps, key=key, candidates=candidates, read=self._targets.read
            )
            targets = np.asarray(tried.actions)
            used = self._targets.used(np, tried.steps.sensors, targets).mean(axis=1)
            held = np.clip(used, *self._range).astype(np.float32)
            step = super().rollout(state, _hold, held, steps=1, key=key, candidates=candidates, read=read)
            seen = step.steps.replace(prev_action=np.asarray(state.prev_action)[:, None])
            state = replace(step.final, prev_action=targets[:, -1])
            played.append(step.replace(steps=seen, actions=targets[:, -1:], final=state))
        self.steps_done += self._served.steps_done - before
        return concatenate(played)

    def close(self) -> None:
        super().close()
        self._served.close()


def _hold(params: Any, view: Step, key: jax.Array) -> jax.Array:
    return params
