"""Environments of MuJoCo Playground as tasks: their model and start, our rewards and measures.

What an environment is for is told in a sentence and measured in one of two ways: something is to be at a place, or
the body is to move at a speed and not to fall. Its own reward is not used. Where neither is known, the task says so
and asks to keep the start posture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import mujoco
import numpy as np

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.resources import resource_dir
from movlr_jax.tasks.base import Metrics, Task, fill_reward
from movlr_jax.tasks.motion import FALLEN
from movlr_jax.tasks.playground.models import Environment, load_environment
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.simple import simple_task
from movlr_jax.tasks.walking import locomotion
from movlr_jax.types import Trajectory

STARTS = ("auto", "reset", "home")
_FLAT = "whether it stays up, how steadily it moves, and how calm its limbs are"


@dataclass(frozen=True)
class EnvironmentGoal:
    """What an environment asks for. speed m/s: to move along +x, 0 to stand, None for neither."""

    description: str
    speed: float | None = None
    goals: Mapping[str, object] = field(default_factory=dict)
    sites: Mapping[str, tuple[str, tuple[float, float, float]]] = field(
        default_factory=dict
    )  # added: name -> body, m
    tolerance_m: float = 0.05


_TIP = {"tip": ("pole_1", (0.0, 0.0, 1.0))}
_UP = {"tip_pos": (0.0, 0.0, 2.0)}
GOALS: Mapping[str, EnvironmentGoal] = {
    "CartpoleBalance": EnvironmentGoal(
        "balance the pole upright on the cart, in the middle of the rail", None, _UP, _TIP, 0.1
    ),
    "CartpoleSwingup": EnvironmentGoal(
        "swing the pole up and balance it in the middle of the rail", None, _UP, _TIP, 0.1
    ),
    "PendulumSwingup": EnvironmentGoal(
        "swing the pendulum up and hold it upright",
        None,
        {"tip_pos": (0.0, 0.0, 1.1)},
        {"tip": ("pole", (0.0, 0.0, 0.5))},
        0.1,
    ),
    "AcrobotSwingup": EnvironmentGoal(
        "swing the two links up and hold the tip at the top", None, {"tip_pos": "target"}, {}, 0.2
    ),
    "BallInCup": EnvironmentGoal("swing the ball into the cup", None, {"ball_pos": "target"}),
    "PointMass": EnvironmentGoal(
        "bring the point to the middle", None, {"pointmass_pos": (0.0, 0.0, 0.01)}, {}, 0.015
    ),
    "ReacherEasy": EnvironmentGoal(
        "bring the finger to the target", None, {"finger_pos": "target"}, {}, 0.05
    ),
    "ReacherHard": EnvironmentGoal(
        "bring the finger to the small target", None, {"finger_pos": "target"}, {}, 0.015
    ),
    "FingerTurnEasy": EnvironmentGoal(
        "turn the body with the finger until its tip is at the target", None, {"tip_pos": "target"}
    ),
    "FingerTurnHard": EnvironmentGoal(
        "turn the body with the finger until its tip is at the small target",
        None,
        {"tip_pos": "target"},
        {},
        0.03,
    ),
    "FishSwim": EnvironmentGoal(
        "swim upright until the mouth is at the target",
        None,
        {"mouth_pos": "target"},
        {"mouth": ("torso", (0.0, 0.075, 0.0))},
    ),
    "SwimmerSwimmer6": EnvironmentGoal(
        "swim until the nose is at the target",
        None,
        {"nose_pos": "target"},
        {"nose": ("head", (0.0, -0.06, 0.0))},
        0.1,
    ),
    "CheetahRun": EnvironmentGoal("run forward as fast as 10 m/s", 10.0),
    "HopperHop": EnvironmentGoal("hop forward at about 2 m/s", 2.0),
    "HopperStand": EnvironmentGoal("stand upright on the foot", 0.0),
    "HumanoidStand": EnvironmentGoal("stand still and upright", 0.0),
    "HumanoidWalk": EnvironmentGoal("walk forward at about 1 m/s", 1.0),
    "HumanoidRun": EnvironmentGoal("run forward at 10 m/s", 10.0),
    "WalkerStand": EnvironmentGoal("stand still and upright", 0.0),
    "WalkerWalk": EnvironmentGoal("walk forward at about 1 m/s", 1.0),
    "WalkerRun": EnvironmentGoal("run forward at about 8 m/s", 8.0),
}


def aim_of(env: str) -> EnvironmentGoal:
    """What is known of an environment by its name."""
    name = env.removesuffix("Sparse")
    if name in GOALS:
        return GOALS[name]
    if "Inplace" in name or "Getup" in name:
        return EnvironmentGoal("stand still and upright", 0.0)
    if "Joystick" in name or "GaitTracking" in name:
        return EnvironmentGoal("walk forward at about 0.5 m/s", 0.5)
    return EnvironmentGoal(f"keep the posture of the start (nothing is known here of what {env} asks for)")


def playground(
    *,
    episode_s: float,
    env: str | None = None,
    start: str = "auto",
    start_noise: float = 0.01,
    reset_seed: int = 0,
    description: str | None = None,
) -> Task:
    """The environment `env` of MuJoCo Playground.

    start: `reset` as the environment's own reset draws it; `home` its first keyframe, or its zero posture, with
    noise; `auto` is home where a body is to move or stand (walkers are reset lying any way), else reset.
    reset_seed: of the reset that places targets. description: a sentence of your own about the motion.
    """
    if not env:
        raise UserError("task=playground needs an environment: give env=NAME, as in env=CartpoleBalance")
    if start not in STARTS:
        raise UserError(unknown_name("task.settings.start", start, STARTS))
    if start_noise < 0:
        raise UserError(f"task.settings.start_noise={start_noise:g}: it must be 0 or more")
    aim, taken = aim_of(env), load_environment(env, reset_seed)
    moves = aim.speed is not None
    goal = locomotion.WalkGoal(env, aim.description, _FLAT, aim.speed or 0.0)
    goals = dict(aim.goals)
    if moves:
        goals |= {"velocity": (goal.speed, 0.0, 0.0), "heading": 0.0, "slope": 0.0}
    task = simple_task(
        name=env,
        model=taken.spec,
        description=description or aim.description,
        focus=_FLAT if moves else "",
        goals=goals,
        start=partial(_reset, taken) if start == "reset" or (start == "auto" and not moves) else None,
        start_noise=start_noise,
        score=partial(locomotion.score, goal=goal, episode_s=episode_s) if moves else None,
        diagnose=partial(locomotion.diagnose, goal=goal) if moves else None,
        tolerance_m=aim.tolerance_m,
        scene=partial(_add_sites, aim),
        notes=(
            f"{env}: MuJoCo Playground, Apache-2.0; robots' meshes under the licences of MuJoCo Menagerie",
        ),
        episode_s=episode_s,
    )
    if moves:
        task = replace(task, measure=partial(moved, goal=goal))
    elif not aim.goals:
        task = replace(task, measure=kept)
    return _with_rewards(task, env, moves)


def _with_rewards(task: Task, env: str, moves: bool) -> Task:
    """The hand-made reward of the environment's family, where there is one; one for every mover else."""
    folder, roles = resource_dir("assets") / "rewards" / "playground", {"root": task.adapter.root}
    family = re.match(r"[A-Z]?[a-z]*\d?", env)
    named = folder / f"{family.group().lower() if family else ''}.py"
    path = named if named.is_file() else folder / "move.py"
    if not (named.is_file() or moves):
        return task
    human = fill_reward(path.read_text(encoding="utf-8"), roles)
    first = (folder / "move_initial.py").read_text(encoding="utf-8") if moves else task.initial_reward
    return replace(task, human_reward=human, initial_reward=fill_reward(first, roles))


