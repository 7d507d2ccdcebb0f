"""The `Task` class, and the measures shared by all tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from string import Template
from typing import Any

import jax
import mujoco
import numpy as np

from movlr_jax.biomech.muscles import enabled_actuators
from movlr_jax.biomech.static_optimisation import joint_equalities
from movlr_jax.errors import UserError, shortened, unknown_name
from movlr_jax.models import ModelAdapter
from movlr_jax.models.actuators import control_scale, muscles, servo_controls
from movlr_jax.physics.domain import Ranges
from movlr_jax.rewards.state import Layout
from movlr_jax.rewards.term import quoted
from movlr_jax.tasks.needs import Need
from movlr_jax.tasks.words.sentence import Sentence
from movlr_jax.types import Array, SimState, Step, Trajectory

LONGEST_S = 3600.0  # s, longest episode
CTRL_DT = 0.016  # s, control step of a trial episode
Metrics = dict[str, float]
StartFn = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


def check_episode(episode_s: Any, ctrl_dt: float = 0.0) -> None:
    """Check the length of an episode, which has steps of `ctrl_dt` s. Raises UserError."""
    number = float(episode_s) if isinstance(episode_s, Real) and not isinstance(episode_s, bool) else 0.0
    if not 0 < number <= LONGEST_S:
        raise UserError(
            f"episode_s={shortened(episode_s)}: it must be a number of s, more than 0 and at most {LONGEST_S:g}"
        )
    if number < ctrl_dt:
        raise UserError(f"episode_s={number:g} is shorter than one control step of {ctrl_dt:g} s")


def positive(name: str, value: float) -> float:
    """Return `value` of task.settings.`name`. Raises UserError unless it is more than 0."""
    if value <= 0:
        raise UserError(f"task.settings.{name}={value:g}: it must be more than 0")
    return value


class Measures(Metrics):
    """Metrics that raise UserError for a missing name and list the known names."""

    def __missing__(self, name: str) -> float:
        raise UserError(unknown_name("measure", name, self))


@dataclass(frozen=True)
class Camera:
    """A free camera: lookat [3] m, distance in m, azimuth and elevation in degrees, in the frame in which z is up."""

    lookat: tuple[float, float, float]
    distance: float
    azimuth: float
    elevation: float
    track: str | None = None  # body that the camera follows, if any
    rise: float = 0.0  # m that the camera rises per m of forward (x) motion of that body
    vertical: bool = False  # whether the camera also follows that body up and down
    shows: str = ""  # what it shows, for vision models with several views; empty: the scene


class Overrides(tuple[str, ...]):
    """Settings that name a task to a command.

    Attributes:
        loaded: The other fields (`Task.leaves`) of the task that `load_task` built from them.
    """

    loaded: Mapping[str, Any]


GROUPS = ("scoring", "rewards", "view", "course", "origin")  # fields of a task that have fields
TIE = 0.25  # of the scores of this package: 2.5 mm of error, 1.5 degrees, or 0.025 of the effort of successes


@dataclass(frozen=True)
class Scoring:
    """How an episode of a task is measured, compared and judged."""

    measure: Callable[[Trajectory, Task], Metrics]  # of one episode: leading axis T only
    score: Callable[[Metrics], float]  # higher is better; used by the metrics judge
    diagnose: Callable[[Metrics], Sequence[Need]]  # remaining problems, the most general first
    focus: str = ""  # what a judge or critic should pay attention to
    # (episode [T, ...], task) -> additional curves [T] for the report, with units in their names
    series: Callable[[Trajectory, Task], Mapping[str, np.ndarray]] | None = None
    # episode [T, ...], task -> name -> sentence of each degenerate pattern, which no judge can prefer
    faults: Callable[[Trajectory, Task], Mapping[str, str]] | None = None
    success: str = ""  # what counts as a success, as in "success: ..."; empty if nothing is measured
    hold_s: float = 0.0  # s before the end of an episode in which a success must last; 0: none
    tie: float = 0.0  # differences of the score up to it say nothing; the metrics judge answers "tie"
    motion: Sentence | None = None  # what the description asks for, if no place is to be reached


@dataclass(frozen=True)
class Rewards:
    """The reward programs of a task."""

    initial: str
    human: str  # the hand-written program
    # reward of the environment that the task is, as a program; empty: no environment, or not expressed
    environment: str = ""
    # expression for the controls in the programs that the package wrote for it, `simple.controls_text`; empty: none
    controls: str = ""


@dataclass(frozen=True)
class Course:
    """What an episode meets besides its model and its policy: the ground, pushes, when it ends."""

    # (steps [B, T], first [B]) -> [B, T] whether the episode is over, e.g. after a fall; None: it lasts episode_s.
    # That of a walker also takes `lowest`, as in Sentence
    over: Callable[..., np.ndarray] | None = None
    # (state [B], s until the next call) -> state with the perturbations of that interval, e.g. a push
    perturb: Callable[[SimState, float], SimState] | None = None
    # domain randomisation between the rows of a training; None: no randomisation
    ranges: Ranges | None = None
    # horizontal positions [..., 2] m -> height of the ground [...] m under a walker; None: 0
    ground_height: Callable[[np.ndarray], np.ndarray] | None = None
    # [nu] controls at the start, as those of a keyframe; None: servos hold the start posture, others are 0
    rest: Array | None = None
    # whether another program applies the recorded controls again: each is held over its control step
    holds_controls: bool = False


@dataclass(frozen=True)
class View:
    """What films and vision models are shown of a task."""

    cameras: Sequence[Camera]
    # more cameras for vision models that see several views (`vlm.views`); films show `cameras` only
    more_cameras: Sequence[Camera] = ()
    # muscle -> remaining share of its force, of muscles that the task weakens; films mark them
    weakened: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """Where a task comes from, and what a user should know of it."""

    # settings that name this task, or the one that it was changed from, to a command
    overrides: Sequence[str] = ()
    notes: Sequence[str] = ()  # licences and other notes, shown by doctor and report
    warnings: Sequence[str] = ()  # sentences about the model that a user should know before a run


@dataclass(frozen=True, repr=False)
class Task:
    """A motion to learn. Rewards cannot read the success measure."""

    name: str
    description: str  # one sentence for language models and people
    adapter: ModelAdapter
    model: mujoco.MjModel  # with the sensors of its layout
    layout: Layout
    goals: Mapping[str, Array]
    episode_s: float
    start: StartFn  # (rng, n) -> qpos [n, nq], qvel [n, nv], act [n, na]
    scoring: Scoring
    rewards: Rewards
    view: View
    course: Course = field(default_factory=Course)
    # recorded motion, by the names of `Layout.data`; `tasks.reference` makes it
    reference: Mapping[str, Array] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)  # those of the adapter and of the scene (object)
    origin: Origin = field(default_factory=Origin)

    def __post_init__(self):
        check_episode(self.episode_s)

    @property
    def named(self) -> bool:
        """Whether its `overrides` build it: it is as `load_task` returned it, with no field replaced."""
        loaded, own = getattr(self.origin.overrides, "loaded", {}), self.leaves()
        return bool(loaded) and all(own[name] is value for name, value in loaded.items())

    def leaves(self) -> dict[str, Any]:
        """Return the fields by name, with those of each group (`scoring`, `view`, ...) in place of the group."""
        own = {name: value for name, value in vars(self).items() if name not in GROUPS}
        return own | {name: value for group in GROUPS for name, value in vars(getattr(self, group)).items()}

    def replace(self, **changes: Any) -> Task:
        """Return this task with some fields changed, also those of its groups: `task.replace(cameras=..., tie=0.0)`.

        Raises UserError for an unknown name.
        """
        for group in GROUPS:
            held = getattr(self, group)
            if inside := {name: changes.pop(name) for name in vars(held) if name in changes}:
                changes[group] = replace(held, **inside)
        for name in changes:
            if name not in vars(self):
                raise UserError(unknown_name("field of a task", name, self.leaves()))
        return replace(self, **changes)

    def __repr__(self) -> str:
        return (
            f"Task({self.name!r}: {self.description}; model {self.adapter.name}, {self.episode_s:g} s, "
            f"goals {', '.join(self.goals) or 'none'})"
        )

    def resting(self, qpos: np.ndarray) -> np.ndarray:
        """Return the controls [nu] that hold a start posture `qpos` [nq]: of servos, or all that a keyframe gives."""
        rest = self.course.rest
        return servo_controls(self.model, qpos) if rest is None else np.asarray(rest)

    @property
    def data(self) -> dict[str, Array]:
        """Everything that a reward gets besides steps, by the names of `Layout.data`."""
        return {**self.goals, **self.reference}


def fill_reward(text: str, roles: Mapping[str, str | Sequence[str]]) -> str:
    """Replace every `"$role"` in the reward program `text` by its names in `roles`; `$$` becomes `$`.

    So one text works for every model with these roles. Raises UserError for a missing role.
    """
    names = {role: [name] if isinstance(name, str) else name for role, name in roles.items()}
    try:
        return Template(text).substitute({role: ", ".join(map(quoted, these))[1:-1] for role, these in names.items()})
    except KeyError as error:
        role = str(error.args[0])
        raise UserError(
            "the reward program of this task does not fit this model: " + unknown_name("role", role, roles)
        ) from None
    except ValueError as error:
        raise UserError(f"the reward program has a $ without a role name ({error}); write $$ for a plain $") from None


def joints_at_limit(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Return the share [T] of limited joints that are within 2 % of their range of a limit.

    qpos [T, nq]. Joints driven by equality constraints, such as those of a kneecap, are ignored.
    """
    driven = model.eq_obj1id[joint_equalities(model)]
    limited = np.setdiff1d(np.flatnonzero(model.jnt_limited), driven)
    if not len(limited):
        return np.zeros(len(qpos))
    q = qpos[:, model.jnt_qposadr[limited]]
    low, high = model.jnt_range[limited].T
    slack = 0.02 * (high - low)
    return ((q < low + slack) | (q > high - slack)).mean(axis=-1)


