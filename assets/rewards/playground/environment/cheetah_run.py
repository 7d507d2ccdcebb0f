"""Run forward at 10 m/s or faster."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    return {"reward": jnp.clip(state.com_vel[0] / 10, 0.0, 1.0)}
