"""Move at the velocity of the goal with the trunk upright."""

WEIGHTS = {"velocity": 1.0, "upright": 0.5}


def reward(state, action):
    slow = state.com_vel[:2] - state.goal("velocity")[:2]
    facing = state.rot("$pelvis") @ state.initial.rot("$pelvis").T
    return {"velocity": jnp.exp(-jnp.sum(slow**2)), "upright": shaping.gaussian(jnp.linalg.norm(facing[:2, 2]), 0.2)}
