"""Run forward with the torso level."""

WEIGHTS = {"speed": 2.0, "level": 2.0, "height": 2.0, "control": 0.1}


def reward(state, action):
    return {
        "speed": -shaping.smooth_abs(state.com_vel[0] - state.goal("velocity")[0]),
        "level": state.rot("torso")[2, 2],
        "height": shaping.tolerance(state.pos("torso")[2], 0.55, 1.0, 0.3),
        "control": -jnp.mean(jnp.square(action)),
    }
