"""Bring the nose to the target."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    nose = state.pos("head") + state.rot("head") @ jnp.array([0.0, -0.06, 0.0])
    away = state.rot("head").T @ (state.goal("nose_pos") - nose)
    beyond = jnp.maximum(jnp.linalg.norm(away[:2]) - 0.1, 0.0) / 0.5
    return {"reward": 1 / (jnp.square(3 * beyond) + 1)}
