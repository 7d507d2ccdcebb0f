"""Pinch the cube between thumb and two fingers, lift it to the target, and turn it there."""

WEIGHTS = {"position": 150.0, "orientation": 20.0, "grasp": 100.0, "grip": 3.0, "still": 2.0}


def reward(state, action):
    cube = state.pos("cube")
    to_target = jnp.linalg.norm(cube - state.goal("object_pos"))
    turn = shaping.rotation_error(state.rot("cube"), state.goal("object_rot"))
    fingers = (state.site("$index_site") + state.site("$middle_site")) / 2.0
    to_hand = jnp.linalg.norm((state.site("$thumb_site") + fingers) / 2.0 - cube)
    grip = sum(jnp.tanh(state.touch(part) / 3.0) for part in ("thumb", "index", "middle"))
    return {
        "position": -shaping.smooth_abs(to_target, 0.02),
        # counts only near the target: first lift, then turn
        "orientation": shaping.gaussian(to_target, 0.05) * (1.5 - shaping.smooth_abs(turn)),
        "grasp": -shaping.smooth_abs(to_hand, 0.02),
        "grip": grip / 3.0,
        "still": -shaping.smooth_abs(jnp.linalg.norm(state.vel("cube"))),
    }
