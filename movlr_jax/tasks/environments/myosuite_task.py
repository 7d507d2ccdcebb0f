"""Environments of MyoSuite as tasks."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import mujoco
import numpy as np

from movlr_jax.errors import UserError, needed, unknown_name
from movlr_jax.models.actuators import muscles
from movlr_jax.models.spec import compile_spec, compiled_specs, quiet
from movlr_jax.rewards.term import quoted
from movlr_jax.tasks.base import Task
from movlr_jax.tasks.environments.replay import ActionMap, Environment, environment_task, matched

# what the families of environments reward, in words that are read without a language model
DESCRIPTIONS: Mapping[str, str] = {
    "ArmReach": "touch the target with the tip of the forearm",
    "ElbowPose": "bring the elbow to the target angle",
    "FingerPose": "bring the joints of the finger to the target angles",
    "FingerReach": "touch the target with the fingertip",
    "HandKeyTurn": "turn the key with the thumb and the index finger",
    "HandObjHold": "hold the object at the goal",
    "HandPenTwirl": "turn the pen in the hand to the target direction, without dropping it",
    "HandPose": "bring the joints of the hand to the target angles",
    "HandReach": "bring the fingertips to their targets",
    "HandReorient": "turn the object in the hand to the target direction, without dropping it",
    "LegDirectional": "walk in the target direction",
    "LegStand": "stand with the pelvis at the target",
    "Walk": "walk along -y at 1.2 m/s without a fall",
    "TorsoExoPose": "bring the trunk to the target angles",
    "TorsoPose": "bring the trunk to the target angles",
    "ChallengeBaoding": "turn the two balls around each other in the palm",
    "ChallengeDieReorient": "turn the die in the hand to the target orientation",
    "ChallengeRelocate": "bring the object to the target position and orientation",
}
POSE_REWARD = '''"""{description}"""

WEIGHTS = {{"pose": 1.0, "control": 0.01}}


def reward(state, action):
    target = state.goal("target_angles")
    return {{
        "pose": -jnp.linalg.norm(state.qpos[: target.shape[0]] - target),
        "control": -jnp.mean(jnp.square(action)),
    }}
'''
_EXAMPLE = "env=myoHandPoseFixed-v0"
_SOLVED_STEPS = 5  # as in MyoSuite's own evaluate_success
_FAR = {"PoseEnvV0": 2 * np.pi, "TorsoEnvV0": np.pi}  # rad, distance of postures that ends an episode
_NEAR = 0.0125  # m for each site, distance that solves a reach


def myosuite_task(
    *, episode_s: float, env: str | None = None, reset_seed: int = 0, description: str | None = None
) -> Task:
    """Build the task for the environment `env` of MyoSuite. Raises UserError.

    reset_seed: seed of the reset that draws targets, objects and terrain; start states are drawn anew for each trial.
    description: what the environment rewards, in words, for the proposer and the judge.
    """
    environment, spec = _opened(env, reset_seed)
    world, name = environment.world, environment.env
    words = description or next((text for part, text in DESCRIPTIONS.items() if part in name), None)
    if not words:
        raise UserError(f'say what env={env} rewards, as in task.settings.description="walk forward"')
    targets = _targets(world)
    goals = _goals(world, targets)
    first = POSE_REWARD.format(description=words) if "target_angles" in goals and len(goals) == 1 else None
    return environment_task(
        environment,
        spec,
        description=words,
        episode_s=episode_s,
        goals=goals,
        reward=first,
        own_reward=_own_reward(world, targets, words.capitalize()),
    )


def settings_of(env: str | None) -> dict[str, float]:
    """Return the settings that suit an environment, by their names: its time steps and its length, s."""
    environment, _ = _opened(env)
    steps = import_module("gymnasium").spec(env).max_episode_steps
    return {**environment.timing(), "episode_s": round(steps * environment.ctrl_dt, 9)}


def _opened(env: str | None, seed: int = 0) -> tuple[Environment, mujoco.MjSpec]:
    """Return the environment `env` without wrappers, after the reset with `seed`, and its model. Raises UserError."""
    if not env:
        raise UserError(f"task=myosuite needs an environment; set env=NAME, as in {_EXAMPLE}")
    with needed("task=myosuite", "myosuite"):
        import gymnasium
        import myosuite  # pyright: ignore[reportMissingImports]
    known = myosuite.register_all_envs()["all"]
    if env not in known:
        raise UserError(unknown_name("env", env, known))
    try:
        with quiet(), contextlib.redirect_stdout(io.StringIO()), compiled_specs() as made:
            world: Any = gymnasium.make(env).unwrapped
            specs = list(made)
            if world.action_space.shape != (world.model.nu,):
                raise UserError(f"env={env} has not one action for each actuator, so it cannot be a task")
            actions = _action_map(world, env)
            world.reset(seed=seed)
    except UserError:
        raise
    except Exception as error:  # an environment may raise anything
        sentence = " ".join(str(error).split())
        raise UserError(f"env={env} cannot be a task: {type(error).__name__}: {sentence}") from error
    spec = next((spec for spec in reversed(specs) if compile_spec(spec).names == world.model.names), None)
    if spec is None:
        raise UserError(f"env={env} does not make its model with MjSpec, so it cannot be a task")
    spec = matched(spec.copy(), world.model, env)
    for actuator in spec.actuators:  # our controls reach as far as the actions of the environment
        actuator.ctrlrange = actions.low[actuator.id], actions.high[actuator.id]
        actuator.ctrllimited = True
    return Environment(env, world, seed, actions.actions, _SOLVED_STEPS), spec


def _action_map(world: Any, env: str) -> ActionMap:
    """Return how the environment makes controls of actions, from the controls after a few. Raises UserError."""
    if stages := getattr(world, "ctrl_stages", ()):
        raise UserError(
            f"env={env} changes the controls of muscles ({', '.join(stages)}), which our physics does not "
            "simulate, so it cannot be a task"
        )
    low, high = (np.asarray(bound, float) for bound in (world.action_space.low, world.action_space.high))
    rng = np.random.default_rng(0)
    given = np.array([low, high, *(rng.uniform(low, high) for _ in range(3))])
    made = []
    for action in given:
        world.reset(seed=0)
        world.step(action)
        made.append(world.data.ctrl.copy())
    return ActionMap.fitted(given, np.array(made), [world.model.actuator(i).name for i in range(world.model.nu)], env)


def _targets(world: Any) -> dict[str, str]:
    """Return for each site with a target the name of its goal; one in `_pos` would be that of a body of this name."""
    bodies = {world.model.body(b).name for b in range(world.model.nbody)}
    tips = [world.model.site(tip).name for tip in getattr(world, "tip_sids", ())]
    return {tip: f"{tip}_target" if tip in bodies else f"{tip}_pos" for tip in tips}


def _goals(world: Any, targets: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return the targets of an environment after its reset, by the names of goals. targets: those of its sites."""
    goals = {
        name: np.asarray(value, float)
        for name, value in world._task_state.items()
        if np.asarray(value).dtype.kind in "fi"
    }
    if (angles := getattr(world, "target_jnt_value", None)) is not None:
        goals.setdefault("target_angles", np.asarray(angles, float))
    if not goals:
        places = world.data.site_xpos[world.target_sids] if targets else ()
        goals = dict(zip(targets.values(), np.array(places), strict=True))
    if hasattr(world, "target_y_vel"):  # the environments measure velocities backwards
        goals["velocity"] = np.array([-world.target_x_vel, -world.target_y_vel, 0.0])
    return goals


