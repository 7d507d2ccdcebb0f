"""Pinch the cube between thumb and fingers without letting it slip, lift it to the target, and turn it there."""

WEIGHTS = {"position": 150.0, "orientation": 40.0, "grasp": 100.0, "slip": 15.0, "grip": 8.0, "still": 2.0}


def in_hand(state):
    """The cube's orientation, seen from the hand."""
    return state.rot("$hand").T @ state.rot("cube")


def reward(state, action):
    cube = state.pos("cube")
    to_target = jnp.linalg.norm(cube - state.goal("object_pos"))
    turn = shaping.rotation_error(state.rot("cube"), state.goal("object_rot"))
    fingers = (state.site("$index_site") + state.site("$middle_site")) / 2.0
    to_hand = jnp.linalg.norm((state.site("$thumb_site") + fingers) / 2.0 - cube)
    grip = sum(jnp.tanh(state.touch(part) / 5.0) for part in ("thumb", "index", "middle"))
    return {
        "position": -shaping.smooth_abs(to_target, 0.02),
        "orientation": shaping.gaussian(to_target, 0.04) * (1.5 - shaping.smooth_abs(turn, 0.03)),
        "grasp": -shaping.smooth_abs(to_hand, 0.02),
        "slip": -shaping.smooth_abs(shaping.rotation_error(in_hand(state), in_hand(state.initial))),
        "grip": grip / 3.0,
        "still": -shaping.smooth_abs(jnp.linalg.norm(state.vel("cube"))),
    }
