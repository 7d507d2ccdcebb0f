"""Bring the mouth to the target, with the back up."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    mouth = state.pos("torso") + state.rot("torso") @ jnp.array([0.0, 0.0745, 0.0])
    near = shaping.tolerance(jnp.linalg.norm(state.goal("mouth_pos") - mouth), 0.0, 0.045, 0.09)
    upright = (state.rot("torso")[2, 2] + 1) / 2
    return {"reward": (7 * near + upright) / 8}
