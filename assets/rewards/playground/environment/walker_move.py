"""Move forward at the speed that is asked for or faster, with the torso high and upright."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    high = shaping.tolerance(state.pos("torso")[2], 1.2, jnp.inf, 0.6)
    standing = (3 * high + (1 + state.rot("torso")[2, 2]) / 2) / 4
    moving = jnp.clip(state.com_vel[0] / state.goal("velocity")[0], 0.0, 1.0)
    return {"reward": standing * (5 * moving + 1) / 6}
