"""Settings of the optimisers, and their ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from movlr_jax._util.settings import above_0, at_least, one_of
from movlr_jax.control.mpc.knots import SPLINES
from movlr_jax.control.mpc.mppi import MppiConfig
from movlr_jax.control.mpc.rules import RISKS, RULES, STRATEGIES
from movlr_jax.control.muscle_controllers.actuation import LAWS, MuscleConfig
from movlr_jax.control.ppo.config import (
    ABOUT,
    ACTS,
    GroupsConfig,
    PdConfig,
    PpoConfig,
    PriorConfig,
    check_shape,
)
from movlr_jax.errors import UserError
from movlr_jax.physics.choose import GRAPHS


@dataclass(frozen=True)
class OptimizerConfig:
    """A planner: its rhythm, its sampling, and for mpc2 the muscle law beneath."""

    name: str = "mpc2"
    ctrl_dt: float = 0.016  # s, between two actions
    sim_dt: float = 0.002  # s, step of the simulation
    plan_dt: float = 0.008  # s, step of the planner's rollouts
    horizon_s: float = 0.4  # s
    replan_every: int = 2  # control steps
    synergy: float = 0.6  # mpc2: correlation of the noise of joints that the model's adapter lists together
    knots: int = 1  # of a plan, over the horizon
    spline: str = "linear"  # between knots: linear, zero (each is held) or cubic
    # physics=warp: how a step of Warp becomes a CUDA graph: auto, warp, warp_staged, warp_staged_ex, jax, none
    warp_graph: str = "auto"
    mppi: MppiConfig = field(default_factory=MppiConfig)
    muscle: MuscleConfig = field(default_factory=MuscleConfig)
    ppo: PpoConfig = field(default_factory=PpoConfig)
    pd: PdConfig = field(default_factory=PdConfig)
    groups: GroupsConfig = field(default_factory=GroupsConfig)
    prior: PriorConfig = field(default_factory=PriorConfig)  # mpc2
    options: Mapping[str, Any] = field(default_factory=dict)  # of an optimiser registered by others


def check_optimizer(o: OptimizerConfig) -> None:
    """Raise UserError for values outside their ranges and for unknown choices."""
    mppi = o.mppi
    one_of(o, "optimizer.", warp_graph=GRAPHS, spline=SPLINES)
    one_of(mppi, "optimizer.mppi.", rule=RULES, strategy=STRATEGIES, risk=RISKS)
    one_of(o.muscle, "optimizer.muscle.", law=LAWS)
    at_least(1, o, "optimizer.", "replan_every", "knots", "mppi.updates", "mppi.worlds", "muscle.iterations")
    above_0(o, "optimizer.", "ctrl_dt", "sim_dt", "plan_dt", "horizon_s")
    above_0(mppi, "optimizer.mppi.", "temperature", "anneal_updates", "anneal_knots", "tail", "density")
    at_least(0, o, "optimizer.", "synergy", "muscle.kp", "muscle.kd", "muscle.product_gain", "muscle.held")
    numbers = ("samples", "elites", "sigma", "sigma_min", "adapt", "keep", "smooth")
    at_least(0, mppi, "optimizer.mppi.", *numbers)
    if mppi.spread < 1:
        raise UserError(f"optimizer.mppi.spread={mppi.spread:g}: a factor up and down must be 1 or more")
    for name, correlation in (("synergy", o.synergy), ("mppi.smooth", mppi.smooth)):
        if correlation >= 1:
            raise UserError(f"optimizer.{name}={correlation:g}: a correlation of noise must be less than 1")
    for name, share in (("tail", mppi.tail), ("adapt", mppi.adapt), ("density", mppi.density)):
        if share > 1:
            raise UserError(f"optimizer.mppi.{name}={share:g}: a share must be 1 or less")
    check_ppo(o)


def check_ppo(o: OptimizerConfig) -> None:
    """Raises UserError where a policy could not be trained with these settings."""
    p = o.ppo
    if p.env_steps < (0 if p.init else 1):
        raise UserError(
            f"optimizer.ppo.env_steps={p.env_steps}: it must be 1 or more, or 0 for the policy of "
            "optimizer.ppo.init as it is"
        )
    if p.init and p.teacher:
        raise UserError(
            f"optimizer.ppo.teacher={p.teacher} teaches a first policy, and optimizer.ppo.init={p.init} has one "
            "already; leave one of them empty (optimizer.ppo.init=)"
        )
    counts = (
        "envs",
        "unroll",
        "unrolls",
        "minibatches",
        "epochs",
        "starts",
        "checkpoint_every",
        "teach_steps",
    )
    at_least(1, p, "optimizer.ppo.", *counts)
    above_0(
        o,
        "optimizer.",
        "ppo.learning_rate",
        "ppo.clip",
        "ppo.reward_scale",
        "pd.kp",
        "pd.beta",
        "groups.seconds",
    )
    numbers = ("entropy", "target_kl", "value_loss", "max_grad_norm", "noise", "train_dt", "assist", "carry")
    at_least(0, p, "optimizer.ppo.", *numbers, "stride_starts", "motion_starts")
    at_least(0, o, "optimizer.", "pd.kd", "groups.count", "groups.correction")
    one_of(o.pd, "optimizer.pd.", about=ABOUT)
    for name, value in (("discount", p.discount), ("gae_lambda", p.gae_lambda)):
        if not 0 <= value <= 1:
            raise UserError(f"optimizer.ppo.{name}={value:g}: it must be from 0 to 1")
    if (p.envs * p.unrolls) % p.minibatches:
        raise UserError(
            f"optimizer.ppo.minibatches={p.minibatches} does not divide the {p.envs * p.unrolls} pieces of a batch "
            f"(envs={p.envs} x unrolls={p.unrolls})"
        )
    check_shape(p)
    one_of(p, "optimizer.ppo.", acts=ACTS)
