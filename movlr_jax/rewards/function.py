"""A reward program as a function of MuJoCo's own data, for training loops outside of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import mujoco

from movlr_jax.errors import shortened
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.rewards.state import Layout, State
from movlr_jax.types import Array, Step


@dataclass(frozen=True, eq=False)  # so that jax.jit takes it
class RewardFunction:
    """A vetted reward program in JAX, which can be compiled, vectorised and differentiated.

    Attributes:
        model: The model of the task, with the sensors that programs read; simulate this one.
        program: The program: its source, weights and terms.
    """

    model: mujoco.MjModel
    program: RewardProgram
    layout: Layout
    goals: Mapping[str, Array]

    def __repr__(self) -> str:
        """Describe the reward and the data that it takes in one line; JAX shows it in errors about other data."""
        about = f"{shortened(self.program.description)}: {', '.join(self.program.terms)}"
        return f"RewardFunction({about}; jax.jit takes mjx.Data; with mujoco.MjData, call it without jax.jit)"

    def __call__(
        self, data: Any, action: Array, first: Any, previous: Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the reward w . r [] of a control step, and its terms r, each [] and without its weight.

        A term that is not finite stays so.

        Args:
            data: `mujoco.MjData`, or `mjx.Data` of one simulation, of `model` at the end of the control step, after
                `mj_forward` or `mjx.forward`: a step leaves sensors of the state before it.
            action: [nu] The controls of this control step.
            first: Data at the start of the episode.
            previous: [nu] The controls of the control step before; None for `action`.
        """
        before = action if previous is None else previous
        state = State(self.layout, _step(data, before), self.goals, _step(first, jnp.zeros_like(action)))
        terms = {name: jnp.asarray(value) for name, value in self.program.reward(state, jnp.asarray(action)).items()}
        weights = self.program.weights
        return jnp.stack([weights[name] * value for name, value in terms.items()]).sum(), terms


def _step(data: Any, previous: Array) -> Step:
    fields = (data.time, data.qpos, data.qvel, data.act, data.sensordata, previous)
    return Step(*(jnp.asarray(x, jnp.float32) for x in fields))
