"""Run along x with little control, the torso between 0.2 and 1 m. Contact forces cost nothing here.

A body outside, which ends an episode, earns 0.
"""

WEIGHTS = {"forward": 1.0, "healthy": 1.0, "control": 0.5}


def reward(state, action):
    height = state.qpos[2]
    healthy = jnp.where(height >= 0.2, 1.0, 0.0) * jnp.where(height <= 1.0, 1.0, 0.0)
    return {
        "forward": healthy * state.vel("torso")[0],
        "healthy": healthy,
        "control": -healthy * jnp.sum(jnp.square(action)),
    }
