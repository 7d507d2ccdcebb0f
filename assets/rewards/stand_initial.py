"""Keep the head up."""

WEIGHTS = {"height": 100.0}


def reward(state, action):
    sunk = state.initial.pos("$head")[2] - state.pos("$head")[2]
    return {"height": -shaping.smooth_abs(sunk)}
