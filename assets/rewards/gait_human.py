"""Walk in time with a clock: at the goal's velocity and heading, upright, each foot lifted and loaded by turns."""

WEIGHTS = {
    "still": 1.0,
    "velocity": 5.0,
    "heading": 0.5,
    "straight": 0.2,
    "upright": 0.5,
    "height": 0.3,
    "stance": 3.0,
    "lift": 2.0,
    "slip": 0.2,
    "sway": 0.2,
    "posture": 0.1,
    "smooth": 0.2,
    "effort": 0.2,
}
JOINTS = ["$joints"]
LOADED = 150.0  # N, a foot that bears
LIFT = 0.08  # m


def foot(state, heel, toes):
    return 0.5 * (state.pos(heel) + state.pos(toes))


def reward(state, action):
    start = state.initial
    heading = state.goal_heading
    ahead = jnp.stack([jnp.cos(heading), jnp.sin(heading)])
    aside = jnp.stack([-ahead[1], ahead[0]])
    # off the line of a straight walk, which ends where a turn begins
    off = (state.com - start.com)[:2] @ aside * (1.0 - jnp.abs(jnp.sign(heading)))
    wanted = jnp.linalg.norm(state.goal("velocity")) * ahead - jnp.clip(off, -0.4, 0.4) * aside
    lost = jnp.linalg.norm(state.com_vel[:2] - wanted)
    facing = state.rot("$pelvis") @ start.rot("$pelvis").T
    yaw = jnp.arctan2(facing[1, 0], facing[0, 0]) - heading
    # each foot swings for its part of a stride, half a stride after the other
    wave = jnp.sin(2.0 * jnp.pi * state.gait_phase)
    swings = jnp.clip(wave / 0.4, 0.0, 1.0)
    feet = jnp.stack([foot(state, "$left_foot", "$left_toes"), foot(state, "$right_foot", "$right_toes")])
    moving = jnp.stack([state.vel("$left_foot"), state.vel("$right_foot")])
    loads = jnp.clip(jnp.stack([state.touch("left_foot"), state.touch("right_foot")]) / LOADED, 0.0, 1.0)
    floor = jnp.min(feet[:, 2])
    lifted = (feet[:, 2] - floor) / LIFT
    standing = start.pos("$pelvis")[2] - foot(start, "$left_foot", "$left_toes")[2]
    moved = sum((state.q(j) - start.q(j)) ** 2 for j in JOINTS) / len(JOINTS)
    return {
        "still": -jnp.ones(()),  # about what standing still earns: only a gait is worth staying up for
        "velocity": 0.5 * shaping.gaussian(lost, 0.3) - 0.5 * shaping.smooth_abs(lost),  # exact, and felt from afar
        "heading": shaping.gaussian(jnp.sin(0.5 * yaw), 0.15),
        "straight": shaping.gaussian(off, 0.3),
        "upright": shaping.gaussian(jnp.linalg.norm(facing[:2, 2]), 0.2),
        "height": shaping.gaussian(state.pos("$pelvis")[2] - floor - standing, 0.08),
        "stance": jnp.mean(swings * (1.0 - loads) + (1.0 - swings) * loads),
        "lift": -jnp.mean(jnp.minimum(jnp.abs(lifted - jnp.maximum(wave, 0.0)), 1.0)),
        "slip": -jnp.sum(loads * jnp.sum(moving[:, :2] ** 2, axis=1)),
        "sway": -0.2 * jnp.sum(state.angvel("$pelvis")[:2] ** 2) - state.com_vel[2] ** 2,
        "posture": -moved,
        "smooth": -jnp.mean((action - state.prev_action) ** 2),
        "effort": -jnp.mean(action**2),
    }
