"""`movlr-jax export policy=FILE.npz out=walk.onnx`: a trained policy as an ONNX graph."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from movlr_jax._util.resources import resource_dir
from movlr_jax._util.settings import CONFIG_BYTES, read_yaml
from movlr_jax.cli import common
from movlr_jax.config.compose import compose, options
from movlr_jax.config.recipe import read_recipe
from movlr_jax.config.schema import Config, recorded_config
from movlr_jax.config.trust import POLICY, acts, obey
from movlr_jax.control.build import build_optimizer
from movlr_jax.control.ppo.foreign import not_a_policy
from movlr_jax.control.settings import PpoSettings
from movlr_jax.engine.session import task_of
from movlr_jax.errors import UserError, needed, similar_files
from movlr_jax.storage.inside import read_inside

_UNTRAINED = (
    "optimizer.ppo.env_steps=0",
    "optimizer.ppo.teacher=",
    "optimizer.ppo.acts=mode",
    "physics=native",
)


def export_policy(arguments: Sequence[str]) -> int:
    """Write a policy and the model that it acts on, and print their paths. Raises UserError."""
    given, settings = common.split_arguments(
        arguments,
        {"policy": "", "recipe": "", "out": "", "trust": "false"},
        {"format": "policies are written as ONNX graphs"},
    )
    config = settings_of(given["policy"], given["recipe"], settings, common.switch("trust", given["trust"]))
    if not isinstance(config.optimizer, PpoSettings):
        raise UserError(
            f"optimizer={config.optimizer.name} trains no policy; give optimizer=ppo or optimizer=dynsyn"
        )
    policy = config.optimizer.ppo.init
    out = Path(given["out"] or Path(Path(policy).name).with_suffix(".onnx"))
    if out.suffix != ".onnx":
        raise UserError(f"out={out}: a policy is written to one file, whose name ends in .onnx")
    with needed("export policy=", "onnx"):
        from movlr_jax.control.onnx_export.policy import export_policy as write
    task = task_of(config)
    made: Any = build_optimizer(config.optimizer, task, "native", lambda text: print(text, file=sys.stderr))
    for path in write(made, out):
        print(path, flush=True)
    return 0


def settings_of(policy: str, recipe: str, settings: Sequence[str], trust: bool = False) -> Config:
    """Return the settings with which a policy runs. trust: obey what recorded ones ask for.

    Those given; for a recipe, its own; for a policy of the package, those of its recipe; else those that the training
    kept next to the file. Raises UserError.
    """
    with_task = any(word.lstrip("+").startswith("task=") for word in settings)
    built_in = (resource_dir("assets") / "policies" / f"{policy}.npz").is_file()
    if not recipe and policy in options("recipe") and (_trained(policy).is_file() or not built_in):
        policy, recipe = "", policy
    elif not recipe and not with_task and built_in:
        recipe = _recipe_of(policy)
    if recipe:
        made = read_recipe(recipe)
        file = Path(policy) if policy else _trained(made.name)
        if not policy and not file.is_file():
            raise UserError(
                f"there is no policy {file} of recipe {recipe} yet; train it, or give policy=FILE.npz"
            )
        return compose([*made.evaluation(file, settings), *_UNTRAINED])
    if with_task:
        chosen = () if any(word.startswith("optimizer=") for word in settings) else ("optimizer=ppo",)
        return compose([*settings, *chosen, f"optimizer.ppo.init={policy}", *_UNTRAINED])
    return _recorded(Path(policy), settings, trust)


def _recipe_of(policy: str) -> str:
    """Return the recipe of a policy of the package: flat_walk_legs is that of flat_walk_ms_human_700_legs."""
    for recipe in options("recipe"):
        walk, _, model = recipe.rpartition("_")
        if policy.startswith(f"{walk}_") and policy.endswith(f"_{model}"):
            return recipe
    return ""


def _trained(recipe: str) -> Path:
    """Return the file of the policy of a recipe, as `train` writes it."""
    return Path(f"runs/train/{recipe}/seed0/policy.npz")


def _recorded(policy: Path, settings: Sequence[str], trust: bool) -> Config:
    """Return the settings of the training that wrote the file `policy`. Raises UserError."""
    if what := not_a_policy(policy):
        raise UserError(f"policy={policy}: {what}")
    if not policy.is_file():
        raise UserError(f"there is no policy file {policy}{similar_files(policy)}")
    folders = [policy.parent, *sorted(policy.parent.glob("stages/*"), reverse=True), policy.parent.parent]
    read = ((f, read_inside(f, "config.yaml", CONFIG_BYTES)) for f in folders if f.is_dir())
    folder, text = next(((folder, text) for folder, text in read if text), (policy.parent, None))
    if text is None:
        raise UserError(
            f"the task of policy={policy} is not known: there is no config.yaml of a training next to it; give "
            "+task=NAME model=... and the settings of the training"
        )
    try:
        values = dict(read_yaml(text.decode("utf-8")))
        if settings:
            raise UserError(f"{settings[0]} cannot be changed: the settings are those of the training")
        ppo = {
            **values["optimizer"]["ppo"],
            "init": str(policy),
            "env_steps": 0,
            "teacher": "",
            "acts": "mode",
        }
        values["optimizer"] = {**values["optimizer"], "ppo": ppo}
        config = recorded_config(values)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the settings next to policy={policy} cannot be read: {error}; give +task=NAME"
        ) from None
    asked = {name: value for name, value in acts(config).items() if name.startswith(POLICY)}
    asked.pop("optimizer.ppo.init", None)  # the policy that is exported
    obey(asked, folder, "policy", trust)
    return config
