"""Run along x with little control."""

WEIGHTS = {"forward": 1.0, "control": 0.1}


def reward(state, action):
    return {"forward": state.qd("rootx"), "control": -jnp.sum(jnp.square(action))}
