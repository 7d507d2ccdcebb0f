"""Run along x with little control, the torso between 1 and 2 m. Contact forces cost nothing here.

A fallen body, which ends an episode, earns 0.
"""

WEIGHTS = {"forward": 1.25, "healthy": 5.0, "control": 0.1}


def reward(state, action):
    height = state.qpos[2]
    healthy = jnp.where(height > 1.0, 1.0, 0.0) * jnp.where(height < 2.0, 1.0, 0.0)
    return {
        "forward": healthy * state.com_vel[0],
        "healthy": healthy,
        "control": -healthy * jnp.sum(jnp.square(action)),
    }
