"""Swim along x with little control."""

WEIGHTS = {"forward": 1.0, "control": 0.0001}


def reward(state, action):
    return {"forward": state.qd("slider1"), "control": -jnp.sum(jnp.square(action))}
