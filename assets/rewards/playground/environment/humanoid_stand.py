"""Stand still, with the head high and the torso upright, with little control."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    standing = shaping.tolerance(state.pos("head")[2], 1.4, jnp.inf, 0.35)
    upright = jnp.clip(1 - (0.9 - state.rot("torso")[2, 2]) / 1.9, 0.0, 1.0)
    control = (4 + jnp.mean(jnp.maximum(1 - jnp.square(action), 0.0))) / 5
    still = jnp.mean(shaping.tolerance(state.com_vel[:2], margin=2.0))
    return {"reward": standing * upright * still * control}
