"""Records and protocols that the rest of the package is written against. Read this first.

Axes: B simulations = K candidates x N samples (candidate k owns rows k*N:(k+1)*N), T control steps,
H plan steps; nq, nv, nu, na as in MuJoCo; ns is the length of the model's sensor vector.
Units are SI; frames are the world frame unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import jax
import numpy as np
from flax import struct

if TYPE_CHECKING:
    from movlr_jax.rewards.program import RewardProgram, Scorer
    from movlr_jax.rewards.state import Layout
    from movlr_jax.tasks.base import Task

Array = jax.Array | np.ndarray
Progress = Callable[[int, int], None]  # (done, total) of the stage at hand


@struct.dataclass
class Step:
    """What is known at one instant of one simulation; batched by leading axes.

    Every field belongs to the same instant. `sensors` holds the sensors of `rewards.state.Layout`.
    """

    time: Array  # [...] s
    qpos: Array  # [..., nq] m, rad
    qvel: Array  # [..., nv] m/s, rad/s
    act: Array  # [..., na] muscle activations, 1
    sensors: Array  # [..., ns] as the layout says
    prev_action: Array  # [..., nu] control of the step before


@struct.dataclass
class SimState:
    """Where B simulations stand and what was last measured there.

    `sensors` were measured at the start of the last simulation step, one sim_dt before `time`: MuJoCo
    measures, then integrates. A controller that needs the present extrapolates (`control.mpc2`).
    """

    time: Array  # [B] s
    qpos: Array  # [B, nq]
    qvel: Array  # [B, nv]
    act: Array  # [B, na]
    sensors: Array  # [B, ns]
    prev_action: Array  # [B, nu]
    diverged: Array  # [B] bool, once true never false again

    @property
    def step(self) -> Step:
        """What is known here, as a policy or a reward sees it."""
        return Step(
            time=self.time,
            qpos=self.qpos,
            qvel=self.qvel,
            act=self.act,
            sensors=self.sensors,
            prev_action=self.prev_action,
        )


@struct.dataclass
class Trajectory:
    """B finished rollouts of T control steps: the only thing a reward ever sees of physics."""

    steps: Step  # [B, T, ...] the state of the last simulation step of each control step
    actions: Array  # [B, T, nu] control held over each control step
    diverged: Array  # [B] bool
    final: SimState  # [B, ...]
    extras: Any = None  # [B, T, ...] what the policy returned beside its controls


class Policy(Protocol):
    """A pure JAX function of one simulation: what to excite, given what is seen.

    Returns controls [nu], or those and a tree of arrays to be kept beside them (`Trajectory.extras`).
    """

    def __call__(self, params: Any, view: Step, key: jax.Array) -> Any: ...


class Physics(Protocol):
    """B simulations, stepped in closed loop. Knows nothing of rewards."""

    name: str
    layout: Layout
    sim_dt: float  # s, one simulation step
    ctrl_dt: float  # s, one control step
    steps_done: int  # simulation steps, over all rows, since it was built
    xp: Any  # numpy or jax.numpy: what carries its states, and plans for it

    @property
    def traces(self) -> Mapping[str, int]:
        """How often each of its functions was traced by JAX."""
        ...

    def start(self, qpos: Array, qvel: Array, act: Array) -> SimState:
        """States at rest in time: qpos [B, nq], qvel [B, nv], act [B, na], sensors measured there."""
        ...

    def rollout(
        self,
        start: SimState,
        policy: Policy,
        params: Any,
        *,
        steps: int,
        key: jax.Array,
        candidates: int = 1,
    ) -> Trajectory:
        """T = `steps` control steps of every row of `start` [B] under `policy` with `params` [B or K, ...].

        See `physics.policy` for params and keys. A row that diverges is marked; what follows means nothing.
        """
        ...

    def parts(self, rows: int, steps: int) -> int:
        """Into how many parts a rollout of `rows` x `steps` must be split so that each fits into memory; 1: none."""
        ...

    def collect(self, x: Any) -> Any:
        """`x` in one place, where rollouts are spread over several devices."""
        ...

    def close(self) -> None: ...

    def kinematics(self, qpos: Array) -> tuple[Array, Array]:
        """Actuator lengths [B, nu] m and moment arms [B, nu, nv] m at postures `qpos` [B, nq]."""
        ...


class Controllers(Protocol):
    """K controllers, ready to act: what an optimiser returns."""

    @property
    def learning(self) -> Sequence[Mapping[str, Any]]:
        """What each candidate's training was like, K of them; none where nothing is trained."""
        ...

    @property
    def nonfinite(self) -> Sequence[Mapping[str, int]]:
        """Per candidate, term -> values that the guard replaced while control was sought, so far."""
        ...

    def rollout(self, start: SimState, *, steps: int, key: jax.Array) -> Trajectory:
        """Evaluation episodes: `start` and the result have leading axis K x episodes."""
        ...


