"""Move at the goal's velocity while head, knees, heels and toes have their heights in the recorded stride.

For legs with the reference of people. A language model wrote the first two terms in the search walk_eureka
(examples/recorded), and the third in another program of that search.
"""

WEIGHTS = {"forward": 100.0, "height": 400.0, "stride": 150.0}

THIGH, SHANK, HIP_TO_HEAD = 0.404, 0.400, 0.604  # m
SOLE = 0.02  # m, height of the origins of heel and toes while the sole is on the ground
JOINTS = [
    ("hip_flexion", 1.0),
    ("knee_angle", 1.0),
    ("ankle_angle", 1.0),
    ("hip_adduction", 0.5),
]  # and their shares


def drops(state, side, pitch):
    """How far knee, heel and toes are below the hip in the recorded stride, at the present pitch of the pelvis."""
    thigh = state.reference("hip_flexion_" + side) + pitch
    shank = thigh - state.reference("knee_angle_" + side)
    foot = shank + state.reference("ankle_angle_" + side)
    knee = THIGH * jnp.cos(thigh)
    ankle = knee + SHANK * jnp.cos(shank)
    heel = ankle + 0.061 * jnp.sin(foot) + 0.042 * jnp.cos(foot)
    toes = ankle - 0.118 * jnp.sin(foot) + 0.040 * jnp.cos(foot)
    return jnp.stack([knee, heel, toes])


def reward(state, action):
    slow = jnp.linalg.norm(state.vel("$pelvis")[:2] - state.goal("velocity")[:2])
    pitch = jnp.clip(jnp.arcsin(jnp.clip(state.rot("$pelvis")[2, 0], -0.99, 0.99)), -0.4, 0.4)
    left, right = drops(state, "l", pitch), drops(state, "r", pitch)
    # the lowest of both heels and toes is on the ground; all heights follow from it
    hip = jnp.maximum(jnp.max(left[1:]), jnp.max(right[1:])) + SOLE
    lefts = jnp.stack([state.pos(part)[2] for part in ("$left_shank", "$left_foot", "$left_toes")])
    rights = jnp.stack([state.pos(part)[2] for part in ("$right_shank", "$right_foot", "$right_toes")])
    errors = jnp.concatenate([lefts - (hip - left), rights - (hip - right)])
    head = shaping.smooth_abs(state.pos("$head")[2] - (hip + HIP_TO_HEAD), 0.03)
    off = sum(
        share * shaping.smooth_abs(state.q(joint + "_" + side) - state.reference(joint + "_" + side), 0.2)
        for joint, share in JOINTS
        for side in ("l", "r")
    )
    return {
        "forward": -shaping.smooth_abs(slow),
        "height": -(jnp.sum(shaping.smooth_abs(errors, 0.03)) + 3.0 * head) / 9.0,
        "stride": -off / 7.0,
    }
