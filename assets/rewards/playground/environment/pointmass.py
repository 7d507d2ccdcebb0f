"""Bring the point to the middle, with little control."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    distance = jnp.linalg.norm(state.pos("pointmass") - state.goal("pointmass_pos"))
    near = shaping.tolerance(distance, 0.0, 0.015, 0.015)
    control = jnp.mean(jnp.maximum(1 - jnp.square(action), 0.0))
    return {"reward": near * (control + 4) / 5}