class Optimizer(Protocol):
    """K reward programs in, K controllers out, in one batch. Built with its task and physics, compiled once."""

    name: str
    physics: Physics  # where plans are rolled out, or policies trained
    sim_physics: Physics  # where episodes are evaluated
    scorer: Scorer
    notes: Mapping[str, Any]  # what is worth recording of how it was built

    @property
    def steps_done(self) -> int:
        """Simulation steps of all its physics since it was built."""
        ...

    def optimise(
        self,
        programs: Sequence[RewardProgram],
        key: jax.Array,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> Controllers:
        """folder: where long work is kept, to be gone on with after a crash."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """One candidate after its turn: what it was, what it did, or why it could do nothing."""

    generation: int
    candidate: int
    source: str
    reason: str | None = None  # why it failed; None when it ran
    weights: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    terms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # term -> mean, curve, nonfinite
    film: Path | None = None
    parent: str | None = None  # name of the candidate it was written from

    @property
    def name(self) -> str:
        return candidate_name(self.generation, self.candidate)

    @property
    def failed(self) -> bool:
        return self.reason is not None


def candidate_name(generation: int, candidate: int) -> str:
    """`g01k03`: how a candidate is called in every log, report and caption."""
    return f"g{generation:02d}k{candidate:02d}"


@dataclass(frozen=True)
class Preference:
    """A judge's answer to `which of these two is better?`, the first or the second shown."""

    winner: Literal[
        "first", "second", "tie", "none"
    ]  # none: nobody knows, which is no tie and does not count
    reason: str
    overruled: str = ""  # what the judge had said, where a gate of the task knew better
    answered: bool = True  # whether the judge said anything that can be read


@dataclass(frozen=True)
class TermAdvice:
    """One change a critic asks for."""

    action: Literal["add", "strengthen", "weaken", "remove"]
    term: str
    reason: str
    weight: float | None = None


@dataclass(frozen=True)
class Critique:
    """A critic's view of the best motion so far."""

    success: bool
    problems: Sequence[str]  # general first, details after
    advice: Sequence[TermAdvice] = ()
    author: str = ""  # which critic, by its true name
    said: str = ""  # the feedback in the words of a method that has its own


@dataclass(frozen=True)
class ProposalRequest:
    """All that a proposer may know when it writes the next programs."""

    generation: int
    task: Task
    parent: Evaluation | None
    critique: Critique | None
    history: Sequence[Evaluation]
    seed: int
    vet: Callable[[str], str | None] | None = None  # why a program cannot be used; None: it can


class Proposer(Protocol):
    @property
    def name(self) -> str: ...

    def propose(self, request: ProposalRequest, n: int) -> list[str]: ...


class Judge(Protocol):
    @property
    def name(self) -> str: ...

    def compare(self, task: Task, a: Evaluation, b: Evaluation) -> Preference: ...


class Critic(Protocol):
    @property
    def name(self) -> str: ...

    def criticise(self, task: Task, best: Evaluation) -> Critique: ...
