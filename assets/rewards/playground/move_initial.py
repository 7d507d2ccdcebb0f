"""Move at the speed that is asked for."""

WEIGHTS = {"speed": 1.0}


def reward(state, action):
    return {"speed": -shaping.smooth_abs(state.com_vel[0] - state.goal("velocity")[0])}