# names that shared_metrics returns
SHARED = ("effort", "smoothness", "joint_limit_fraction", "diverged_fraction")


def measured(episode: Trajectory, task: Task, ctrl_dt: float) -> Metrics:
    """Return the measures of the task and the shared ones of one episode [T, ...].

    One that diverged is measured up to there and has no success: MuJoCo put the body back to its initial posture.
    """
    if diverged := bool(episode.diverged):
        end = max(2, int(episode.valid))  # differences in time need two control steps
        steps, actions = jax.tree.map(lambda x: np.asarray(x)[:end], (episode.steps, episode.actions))
        episode = replace(episode, steps=steps, actions=actions)
    metrics = task.scoring.measure(episode, task) | shared_metrics(episode, task, ctrl_dt)
    if diverged:
        metrics["diverged_fraction"] = 1.0
        metrics |= {"success": 0.0} if "success" in metrics else {}
    return metrics


def exertion(task: Task, episode: Trajectory) -> np.ndarray:
    """Return [T] the mean squared use of the actuators in an episode [T, ...].

    Of a muscle, its activation; of another actuator, its force as a share of its largest force, or without a limit of
    the force its control as a share of the range, from that which holds the start posture. Disabled actuators do not
    count.
    """
    model, used = task.model, _shares(task, episode)
    activated = muscles(model) & (model.actuator_actadr >= 0)
    used[:, activated] = np.asarray(episode.steps.act, float)[:, model.actuator_actadr[activated]]
    largest = np.abs(model.actuator_forcerange).max(axis=1)
    limited = ~muscles(model) & model.actuator_forcelimited.astype(bool) & (largest > 0)
    if limited.any():
        force = np.asarray(task.layout.block(episode.steps.sensors, "force", model.nu), float)
        used[:, limited] = force[:, limited] / largest[limited]
    acts = enabled_actuators(model)
    return np.square(used[:, acts]).sum(axis=-1) / max(1, acts.sum())


