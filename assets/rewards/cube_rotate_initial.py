"""Bring the cube to the position of the target."""

WEIGHTS = {"position": 100.0}


def reward(state, action):
    offset = state.pos("cube") - state.goal("object_pos")
    return {"position": -shaping.smooth_abs(jnp.linalg.norm(offset))}
