"""Bring the fingertip to the target with little control."""

WEIGHTS = {"distance": 1.0, "control": 1.0}


def reward(state, action):
    return {
        "distance": -jnp.linalg.norm(state.pos("fingertip") - state.pos("target")),
        "control": -jnp.sum(jnp.square(action)),
    }
