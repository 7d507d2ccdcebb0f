"""Hold the pole within 8 degrees of the vertical."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    return {"reward": jnp.where(state.rot("pole")[2, 2] >= 0.99026807, 1.0, 0.0)}
