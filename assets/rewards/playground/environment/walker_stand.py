"""Keep the torso high and upright."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    high = shaping.tolerance(state.pos("torso")[2], 1.2, jnp.inf, 0.6)
    return {"reward": (3 * high + (1 + state.rot("torso")[2, 2]) / 2) / 4}
