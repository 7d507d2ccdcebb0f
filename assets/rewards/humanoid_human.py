"""Walk in time with a clock: at the goal's velocity and heading, upright, feet lifted and set down by turns."""

WEIGHTS = {
    "velocity": 1.0,
    "heading": 0.5,
    "straight": 0.2,
    "upright": 0.5,
    "height": 0.3,
    "stance": 1.0,
    "lift": 1.0,
    "knees": 0.3,
    "slip": 0.2,
    "sway": 0.2,
    "posture": 0.3,
    "smooth": 0.5,
    "effort": 0.05,
}
JOINTS = ["$joints"]
LOADED = 100.0  # N, a foot that bears
NORMAL = 0.4  # rad, knees of a normal walk in stance
TURN = 1.0  # m before the place of a turn at which it begins


def knee(state, thigh, shank, foot):
    """rad, 0 when the leg is straight."""
    upper, lower = state.pos(thigh) - state.pos(shank), state.pos(foot) - state.pos(shank)
    cosine = upper @ lower / (jnp.linalg.norm(upper) * jnp.linalg.norm(lower) + 1e-6)
    return jnp.pi - jnp.arccos(jnp.clip(cosine, -0.9999, 0.9999))


def reward(state, action):
    start = state.initial
    place = state.goal("turn_pos")
    turned = jnp.clip((state.com[0] - place[0] + TURN) / TURN, 0.0, 1.0)
    heading = turned * state.goal("heading")
    ahead, aside = (jnp.stack([jnp.cos(heading), jnp.sin(heading)]), jnp.stack([-jnp.sin(heading), jnp.cos(heading)]))
    # off the line: along x before a turn, through its place after it
    off = (1.0 - turned) * (state.com - start.com)[1] + turned * (place[0] - state.com[0])
    speed = jnp.linalg.norm(state.goal("velocity"))
    wanted = speed * ahead - jnp.clip(off, -0.4, 0.4) * aside
    lost = jnp.sum((state.com_vel[:2] - wanted) ** 2)
    facing = state.rot("$pelvis") @ start.rot("$pelvis").T
    yaw = jnp.arctan2(facing[1, 0], facing[0, 0]) - heading
    # each foot swings for 40 % of a stride, half a stride after the other
    wave = (jnp.sin(2.0 * jnp.pi * state.gait_phase) - 0.3) / 0.7
    swings = jnp.clip(wave / 0.4, 0.0, 1.0)
    feet = jnp.stack([state.pos("$left_foot"), state.pos("$right_foot")])
    moving = jnp.stack([state.vel("$left_foot"), state.vel("$right_foot")])
    loads = jnp.clip(jnp.stack([state.touch("left_foot"), state.touch("right_foot")]) / LOADED, 0.0, 1.0)
    floor = jnp.min(feet[:, 2])
    lifted = (feet[:, 2] - floor) / state.goal("lift")
    bent = jnp.stack(
        [
            knee(state, "$left_thigh", "$left_shank", "$left_foot"),
            knee(state, "$right_thigh", "$right_shank", "$right_foot"),
        ]
    )
    standing = start.pos("$pelvis")[2] - start.pos("$left_foot")[2]
    moved = sum((state.q(j) - start.q(j)) ** 2 for j in JOINTS) / len(JOINTS)
    return {
        "velocity": 0.5 * jnp.exp(-lost) + 0.5 * jnp.exp(-6.0 * lost),  # felt from afar, and exact
        "heading": shaping.gaussian(jnp.sin(0.5 * yaw), 0.15),
        "straight": shaping.gaussian(off, 0.3),
        "upright": shaping.gaussian(jnp.linalg.norm(facing[:2, 2]), 0.2),
        "height": shaping.gaussian(state.pos("$pelvis")[2] - floor - standing, 0.08),
        "stance": jnp.mean(swings * (1.0 - loads) + (1.0 - swings) * loads),
        "lift": -jnp.mean(jnp.minimum(jnp.abs(lifted - jnp.maximum(wave, 0.0)), 1.0)),
        # the straighter the knees should be, the more it counts
        "knees": jnp.mean(1.0 - swings)
        - (NORMAL / state.goal("stance_knee")) ** 2
        * jnp.mean((1.0 - swings) * jnp.abs(bent - state.goal("stance_knee"))),
        "slip": -jnp.sum(loads * jnp.sum(moving[:, :2] ** 2, axis=1)),
        "sway": -0.2 * jnp.sum(state.angvel("$pelvis")[:2] ** 2) - state.com_vel[2] ** 2,
        "posture": -moved,
        "smooth": -jnp.mean((action - state.prev_action) ** 2),
        "effort": -jnp.mean(action**2),
    }
