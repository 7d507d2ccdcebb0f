"""Hold the bottle with thumb and fingers, and bring it calmly to the position and tilt of the target."""

WEIGHTS = {"position": 150.0, "orientation": 30.0, "grasp": 100.0, "grip": 3.0, "still": 2.0}


def reward(state, action):
    bottle = state.pos("bottle")
    to_target = jnp.linalg.norm(bottle - state.goal("object_pos"))
    to_palm = jnp.linalg.norm(state.site("$palm_site") - bottle)
    turn = shaping.rotation_error(state.rot("bottle"), state.goal("object_rot"))
    fingers = ("index", "middle", "ring", "little")
    grip = jnp.tanh(state.touch("thumb") / 5.0) + sum(jnp.tanh(state.touch(f) / 5.0) for f in fingers) / 2.0
    return {
        "position": -shaping.smooth_abs(to_target, 0.02),
        "orientation": shaping.gaussian(to_target, 0.04) * (1.5 - shaping.smooth_abs(turn, 0.03)),
        "grasp": -shaping.smooth_abs(to_palm, 0.02),
        "grip": grip / 3.0,
        "still": -shaping.smooth_abs(jnp.linalg.norm(state.vel("bottle"))),
    }
