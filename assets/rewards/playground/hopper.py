"""Keep the torso high over the foot and upright, and move forward at the speed that is asked for."""

WEIGHTS = {"height": 5.0, "upright": 3.0, "speed": 2.0, "control": 0.1}


def reward(state, action):
    return {
        "height": shaping.tolerance(state.pos("torso")[2] - state.pos("foot")[2], 0.6, 2.0, 0.4),
        "upright": state.rot("torso")[2, 2],
        "speed": -shaping.smooth_abs(state.com_vel[0] - state.goal("velocity")[0]),
        "control": -jnp.mean(jnp.square(action)),
    }
