"""Bring the tip to the target at the top."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    distance = jnp.linalg.norm(state.site("target") - state.site("tip"))
    return {"reward": shaping.tolerance(distance, 0.0, 0.2, 1.0)}
