"""Keep the pole upright and the cart in the middle, with little control and speed."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    upright = (state.rot("pole_1")[2, 2] + 1) / 2
    centred = (1 + shaping.tolerance(state.qpos[0], margin=2.0)) / 2
    control = (4 + jnp.maximum(1 - jnp.square(action[0]), 0.0)) / 5
    calm = (1 + shaping.tolerance(state.qvel[1], margin=5.0)) / 2
    return {"reward": upright * centred * control * calm}
