"""Keep the head high and the torso upright over the feet, and move at the speed that is asked for."""

WEIGHTS = {"height": 10.0, "upright": 5.0, "balance": 5.0, "speed": 2.0, "straight": 1.0, "control": 0.1}


def reward(state, action):
    feet = 0.5 * (state.pos("left_foot") + state.pos("right_foot"))
    lean = state.com[:2] + 0.2 * state.com_vel[:2] - feet[:2] - 0.2 * state.goal("velocity")[:2]
    return {
        "height": shaping.tolerance(state.pos("head")[2], 1.4, 2.0, 0.5),
        "upright": state.rot("torso")[2, 2],
        "balance": -shaping.smooth_abs(jnp.linalg.norm(lean)),
        "speed": -shaping.smooth_abs(state.com_vel[0] - state.goal("velocity")[0]),
        "straight": -shaping.smooth_abs(state.com[1] - state.initial.com[1]),
        "control": -jnp.mean(jnp.square(action)),
    }
