"""Move forward with the head up."""

WEIGHTS = {"forward": 100.0, "height": 100.0}


def reward(state, action):
    sunk = state.initial.pos("$head")[2] - state.pos("$head")[2]
    slow = jnp.linalg.norm(state.vel("$pelvis")[:2] - state.goal("velocity")[:2])
    return {"forward": -shaping.smooth_abs(slow), "height": -shaping.smooth_abs(sunk)}
