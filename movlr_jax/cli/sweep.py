"""Sweeps by Hydra (-m): its sweepers and launchers run the jobs, each in a folder of its own.

A job composes its settings itself, so that it gets what a single run of the same command gets. It runs in this
process or in another one, perhaps on another machine, and writes `job.yaml` at its end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from movlr_jax._util.progress import interruptible
from movlr_jax._util.settings import plain
from movlr_jax.cli import outcome
from movlr_jax.cli.arguments import Arguments
from movlr_jax.config.compose import (
    composable,
    compose,
    compose_all,
    expand,
    hydra_at_conf,
    hydra_sentence,
    of_hydra,
    search_path,
    with_quotes,
)
from movlr_jax.engine.environment import prepare_environment, prepare_physics
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.report.sweep import JOB, write_sweep_page
from movlr_jax.storage.writing import write_atomically

_PLUGINS = {  # launchers and sweepers in packages of their own
    "joblib": "hydra-joblib-launcher",
    **dict.fromkeys(("submitit_local", "submitit_slurm"), "hydra-submitit-launcher"),
    **dict.fromkeys(("ray", "ray_aws"), "hydra-ray-launcher"),
    "rq": "hydra-rq-launcher",
    "nevergrad": "hydra-nevergrad-sweeper",
    "ax": "hydra-ax-sweeper",
    "optuna": "hydra-optuna-sweeper",
}
_IN_EXTRA = ("hydra-joblib-launcher", "hydra-submitit-launcher")  # of the extra `sweep`
_BASIC = "BasicSweeper"


class JobFailed(Exception):
    """A job of a sweep ended with an error; its message is the sentence."""


@dataclass(frozen=True)
class Job:
    """What a launcher calls for each job of a sweep."""

    module: str  # module and name of the command
    name: str
    config_dir: Path | None
    count: int | None  # jobs of the sweep, if known

    def __call__(self, _: Any) -> float:
        """Run the job that Hydra describes. Return the score of the best program for sweepers that optimise.

        A job whose folder holds a run already continues it: a cluster may start a job again.
        """
        from hydra.core.hydra_config import HydraConfig

        prepare_environment()
        command = getattr(importlib.import_module(self.module), self.name)
        about = HydraConfig.get()
        overrides, folder = list(about.overrides.task), Path(about.runtime.output_dir)
        of = f" of {self.count}" if self.count else ""
        print(f"job {int(about.job.num) + 1}{of}: {' '.join(overrides)}", file=sys.stderr)
        errors: list[str] = []
        try:
            status = outcome.run_one(lambda _: command(self._config(overrides, folder)), None, errors.append)
        except Exception as error:  # launchers drop the exceptions of jobs
            traceback.print_exc()
            errors.append(f"{type(error).__name__}: {_first_line(error)}".removesuffix(": "))
            status = 1
        about_job = {"overrides": overrides, "status": status, "error": "; ".join(errors)}
        write_atomically(folder / JOB, yaml.safe_dump(about_job, sort_keys=False).encode())
        if status == outcome.INTERRUPTED:
            raise KeyboardInterrupt
        if errors:
            raise JobFailed(errors[0])
        return score_of_run(folder)

    def _config(self, overrides: Sequence[str], folder: Path) -> Any:
        config = compose(overrides, self.config_dir)
        prepare_physics(config.physics)
        if config.resume:
            return config
        begun = (folder / "config.yaml").exists()
        return dataclasses.replace(config, run_dir=str(folder), resume=str(folder) if begun else None)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")


def score_of_run(folder: Path) -> float:
    """Return the score of the best program of a search, as its task measures it; NaN without one."""
    from movlr_jax.storage.archive import Archive

    if not (folder / "run.db").exists():
        return float("nan")
    with Archive.open(folder, write=False) as archive:
        score = (archive.get("finished") or {}).get("score")
    return float("nan") if score is None else float(score)


def sweep(command: Callable[[Any], int], given: Arguments) -> int:
    """Run the jobs of a sweep with the chosen sweeper and launcher. Return the highest exit status.

    Raises UserError for settings that cannot be used, before any job starts.
    """
    from hydra._internal.callbacks import Callbacks
    from hydra.core.plugins import Plugins
    from hydra.types import HydraContext, RunMode
    from omegaconf import OmegaConf

    mine, others = _with_folder(*of_hydra(given.overrides))
    with hydra_at_conf() as hydra:
        _check_plugins(mine, hydra.config_loader)
        with _sentences(mine):
            master = hydra.compose_config("config", [*search_path(given.config_dir), *mine], RunMode.MULTIRUN)
            folder = Path(str(master.hydra.sweep.dir)).absolute()
        launcher = str(OmegaConf.select(master, "hydra.runtime.choices")["hydra/launcher"])
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(master))
    jobs: list[list[str]] | None = None
    if str(master.hydra.sweeper._target_).endswith(_BASIC):
        jobs = expand(others)
        compose_all(jobs, given.config_dir)  # no job starts when one is wrong
    count = len(jobs) if jobs else None
    task = Job(command.__module__, command.__name__, given.config_dir, count)
    print(f"sweep: {f'{count} jobs' if count else 'jobs'} by {launcher} in {folder}", file=sys.stderr)
    status = 0
    try:
        with interruptible():  # also while the jobs run in other processes
            if jobs:
                runs = Plugins.instance().instantiate_launcher(context, task, master)
                ready = [composable(job, given.config_dir) for job in jobs]
                at_once = int(master.hydra.sweeper.get("max_batch_size") or len(ready))
                for first in range(0, len(ready), at_once):
                    runs.launch(ready[first : first + at_once], first)
            else:
                chosen = {"config": master, "hydra_context": context, "task_function": task}
                sweeper = Plugins.instance().instantiate_sweeper(**chosen)
                sweeper.sweep(composable(others, given.config_dir))
    except KeyboardInterrupt:
        print("interrupted; the same command with the same folder continues", file=sys.stderr)
        status = outcome.INTERRUPTED
    except JobFailed:  # its sentence is in job.yaml
        pass
    except Exception as error:  # plugins have exceptions of their own
        why = _first_line(error) or type(error).__name__
        print(f"{launcher} ended the sweep: {why}", file=sys.stderr)
        status = 2
    return _end(folder, count, status)


def _end(folder: Path, count: int | None, status: int) -> int:
    """Report how the jobs of a sweep ended and write their page. Return the exit status of the sweep."""
    ended = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob(JOB))]
    for job in ended:
        if job["error"]:
            print(f"failed: {' '.join(job['overrides'])}: {job['error']}", file=sys.stderr)
    if count and len(ended) < count:
        print(
            f"{count - len(ended)} of {count} jobs did not end; the same command with the same folder continues",
            file=sys.stderr,
        )
        status = max(status, 2)
    if any(folder.rglob("run.db")):
        print(f"report: {write_sweep_page(folder)}", file=sys.stderr)
    return max(status, *(job["status"] for job in ended)) if ended else status


def show(given: Arguments) -> int:
    """Print settings, what Hydra knows, or a shell's completion, without running anything. Raises UserError."""
    from hydra._internal.utils import get_args_parser

    mine, others = of_hydra(given.overrides)
    if given.cfg == "job":
        _print_settings(compose(others, given.config_dir), given.package)
        return 0
    with hydra_at_conf() as hydra, _sentences(given.overrides):
        ready = [*search_path(given.config_dir), *mine]
        if given.shell_completion:
            hydra.shell_completion("config", others)
            return 0
        ready += composable(others, given.config_dir)
        if given.cfg:
            hydra.show_cfg("config", ready, given.cfg, given.package, given.resolve)
        elif given.info:
            _show_info(hydra, given.info, ready)
        else:
            parser = get_args_parser()
            hydra.hydra_help("config", parser, parser.parse_args(ready))
    return 0


