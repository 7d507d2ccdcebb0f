"""Environments of MuJoCo Playground as tasks: their models and start states, with rewards and measures of their own.

Each environment has a description and one of two kinds of measures: a target position, or a speed without a fall.
Its own reward, from its own code, is the score; see `models.OwnReward`. For environments without a known goal, the
goal is to keep the start posture, and the description says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import mujoco
import numpy as np

from movlr_jax._util.resources import resource_dir
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.tasks.base import TIE, Metrics, Task, fill_reward
from movlr_jax.tasks.environments.replay import BY_RETURN
from movlr_jax.tasks.playground.models import Environment, OwnReward, load_environment
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.simple import simple_task
from movlr_jax.tasks.walking import locomotion
from movlr_jax.tasks.words.sentence import FALLEN
from movlr_jax.types import Trajectory

STARTS = ("auto", "reset", "home")
MEASURED_BY = ("environment", "task")
_FOCUS = "whether it stays up, how steadily it moves, and how calm its limbs are"


@dataclass(frozen=True)
class EnvironmentGoal:
    """The goal of an environment. speed: m/s along +x, 0 to stand, None for no locomotion.

    rewarded: file of the environment's own reward as a program, in assets/rewards/playground/environment; "" without.
    """

    description: str
    speed: float | None = None
    goals: Mapping[str, object] = field(default_factory=dict)
    # sites to add: name -> (body, position [3] m)
    sites: Mapping[str, tuple[str, tuple[float, float, float]]] = field(default_factory=dict)
    tolerance_m: float = 0.05
    rewarded: str = ""


_TIP = {"tip": ("pole_1", (0.0, 0.0, 1.0))}
_UP = {"tip_pos": (0.0, 0.0, 2.0)}
GOALS: Mapping[str, EnvironmentGoal] = {
    "CartpoleBalance": EnvironmentGoal(
        "balance the pole upright on the cart, in the middle of the rail", None, _UP, _TIP, 0.1, rewarded="cartpole"
    ),
    "CartpoleSwingup": EnvironmentGoal(
        "swing the pole up and balance it in the middle of the rail", None, _UP, _TIP, 0.1, rewarded="cartpole"
    ),
    "PendulumSwingup": EnvironmentGoal(
        "swing the pendulum up and hold it upright",
        None,
        {"tip_pos": (0.0, 0.0, 1.1)},
        {"tip": ("pole", (0.0, 0.0, 0.5))},
        0.1,
        rewarded="pendulum",
    ),
    "AcrobotSwingup": EnvironmentGoal(
        "swing the two links up and hold the tip at the top", None, {"tip_pos": "target"}, {}, 0.2, rewarded="acrobot"
    ),
    "BallInCup": EnvironmentGoal("swing the ball into the cup", None, {"ball_pos": "target"}),
    "PointMass": EnvironmentGoal(
        "bring the point to the middle", None, {"pointmass_pos": (0.0, 0.0, 0.01)}, {}, 0.015, rewarded="pointmass"
    ),
    "ReacherEasy": EnvironmentGoal("bring the finger to the target", None, {"finger_pos": "target"}, {}, 0.05),
    "ReacherHard": EnvironmentGoal("bring the finger to the small target", None, {"finger_pos": "target"}, {}, 0.015),
    "FingerTurnEasy": EnvironmentGoal(
        "turn the body with the finger until its tip is at the target", None, {"tip_pos": "target"}
    ),
    "FingerTurnHard": EnvironmentGoal(
        "turn the body with the finger until its tip is at the small target", None, {"tip_pos": "target"}, {}, 0.03
    ),
    "FishSwim": EnvironmentGoal(
        "swim upright until the mouth is at the target",
        None,
        {"mouth_pos": "target"},
        {"mouth": ("torso", (0.0, 0.075, 0.0))},
        rewarded="fish_swim",
    ),
    "SwimmerSwimmer6": EnvironmentGoal(
        "swim until the nose is at the target",
        None,
        {"nose_pos": "target"},
        {"nose": ("head", (0.0, -0.06, 0.0))},
        0.1,
        rewarded="swimmer",
    ),
    "CheetahRun": EnvironmentGoal("run forward as fast as 10 m/s", 10.0, rewarded="cheetah_run"),
    "HopperHop": EnvironmentGoal("hop forward at about 2 m/s", 2.0, rewarded="hopper_hop"),
    "HopperStand": EnvironmentGoal("stand upright on the foot", 0.0, rewarded="hopper_stand"),
    "HumanoidStand": EnvironmentGoal("stand still and upright", 0.0, rewarded="humanoid_stand"),
    "HumanoidWalk": EnvironmentGoal("walk forward at about 1 m/s", 1.0, rewarded="humanoid_move"),
    "HumanoidRun": EnvironmentGoal("run forward at 10 m/s", 10.0, rewarded="humanoid_move"),
    "WalkerStand": EnvironmentGoal("stand still and upright", 0.0, rewarded="walker_stand"),
    "WalkerWalk": EnvironmentGoal("walk forward at about 1 m/s", 1.0, rewarded="walker_move"),
    "WalkerRun": EnvironmentGoal("run forward at about 8 m/s", 8.0, rewarded="walker_move"),
}


def goal_of(env: str) -> EnvironmentGoal:
    """Return the goal of an environment, by its name."""
    name = env.removesuffix("Sparse")
    if name in GOALS:
        return GOALS[name]
    if "Inplace" in name or "Getup" in name:
        return EnvironmentGoal("stand still and upright", 0.0)
    if "Joystick" in name or "GaitTracking" in name:
        return EnvironmentGoal("walk forward at about 0.5 m/s", 0.5)
    return EnvironmentGoal(f"keep the start posture (the goal of {env} is not known to this package)")


def playground(
    *,
    episode_s: float,
    env: str | None = None,
    start: str = "auto",
    start_noise: float = 0.01,
    reset_seed: int = 0,
    measured_by: str = "environment",
    description: str | None = None,
) -> Task:
    """Build the task for the environment `env` of MuJoCo Playground. Raises UserError.

    start: `reset` draws start states with the reset of the environment; `home` uses its first keyframe, or its zero
    posture, with noise; `auto` is `home` for locomotion (where resets put bodies in random poses), else `reset`.
    reset_seed: seed of the reset that places targets. measured_by: `environment` adds the environment's own rewards
    and metrics to the measures, and their sum is the score; `task` leaves them out.
    description: replaces the default description.
    """
    if start not in STARTS:
        raise UserError(unknown_name("task.settings.start", start, STARTS))
    if measured_by not in MEASURED_BY:
        raise UserError(unknown_name("task.settings.measured_by", measured_by, MEASURED_BY))
    if start_noise < 0:
        raise UserError(f"task.settings.start_noise={start_noise:g}: it must be 0 or more")
    taken = load_environment(env, reset_seed)
    aim = goal_of(taken.name)
    moves = aim.speed is not None
    goal = locomotion.WalkGoal(taken.name, aim.description, _FOCUS, aim.speed or 0.0)
    goals = dict(aim.goals)
    if moves:
        goals |= {"velocity": (goal.speed, 0.0, 0.0), "heading": 0.0, "slope": 0.0}
    task = simple_task(
        name=taken.name,
        model=taken.spec,
        description=description or aim.description,
        goals=goals,
        start=partial(_reset, taken) if start == "reset" or (start == "auto" and not moves) else None,
        start_noise=start_noise,
        score=partial(locomotion.score, goal=goal, episode_s=episode_s) if moves else None,
        tie=TIE,
        tolerance_m=aim.tolerance_m,
        scene=partial(_add_sites, aim),
        episode_s=episode_s,
    )
    licence = f"{taken.name}: MuJoCo Playground, Apache-2.0; robot meshes under the licences of MuJoCo Menagerie"
    task = task.replace(notes=(licence,))
    if moves:
        needs = partial(locomotion.diagnose, goal=goal)
        task = task.replace(focus=_FOCUS, measure=partial(moved, goal=goal), diagnose=needs)
    elif not aim.goals:
        task = task.replace(measure=kept)
    if measured_by == "environment":
        both = partial(_both, task.scoring.measure, taken.own)
        task = task.replace(measure=both, score=_return, focus=BY_RETURN, tie=0.0, holds_controls=True)
    if aim.rewarded:
        own = resource_dir("assets") / "rewards" / "playground" / "environment" / f"{aim.rewarded}.py"
        task = task.replace(environment=own.read_text(encoding="utf-8"))
    return _with_rewards(task, taken.name, moves)


def _both(measure: Callable[[Trajectory, Task], Metrics], own: OwnReward, episode: Trajectory, task: Task) -> Metrics:
    """Return the measures of this package and those of the environment itself."""
    return measure(episode, task) | own.measure(episode)


def _return(metrics: Metrics) -> float:
    return metrics["environment_return"]


def _with_rewards(task: Task, env: str, moves: bool) -> Task:
    """Add the hand-written reward of the environment's family, or the common one for locomotion."""
    folder, roles = resource_dir("assets") / "rewards" / "playground", {"root": task.adapter.root}
    family = re.match(r"[A-Z]?[a-z]*\d?", env)
    named = folder / f"{family.group().lower() if family else ''}.py"
    path = named if named.is_file() else folder / "move.py"
    if not (named.is_file() or moves):
        return task
    human = fill_reward(path.read_text(encoding="utf-8"), roles)
    first = (folder / "move_initial.py").read_text(encoding="utf-8") if moves else task.rewards.initial
    return task.replace(human=human, initial=fill_reward(first, roles))


