"""What the commands share: settings through Hydra, and mistakes answered with a sentence and exit status 2."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from movlr_jax.errors import UserError, shortened, unknown_name
from movlr_jax.film.renderer import set_aside_unusable
from movlr_jax.machine import cache_dir, processor, xla_knows
from movlr_jax.resources import resource_dir
from movlr_jax.settings import RENAMED

_GROUPS = ("task", "optimizer", "method", "llm", "vlm")
_SHORTHANDS = ("env", "file")  # of a task's own settings, where they have arrived when all is composed
FUSION_FLAG = "xla_cpu_use_fusion_emitters"
_MJX, _POOL, _THREADS = ("mjx", "warp"), "PJRT_NPROC", 16  # threads that XLA computes with on a CPU
_REMOVABLE = {"llm": "scripted", "vlm": "metrics", "optimizer": "mppi", "method": "movlr"}
_UNUSED = {  # of Hydra's own settings, and what to give instead
    "hydra.run.": "give run_dir=..., the folder of the results",
    "hydra.sweep.": "give run_dir=..., in which each job has a numbered folder",
    "hydra.job.chdir": "commands stay in the folder they are started in; change to another first",
    "hydra": "Hydra only composes the settings here, and -m runs one job after another",
}
_FLAGS = ("-m", "--multirun")
CACHE_SWITCH = "MOVLR_COMPILE_CACHE"  # off: nothing is kept
INTERRUPTED = 130  # exit status, as a shell gives it after Ctrl-C
RESETTABLE = ("generations", "films", "max_calls", "max_cost_usd")  # may change when a run is resumed


def prepare_environment(arguments: Sequence[str] = ()) -> None:
    """What must be set before JAX and MuJoCo start, where the user has not set it. Commands only."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    set_aside_unusable()
    # On a CPU, XLA's fusion emitters recompute deep kinematic chains and double the time rewards take to compile.
    # jaxlib 0.10 is the last one where they can be switched off.
    flags = os.environ.get("XLA_FLAGS", "")
    if FUSION_FLAG not in flags and xla_knows(FUSION_FLAG):
        os.environ["XLA_FLAGS"] = f"{flags} --{FUSION_FLAG}=false".strip()
    # On few cores XLA's threads come to wait for each other for ever in a batch of MJX, which has many loops; they do
    # not where there are more of them than cores.
    if any(f"physics={name}" in (*sys.argv, *arguments) for name in _MJX):
        os.environ.setdefault(_POOL, str(max(_THREADS, os.cpu_count() or 1)))
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and os.environ.get(CACHE_SWITCH) != "off":
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(compile_cache())
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "2")  # physics, and no rewards


def entry_point(module: str) -> Callable[..., int]:
    """Return the `main` of a command, which sets the environment before it imports `module` and, with it, JAX."""

    def main(argv: Sequence[str] | None = None) -> int:
        prepare_environment(sys.argv[1:] if argv is None else argv)
        return importlib.import_module(module).main(argv)

    return main


def compile_cache() -> Path:
    """Where compiled physics is kept from run to run, apart for each kind of processor: its code runs on no other."""
    return cache_dir() / f"compiled-{processor()}"


def run(command: Callable[[Any], int], argv: Sequence[str] | None = None) -> int:
    """Composes the settings of each job in `argv` and runs `command` on them. Returns the exit status.

    `command` takes a `config.Config`. A value with commas sweeps, one job after another, as Hydra's -m does;
    a job that ends in a mistake of the user's does not keep the others from running.
    """
    arguments = _arguments(argv, help_text)
    if arguments is None:
        return 0
    overrides = [a for a in arguments if a not in _FLAGS]
    try:
        jobs = expand(overrides)
        configs = [compose(job) for job in jobs]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    status = 0
    for number, (job, config) in enumerate(zip(jobs, configs, strict=True)):
        if len(jobs) > 1:
            print(f"job {number + 1} of {len(jobs)}: {' '.join(job)}", file=sys.stderr)
            if config.run_dir:  # each job its own folder, numbered as Hydra numbers them
                config = dataclasses.replace(config, run_dir=str(Path(config.run_dir) / str(number)))
        status = max(status, run_one(command, config))
        if status == INTERRUPTED:
            break
    return status


def run_own(command: Callable[[list[str]], int], about: str | None, argv: Sequence[str] | None = None) -> int:
    """Runs a `command` that reads its arguments itself; --help prints what it is `about`. Returns the exit status."""
    arguments = _arguments(argv, lambda: about)
    return 0 if arguments is None else run_one(command, arguments)