def _show_info(hydra: Any, what: str, overrides: list[str]) -> None:
    """Print what Hydra knows. It logs this to stdout, so the loggers of this process are restored afterwards."""
    root = logging.getLogger()
    before = root.handlers, root.level
    try:
        root.handlers = []
        hydra.show_info(what, "config", overrides)
    finally:
        root.handlers, level = before
        root.setLevel(level)


def _print_settings(config: Any, package: str | None) -> None:
    """Print all settings of a job as YAML, or those of `package` (dotted). Raises UserError."""
    values, done = plain(config), ""
    for name in (package or "").split(".") if package else []:
        if not isinstance(values, dict) or name not in values:
            near = [f"{done}{known}" for known in values] if isinstance(values, dict) else []
            raise UserError(unknown_name("setting", f"{done}{name}", near))
        values, done = values[name], f"{done}{name}."
    print(yaml.safe_dump(values, sort_keys=False).removesuffix("...\n"), end="")


def _with_folder(mine: list[str], others: list[str]) -> tuple[list[str], list[str]]:
    """Return Hydra's and the jobs' settings with run_dir=... as the folder of the sweep. Raises UserError."""
    given = [o for o in others if o.lstrip("+").startswith("run_dir=")]
    if not given:
        return mine, others
    if any(o.lstrip("+").startswith("hydra.sweep.dir=") for o in mine):
        raise UserError("run_dir= and hydra.sweep.dir= both name the folder of the sweep; give one of them")
    folder = with_quotes(given[-1]).partition("=")[2]
    return [*mine, f"hydra.sweep.dir={folder}"], [o for o in others if o not in given]


def _check_plugins(mine: Sequence[str], loader: Any) -> None:
    """Raise UserError for a launcher or sweeper that does not exist or is not installed."""
    for override in mine:
        group, _, value = override.lstrip("+").partition("=")
        if group not in ("hydra/launcher", "hydra/sweeper") or value in (
            known := loader.get_group_options(group)
        ):
            continue
        if package := _PLUGINS.get(value):
            raise UserError(
                f"{group}={value} needs the package {package}, which is not installed; pip install 'movlr-jax[sweep]'"
                if package in _IN_EXTRA
                else f"{group}={value} needs the package {package}, which is not installed; pip install {package}"
            )
        packaged = _PLUGINS if group == "hydra/launcher" else ()
        raise UserError(unknown_name(group, value, sorted({*known, *packaged})))


@contextlib.contextmanager
def _sentences(overrides: Sequence[str]) -> Iterator[None]:
    """Turn errors of Hydra into sentences."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(hydra_sentence(error, overrides)) from None
