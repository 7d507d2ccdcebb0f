"""Walk at the goal's velocity and heading with a level body, and move the legs as the recorded stride does."""

WEIGHTS = {
    "still": 1.0,
    "velocity": 12.0,
    "heading": 0.5,
    "straight": 0.3,
    "upright": 2.0,
    "height": 1.0,
    "hips": 4.0,
    "knees": 3.0,
    "ankles": 2.0,
    "feet": 1.0,
    "support": 6.0,
    "clearance": 1.0,
    "apart": 2.0,
    "others": 0.5,
    "sway": 0.2,
    "smooth": 0.3,
    "effort": 0.5,
}
SIDES = ("l", "r")
OTHERS = ("hip_x", "hip_z", "knee_z")
STILL = 6.0  # about what standing still earns, so that only a gait is worth staying up for
LOADED = 100.0  # N, a foot that bears


def near(state, name):
    total = 0.0
    for side in SIDES:
        off = state.q(side + "_" + name) - state.reference(side + "_" + name)
        total += 0.25 * shaping.gaussian(off, 0.15) + 0.25 * (1.0 - jnp.minimum(jnp.abs(off) / 0.6, 1.0))
    return total


def reward(state, action):
    start = state.initial
    heading = state.goal_heading
    ahead = jnp.stack([jnp.cos(heading), jnp.sin(heading)])
    aside = jnp.stack([-ahead[1], ahead[0]])
    off = (state.com - start.com)[:2] @ aside * (1.0 - jnp.abs(jnp.sign(heading)))
    wanted = jnp.linalg.norm(state.goal("velocity")) * ahead - jnp.clip(off, -0.4, 0.4) * aside
    lost = jnp.linalg.norm(state.com_vel[:2] - wanted)
    facing = state.rot("$pelvis") @ start.rot("$pelvis").T
    yaw = jnp.arctan2(facing[1, 0], facing[0, 0]) - heading
    # as in the recorded stride, feet swing from 0.12 to 0.5 of the phase
    phase = state.gait_phase
    swings = jnp.where((phase > 0.14) & (phase < 0.47), 1.0, 0.0)
    stands = jnp.where((phase > 0.505) | (phase < 0.11), 1.0, 0.0)
    loads = jnp.clip(jnp.stack([state.touch("left_foot"), state.touch("right_foot")]) / LOADED, 0.0, 1.0)
    toes = jnp.stack([state.pos("$left_toes")[2], state.pos("$right_toes")[2]])
    heels = jnp.stack([state.pos("$left_foot")[2], state.pos("$right_foot")[2]])
    rest = 0.5 * (start.pos("$left_toes")[2] + start.pos("$right_toes")[2])
    low = 0.5 * (start.pos("$left_foot")[2] + start.pos("$right_foot")[2])
    # the lowest heel or toe is taken to be on the ground, so that slopes count, too
    lowest = jnp.minimum(jnp.min(toes - rest), jnp.min(heels - low))
    lifted = toes - rest - lowest
    high = jnp.clip((jnp.minimum(lifted, heels - low - lowest) - 0.02) / 0.02, 0.0, 1.0)
    bumped = jnp.clip(jnp.stack([state.touch("left_leg"), state.touch("right_leg")]) / LOADED, 0.0, 1.0)
    standing = start.pos("$pelvis")[2] - 0.5 * (start.pos("$left_foot")[2] + start.pos("$right_foot")[2])
    height = state.pos("$pelvis")[2] - jnp.min(heels) - standing
    moved = sum((state.q(s + "_" + j) - start.q(s + "_" + j)) ** 2 for j in OTHERS for s in SIDES)
    return {
        "still": -jnp.full((), STILL),
        "velocity": 0.7 * shaping.gaussian(lost, 0.4) - 0.3 * shaping.smooth_abs(lost),
        "heading": shaping.gaussian(jnp.sin(0.5 * yaw), 0.15),
        "straight": shaping.gaussian(off, 0.3),
        "upright": shaping.gaussian(jnp.linalg.norm(facing[:2, 2]), 0.2),
        "height": shaping.gaussian(height, 0.1),
        "hips": near(state, "hip_y"),
        "knees": near(state, "knee_y"),
        "ankles": near(state, "ankle_y"),
        "feet": near(state, "mtp_y"),
        "support": jnp.mean(stands * loads - swings * loads),
        "clearance": jnp.mean(swings * jnp.clip(lifted / 0.03, 0.0, 1.0)),
        # a lifted foot that bears touches the other leg
        "apart": -jnp.mean(jnp.maximum(high * loads, bumped)),
        "others": shaping.gaussian(jnp.sqrt(moved / 6.0 + 1e-8), 0.15),
        "sway": -0.1 * jnp.sum(state.angvel("$pelvis") ** 2) - state.com_vel[2] ** 2,
        "smooth": -jnp.mean((action - state.prev_action) ** 2),
        "effort": -jnp.mean(action**2),
    }
