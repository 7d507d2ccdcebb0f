"""Push the object to the goal, with the tip of the arm at the object and little control."""

WEIGHTS = {"near": 0.5, "distance": 1.0, "control": 0.1}


def reward(state, action):
    thing = state.pos("object")
    return {
        "near": -jnp.linalg.norm(thing - state.pos("tips_arm")),
        "distance": -jnp.linalg.norm(thing - state.pos("goal")),
        "control": -jnp.sum(jnp.square(action)),
    }