def _shares(task: Task, episode: Trajectory) -> np.ndarray:
    """Return the controls [T, nu] as shares of their range from those that hold the start; of muscles unchanged."""
    actions, rest = np.array(episode.actions, float), task.resting(np.asarray(episode.steps.qpos)[0])
    shares = (actions - rest) / control_scale(task.model, rest)
    return np.where(muscles(task.model), actions, shares)


def shared_metrics(trajectory: Trajectory, task: Task, ctrl_dt: float) -> Metrics:
    """Return the measures of one episode [T, ...] that exist for every task with actuators.

    effort: see `exertion`; smoothness: mean squared change of the controls, as shares of their range (excitations of
    muscles are shares already), per second: lower is smoother; diverged_fraction: 1 if the simulation diverged.
    """
    change = np.diff(_shares(task, trajectory)[:, enabled_actuators(task.model)], axis=0) / ctrl_dt
    return {
        "effort": float(exertion(task, trajectory).mean()),
        "smoothness": float(np.square(change).mean()) if change.size else 0.0,
        "joint_limit_fraction": float(joints_at_limit(task.model, np.asarray(trajectory.steps.qpos)).mean()),
        "diverged_fraction": float(np.mean(trajectory.diverged)),
    }


def trial(task: Task) -> Trajectory:
    """Return an episode [T] of full length: two simulation steps without control, the second repeated to the end.

    The functions of a task are called on it before anything is planned.
    """
    model, data = task.model, mujoco.MjData(task.model)
    for to, rows in zip((data.qpos, data.qvel, data.act), _starts(task, 2), strict=True):
        to[:] = rows[0]
    count = max(2, round(task.episode_s / CTRL_DT))
    held = np.minimum(np.arange(count), 1)
    seen = []
    for _ in range(2):
        mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        seen.append([np.array(x, np.float32) for x in (data.qpos, data.qvel, data.act, data.sensordata)])
    qpos, qvel, act, sensors = (np.stack(pair)[held] for pair in zip(*seen, strict=True))
    time, actions = np.float32(CTRL_DT) * np.arange(1, count + 1), np.zeros((count, model.nu), np.float32)
    last = SimState(time[-1], qpos[-1], qvel[-1], act[-1], sensors[-1], actions[-1], np.array(False))
    return Trajectory(Step(time, qpos, qvel, act, sensors, actions), actions, np.array(count), last)


def _starts(task: Task, n: int) -> tuple[np.ndarray, ...]:
    """Return n start states of the task. Raises UserError if its `start` returns anything else."""
    m, given = task.model, task.start(np.random.default_rng(0), n)
    expected = {"qpos": (n, m.nq), "qvel": (n, m.nv), "act": (n, m.na)}
    try:
        found = dict(zip(expected, (np.asarray(x, float) for x in given), strict=True))
    except (TypeError, ValueError):
        found = {}
    for name, shape in expected.items():
        if name not in found or found[name].shape != shape or not np.isfinite(found[name]).all():
            got = f"{name} {found[name].shape}" if name in found else f"{given!r:.80}"
            raise UserError(
                f"start of the task {task.name} returns {got} for n = {n}, expected finite numbers qpos [n, {m.nq}], "
                f"qvel [n, {m.nv}], act [n, {m.na}]"
            )
    return tuple(found.values())
