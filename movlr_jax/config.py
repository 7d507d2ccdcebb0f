"""Typed settings. Hydra's DictConfig ends here: inside the package a setting is a field."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from movlr_jax.control.mpc2 import MuscleLaw
from movlr_jax.control.mppi import MppiConfig
from movlr_jax.errors import UserError, unknown_name

PHYSICS = ("auto", "native")
RANKINGS = ("active", "round_robin")
SANDBOXES = ("process",)


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
    knots: int = 4  # of optimizer=mppi, over the horizon
    mppi: MppiConfig = field(default_factory=MppiConfig)
    muscle: MuscleLaw = field(default_factory=MuscleLaw)


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
    episode_s: float
    optimizer: OptimizerConfig
    candidates: int = 4  # K
    generations: int = 4  # N
    seed: int = 0
    run_dir: str | None = None
    resume: str | None = None
    physics: str = "auto"
    method: str = "movlr"
    llm: str = "scripted"
    vlm: str = "metrics"
    ranking: str = "active"
    sandbox: str = "process"
    films: bool = True
    reward: str = "human"  # of evaluate: a file, human, initial, or a run directory


def from_mapping(kind: type, values: Any, where: str = "") -> Any:
    """A frozen dataclass from nested mappings. Raises UserError for unknown names and wrong types."""
    if not isinstance(values, Mapping):
        raise UserError(f"{where or 'the configuration'} is {values!r}, expected a group of settings")
    names = {f.name: f for f in dataclasses.fields(kind)}
    for name in values:
        if name not in names:
            raise UserError(f"{where}{name}: " + unknown_name("setting", name, names))
    hints = get_type_hints(kind)
    built = {}
    for name, f in names.items():
        if name in values:
            built[name] = _value(hints[name], values[name], f"{where}{name}")
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise UserError(f"{where}{name} is not set; give {where}{name}=...")
    return kind(**built)


def _value(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_mapping(hint, value, where + ".")  # pyright: ignore[reportArgumentType]
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise UserError(f"{where}={value} is not a finite number")
        return float(value)
    if hint in (int, bool, str) and type(value) is not hint:
        if hint is str and isinstance(value, int | float):
            return str(value)  # run_dir=2026 is a name
        wanted = {int: "a whole number", bool: "true or false", str: "a text"}[hint]
        raise UserError(f"{where}={value!r} is not {wanted}")
    return value


def check(config: Config) -> Config:
    """Ranges and choices that types do not tell. Raises UserError; returns `config`."""
    o = config.optimizer
    for name, value in (
        ("candidates", config.candidates),
        ("generations", config.generations),
        ("optimizer.replan_every", o.replan_every),
        ("optimizer.mppi.samples", o.mppi.samples),
    ):
        if value < 1:
            raise UserError(f"{name}={value}: it must be 1 or more")
    for name, value in (
        ("episode_s", config.episode_s),
        ("optimizer.ctrl_dt", o.ctrl_dt),
        ("optimizer.sim_dt", o.sim_dt),
        ("optimizer.plan_dt", o.plan_dt),
        ("optimizer.horizon_s", o.horizon_s),
        ("optimizer.mppi.temperature", o.mppi.temperature),
    ):
        if value <= 0:
            raise UserError(f"{name}={value:g}: it must be more than 0")
    if config.episode_s < o.ctrl_dt:
        raise UserError(f"episode_s={config.episode_s:g} is shorter than one control step of {o.ctrl_dt:g} s")
    if config.seed < 0:
        raise UserError(f"seed={config.seed}: it must be 0 or more")
    for name, value, choices in (
        ("physics", config.physics, PHYSICS),
        ("ranking", config.ranking, RANKINGS),
        ("sandbox", config.sandbox, SANDBOXES),
        ("llm", config.llm, ("scripted",)),
        ("vlm", config.vlm, ("metrics",)),
        ("method", config.method, ("movlr",)),
        ("optimizer.muscle.law", o.muscle.law, ("linear", "product")),
    ):
        if value not in choices:
            raise UserError(unknown_name(name, value, choices))
    return config
