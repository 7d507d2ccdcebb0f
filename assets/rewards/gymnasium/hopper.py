"""Hop along x with little control, the torso above 0.7 m and upright.

A fallen body, which ends an episode, earns 0.
"""

WEIGHTS = {"forward": 1.0, "healthy": 1.0, "control": 0.001}


def reward(state, action):
    high = jnp.where(state.q("rootz") > 0.7, 1.0, 0.0)
    upright = jnp.where(jnp.abs(state.q("rooty")) < 0.2, 1.0, 0.0)
    largest = jnp.maximum(jnp.max(jnp.abs(state.qpos[2:])), jnp.max(jnp.abs(state.qvel)))
    healthy = high * upright * jnp.where(largest < 100.0, 1.0, 0.0)
    return {
        "forward": healthy * state.qd("rootx"),
        "healthy": healthy,
        "control": -healthy * jnp.sum(jnp.square(action)),
    }