def _arguments(argv: Sequence[str] | None, about: Callable[[], str | None]) -> list[str] | None:
    """`argv`, or those of the process; None where they ask for help, which is then printed."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not any(a in ("-h", "--help") for a in arguments):
        return arguments
    print(about())
    return None


def run_one(
    command: Callable[[Any], int], given: Any, tell: Callable[[str], object] = lambda text: None
) -> int:
    """Runs `command` on what it is given; a user's mistake is printed, and told. Returns the exit status."""
    from movlr_jax.progress import interruptible

    try:
        with interruptible():
            return command(given)
    except UserError as error:
        print(error, file=sys.stderr)
        tell(str(error))
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Every combination of the values that sweep, in the order of Hydra's basic sweeper. Raises UserError."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    for flag in overrides:
        if flag.startswith("-"):
            raise UserError(
                f"there is no option {flag!r}; settings are given as name=value, --help lists them"
            )
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        choices = [
            [f"{o.get_key_element()}={value}" for value in o.sweep_string_iterator()]
            if o.is_sweep_override()
            else [str(o.input_line)]
            for o in parsed
        ]
    except HydraException as error:
        raise UserError(
            f"cannot read {' '.join(overrides)!r}: {_first_line(error)}; write name=value"
        ) from None
    return [list(job) for job in itertools.product(*choices)]


def compose(overrides: Sequence[str]) -> Any:
    """The checked `Config` of one job. Raises UserError with near matches."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from movlr_jax.commands.trust import check_task_file
    from movlr_jax.config.schema import Config, check
    from movlr_jax.settings import from_mapping

    _refuse_unused(overrides)
    resumed = _resumed(overrides)
    if resumed is not None:
        config, run = check(from_mapping(Config, resumed)), Path(resumed["resume"])
        check_task_file(config, run, [run])
        return config
    folder = resource_dir("conf").resolve()
    overrides = _with_task(overrides, folder)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(folder), version_base="1.3"):
            composed = hydra_compose("config", overrides=list(overrides))
            tuned = _tuned(composed, folder)
            if tuned:  # beneath what the user sets
                composed = hydra_compose("config", overrides=[*overrides, tuned])
        values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=False)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(_sentence(error, overrides, folder)) from None
    assert isinstance(values, dict)
    values = {str(name): value for name, value in values.items() if name not in _SHORTHANDS}
    missing = [name for name, value in values.items() if value == "???"]
    if "task" in missing:
        raise UserError(
            f"no task is named; give +task=NAME, or +task=FILE.py for your own. There are: {_tasks(folder)}"
        )
    if "+task=own" in overrides:  # a run is resumed from anywhere
        settings = values["task"]["settings"]
        settings["file"] = settings["file"] and str(Path(str(settings["file"])).expanduser().resolve())
    return check(from_mapping(Config, values))


def _tuned(composed: Any, folder: Path) -> str | None:
    """The override that brings the settings tuned for this task on this model, where there are any.

    Those of mpc2 are called after the model, those of ppo MODEL_ppo, of mpc2 around a policy MODEL_prior.
    """
    from omegaconf import OmegaConf

    name, model, optimizer = (OmegaConf.select(composed, x) for x in ("task.name", "model", "optimizer.name"))
    if not isinstance(model, str) or optimizer not in ("mpc2", "ppo"):
        return None
    kind = (
        "_ppo"
        if optimizer == "ppo"
        else "_prior"
        if OmegaConf.select(composed, "optimizer.prior.policy")
        else ""
    )
    choice = f"{model}{kind}"
    return f"+tuned/{name}={choice}" if (folder / "tuned" / str(name) / f"{choice}.yaml").is_file() else None


def _resumed(overrides: Sequence[str]) -> dict[str, Any] | None:
    """The settings that a run was made with, where `resume=RUN_DIR` comes without a task; else None.

    What does not make it another run may be set anew beside it.
    """
    from movlr_jax.settings import CONFIG_BYTES, read_yaml
    from movlr_jax.storage.inside import read_inside

    parts = [override.lstrip("+").partition("=") for override in overrides]
    given: dict[str, str] = {name: value for name, _, value in parts}
    if not given.get("resume") or "task" in given:
        return None
    run = Path(given["resume"])
    path, text = run / "config.yaml", read_inside(run, "config.yaml", CONFIG_BYTES)
    if text is None:
        raise UserError(f"{run} is no run directory of movlr-jax: it has no config.yaml")
    for name in given:
        if name not in ("resume", "trust", *RESETTABLE):
            raise UserError(
                f"{name} cannot be set when a run is resumed, only {', '.join(RESETTABLE)}; start a new run for it"
            )
    new: dict[str, Any] = {"trust": False}  # whatever the run says of it
    for name, value in given.items():
        try:
            new[name] = value if name == "resume" else read_yaml(value)
        except ValueError as error:
            raise UserError(f"cannot read {name}={shortened(value)}: {error}") from None
    try:
        return {**read_yaml(text.decode("utf-8")), **new}
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is broken: {_first_line(error)}; the run cannot be resumed") from None


def _with_task(overrides: Sequence[str], folder: Path) -> list[str]:
    """`task=NAME` and `+task=NAME` mean the same; a task that does not exist is named with what is like it.

    `+task=FILE.py` is a task of the user's own, whose settings nobody knows beforehand.
    """
    result: list[str] = []
    for override in overrides:
        group, sign, value = override.lstrip("+").partition("=")
        path = value.strip().strip("\"'")
        if group == "task" and path.endswith(".py"):
            quoted = path.replace("\\", "\\\\").replace("'", "\\'")
            result += ["+task=own", f"file='{quoted}'"]
            continue
        if sign and group in _GROUPS and value not in _options(folder, group):
            raise UserError(unknown_name(group, value, _options(folder, group)))
        result.append(f"+task={value}" if group == "task" else override)
    for group, only in (("file", "own"), ("env", "playground")):
        given = next((o for o in result if o.lstrip("+").startswith(f"{group}=")), None)
        if given and f"+task={only}" not in result:
            raise UserError(f"{given.lstrip('+')} is of +task={only} alone")
    if "+task=own" not in result:
        return [_current(override) for override in result]
    return [f"++{o.lstrip('+')}" if o.lstrip("+").startswith("task.settings.") else o for o in result]


def _current(override: str) -> str:
    """An override under the name that its setting has now."""
    name, sign, value = override.partition("=")
    group, _, last = name.rpartition(".")
    known = group.endswith("task.settings") and last in RENAMED
    return f"{group}.{RENAMED[last]}{sign}{value}" if known else override


def _refuse_unused(overrides: Sequence[str]) -> None:
    """Raises UserError for what Hydra would take, and what nothing would come of here."""
    for override in overrides:
        name, _, value = override.lstrip("+~").partition("=")
        if override.startswith("~"):
            example = value or _REMOVABLE.get(name, "...")
            raise UserError(
                f"~{name}: settings cannot be removed; give another value, as in {name}={example}"
            )
        if name.partition(".")[0].partition("/")[0] == "hydra":
            instead = next((said for start, said in _UNUSED.items() if name.startswith(start)), "")
            raise UserError(f"{name} is not used: {instead}")


def _sentence(error: Exception, overrides: Sequence[str], folder: Path) -> str:
    """Hydra's error as one sentence, with the settings that are most like an unknown one."""
    text = str(error)
    unknown = re.search(r"Could not override '([^']*)'", text) or re.search(
        r"Key '([^']*)' is not in struct", text
    )
    if unknown:
        return unknown_name("setting", unknown.group(1), _settings(overrides, folder))
    return f"cannot read the settings {' '.join(overrides)!r}: {_first_line(error)}"


