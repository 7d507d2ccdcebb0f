"""Settings of the value at the horizon of a planner."""

from __future__ import annotations

from dataclasses import dataclass

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.settings import above_0, at_least


@dataclass(frozen=True)
class ValueConfig:
    """The value of the state at the end of a plan, learned from the planner's rollouts (`control.mpc.value`)."""

    use: bool = False
    rounds: int = 4  # rounds of episodes before the evaluation; in the first, plans end at their horizon
    starts: int = 4  # episodes of a round, from different start states; all of a candidate share its value
    episode_s: float = 0.0  # s, length of these episodes; 0: that of the task
    time_s: float = 1.0  # time constant of the discount: how far it sees
    td_lambda: float = 0.9
    # what it observes, as optimizer.ppo.observe; empty: gait and joints for walks, else positions, velocities,
    # activations, contacts and goals
    observe: tuple[str, ...] = ()
    hidden: tuple[int, ...] = (64, 64)
    members: int = 2  # networks; the value is their mean less `pessimism` x their standard deviation
    pessimism: float = 0.5
    learning_rate: float = 1e-3
    kept: int = 1  # best rollouts of each plan that it learns from, besides the episodes
    capacity: int = 2000  # rollouts that it remembers per candidate
    batch: int = 32  # rollouts per gradient step
    fits: int = 400  # gradient steps after each round, from new weights
    updates: int = 1  # gradient steps per plan


def check_value(v: ValueConfig, observable: tuple[str, ...]) -> None:
    """Raise UserError for values outside their ranges."""
    at_least(0, v, "optimizer.value.", "rounds", "pessimism", "updates", "episode_s")
    at_least(1, v, "optimizer.value.", "starts", "members", "kept", "capacity", "batch", "fits")
    above_0(v, "optimizer.value.", "time_s", "learning_rate")
    if not 0 <= v.td_lambda <= 1:
        raise UserError(f"optimizer.value.td_lambda={v.td_lambda:g}: it must be from 0 to 1")
    if min((*v.hidden, 1)) < 1:
        raise UserError("optimizer.value.hidden: layers must have 1 or more units")
    for name in v.observe:
        if name not in observable:
            raise UserError(unknown_name("optimizer.value.observe", name, observable))
