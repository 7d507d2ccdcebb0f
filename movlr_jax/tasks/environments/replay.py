"""Tasks that an environment measures: the actions of an episode are played again in it, from the same state.

So its own code gives rewards, success and termination; a search never reads them in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.models.spec import compile_spec
from movlr_jax.tasks.base import Metrics, Task
from movlr_jax.tasks.simple import simple_task
from movlr_jax.types import Trajectory

# elements of a spec -> their attributes that a reset may change -> the arrays of the compiled model
_PLACED: Mapping[str, Mapping[str, str]] = {
    kind: {name: f"{array}_{name}" for name in names.split()}
    for kind, array, names in (
        ("bodies", "body", "pos quat"),
        ("geoms", "geom", "pos quat type size rgba contype conaffinity condim priority friction margin solref"),
        ("sites", "site", "pos quat size rgba"),
        ("actuators", "actuator", "gainprm biasprm"),
    )
}
_INERTIAL = {"bodies": {name: f"body_{name}" for name in ("mass", "ipos", "iquat", "inertia")}}
_COMPARED = (
    *(array for kinds in (_PLACED, _INERTIAL) for arrays in kinds.values() for array in arrays.values()),
    "jnt_range", "jnt_axis", "jnt_pos", "jnt_stiffness", "dof_damping", "dof_armature",
    "dof_frictionloss", "tendon_stiffness", "tendon_range", "actuator_gear",
    "actuator_dynprm", "actuator_ctrlrange", "actuator_forcerange", "eq_data", "eq_active0", "mesh_vert",
)  # fmt: skip
_REPLAN_S = 0.032  # between two plans, as with the defaults of a planner
_SUCCESS = ("success", "is_success", "solved")  # names of a success in what a step reports

_RANGES = {  # attributes of environments of Gymnasium
    "_healthy_z_range": "the height of the trunk is not {:g} to {:g} m",
    "_healthy_angle_range": "its tilt is not {:g} to {:g} rad",
}
# `Scoring.focus` of tasks whose score is the return of an environment
BY_RETURN = (
    "what the motion returns: the sum of the environment's own rewards, which are not shown and stop where the "
    "environment ends the episode. Plans do not stop there, so a term has to keep the motion away from it"
)


@dataclass(frozen=True)
class ActionMap:
    """How an environment makes controls of actions a: 1 / (1 + exp(-5 (a - 0.5))) of muscles, or offset + gain a.

    All are [nu]; low and high are the bounds of the controls that it can make.
    """

    sigmoid: np.ndarray
    offset: np.ndarray
    gain: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def fitted(cls, given: np.ndarray, made: np.ndarray, names: Sequence[str], env: str) -> ActionMap:
        """Return the map by which actions `given` [n, nu] became controls `made` [n, nu]. Raises UserError.

        The first two actions are the lowest and the highest. names: of the actuators.
        """
        gain = (made[1] - made[0]) / (given[1] - given[0])
        offset = made[0] - gain * given[0]
        sigmoid = np.all(np.isclose(made, _sigmoid(given), atol=1e-6), axis=0)
        linear = np.all(np.isclose(made, offset + gain * given, atol=1e-6), axis=0) & (gain > 0)
        if len(odd := np.flatnonzero(~(sigmoid | linear))):
            raise UserError(f"env={env} does not make the controls of {names[int(odd[0])]} of its actions alone")
        return cls(sigmoid, offset, gain, made[0], made[1])

    def actions(self, controls: np.ndarray) -> np.ndarray:
        """Return the actions [..., nu] for controls [..., nu]; those out of reach are clipped, as in our physics."""
        u = np.clip(np.asarray(controls, float), self.low, self.high)
        share = np.where(self.sigmoid, u, 0.5)
        linear = (u - self.offset) / np.where(self.sigmoid, 1.0, self.gain)
        return np.where(self.sigmoid, 0.5 + np.log(share / (1.0 - share)) / 5.0, linear)


def _sigmoid(actions: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-5.0 * (actions - 0.5)))


@dataclass(frozen=True)
class Environment:
    """An environment of another package, and how it is played.

    Attributes:
        env: Its name, as the user gave it.
        world: A gymnasium.Env with `frame_skip`, `set_state`, and MuJoCo's `model` and `data`.
        seed: Seed of the reset before a replay, which places targets.
        actions: Controls [T, nu] -> the actions of the environment [T, nu] that it turns into these controls.
        solved_steps: The episode is a success if more actions than these are; None: the last action decides.
    """

    env: str
    world: Any
    seed: int = 0
    actions: Callable[[np.ndarray], np.ndarray] = np.asarray
    solved_steps: int | None = None

    @property
    def sim_dt(self) -> float:
        return float(self.world.model.opt.timestep)

    @property
    def ctrl_dt(self) -> float:
        return round(self.sim_dt * self.world.frame_skip, 9)

    def timing(self) -> dict[str, float]:
        """Return the settings of an optimizer that suit the environment: its steps in s, and when to plan anew."""
        every = max(1, round(_REPLAN_S / self.ctrl_dt))
        return {"ctrl_dt": self.ctrl_dt, "sim_dt": self.sim_dt, "plan_dt": self.sim_dt, "replan_every": every}

    def start(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return n start states that the environment draws."""
        states = []
        for seed in rng.integers(2**31, size=n):
            self.world.reset(seed=int(seed))
            data = self.world.data
            states.append((data.qpos.copy(), data.qvel.copy(), data.act.copy()))
        qpos, qvel, act = (np.array(part) for part in zip(*states, strict=True))
        return qpos, qvel, act.reshape(n, self.world.model.na)

    def measure(self, episode: Trajectory, task: Task) -> Metrics:
        """Return what the environment says of an episode: the sum of its rewards, its end and its success.

        As in the environment, rewards after its end do not count. What it reports as x_position gives a distance.
        """
        assert episode.start is not None
        check_steps(episode, self.ctrl_dt)
        self.begin(*(np.asarray(part, float) for part in (episode.start.qpos, episode.start.qvel, episode.start.act)))
        begun, total, count, ended, info = float(self.world.data.qpos[0]), 0.0, 0, False, {}
        solved = []
        for action in self.actions(np.asarray(episode.actions)):
            _, reward, ended, _, info = self.world.step(action)
            total, count = total + float(reward), count + 1
            solved += [bool(info[name]) for name in _SUCCESS if name in info][:1]
            if ended:
                break
        metrics = {"return": total, "terminated": float(ended)}
        if ended:
            metrics["terminated_s"] = count * self.ctrl_dt
        if "x_position" in info:
            metrics["distance_m"] = float(info["x_position"]) - begun
        if solved:
            enough = solved[-1] if self.solved_steps is None else sum(solved) > self.solved_steps
            metrics |= {"success": float(enough), "solved_fraction": float(np.mean(solved))}
        return metrics

    def begin(self, qpos: np.ndarray, qvel: np.ndarray, act: np.ndarray) -> None:
        """Reset the environment to a state [nq], [nv], [na], with the targets of its seed."""
        self.world.reset(seed=self.seed)
        if self.world.model.na:
            self.world.data.act[:] = act
        self.world.set_state(qpos, qvel)


