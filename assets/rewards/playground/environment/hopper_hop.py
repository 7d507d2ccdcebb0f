"""Hop forward at 2 m/s or faster, with the torso above the foot."""

WEIGHTS = {"reward": 1.0}


def reward(state, action):
    torso = state.pos("torso") + state.rot("torso") @ jnp.array([0.00745552, 0.0, 0.07888984])
    foot = state.pos("foot") + state.rot("foot") @ jnp.array([0.045, 0.0, 0.0])
    height = torso[2] - foot[2]
    standing = jnp.where(jnp.logical_and(height >= 0.6, height <= 2.0), 1.0, 0.0)
    return {"reward": standing * jnp.clip(state.com_vel[0] / 2, 0.0, 1.0)}
