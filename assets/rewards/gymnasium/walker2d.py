"""Walk along x with little control, the torso between 0.8 and 2 m and upright.

A fallen body, which ends an episode, earns 0.
"""

WEIGHTS = {"forward": 1.0, "healthy": 1.0, "control": 0.001}


def reward(state, action):
    height = state.q("rootz")
    high = jnp.where(height > 0.8, 1.0, 0.0) * jnp.where(height < 2.0, 1.0, 0.0)
    healthy = high * jnp.where(jnp.abs(state.q("rooty")) < 1.0, 1.0, 0.0)
    return {
        "forward": healthy * state.qd("rootx"),
        "healthy": healthy,
        "control": -healthy * jnp.sum(jnp.square(action)),
    }
