"""What a task is, and the measures that every task shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.models import ModelAdapter
from movlr_jax.physics.domain import Ranges
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, SimState, Step, Trajectory

if TYPE_CHECKING:
    from movlr_jax.tasks.motion import Motion

Metrics = dict[str, float]
StartFn = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


class Measures(Metrics):
    """Metrics of which one that is missing raises UserError, with what there is."""

    def __missing__(self, name: str) -> float:
        raise UserError(unknown_name("measure", name, self))


@dataclass(frozen=True)
class Camera:
    """A free camera: lookat [3] m, distance m, azimuth and elevation degrees."""

    lookat: tuple[float, float, float]
    distance: float
    azimuth: float
    elevation: float
    track: str | None = None  # body that the camera follows, if any
    rise: float = 0.0  # m up for every m forward (x) that it has followed


@dataclass(frozen=True)
class Need:
    """One thing a motion lacks, in words, and the kind of term that would help."""

    problem: str
    kind: str  # place, turn, hold, steady, economy: see language.terms


@dataclass(frozen=True)
class Task:
    """One motion to be learned. The success measure is hidden from rewards and from proposers."""

    name: str
    description: str  # one sentence, for a model or a person
    focus: str  # what a critic should look at
    adapter: ModelAdapter
    model: mujoco.MjModel  # instrumented: carries the sensors of its layout
    layout: Layout
    goals: Mapping[str, Array]
    episode_s: float
    start: StartFn  # (rng, n) -> qpos [n, nq], qvel [n, nv], act [n, na]
    measure: Callable[[Trajectory, Task], Metrics]  # of ONE episode: leading axis T only
    score: Callable[[Metrics], float]  # higher is better; orders candidates for the metrics judge
    cameras: Sequence[Camera]
    initial_reward: str
    human_reward: str
    diagnose: Callable[[Metrics], Sequence[Need]]  # what is still wrong, the most general first
    # (steps [B, T], first [B]) -> [B, T] whether an episode is over, as by a fall; None: it lasts episode_s
    over: Callable[[Step, Step], np.ndarray] | None = None
    # (state [B], s until it is asked again) -> what the world does to a body meanwhile, as a push
    perturb: Callable[[SimState, float], SimState] | None = None
    # what differs from row to row in training; None: nothing
    ranges: Ranges | None = None
    # (episode [T, ...], task) -> curves [T] for the report, units in their names, beside those that every task has
    series: Callable[[Trajectory, Task], Mapping[str, np.ndarray]] | None = None
    roles: Mapping[str, str] = field(default_factory=dict)  # the adapter's, and those of the scene (object)
    motion: Motion | None = None  # what its description asks of a body, where no place is to be reached
    notes: Sequence[str] = field(default_factory=tuple)  # licences and the like, shown by doctor and report


def fill_reward(text: str, roles: Mapping[str, str]) -> str:
    """The reward program `text` with every `$role` replaced by its name in `roles`; `$$` is a plain `$`.

    One text serves every model that has the roles it speaks of. Raises UserError for a role that is lacking.
    """
    try:
        return Template(text).substitute(roles)
    except KeyError as error:
        role = str(error.args[0])
        raise UserError(
            "the reward program of this task cannot be written for this model: "
            + unknown_name("role", role, roles)
        ) from None
    except ValueError as error:
        raise UserError(
            f"the reward program has a $ that names no role ({error}); write $$ for a plain $"
        ) from None


def joints_at_limit(model: mujoco.MjModel, qpos: np.ndarray, margin: float = 0.02) -> np.ndarray:
    """[T] share of the limited joints that are within `margin` of their range to a limit. qpos [T, nq].

    Joints that equalities drive, as a kneecap's, say nothing of their own and are left out.
    """
    driven = model.eq_obj1id[(model.eq_type == mujoco.mjtEq.mjEQ_JOINT) & (model.eq_active0 != 0)]
    limited = np.setdiff1d(np.flatnonzero(model.jnt_limited), driven)
    if not len(limited):
        return np.zeros(len(qpos))
    q = qpos[:, model.jnt_qposadr[limited]]
    low, high = model.jnt_range[limited].T
    slack = margin * (high - low)
    return ((q < low + slack) | (q > high - slack)).mean(axis=-1)


def joint_limit_fraction(model: mujoco.MjModel, qpos: np.ndarray, margin: float = 0.02) -> float:
    """Share of (time, limited joint) pairs within `margin` of the range to a limit. qpos [T, nq]."""
    return float(joints_at_limit(model, qpos, margin).mean())


SHARED = ("effort", "smoothness", "joint_limit_fraction", "diverged_fraction")  # what shared_metrics returns


def shared_metrics(trajectory: Trajectory, task: Task, ctrl_dt: float) -> Metrics:
    """Measures of one episode [T, ...] that any task with actuators has.

    effort is the mean squared activation (or action, without muscles); smoothness is the mean squared
    change of action per second, lower is smoother; diverged_fraction is 1 when the simulation blew up.
    """
    used = trajectory.steps.act if task.model.na else trajectory.actions
    change = np.diff(np.asarray(trajectory.actions), axis=0) / ctrl_dt
    return {
        "effort": float(np.square(used).mean()),
        "smoothness": float(np.square(change).mean()) if len(change) else 0.0,
        "joint_limit_fraction": joint_limit_fraction(task.model, np.asarray(trajectory.steps.qpos)),
        "diverged_fraction": float(np.mean(trajectory.diverged)),
    }