def check_steps(episode: Trajectory, ctrl_dt: float) -> None:
    """Raise UserError if the control steps of an episode are not those of its environment, `ctrl_dt` s."""
    step = np.diff(np.asarray(episode.steps.time, float))
    if len(step) and not np.allclose(step, ctrl_dt, rtol=1e-3):
        raise UserError(
            f"the environment acts every {ctrl_dt:g} s; leave optimizer.ctrl_dt out, or give it that value"
        )


def environment_task(
    environment: Environment,
    spec: mujoco.MjSpec,
    *,
    description: str,
    episode_s: float,
    goals: Mapping[str, np.ndarray] | None = None,
    reward: str | None = None,
    own_reward: str = "",
) -> Task:
    """Return the task of an environment with its model, see `matched`. Raises UserError.

    description: what it rewards, in words, for the proposer and the judge. reward: the initial program.
    own_reward: the reward of the environment as a program, if there is one; it is the hand-written program.
    """
    terrain = environment.world.model.hfield_data.copy()  # a spec would normalise it
    task = simple_task(
        name=environment.env.rpartition(":")[2],
        model=spec,
        description=description,
        goals=goals,
        start=environment.start,
        score=_return,
        reward=reward,
        human_reward=own_reward or None,
        floor=False,
        episode_s=episode_s,
    )
    task.model.hfield_data[:] = terrain
    return task.replace(
        measure=environment.measure,
        motion=task.scoring.motion and replace(task.scoring.motion, decides=False),
        success="",
        holds_controls=True,
        environment=own_reward,
        focus=BY_RETURN + _ends(environment.world),
        notes=(f"{environment.env}: a trial is replayed in this environment, whose rewards are summed",),
    )


def _ends(world: object) -> str:
    """Return when an environment ends an episode, as far as it says so, as those of Gymnasium with legs do."""
    if not getattr(world, "_terminate_when_unhealthy", False):
        return ""
    ranges = ((of, getattr(world, name, None)) for name, of in _RANGES.items())
    said = [of.format(*values) for of, values in ranges if values is not None]
    return f". The environment ends an episode where {' or '.join(said)}" if said else ""


def _return(metrics: Mapping[str, float]) -> float:
    return metrics["return"]


def matched(spec: mujoco.MjSpec, model: mujoco.MjModel, env: str) -> mujoco.MjSpec:
    """Return `spec` with the options, positions, sizes, masses and strengths that its environment has in `model`.

    Raises UserError if it changed something else, too.
    """
    for name in (name for name in dir(model.opt) if not name.startswith("_")):
        setattr(spec.option, name, getattr(model.opt, name))
    for arrays in (_PLACED, _INERTIAL):  # masses follow sizes, unless they are given
        bare = compile_spec(spec)
        for kind, of_kind in arrays.items():
            for element in getattr(spec, kind):
                _copy(element, of_kind, bare, model)
    again = compile_spec(spec)
    for array in _COMPARED:
        ours, theirs = getattr(again, array), getattr(model, array)
        if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=1e-9, atol=1e-12):
            raise UserError(f"env={env} changes {array} of its model, so it cannot be a task")
    return spec


def _copy(element: Any, arrays: Mapping[str, str], bare: mujoco.MjModel, model: mujoco.MjModel) -> None:
    """Give an element of a spec what `model` has in other ways than `bare`, its compiled spec."""
    i = element.id
    changed = {
        name: getattr(model, array)[i]
        for name, array in arrays.items()
        if not np.array_equal(getattr(model, array)[i], getattr(bare, array)[i])
    }
    if changed and arrays is _INERTIAL["bodies"]:
        element.explicitinertial = True
        element.ialt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
        changed = {name: getattr(model, array)[i] for name, array in arrays.items()}
    if {"pos", "quat", "size"} & changed.keys() and hasattr(element, "fromto") and np.isfinite(element.fromto[0]):
        element.fromto = np.full(6, np.nan)
        changed |= {name: getattr(model, arrays[name])[i] for name in ("pos", "quat", "size")}
    if "quat" in changed:  # euler or axisangle would override it
        element.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
    for name, value in changed.items():
        setattr(element, name, value)
