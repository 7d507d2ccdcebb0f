"""Typed settings. Hydra's DictConfig ends here: inside the package a setting is a field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from movlr_jax.config.methods import Method, check_method
from movlr_jax.control.mpc.mppi import MppiConfig
from movlr_jax.control.muscle_controllers.actuation import MuscleConfig
from movlr_jax.control.ppo.config import ACTS, GroupsConfig, PdConfig, PpoConfig, PriorConfig, check_shape
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.evolution.ranking import SCHEMES, calls_needed
from movlr_jax.language.settings import WATCHERS, WRITERS, ModelConfig, check_model
from movlr_jax.physics.choose import PHYSICS

SANDBOXES = ("confined", "process")


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
    mppi: MppiConfig = field(default_factory=MppiConfig)
    muscle: MuscleConfig = field(default_factory=MuscleConfig)
    ppo: PpoConfig = field(default_factory=PpoConfig)
    pd: PdConfig = field(default_factory=PdConfig)
    groups: GroupsConfig = field(default_factory=GroupsConfig)
    prior: PriorConfig = field(default_factory=PriorConfig)  # mpc2


@dataclass(frozen=True)
class TaskConfig:
    """Which task, and its own settings."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    """Everything `search` and `evaluate` can be told. Names are part of the interface."""

    task: TaskConfig
    model: str
    episode_s: float | None  # s; None: as the task's file says
    optimizer: OptimizerConfig
    candidates: int = 4  # K
    generations: int = 3  # N
    seed: int = 0
    run_dir: str | None = None
    resume: str | None = None
    trust: bool = False  # a resumed run's task file that is not as the run recorded it may be run
    physics: str = "auto"
    method: Method = field(default_factory=Method)
    llm: ModelConfig = field(default_factory=lambda: ModelConfig("scripted"))
    vlm: ModelConfig = field(default_factory=lambda: ModelConfig("metrics"))
    ranking: str = "active"
    comparisons: int | None = None  # calls of the judge per generation; None: as the ranking needs
    gates: bool = True  # a fall or a lost simulation overrules a model's judgement
    retries: int = 3  # of a broken program
    inner_weights: int = 0  # variants of each program's weights in the same batch
    max_calls: int | None = None  # of language and vision models
    max_cost_usd: float | None = None
    sandbox: str = "confined"
    films: bool = True
    reward: str = "human"  # of evaluate: a file, human, initial, or a run directory


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
        ("ppo.value_loss", p.value_loss),
        ("ppo.max_grad_norm", p.max_grad_norm),
        ("ppo.noise", p.noise),
        ("ppo.train_dt", p.train_dt),
        ("pd.kd", o.pd.kd),
        ("ppo.assist", p.assist),
        ("groups.count", g.count),
        ("groups.correction", g.correction),
    ):
        if value < 0:
            raise UserError(f"optimizer.{name}={value:g}: it must be 0 or more")
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


def check(config: Config) -> Config:
    """Ranges and choices that types do not tell. Raises UserError; returns `config`."""
    o, mppi, muscle = config.optimizer, config.optimizer.mppi, config.optimizer.muscle
    for name, value in (
        ("candidates", config.candidates),
        ("generations", config.generations),
        ("optimizer.replan_every", o.replan_every),
        ("optimizer.knots", o.knots),
        ("optimizer.mppi.samples", mppi.samples),
        ("optimizer.muscle.iterations", muscle.iterations),
    ):
        if value < 1:
            raise UserError(f"{name}={value}: it must be 1 or more")
    for name, value in (
        ("episode_s", o.ctrl_dt if config.episode_s is None else config.episode_s),
        ("optimizer.ctrl_dt", o.ctrl_dt),
        ("optimizer.sim_dt", o.sim_dt),
        ("optimizer.plan_dt", o.plan_dt),
        ("optimizer.horizon_s", o.horizon_s),
        ("optimizer.mppi.temperature", mppi.temperature),
    ):
        if value <= 0:
            raise UserError(f"{name}={value:g}: it must be more than 0")
    if config.episode_s is not None and config.episode_s < o.ctrl_dt:
        raise UserError(f"episode_s={config.episode_s:g} is shorter than one control step of {o.ctrl_dt:g} s")
    for name, value in (
        ("seed", config.seed),
        ("retries", config.retries),
        ("inner_weights", config.inner_weights),
        ("max_calls", config.max_calls or 0),
        ("max_cost_usd", config.max_cost_usd or 0.0),
        ("optimizer.synergy", o.synergy),
        ("optimizer.mppi.elites", mppi.elites),
        ("optimizer.mppi.sigma", mppi.sigma),
        ("optimizer.mppi.sigma_min", mppi.sigma_min),
        ("optimizer.mppi.adapt", mppi.adapt),
        ("optimizer.mppi.keep", mppi.keep),
        ("optimizer.mppi.smooth", mppi.smooth),
        ("optimizer.muscle.kp", muscle.kp),
        ("optimizer.muscle.kd", muscle.kd),
        ("optimizer.muscle.product_gain", muscle.product_gain),
        ("optimizer.muscle.held", muscle.held),
    ):
        if value < 0:
            raise UserError(f"{name}={value:g}: it must be 0 or more")
    if o.synergy >= 1:
        raise UserError(f"optimizer.synergy={o.synergy:g}: a correlation of noise must be less than 1")
    if mppi.smooth >= 1:
        raise UserError(f"optimizer.mppi.smooth={mppi.smooth:g}: a correlation of noise must be less than 1")
    if mppi.adapt > 1:
        raise UserError(f"optimizer.mppi.adapt={mppi.adapt:g}: a share must be 1 or less")
    for name, value, choices in (
        ("physics", config.physics, PHYSICS),
        ("ranking", config.ranking, SCHEMES),
        ("sandbox", config.sandbox, SANDBOXES),
        ("optimizer.muscle.law", muscle.law, ("linear", "product", "torque")),
    ):
        if value not in choices:
            raise UserError(unknown_name(name, value, choices))
    check_ppo(o)
    check_model(config.llm, "llm", WRITERS)
    check_model(config.vlm, "vlm", WATCHERS)
    check_method(config.method)
    if config.method.start == "human" and (config.candidates, config.generations) != (1, 1):
        raise UserError(
            f"method={config.method.name} evaluates one program once; leave candidates and generations at 1"
        )
    if config.comparisons is not None:
        _check_comparisons(config, config.comparisons)
    return config


def _check_comparisons(config: Config, given: int) -> None:
    """Raises UserError where a generation would take more calls to rank: the search would end after its physics."""
    if given < 2:
        raise UserError(f"comparisons={given}: one pair in both orders takes 2")
    k, more = config.candidates, config.generations > 1  # the best so far meets each later generation
    least = calls_needed(config.ranking, k + more)
    if given < least:
        ranked = f"{k + more} programs{f' ({k} candidates and the best so far)' if more else ''}"
        raise UserError(
            f"comparisons={given}: ranking={config.ranking} of {ranked} takes {least} comparisons or more; give "
            f"comparisons={least} or leave it out"
        )
