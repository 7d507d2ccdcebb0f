"""Walk at the goal's velocity, balanced over the feet, on legs that keep to the recorded stride."""

WEIGHTS = {
    "balance": 4.0,
    "sideways": 8.0,
    "apart": 6.0,
    "velocity": 2.0,
    "line": 1.0,
    "upright": 4.0,
    "height": 6.0,
    "heading": 1.0,
    "legs": 3.0,
    "support": 1.0,
}
LEGS = ("hip_flexion_r", "hip_flexion_l", "knee_angle_r", "knee_angle_l", "ankle_angle_r", "ankle_angle_l")
LOADED = 100.0  # N, a foot that bears


def reward(state, action):
    start = state.initial
    goal = state.goal("velocity")[:2] * jnp.minimum(1.0, state.time + 0.1)
    left, right = state.pos("$left_foot")[:2], state.pos("$right_foot")[:2]
    # where the body comes to lie over the feet if it goes on at more or less than the goal's velocity
    over = state.com[:2] + 0.3 * (state.com_vel[:2] - goal) - 0.5 * (left + right)
    width = (left - right)[1]
    facing = state.rot("$pelvis") @ start.rot("$pelvis").T
    moved = state.pos("$pelvis") - start.pos("$pelvis")
    # as in the recorded stride, feet swing from 0.12 to 0.5 of the phase
    phase = state.gait_phase
    swings = jnp.where((phase > 0.14) & (phase < 0.47), 1.0, 0.0)
    stands = jnp.where((phase > 0.505) | (phase < 0.11), 1.0, 0.0)
    loads = jnp.clip(jnp.stack([state.touch("left_foot"), state.touch("right_foot")]) / LOADED, 0.0, 1.0)
    return {
        "balance": -shaping.smooth_abs(over[0]),
        "sideways": -shaping.smooth_abs(over[1]),
        "apart": -jax.nn.relu(0.14 - width) - jax.nn.relu(width - 0.3),
        "velocity": -jnp.linalg.norm(state.com_vel[:2] - goal),
        "line": -shaping.smooth_abs((state.com - start.com)[1]),
        "upright": -jnp.linalg.norm(facing[:2, 2]),
        "height": -jnp.abs(moved[2] - state.goal("slope") * moved[0]),
        "heading": -jnp.abs(facing[1, 0]),
        "legs": -sum(jnp.abs(state.q(j) - state.reference(j)) for j in LEGS) / 6.0,
        "support": jnp.mean(stands * loads - swings * loads),
    }
