"""Keep the pole within 0.2 rad of upright."""

WEIGHTS = {"alive": 1.0}


def reward(state, action):
    return {"alive": jnp.where(jnp.abs(state.q("hinge")) <= 0.2, 1.0, 0.0)}
