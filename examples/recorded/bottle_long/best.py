"""Wrap the hand firmly around the bottle and bring it, tilted as the outline, into the goal pose.
Four bounded terms: grip, position, rotation and a bonus for being at the goal and at rest."""

WEIGHTS = {"grip": 28.0, "position": 60.0, "rotation": 32.0, "arrive": 50.0}

RADIUS = 0.03


def reward(state, action):
    centre = state.pos("bottle")
    rot = state.rot("bottle")

    def near(site, radius):
        p = rot.T @ (state.site(site) - centre)
        r = jnp.sqrt(p[0] * p[0] + p[1] * p[1] + 1e-8)
        beside = jnp.maximum(r - radius, 0.0)
        beyond = jnp.maximum(jnp.abs(p[2]) - 0.075, 0.0)
        return 0.03 / (0.03 + beside + beyond)

    fingers = (near("IFtip_r", RADIUS) + near("MFtip_r", RADIUS) + near("RFtip_r", RADIUS) + near("LFtip_r", RADIUS)) / 4.0
    around = 0.35 * near("THtip_r", RADIUS) + 0.35 * fingers + 0.3 * near("S_grasp_r", 0.005)

    thumb_force = state.touch("thumb")
    finger_force = state.touch("index") + state.touch("middle") + state.touch("ring") + state.touch("little")
    palm_force = state.touch("palm")
    squeeze = 0.4 * jnp.tanh(thumb_force / 4.0) + 0.4 * jnp.tanh(finger_force / 6.0) + 0.2 * jnp.tanh(palm_force / 4.0)

    distance = jnp.linalg.norm(centre - state.goal("object_pos"))
    d = shaping.smooth_abs(distance, p=0.015)
    angle = shaping.rotation_error(rot, state.goal("object_rot"))
    speed = jnp.linalg.norm(state.vel("bottle"))
    miss = jnp.square(distance / 0.04) + jnp.square(angle / 0.4) + jnp.square(speed / 0.5)
    return {
        "grip": 0.5 * around + 0.5 * squeeze,
        "position": -d / (d + 0.15),
        "rotation": -shaping.smooth_abs(angle, p=0.1) / jnp.pi,
        "arrive": 1.0 / (1.0 + miss),
    }
