"""Hold the bottle with all fingers, and bring it to the position and tilt of the target."""

WEIGHTS = {"position": 100.0, "orientation": 10.0, "grasp": 100.0, "fingers": 10.0}


def reward(state, action):
    bottle = state.pos("bottle")
    tips = ("THtip_r", "IFtip_r", "MFtip_r", "RFtip_r", "LFtip_r")
    reach = sum(jnp.linalg.norm(state.site(tip) - bottle) for tip in tips) / 5.0
    return {
        "position": -shaping.smooth_abs(jnp.linalg.norm(bottle - state.goal("object_pos"))),
        "orientation": -shaping.smooth_abs(
            shaping.rotation_error(state.rot("bottle"), state.goal("object_rot"))
        ),
        "grasp": -shaping.smooth_abs(jnp.linalg.norm(state.site("S_grasp_r") - bottle)),
        "fingers": -shaping.quadratic(reach / 0.1),
    }
