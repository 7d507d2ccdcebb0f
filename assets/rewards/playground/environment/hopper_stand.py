"""Keep the torso above the foot, with little control."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    torso = state.pos("torso") + state.rot("torso") @ jnp.array([0.00745552, 0.0, 0.07888984])
    foot = state.pos("foot") + state.rot("foot") @ jnp.array([0.045, 0.0, 0.0])
    height = torso[2] - foot[2]
    standing = jnp.where(jnp.logical_and(height >= 0.6, height <= 2.0), 1.0, 0.0)
    control = jnp.mean(jnp.maximum(1 - jnp.square(action), 0.0))
    return {"reward": standing * (control + 4) / 5}
