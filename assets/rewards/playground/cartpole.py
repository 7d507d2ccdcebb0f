"""Keep the tip of the pole up and over the middle of the rail, calmly."""

WEIGHTS = {"up": 10.0, "near": 5.0, "middle": 2.0, "calm": 0.2}


def reward(state, action):
    tip = state.site("tip") - state.goal("tip_pos")
    height = tip[2]
    return {
        "up": height,
        "near": shaping.gaussian(jnp.linalg.norm(tip), 0.3),
        "middle": -shaping.smooth_abs(state.q("slider")),
        "calm": -jnp.square(state.qd("hinge_1")) * shaping.gaussian(height, 0.3),
    }
