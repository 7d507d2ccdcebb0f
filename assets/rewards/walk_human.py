"""Walk: head up, trunk upright, at the goal's velocity, feet by turns under the capture point."""

WEIGHTS = {
    "height": 200.0,
    "upright": 200.0,
    "forward": 100.0,
    "balance": 100.0,
    "lateral": 30.0,
    "heading": 20.0,
    "swing": 50.0,
    "placement": 50.0,
    "width": 30.0,
    "posture": 2.0,
    "joint_speed": 0.02,
}
JOINTS = ["$joints"]
CADENCE = 0.8  # strides per second


def turned(state, body):
    return state.rot(body) @ state.initial.rot(body).T


def foot(state, heel, toes):
    return 0.5 * (state.pos(heel) + state.pos(toes))


def reward(state, action):
    velocity = state.goal("velocity")
    ahead = jnp.stack([jnp.cos(state.goal("heading")), jnp.sin(state.goal("heading"))])
    aside = jnp.stack([-ahead[1], ahead[0]])
    start = state.initial
    # heights are above the ground, which rises with the goal's slope
    rise = state.goal("slope") * (state.pos("$head")[0] - start.pos("$head")[0])
    sunk = start.pos("$head")[2] + rise - state.pos("$head")[2]
    left, right = foot(state, "$left_foot", "$left_toes"), foot(state, "$right_foot", "$right_toes")
    rest = 0.5 * (foot(start, "$left_foot", "$left_toes") + foot(start, "$right_foot", "$right_toes"))[2]
    ground = state.goal("slope") * jnp.stack([left[0], right[0]])
    lifted = jnp.stack([left[2], right[2]]) - rest - ground
    # a clock: each foot swings for 40 % of a stride, half a stride after the other
    phase = 2.0 * jnp.pi * (CADENCE * state.time + jnp.array([0.0, 0.5]))
    wave = jnp.sin(phase)
    swings = jax.nn.relu(wave - 0.3) / 0.7
    capture = state.com[:2] + state.com_vel[:2] * jnp.sqrt(state.com[2] / 9.81)
    middle = 0.5 * (left + right)[:2]
    gap = (left - right)[:2] @ aside
    at = jnp.stack([left[:2], right[:2]])
    # the swinging foot goes to where the body is about to be
    behind = (capture - at) @ ahead
    bent = sum((state.q(j) - start.q(j)) ** 2 for j in JOINTS)
    drift = (state.com - start.com)[:2] @ aside
    facing = turned(state, "$pelvis")
    yaw = jnp.arctan2(facing[1, 0], facing[0, 0]) - state.goal("heading")
    return {
        "height": -shaping.smooth_abs(sunk),
        "upright": -shaping.smooth_abs(1.0 - facing[2, 2]),
        "forward": -shaping.smooth_abs((state.com_vel - velocity)[:2] @ ahead),
        "balance": -shaping.smooth_abs((capture - middle) @ aside),
        "lateral": -shaping.smooth_abs(state.com_vel[:2] @ aside) - shaping.smooth_abs(drift),
        "heading": -shaping.smooth_abs(yaw),
        "swing": -jnp.sum(shaping.smooth_abs(lifted - 0.08 * swings, 0.02)),
        "placement": -jnp.sum(swings * shaping.smooth_abs(behind)),
        "width": -shaping.smooth_abs(gap - 0.17),
        "posture": -0.5 * bent,
        "joint_speed": -0.5 * sum(state.qd(j) ** 2 for j in JOINTS),
    }
