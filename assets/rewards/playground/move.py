"""Stay as high and as upright as at the start, near its posture, and move at the speed that is asked for."""

WEIGHTS = {"height": 10.0, "upright": 5.0, "speed": 2.0, "straight": 1.0, "posture": 2.0}


def reward(state, action):
    root, begun = state.pos("$root"), state.initial.pos("$root")
    moved = state.qpos - state.initial.qpos
    return {
        "height": shaping.gaussian(root[2] - begun[2], 0.2 * begun[2]),
        "upright": -shaping.rotation_error(state.rot("$root"), state.initial.rot("$root")),
        "speed": -shaping.smooth_abs(state.com_vel[0] - state.goal("velocity")[0]),
        "straight": -shaping.smooth_abs(root[1] - begun[1]),
        "posture": -jnp.mean(jnp.square(moved[7:])),
    }
