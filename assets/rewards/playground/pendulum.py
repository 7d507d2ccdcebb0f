"""Give the pendulum the energy that it has upright, then hold it there."""

WEIGHTS = {"energy": 1.0, "up": 1.0, "hold": 5.0}


def reward(state, action):
    below = state.site("tip")[2] - state.goal("tip_pos")[2]
    energy = 0.5 * jnp.square(0.5 * state.qd("hinge")) + 9.81 * below
    return {
        "energy": -shaping.smooth_abs(energy, 0.5),
        "up": below,
        "hold": shaping.gaussian(below, 0.1) * shaping.gaussian(state.qd("hinge"), 2.0),
    }
