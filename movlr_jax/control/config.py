"""Settings of the optimisers, and their ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from movlr_jax.control.mpc.knots import SPLINES
from movlr_jax.control.mpc.mppi import MppiConfig
from movlr_jax.control.mpc.rules import RISKS, RULES, STRATEGIES
from movlr_jax.control.mpc.value_config import ValueConfig, check_value
from movlr_jax.control.muscle_controllers.actuation import LAWS, MuscleConfig
from movlr_jax.control.ppo.config import (
    ABOUT,
    ACTS,
    OBSERVABLE,
    GroupsConfig,
    PdConfig,
    PpoConfig,
    PriorConfig,
    check_shape,
)
from movlr_jax.errors import UserError, unknown_name
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
    # with search=bank: a candidate that fell or diverged gives its plan rollouts to the others
    race: bool = False
    # physics=warp: how a step of Warp becomes a CUDA graph: auto, warp, warp_staged, warp_staged_ex, jax, none
    warp_graph: str = "auto"
    mppi: MppiConfig = field(default_factory=MppiConfig)
    muscle: MuscleConfig = field(default_factory=MuscleConfig)
    ppo: PpoConfig = field(default_factory=PpoConfig)
    pd: PdConfig = field(default_factory=PdConfig)
    groups: GroupsConfig = field(default_factory=GroupsConfig)
    prior: PriorConfig = field(default_factory=PriorConfig)  # mpc2
    value: ValueConfig = field(default_factory=ValueConfig)  # of the state at the end of a plan
    options: Mapping[str, Any] = field(default_factory=dict)  # of an optimiser registered by others


def check_optimizer(o: OptimizerConfig) -> None:
    """Raise UserError for values outside their ranges and for unknown choices."""
    mppi, muscle = o.mppi, o.muscle
    if o.warp_graph not in GRAPHS:
        raise UserError(unknown_name("optimizer.warp_graph", o.warp_graph, GRAPHS))
    for name, value in (
        ("replan_every", o.replan_every),
        ("knots", o.knots),
        ("mppi.updates", mppi.updates),
        ("mppi.worlds", mppi.worlds),
        ("muscle.iterations", muscle.iterations),
    ):
        if value < 1:
            raise UserError(f"optimizer.{name}={value}: it must be 1 or more")
    for name, value in (
        ("ctrl_dt", o.ctrl_dt),
        ("sim_dt", o.sim_dt),
        ("plan_dt", o.plan_dt),
        ("horizon_s", o.horizon_s),
        ("mppi.temperature", mppi.temperature),
        ("mppi.anneal_updates", mppi.anneal_updates),
        ("mppi.anneal_knots", mppi.anneal_knots),
        ("mppi.tail", mppi.tail),
        ("mppi.density", mppi.density),
    ):
        if value <= 0:
            raise UserError(f"optimizer.{name}={value:g}: it must be more than 0")
    for name, value in (
        ("synergy", o.synergy),
        ("mppi.samples", mppi.samples),
        ("mppi.elites", mppi.elites),
        ("mppi.sigma", mppi.sigma),
        ("mppi.sigma_min", mppi.sigma_min),
        ("mppi.adapt", mppi.adapt),
        ("mppi.keep", mppi.keep),
        ("mppi.smooth", mppi.smooth),
        ("muscle.kp", muscle.kp),
        ("muscle.kd", muscle.kd),
        ("muscle.product_gain", muscle.product_gain),
        ("muscle.held", muscle.held),
    ):
        if value < 0:
            raise UserError(f"optimizer.{name}={value:g}: it must be 0 or more")
    if mppi.spread < 1:
        raise UserError(f"optimizer.mppi.spread={mppi.spread:g}: a factor up and down must be 1 or more")
    if o.synergy >= 1:
        raise UserError(f"optimizer.synergy={o.synergy:g}: a correlation of noise must be less than 1")
    if mppi.smooth >= 1:
        raise UserError(f"optimizer.mppi.smooth={mppi.smooth:g}: a correlation of noise must be less than 1")
    for name, value, known in (
        ("mppi.rule", mppi.rule, RULES),
        ("mppi.strategy", mppi.strategy, STRATEGIES),
        ("mppi.risk", mppi.risk, RISKS),
        ("spline", o.spline, SPLINES),
    ):
        if value not in known:
            raise UserError(unknown_name(f"optimizer.{name}", value, known))
    for name, share in (("tail", mppi.tail), ("adapt", mppi.adapt), ("density", mppi.density)):
        if share > 1:
            raise UserError(f"optimizer.mppi.{name}={share:g}: a share must be 1 or less")
    if muscle.law not in LAWS:
        raise UserError(unknown_name("optimizer.muscle.law", muscle.law, LAWS))
    if o.race and o.value.use:
        raise UserError(
            "optimizer.race=true lends rollouts between candidates, so optimizer.value cannot learn; set one to false"
        )
    check_value(o.value, OBSERVABLE)
    check_ppo(o)


def check_ppo(o: OptimizerConfig) -> None:
    """Raises UserError where a policy could not be trained with these settings."""
    p, g = o.ppo, o.groups
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
    for name in counts:
        if getattr(p, name) < 1:
            raise UserError(f"optimizer.ppo.{name}={getattr(p, name)}: it must be 1 or more")
    for name, value in (
        ("ppo.learning_rate", p.learning_rate),
        ("ppo.clip", p.clip),
        ("ppo.reward_scale", p.reward_scale),
        ("pd.kp", o.pd.kp),
        ("pd.beta", o.pd.beta),
        ("groups.seconds", g.seconds),
    ):
        if value <= 0:
            raise UserError(f"optimizer.{name}={value:g}: it must be more than 0")
    for name, value in (
        ("ppo.entropy", p.entropy),
        ("ppo.target_kl", p.target_kl),
        ("ppo.value_loss", p.value_loss),
        ("ppo.max_grad_norm", p.max_grad_norm),
        ("ppo.noise", p.noise),
        ("ppo.train_dt", p.train_dt),
        ("pd.kd", o.pd.kd),
        ("ppo.assist", p.assist),
        ("ppo.carry", p.carry),
        ("ppo.stride_starts", p.stride_starts),
        ("ppo.motion_starts", p.motion_starts),
        ("groups.count", g.count),
        ("groups.correction", g.correction),
    ):
        if value < 0:
            raise UserError(f"optimizer.{name}={value:g}: it must be 0 or more")
    if o.pd.about not in ABOUT:
        raise UserError(unknown_name("optimizer.pd.about", o.pd.about, ABOUT))
    for name, value in (("discount", p.discount), ("gae_lambda", p.gae_lambda)):
        if not 0 <= value <= 1:
            raise UserError(f"optimizer.ppo.{name}={value:g}: it must be from 0 to 1")
    if (p.envs * p.unrolls) % p.minibatches:
        raise UserError(
            f"optimizer.ppo.minibatches={p.minibatches} does not divide the {p.envs * p.unrolls} pieces of a batch "
            f"(envs={p.envs} x unrolls={p.unrolls})"
        )
    check_shape(p)
    if p.acts not in ACTS:
        raise UserError(unknown_name("optimizer.ppo.acts", p.acts, ACTS))
