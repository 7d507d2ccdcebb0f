"""Bring the finger to the target and rest there."""

WEIGHTS = {"distance": 10.0, "arrival": 1.0, "still": 0.5}


def reward(state, action):
    distance = jnp.linalg.norm(state.pos("finger") - state.goal("finger_pos"))
    arrival = shaping.gaussian(distance, 0.03)
    return {"distance": -distance, "arrival": arrival, "still": -arrival * jnp.linalg.norm(state.vel("finger"))}
