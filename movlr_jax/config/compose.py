"""Compose checked settings from command-line overrides, with Hydra."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from movlr_jax._util.parts import settings_of
from movlr_jax._util.resources import resource_dir
from movlr_jax._util.settings import flat, from_mapping
from movlr_jax.config.defaults import ROLES, store_defaults
from movlr_jax.config.methods import METHODS
from movlr_jax.config.overrides import first_line, for_hydra, name_of, quoted, unquoted
from movlr_jax.config.recorded import recorded
from movlr_jax.config.schema import AUTO_SAMPLES, WORKERS, Config, check
from movlr_jax.control.ppo.config import REFERENCE
from movlr_jax.control.settings import OPTIMIZERS, OptimizerSettings
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.tasks.instruction import absolute_model
from movlr_jax.tasks.reference import PEOPLE, STEPS
from movlr_jax.tasks.registry import DESCRIBED_TASK, ENVIRONMENTS, FILE_TASK, TASKS
from movlr_jax.tracking.base import TRACKERS

GROUPS = ("task", "optimizer", "method", "llm", "vlm", *ROLES, "workers", "tracker")
SHORTHANDS = ("env", "file")  # top-level shorthands for settings of a task; composing copies them there


def compose_all(jobs: Sequence[Sequence[str]], config_dir: Path | None = None) -> list[Any]:
    """Return the checked `Config` of each job. Raises UserError, which names the first of several that is wrong."""
    configs = []
    for number, job in enumerate(jobs):
        try:
            configs.append(compose(job, config_dir))
        except UserError as error:
            if len(jobs) == 1:
                raise
            own = " ".join(word for word in job if any(word not in other for other in jobs))
            raise UserError(
                f"{error}; this is job {number + 1} of {len(jobs)} ({own}), and none was started"
            ) from None
    return configs


def compose(overrides: Sequence[str], config_dir: Path | None = None, parts: Sequence[str] = ("",)) -> Config:
    """Return the checked settings of one job. Raises UserError with near matches.

    config_dir: folder with files of settings in addition to those of the package, as Hydra's --config-dir.
    parts: with resume, beginnings of the names of the settings that are used, as `config.trust.TASK`.
    """
    _refuse_unused(overrides)
    if (config := recorded(overrides, parts)) is not None:
        return config
    words = [*search_path(config_dir), *for_hydra(overrides)]
    _check_task(words)
    composed, tuned, described = _composed(words)
    values = {str(name): value for name, value in composed.items() if name not in SHORTHANDS}
    values["tuned_settings"] = tuned
    if "experiment" in values:
        given = next(word for word in words if name_of(word) == "experiment")
        file = f"{given.lstrip('+').replace('=', '/', 1)}.yaml"
        raise UserError(f"{given} needs the folder of your own files: --config-dir DIR, with {file} in it")
    if values["task"] == "???":
        raise UserError(_without_task(values))
    _make_absolute(values, described)
    if flat(values).get(AUTO_SAMPLES[0]) == AUTO_SAMPLES[1]:
        values["optimizer"]["mppi"]["samples"] = 0
    config = from_mapping(Config, values)
    _refuse_other_parts(words, config.optimizer)
    return check(config)


def _refuse_other_parts(words: Sequence[str], optimizer: OptimizerSettings) -> None:
    """Raise UserError for a given setting that only other rules or muscle laws than the chosen one have."""
    for f in fields(optimizer):
        made, registry = getattr(optimizer, f.name), f.metadata.get("parts")
        if registry is None:
            continue
        own = sorted({registry.tag, *(s.name for s in settings_of(type(made)))})
        for name in map(name_of, words):
            group, _, last = name.rpartition(".")
            if group == f"optimizer.{f.name}" and last not in own:
                chosen = f"{group}.{registry.tag}={registry.name_of(made)}"
                raise UserError(f"{name} is no setting of {chosen}; its settings are {', '.join(own)}")


def _composed(words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Compose settings with Hydra. Return them, those that were tuned, and whether words describe the task."""
    from hydra import compose as hydra_compose
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    tuned_settings: dict[str, Any] = {}
    with hydra_at_conf():
        try:
            given = {name_of(word) for word in words if not word.endswith("=null")}
            described = {"model", "instruction"} <= given and "task" not in given
            of_task = [f"task={FILE_TASK}", *words]  # its defaults, without which some settings are not known
            composed = hydra_compose("config", overrides=of_task if described else list(words))
            if not described and (described := _is_described(composed)):
                composed = hydra_compose("config", overrides=of_task)
            words = of_task if described else words
            if suited := _of_environment(composed):
                words = [*suited, *words]
                composed = hydra_compose("config", overrides=words)
            if tuned := _tuned(composed):  # the settings of the user override the tuned ones
                plain = flat(OmegaConf.to_container(composed))
                composed = hydra_compose("config", overrides=[tuned, *words])
                changed = flat(OmegaConf.to_container(composed))
                tuned_settings = {n: value for n, value in changed.items() if plain.get(n) != value}
            values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=False)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise UserError(hydra_sentence(error, words)) from None
    assert isinstance(values, dict)
    return {str(name): value for name, value in values.items()}, tuned_settings, described


