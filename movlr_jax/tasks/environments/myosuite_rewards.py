"""Rewards of environments of MyoSuite as reward programs, written anew from their formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from movlr_jax.models.actuators import muscles
from movlr_jax.rewards.term import quoted

_FAR = {"PoseEnvV0": 2 * np.pi, "TorsoEnvV0": np.pi}  # rad, distance of postures that ends an episode
_NEAR = 0.0125  # m for each site, distance that solves a reach


def own_reward(world: Any, targets: Mapping[str, str], description: str) -> str:
    """Return the reward of an environment that poses, reaches or holds an object as a program; "" for others.

    targets: site -> name of its target's goal, of an environment that reaches.
    """
    kind, model, n = type(world).__name__, world.model, len(targets)
    if kind in _FAR:
        error = f'state.goal("target_angles") - state.qpos[:{len(world.target_jnt_value)}]'
        name, near, wider, far = "pose", world.pose_thd, 1.5, f"distance > {_FAR[kind]:.9g}"
    elif kind == "ReachEnvV0":
        parts = (f"state.goal({quoted(goal)}) - state.site({quoted(tip)})" for tip, goal in targets.items())
        error = f"jnp.concatenate([{', '.join(parts)}])"
        begun = f"jnp.where(state.time > {2 * world.dt:.9g}, distance, 0.0)"
        name, near, wider, far = "reach", _NEAR * n, 2.0, f"{begun} > {world.far_th * n:.9g}"
    elif kind.startswith("ObjHold"):
        error = 'state.site("goal") - state.site("object")'
        name, near, wider, far = "goal_dist", 0.01, 2.0, "distance > 0.3"
    else:
        return ""
    acting = [f"state.activation({quoted(model.actuator(i).name)})" for i in np.flatnonzero(muscles(model))]
    activations = "state.muscles" if len(acting) == model.nu else f"jnp.stack([{', '.join(acting)}])"
    terms = {
        name: "-distance",
        "bonus": f"jnp.where(distance < {near:.9g}, 1.0, 0.0) + jnp.where(distance < {wider * near:.9g}, 1.0, 0.0)",
        "penalty": f"-jnp.where({far}, 1.0, 0.0)",
        "act_reg": f"-jnp.linalg.norm({activations}) / {model.na}" if acting else "jnp.zeros(())",
    }
    weights = {term: float(world.rwd_keys_wt[term]) for term in terms if world.rwd_keys_wt.get(term)}
    lines = "\n".join(f"        {quoted(term)}: {terms[term]}," for term in weights)
    shown = ", ".join(f"{quoted(term)}: {weight:g}" for term, weight in weights.items())
    return (
        f'"""{description}, as MyoSuite rewards it."""\n\nWEIGHTS = {{{shown}}}\n\n\ndef reward(state, action):\n'
        f"    distance = jnp.linalg.norm({error})\n    return {{\n{lines}\n    }}\n"
    )
