"""Parts that are given in Python as objects, in place of their name and settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from movlr_jax.config.schema import Config, check
from movlr_jax.control.mpc.rules import PlanningRule
from movlr_jax.control.muscle_controllers import MuscleLaw
from movlr_jax.control.settings import OptimizerSettings
from movlr_jax.errors import UserError

# keyword -> (class, setting of the optimizer that it replaces)
_OF_OPTIMIZER = {"planner": (PlanningRule, "mppi"), "muscle": (MuscleLaw, "muscle")}
_ROLES = {"judge": "compare", "critic": "criticise", "proposer": "propose"}  # and the method that each has


# and the setting that names a part
_NAMES = {"planner": "optimizer.mppi.rule", "muscle": "optimizer.muscle.law"}


def separated(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (settings, parts): keywords whose values are settings, and those whose values are objects."""
    kinds = (*_OF_OPTIMIZER, *_ROLES, "optimizer")
    parts = {n: v for n, v in given.items() if n in kinds and not isinstance(v, str | Mapping)}
    settings = {_NAMES.get(n, n): v for n, v in given.items() if n not in parts}
    return settings, parts


def with_parts(config: Config, parts: Mapping[str, Any]) -> Config:
    """Return the settings with the objects `parts`, as planner=Mppi(samples=8). Raises UserError."""
    optimizer, roles = config.optimizer, {}
    if "optimizer" in parts:
        optimizer = _checked("optimizer", parts["optimizer"], OptimizerSettings)
    for name, made in parts.items():
        if name in _OF_OPTIMIZER:
            kind, field = _OF_OPTIMIZER[name]
            if field not in {f.name for f in dataclasses.fields(optimizer)}:
                raise UserError(f"{name}= has no effect with optimizer={optimizer.name}; leave one of them out")
            optimizer = dataclasses.replace(optimizer, **{field: _checked(name, made, kind)})
        elif name in _ROLES:
            _refuse_class(name, made)
            if not callable(getattr(made, _ROLES[name], None)):
                raise UserError(f"{name}={made!r:.80} has no method {_ROLES[name]}; give an object that has it")
            roles[name] = made
    return check(dataclasses.replace(config, optimizer=optimizer, **roles)) if parts else config


def _refuse_class(name: str, made: Any) -> None:
    if isinstance(made, type):
        raise UserError(f"{name}={made.__name__} is a class; give an object of it, as {name}={made.__name__}()")


def _checked(name: str, made: Any, kind: type) -> Any:
    _refuse_class(name, made)
    if not isinstance(made, kind):
        raise UserError(f"{name}={made!r:.80} is no {kind.__name__}; give one, or the name of one")
    return made