def _make_absolute(values: dict[str, Any], described: bool) -> None:
    """Make the paths in settings absolute, because a run may be resumed from another folder."""

    def absolute(path: Any) -> str:
        return str(Path(str(path)).expanduser().resolve())

    if values["reference"] and values["reference"] not in (PEOPLE, STEPS):
        values["reference"] = absolute(values["reference"])
    for role in ("llm", "vlm"):
        if isinstance(values.get(role), dict) and values[role].get("run"):
            values[role]["run"] = absolute(values[role]["run"])
    if described:
        values["task"] = {"name": DESCRIBED_TASK, "settings": {}}
        values["model"] = absolute_model(values["model"])
    elif values["task"]["name"] == FILE_TASK and values["task"]["settings"]["file"]:
        values["task"]["settings"]["file"] = absolute(values["task"]["settings"]["file"])


def _is_described(composed: Any) -> bool:
    """Return whether the settings name no task, but a model and an instruction, which are one."""
    from omegaconf import OmegaConf

    given = (not OmegaConf.is_missing(composed, name) and composed[name] for name in ("model", "instruction"))
    return OmegaConf.is_missing(composed, "task") and all(isinstance(value, str) for value in given)


def _without_task(values: Mapping[str, Any]) -> str:
    """Return the error message for settings without a task: what is missing to what they have."""
    if (Path(str(values["reward"])) / "run.db").is_file():
        run = values["reward"]
        return f"no task is set, and evaluate takes none from a run; the report of {run} has the whole command"
    ways = "give +task=NAME, or +task=FILE.py for your own"
    if values["model"] != "???":
        asked = f'say what model={values["model"]} should do, as in instruction="reach the target", or {ways}'
    elif values["instruction"] is not None:
        asked = f"name the model that should move, as in model=arm.xml, or {ways}"
    else:
        asked = f'{ways}, or model=MODEL with instruction="..."'
    return f"no task is set; {asked}. Available: {', '.join(options('task'))}"


@contextlib.contextmanager
def hydra_at_conf() -> Iterator[None]:
    """Initialise Hydra with the folder conf/ and the defaults of the package."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    store_defaults()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(resource_dir("conf").resolve()), job_name="movlr_jax", version_base="1.3"):
        yield


def search_path(config_dir: Path | None) -> list[str]:
    """Return the overrides that add the folder of the user to Hydra's search path. Raises UserError."""
    if config_dir is None:
        return []
    if not config_dir.is_dir():
        raise UserError(f"--config-dir {config_dir}: there is no such folder")
    return [f"hydra.searchpath=[{quoted(f'file://{config_dir.resolve()}')}]"]


def _of_environment(composed: Any) -> list[str]:
    """Return the overrides by which a search suits the environment that its task names; for other tasks none."""
    from omegaconf import OmegaConf

    suite = ENVIRONMENTS.get(OmegaConf.select(composed, "task.name"))
    given = suite.settings(composed.env) if suite else {}
    groups = {name: "optimizer." if name in composed.optimizer else "" for name in given}
    return [f"{groups[name]}{name}={value}" for name, value in given.items() if groups[name] or name == "episode_s"]


