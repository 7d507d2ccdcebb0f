"""Stand still: head up, trunk upright, capture point over the feet, joints where they began."""

WEIGHTS = {"height": 200.0, "upright": 50.0, "balance": 200.0, "posture": 20.0, "speed": 30.0, "joint_speed": 0.05}
JOINTS = ["$joints"]


def over_the_feet(state):
    feet = ("$left_foot", "$left_toes", "$right_foot", "$right_toes")
    return sum(state.pos(foot)[:2] for foot in feet) / 4.0


def reward(state, action):
    sunk = state.initial.pos("$head")[2] - state.pos("$head")[2]
    lean = (state.rot("$trunk") @ state.initial.rot("$trunk").T)[:2, 2]
    capture = state.capture_point
    balanced = state.initial.com[:2] - over_the_feet(state.initial)
    bent = sum((state.q(j) - state.initial.q(j)) ** 2 for j in JOINTS)
    return {
        "height": -shaping.smooth_abs(sunk),
        "upright": -shaping.smooth_abs(jnp.linalg.norm(lean), 0.05),
        "balance": -shaping.smooth_abs(jnp.linalg.norm(capture - over_the_feet(state) - balanced), 0.02),
        "posture": -0.5 * bent,
        "speed": -shaping.smooth_abs(jnp.linalg.norm(state.com_vel)),
        "joint_speed": -0.5 * sum(state.qd(j) ** 2 for j in JOINTS),
    }