def _settings(overrides: Sequence[str], folder: Path) -> list[str]:
    """Every setting there is beside these overrides, as dotted names."""
    from omegaconf import OmegaConf

    given = dict(o.lstrip("+").split("=", 1) for o in overrides if "=" in o)
    known = _leaves(OmegaConf.load(folder / "config.yaml"))
    task: Any = OmegaConf.create()
    if "task" in given:
        task = OmegaConf.load(folder / "task" / f"{given['task']}.yaml")
    defaults = [default.get("override /optimizer", "mpc2") for default in task.get("defaults", [])]
    chosen = folder / "optimizer" / f"{given.get('optimizer', [*defaults, 'mpc2'][0])}.yaml"
    known += [f"optimizer.{name}" for name in _leaves(OmegaConf.load(chosen))]
    for group, default in (("llm", "scripted"), ("vlm", "metrics")):
        node = OmegaConf.load(folder / group / f"{given.get(group, default)}.yaml")
        known += [f"{group}.{name}" for name in _leaves(node)]
    known += _leaves(OmegaConf.load(folder / "method" / f"{given.get('method', 'movlr')}.yaml"))
    known += _leaves(task)
    return list(dict.fromkeys(known))


def _leaves(node: Any, prefix: str = "") -> list[str]:
    names = []
    for key in node:
        if key in ("defaults", "hydra"):
            continue
        child = node._get_node(key)
        if hasattr(child, "keys"):
            names += _leaves(child, f"{prefix}{key}.")
        else:
            names.append(f"{prefix}{key}")
    return names


def _options(folder: Path, group: str) -> list[str]:
    return sorted(path.stem for path in (folder / group).glob("*.yaml"))


def _tasks(folder: Path) -> str:
    """Names of all tasks but `own`, which a file's path stands for."""
    return ", ".join(name for name in _options(folder, "task") if name != "own")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def help_text() -> str:
    """The settings and their defaults."""
    folder = resource_dir("conf")
    settings, planner = (
        (folder / name).read_text(encoding="utf-8") for name in ("config.yaml", "optimizer/mpc2.yaml")
    )
    return (
        "Settings are given as name=value, as in candidates=8 or optimizer.mppi.samples=64; a value with commas runs "
        "once for each.\n"
        f"Tasks (+task=NAME, or +task=FILE.py for your own): {_tasks(folder)}\n"
        f"Optimizers (optimizer=NAME): {', '.join(_options(folder, 'optimizer'))}\n"
        f"Methods (method=NAME): {', '.join(_options(folder, 'method'))}\n"
        f"Who writes programs (llm=NAME): {', '.join(_options(folder, 'llm'))}\n"
        f"Who compares and criticises (vlm=NAME): {', '.join(_options(folder, 'vlm'))}\n\n"
        + settings.partition("\n\n")[2].split("\nhydra:")[0]
        + "\noptimizer:\n"
        + textwrap.indent(planner, "  ")
    )