def _tuned(composed: Any) -> str | None:
    """Return the override that adds the settings tuned for this task and model, or None without such settings.

    The option is MODEL for mpc2, MODEL_prior for mpc2 around a policy, MODEL_stride around a recorded stride, and
    MODEL_ppo for ppo.
    """
    from omegaconf import OmegaConf

    name, model, optimizer = (OmegaConf.select(composed, x) for x in ("task.name", "model", "optimizer.name"))
    if not composed.tuned or not isinstance(model, str) or optimizer not in ("mpc2", "ppo"):
        return None
    prior = OmegaConf.select(composed, "optimizer.prior.policy")
    around = "_stride" if prior == REFERENCE else "_prior" if prior else ""
    choice = f"{model}{'_ppo' if optimizer == 'ppo' else around}"
    file = resource_dir("conf") / "tuned_for" / str(name) / f"{choice}.yaml"
    return f"+tuned_for/{name}={choice}" if file.is_file() else None


def _check_task(words: Sequence[str]) -> None:
    """Raise UserError for the path of a task that is no Python file."""
    for word in words:
        name = unquoted(word.partition("=")[2])
        if name_of(word) != "task" or not ("/" in name or Path(name).suffix):
            continue
        if Path(name).suffix == ".xml":
            raise UserError(f'there is no task {name!r}; to move a model, give model={name} with instruction="..."')
        raise UserError(f"there is no task {name!r}; a task of your own is a .py file (docs/write_a_task.md)")


def _refuse_unused(overrides: Sequence[str]) -> None:
    """Raise UserError for overrides that Hydra would accept but that have no effect here."""
    for override in overrides:
        name = override.lstrip("+~").partition("=")[0]
        if override.startswith("~"):
            raise UserError(f"~{name}: settings cannot be removed; give another value, as in {name}=...")
        if re.match(r"hydra\b", name):
            raise UserError(
                f"{name} is not used: of Hydra's own settings, only those of hydra/launcher, hydra/sweeper and "
                "hydra.sweep are, in a sweep with -m; run_dir=... is the folder of the results"
            )


_SYNONYMS = {
    **dict.fromkeys(("seconds", "duration", "length", "time"), "episode_s"),
    **dict.fromkeys(("population", "k", "K"), "candidates"),
    **dict.fromkeys(("iterations", "steps"), "generations"),
    **dict.fromkeys(("samples", "n", "N"), "optimizer.mppi.samples"),
    **dict.fromkeys(("horizon", "horizon_s"), "optimizer.horizon_s"),
    **dict.fromkeys(("output", "out", "folder"), "run_dir"),
}  # words for settings that are not similar to their names


def hydra_sentence(error: Exception, overrides: Sequence[str]) -> str:
    """Return an error of Hydra as one sentence. For an unknown setting, it names the closest ones."""
    text = str(error)
    if missing := re.search(r"Could not find '(.+)/([^/']*)'", text):
        found = re.findall(r"^\t(\S+)$", text, re.MULTILINE)
        group = missing[1]
        return unknown_name(group, missing[2], [n for n in found if n != FILE_TASK and not n.endswith("_schema")])
    unknown = re.search(r"Could not override '([^']*)'|Key '([^']*)' is not in struct", text)
    if unknown:
        name = unknown[1] or unknown[2]
        if meant := _SYNONYMS.get(name):
            return f"there is no setting {name!r}; did you mean {meant!r}?"
        return unknown_name("setting", name, _settings(overrides))
    return f"cannot read the settings {' '.join(overrides)!r}: {first_line(error)}"


def _settings(overrides: Sequence[str]) -> list[str]:
    """Return the dotted names of all settings with the groups that `overrides` choose. Hydra must be initialised."""
    from hydra import compose as hydra_compose
    from omegaconf import OmegaConf

    chosen = [o for o in overrides if name_of(o) in GROUPS]
    return list(flat(OmegaConf.to_container(hydra_compose("config", overrides=chosen))))


def options(group: str) -> list[str]:
    """Return what users can set `group` (task, optimizer, method, llm, vlm) to: files of conf/ and registered names.

    The task of a file is none of them: it is set by its path.
    """
    registered = {
        "task": TASKS,
        "method": METHODS,
        "optimizer": OPTIMIZERS,
        **ROLES,
        "workers": WORKERS,
        "tracker": TRACKERS,
    }.get(group, ())
    files = (path.stem for path in (resource_dir("conf") / group).glob("*.yaml"))
    return sorted({*files, *registered} - ({FILE_TASK} if group == "task" else set()))
