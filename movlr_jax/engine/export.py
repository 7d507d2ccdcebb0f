"""Recorded episodes and trained policies as files for other programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from movlr_jax._util.resources import resource_dir
from movlr_jax.config.compose import compose, options
from movlr_jax.config.recipe import read_recipe
from movlr_jax.config.recorded import kept_settings
from movlr_jax.config.schema import Config
from movlr_jax.config.trust import POLICY
from movlr_jax.control.build import build_optimizer
from movlr_jax.control.settings import PpoSettings
from movlr_jax.engine.episodes import EpisodeRequest
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError, needed, similar_files, unknown_name
from movlr_jax.language.clients.replay import write_recording
from movlr_jax.storage.inside import inside
from movlr_jax.storage.trajectory import FORMATS, EpisodeRecord

ANSWERS = "answers"  # the format of a recording of a search


_UNTRAINED = ("optimizer.ppo.env_steps=0", "optimizer.ppo.teacher=", "optimizer.ppo.acts=mode", "physics=native")


def export_episodes(request: EpisodeRequest, formats: Sequence[str]) -> Iterator[Path]:
    """Write recorded episodes as files for other programs and yield their paths. Raises UserError.

    formats: `mot` and `sto` (OpenSim), `csv`, `parquet`, and `answers`: those of the models of a search, and its
    settings, so that it can be repeated without them.
    """
    for name in formats or [""]:
        if name not in (*FORMATS, ANSWERS):
            raise UserError(unknown_name("format", name, [*FORMATS, ANSWERS]))
    if ANSWERS in formats:
        if not request.source.is_dir():
            raise UserError(f"format=answers takes a run directory, not {request.source}")
        yield from write_recording(request.source, request.out or inside(request.source, "export"))
    tables = [name for name in formats if name != ANSWERS]
    if not tables:
        return
    task = request.task()
    for name, states, folder in list(request.episodes("export")):
        try:
            record = EpisodeRecord.read(states, task.model, task.adapter)
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        for kind in tables:
            yield from record.export(folder / f"{name}.{kind}")


def export_policy(config: Config, out: Path | None = None) -> Iterator[Path]:
    """Write a policy as an ONNX graph, and the model that it acts on, and yield their paths. Raises UserError.

    config: settings with which the policy `optimizer.ppo.init` runs, as of `settings_of_policy`. out: the file of the
    graph; None for one in the current folder with the name of the policy.
    """
    if not isinstance(config.optimizer, PpoSettings):
        raise UserError(f"optimizer={config.optimizer.name} trains no policy; give optimizer=ppo or optimizer=dynsyn")
    out = out or Path(Path(config.optimizer.ppo.init).name).with_suffix(".onnx")
    if out.suffix != ".onnx":
        raise UserError(f"out={out}: a policy is written to one file, whose name ends in .onnx")
    with needed("export policy=", "onnx"):
        from movlr_jax.control.onnx_export.policy import export_policy as write
    made: Any = build_optimizer(
        config.optimizer, task_of(config), "native", lambda text: print(text, file=sys.stderr)
    )
    yield from write(made, out)


def settings_of_policy(policy: str, recipe: str, settings: Sequence[str], trust: bool = False) -> Config:
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
            raise UserError(f"there is no policy {file} of recipe {recipe} yet; train it, or give policy=FILE.npz")
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
    if not policy.is_file():
        raise UserError(f"there is no policy file {policy}{similar_files(policy)}")
    folders = [policy.parent, *sorted(policy.parent.glob("stages/*"), reverse=True), policy.parent.parent]
    found = (folder / "config.yaml" for folder in folders)
    kept = next((file for file in found if file.is_file()), policy.parent / "config.yaml")
    if settings and kept.is_file():
        raise UserError(f"{settings[0]} cannot be changed: the settings are those of the training")

    def acting(values: dict[str, Any]) -> dict[str, Any]:
        optimizer = values["optimizer"]
        if "ppo" not in optimizer:  # that of a planner, which is told once it may be read
            return values
        untrained = {"init": str(policy), "env_steps": 0, "teacher": "", "acts": "mode"}
        return {**values, "optimizer": {**optimizer, "ppo": {**optimizer["ppo"], **untrained}}}

    own = ["optimizer.ppo.init"]  # the policy that is exported
    if (config := kept_settings(kept, POLICY, trust, acting, own)) is None:
        raise UserError(
            f"the task of policy={policy} is not known: there is no config.yaml of a training next to it; give "
            "+task=NAME model=... and the settings of the training"
        )
    return config
