"""Training recipes: conf/recipe/NAME.yaml, the stages in which a policy is trained from nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from movlr_jax.config.compose import GROUPS
from movlr_jax.config.option_file import read_option_file
from movlr_jax.config.overrides import overrides_of
from movlr_jax.errors import UserError, shortened, unknown_name

STEPS = "optimizer.ppo.env_steps"


@dataclass(frozen=True)
class Stage:
    """One training. It begins with the policy of the previous stage, and the first one with random weights."""

    name: str
    settings: Mapping[str, Any]  # in addition to those of the recipe

    @property
    def steps(self) -> int:
        """Control steps of this stage."""
        return int(self.settings[STEPS])


@dataclass(frozen=True)
class Recipe:
    """A training in stages, and how its result is measured."""

    name: str
    settings: Mapping[str, Any]  # of all stages, by their names on the command line
    stages: Sequence[Stage]
    acting: Mapping[str, Any]  # what an evaluation of the policy changes, besides leaving out the training

    def overrides(self, stage: Stage, policy: Path | None, given: Sequence[str]) -> list[str]:
        """Return the settings of a stage; `policy` is the result of the previous one. The user's own come last."""
        begin = {"optimizer.ppo.init": policy, "optimizer.ppo.teacher": ""} if policy else {}
        return [*_words(_merged(self.settings, stage.settings, begin)), *given]

    def evaluation(self, policy: Path, given: Sequence[str]) -> list[str]:
        """Return the settings of an evaluation of the trained `policy`."""
        untrained = {"optimizer.ppo.init": policy, "optimizer.ppo.teacher": "", STEPS: 0}
        kept = [word for word in given if not word.startswith(f"{STEPS}=")]
        return [*_words(_merged(self.settings, self.acting)), *kept, *_words(untrained)]


def _words(settings: Mapping[str, Any]) -> list[str]:
    return overrides_of({"+task" if name == "task" else name: value for name, value in settings.items()})


def _dotted(settings: Mapping[Any, Any], group: str = "") -> dict[str, Any]:
    """Return settings by dotted name. A group may be a mapping, whose `name` is the option of the group."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{group}{key}"
        if isinstance(value, Mapping):
            found = _merged(found, _dotted(value, f"{name}."))
        else:
            choice = name.removesuffix(".name")
            found = _merged(found, {choice if choice in GROUPS else name: value})
    return found


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of all layers; those of a later one override the others and stand behind them."""
    found: dict[str, Any] = {}
    for layer in layers:
        found = {name: value for name, value in found.items() if name not in layer} | dict(layer)
    return found


def read_recipe(name: str, extending: Sequence[str] = ()) -> Recipe:
    """Return the recipe `name`: an option of conf/recipe, or the path of a YAML file. Raises UserError.

    In the file, `extends` names a recipe whose settings it takes over, but for its own; a path is relative to the
    file. `extending`: recipes that are being read.
    """
    try:
        stem, values = read_option_file("recipe", name)
    except UserError as error:
        if not extending:
            raise
        raise UserError(f"recipe={extending[-1]} extends {name}: {error}") from None
    if not isinstance(stages := values.get("stages"), list) or not stages:
        raise UserError(f"recipe={name} must contain settings: {{...}} and a list of stages: [{{name: ..., ...}}]")
    made = []
    for number, stage in enumerate(stages):
        given = {"name": f"{number}"} | (dict(stage) if isinstance(stage, Mapping) else {})
        own = _dotted({k: v for k, v in given.items() if k != "name"})
        steps = own.get(STEPS)
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            wrong = f", not {shortened(steps)}; write an integer in digits, as in 1000"
            raise UserError(
                f"recipe={name}: stage {given['name']} must set {STEPS} to 1 or more"
                + (wrong if STEPS in own else "")
            )
        if not re.fullmatch(r"[\w.-]+", str(given["name"])):
            raise UserError(
                f"recipe={name}: the name of stage {given['name']!r} is also that of a folder; use only letters, "
                "digits, _, - and ."
            )
        made.append(Stage(str(given["name"]), own))
    known = ("extends", "settings", "acting", "stages")
    if strange := [group for group in values if group not in known]:
        raise UserError(f"recipe={name}: {unknown_name('group', strange[0], known)}")
    chain, extended = (*extending, name), str(values.get("extends") or "")
    if extended.endswith((".yaml", ".yml")):
        extended = str((Path(name).parent / extended).resolve())
    if extended in chain:
        raise UserError(f"recipe={name} extends itself: {' -> '.join((*chain, extended))}")
    base = read_recipe(extended, chain) if extended else Recipe(stem, {}, (), {})
    settings, acting = (values.get(group) or {} for group in ("settings", "acting"))
    for group, members in (("settings", settings), ("acting", acting)):
        if not isinstance(members, Mapping):
            raise UserError(
                f"recipe={name}: {group} is {shortened(members)}, expected a group of settings, as in "
                f"{group}: {{episode_s: 10}}"
            )
    settings, acting = _merged(base.settings, _dotted(settings)), _merged(base.acting, _dotted(acting))
    return Recipe(stem, settings, tuple(made), acting)