def _add_sites(aim: EnvironmentGoal, spec: mujoco.MjSpec) -> None:
    """The points that are to be somewhere, where the model has no name for them."""
    for name, (body, place) in aim.sites.items():
        spec.body(body).add_site(name=name, pos=place, size=[0.01, 0, 0], group=5)


def _reset(taken: Environment, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    drawn = [taken.reset(int(number)) for number in rng.integers(2**31, size=n)]
    qpos, qvel = (np.array(part) for part in zip(*drawn, strict=True))
    return qpos, qvel, np.zeros((n, taken.na))


def moved(episode: Trajectory, task: Task, goal: locomotion.WalkGoal) -> Metrics:
    """Measures of a body that is to move along +x, or to stand; what it does after a fall does not count."""
    read = Readout(task.layout, episode.steps)
    time, pos, rot = read.time, read.pos(task.adapter.root), read.rot(task.adapter.root)
    down = np.flatnonzero(pos[:, 2] < FALLEN * pos[0, 2])
    last = max(int(down[0]) - 1, 0) if len(down) else len(time) - 1
    travelled = pos[last] - pos[0]
    turned = rot[last] @ rot[0].T
    metrics = {
        "fell": float(len(down) > 0),
        "distance_m": float(travelled[0]),
        "lateral_drift_m": float(abs(travelled[1])),
        "heading_change_rad": float(np.arctan2(turned[1, 0], turned[0, 0])),
        "mean_speed_m_s": float(travelled[0] / max(time[last] - time[0], 1e-6)),
    }
    if len(down):
        metrics["time_to_fall_s"] = float(time[last] - time[0])
    return {"success": float(locomotion.succeeded(metrics, goal)), **metrics}


def kept(episode: Trajectory, task: Task) -> Metrics:
    """How far the driven joints are from where they began, at the end: the root of the mean square, rad."""
    columns = [task.model.joint(joint).qposadr[0] for joint in task.adapter.planned_joints]
    qpos = np.asarray(episode.steps.qpos)[:, columns]
    return {"posture_error_rad": float(np.sqrt(np.mean(np.square(qpos[-1] - qpos[0])))) if columns else 0.0}
