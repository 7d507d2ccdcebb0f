"""Walk: head up, trunk upright, at the goal's velocity, feet by turns under where the body is about to be."""

WEIGHTS = {
    "alive": 200.0,
    "height": 200.0,
    "upright": 200.0,
    "tipping": 200.0,
    "balance": 100.0,
    "lateral": 100.0,
    "swing": 100.0,
    "placement": 100.0,
    "forward": 80.0,
    "heading": 30.0,
    "width": 30.0,
    "posture": 2.0,
    "joint_speed": 0.02,
}
JOINTS = ["$joints"]
LIFT = 0.08  # m
START = 2.0  # s to get up to speed


def foot(state, heel, toes):
    return 0.5 * (state.pos(heel) + state.pos(toes))


def feet(state):
    return foot(state, "$left_foot", "$left_toes"), foot(state, "$right_foot", "$right_toes")


def reward(state, action):
    start = state.initial
    heading = state.goal_heading
    ahead = jnp.stack([jnp.cos(heading), jnp.sin(heading)])
    aside = jnp.stack([-ahead[1], ahead[0]])
    speed = jnp.linalg.norm(state.goal("velocity")) * jnp.minimum(1.0, state.time / START + 0.1)
    # heights are above the ground, which rises with the goal's slope
    rise = state.goal("slope") * (state.pos("$head") - start.pos("$head"))[0]
    sunk = start.pos("$head")[2] + rise - state.pos("$head")[2]
    (left, right), (left0, right0) = feet(state), feet(start)
    lifted = jnp.stack([left[2] - left0[2], right[2] - right0[2]])
    lifted = lifted - state.goal("slope") * jnp.stack([left[0] - left0[0], right[0] - right0[0]])
    # a clock: each foot swings for part of a stride, half a stride after the other
    wave = jnp.sin(2.0 * jnp.pi * state.gait_phase)
    swings = jax.nn.relu(wave - 0.3) / 0.7
    capture = state.capture_point
    middle = 0.5 * (left + right)[:2]
    front = jnp.maximum(left[:2] @ ahead, right[:2] @ ahead)
    beyond = jax.nn.relu(capture @ ahead - front - 0.1) + jax.nn.relu((middle - capture) @ ahead - 0.1)
    behind = jnp.stack([capture - left[:2], capture - right[:2]]) @ ahead
    gap = (left - right)[:2] @ aside - (left0 - right0)[1]
    # the line that a straight walk keeps to ends where a turn begins
    drift = (state.com - start.com)[:2] @ aside * (1.0 - jnp.abs(jnp.sign(heading)))
    facing = state.rot("$pelvis") @ start.rot("$pelvis").T
    bent = sum((state.q(j) - start.q(j)) ** 2 for j in JOINTS)
    return {
        "alive": jnp.ones(()),  # what a fall ends; to a planner it says nothing
        "height": -shaping.smooth_abs(sunk),
        "upright": -shaping.smooth_abs(1.0 - facing[2, 2]),
        "tipping": -beyond,
        "balance": -shaping.smooth_abs((capture - middle) @ aside),
        "lateral": -shaping.smooth_abs(state.com_vel[:2] @ aside) - shaping.smooth_abs(drift),
        "swing": -jnp.sum(shaping.smooth_abs(lifted - LIFT * swings, 0.02)),
        "placement": -jnp.sum(swings * shaping.smooth_abs(behind)),
        "forward": -shaping.smooth_abs(state.com_vel[:2] @ ahead - speed),
        "heading": -shaping.smooth_abs(jnp.arctan2(facing[1, 0], facing[0, 0]) - heading),
        "width": -shaping.smooth_abs(gap),
        "posture": -0.5 * bent,
        "joint_speed": -0.5 * sum(state.qd(j) ** 2 for j in JOINTS),
    }