def _add_sites(aim: EnvironmentGoal, spec: mujoco.MjSpec) -> None:
    """Add sites for goal positions of points that have no name in the model."""
    for name, (body, place) in aim.sites.items():
        spec.body(body).add_site(name=name, pos=place, size=[0.01, 0, 0], group=5)


def _reset(taken: Environment, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    drawn = [taken.reset(int(number)) for number in rng.integers(2**31, size=n)]
    qpos, qvel = (np.array(part) for part in zip(*drawn, strict=True))
    return qpos, qvel, np.zeros((n, taken.na))


def moved(episode: Trajectory, task: Task, goal: locomotion.WalkGoal) -> Metrics:
    """Return the measures of a body that should move along +x or stand; motion after a fall does not count."""
    read = Readout(task.layout, episode.steps)
    time, pos, rot = read.time, read.pos(task.adapter.root), read.rot(task.adapter.root)
    height = read.height(task.adapter.root)
    down = np.flatnonzero(height < FALLEN * height[0])
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
    """Return the root mean square difference of the driven joints between start and end of the episode, rad."""
    columns = [task.model.joint(joint).qposadr[0] for joint in task.adapter.planned_joints]
    qpos = np.asarray(episode.steps.qpos)[:, columns]
    return {"posture_error_rad": float(np.sqrt(np.mean(np.square(qpos[-1] - qpos[0])))) if columns else 0.0}