def _own_reward(world: Any, targets: Mapping[str, str], description: str) -> str:
    """Return the reward of an environment that poses, reaches or holds an object as a program; "" for others.

    targets: site -> name of its target's goal, of an environment that reaches.
    """
    kind, model, n = type(world).__name__, world.model, len(targets)
    if kind in _FAR:
        error = f'state.goal("target_angles") - state.qpos[:{len(world.target_jnt_value)}]'
        name, near, wider, far = "pose", world.pose_thd, 1.5, f"distance > {_FAR[kind]:.9g}"
    elif kind == "ReachEnvV0":
        parts = (f"state.goal({quoted(goal)}) - state.site({quoted(tip)})" for tip, goal in targets.items())
        error = f"jnp.concatenate([{', '.join(parts)}])"
        begun = f"jnp.where(state.time > {2 * world.dt:.9g}, distance, 0.0)"
        name, near, wider, far = "reach", _NEAR * n, 2.0, f"{begun} > {world.far_th * n:.9g}"
    elif kind.startswith("ObjHold"):
        error = 'state.site("goal") - state.site("object")'
        name, near, wider, far = "goal_dist", 0.01, 2.0, "distance > 0.3"
    else:
        return ""
    acting = [f"state.activation({quoted(model.actuator(i).name)})" for i in np.flatnonzero(muscles(model))]
    activations = "state.muscles" if len(acting) == model.nu else f"jnp.stack([{', '.join(acting)}])"
    terms = {
        name: "-distance",
        "bonus": f"jnp.where(distance < {near:.9g}, 1.0, 0.0) + jnp.where(distance < {wider * near:.9g}, 1.0, 0.0)",
        "penalty": f"-jnp.where({far}, 1.0, 0.0)",
        "act_reg": f"-jnp.linalg.norm({activations}) / {model.na}" if acting else "jnp.zeros(())",
    }
    weights = {term: float(world.rwd_keys_wt[term]) for term in terms if world.rwd_keys_wt.get(term)}
    lines = "\n".join(f"        {quoted(term)}: {terms[term]}," for term in weights)
    shown = ", ".join(f"{quoted(term)}: {weight:g}" for term, weight in weights.items())
    return (
        f'"""{description}, as MyoSuite rewards it."""\n\nWEIGHTS = {{{shown}}}\n\n\ndef reward(state, action):\n'
        f"    distance = jnp.linalg.norm({error})\n    return {{\n{lines}\n    }}\n"
    )
