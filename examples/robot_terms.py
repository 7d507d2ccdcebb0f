"""The usual terms of rewards for legged robots, for the package's robot. From the project's root:

python -m movlr_jax.evaluate +task=humanoid_walk reward=examples/robot_terms.py optimizer=ppo

The hand-written reward of the task has fewer. Torques in N m and speeds in rad/s are squared, so their weights are
small. A reward sees one instant, so the gait clock says which foot is to be in the air, and the only acceleration is
that of the inertial unit.
"""

WEIGHTS = {
    "velocity": 1.0,
    "hard_tracking": 0.5,
    "low_speed": 0.2,
    "heading": 0.5,
    "upright": 0.5,
    "height": 0.2,
    "air": 1.0,
    "clearance": 0.5,
    "feet_apart": 0.2,
    "knees_apart": 0.2,
    "ankles": 0.2,
    "toes": 0.2,
    "slip": 0.2,
    "torques": 1e-5,
    "joint_speed": 1e-4,
    "spin": 0.05,
    "shaking": 1e-4,
    "smooth": 0.2,
    "posture": 0.2,
}
SIDES = ("left", "right")
MOTORS = ("hip_yaw", "hip_roll", "hip_pitch", "knee", "ankle_pitch", "ankle_roll")
JOINTS = [f"{side}_{motor}" for side in SIDES for motor in MOTORS]
LOADED = 100.0  # N, a foot that bears
APART = (0.16, 0.3)  # m, least and largest distance of the feet, and of the knees, across the heading
GRAVITY = 9.81  # m/s^2


def outside(distance, low, high):
    """m by which a distance is outside a range."""
    return jnp.maximum(low - distance, 0.0) + jnp.maximum(distance - high, 0.0)


def reward(state, action):
    start, goal = state.initial, state.goal("velocity")
    heading = state.goal("heading")
    ahead = jnp.stack([jnp.cos(heading), jnp.sin(heading)])
    aside = jnp.stack([-jnp.sin(heading), jnp.cos(heading)])
    wanted, speed = jnp.linalg.norm(goal), state.com_vel[:2] @ ahead
    lost = jnp.sum((state.com_vel[:2] - wanted * ahead) ** 2)
    facing = state.rot("pelvis") @ start.rot("pelvis").T
    yaw = jnp.arctan2(facing[1, 0], facing[0, 0]) - heading
    feet = [state.pos(f"{side}_foot") for side in SIDES]
    knees = [state.pos(f"{side}_shank") for side in SIDES]
    toes = [(state.pos(f"{side}_toes") - foot)[:2] for side, foot in zip(SIDES, feet, strict=True)]
    loads = jnp.clip(jnp.stack([state.touch(f"{side}_foot") for side in SIDES]) / LOADED, 0.0, 1.0)
    swings = jnp.clip(jnp.sin(2.0 * jnp.pi * state.gait_phase) / 0.4, 0.0, 1.0)
    floor = jnp.minimum(feet[0][2], feet[1][2])
    lifted = jnp.stack([foot[2] - floor for foot in feet])
    sliding = jnp.stack([jnp.sum(state.vel(f"{side}_foot")[:2] ** 2) for side in SIDES])
    tilted = jnp.stack([state.rot(f"{side}_foot")[2, 2] for side in SIDES])
    standing = start.pos("pelvis")[2] - jnp.minimum(start.pos("left_foot")[2], start.pos("right_foot")[2])
    pushed = state.sensor("imu_acceleration")
    return {
        "velocity": jnp.exp(-lost / 0.25),
        "hard_tracking": jnp.exp(-10.0 * lost) - 0.2 * jnp.sqrt(lost + 1e-8),
        # slower than half of the goal costs 1, close to it is free, backward costs 2
        "low_speed": -jnp.where(speed < 0.0, 2.0, jnp.where(speed < 0.5 * wanted, 1.0, 0.0)),
        "heading": jnp.exp(-10.0 * jnp.sin(0.5 * yaw) ** 2),
        "upright": jnp.exp(-5.0 * jnp.sum(facing[:2, 2] ** 2)),
        "height": jnp.exp(-100.0 * (state.pos("pelvis")[2] - floor - standing) ** 2),
        "air": jnp.mean(swings * (1.0 - loads) + (1.0 - swings) * loads),
        "clearance": -jnp.mean(swings * jnp.abs(lifted - state.goal("lift") * swings)) / state.goal("lift"),
        "feet_apart": -10.0 * outside(jnp.abs((feet[0] - feet[1])[:2] @ aside), *APART),
        "knees_apart": -10.0 * outside(jnp.abs((knees[0] - knees[1])[:2] @ aside), *APART),
        "ankles": jnp.mean(loads * jnp.exp(-20.0 * (1.0 - tilted))),
        "toes": jnp.mean(jnp.stack([toe @ ahead / (jnp.linalg.norm(toe) + 1e-6) for toe in toes])),
        "slip": -jnp.sum(loads * sliding),
        "torques": -sum(state.force(joint) ** 2 for joint in JOINTS),
        "joint_speed": -sum(state.qd(joint) ** 2 for joint in JOINTS),
        "spin": -jnp.sum(state.angvel("pelvis")[:2] ** 2),
        "shaking": -((jnp.linalg.norm(pushed) - GRAVITY) ** 2),
        "smooth": -jnp.mean((action - state.prev_action) ** 2),
        "posture": -sum((state.q(joint) - start.q(joint)) ** 2 for joint in JOINTS) / len(JOINTS),
    }
