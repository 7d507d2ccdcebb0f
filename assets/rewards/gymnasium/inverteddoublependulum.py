"""Keep the tip of the second pole 2 m high over the middle, calmly. Below 1 m, which ends an episode, it earns 0."""

WEIGHTS = {"alive": 10.0, "distance": 1.0, "speed": 1.0}


def reward(state, action):
    tip = state.site("tip")
    alive = jnp.where(tip[2] > 1.0, 1.0, 0.0)
    return {
        "alive": alive,
        "distance": alive * (-0.01 * tip[0] ** 2 - (tip[2] - 2.0) ** 2),
        "speed": alive * (-0.001 * state.qd("hinge") ** 2 - 0.005 * state.qd("hinge2") ** 2),
    }
