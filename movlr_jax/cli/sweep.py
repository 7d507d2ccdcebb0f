"""Sweeps by Hydra (-m): its sweepers and launchers run the jobs, each in a folder of its own.

A job composes its settings itself, so that it gets what a single run of the same command gets. It runs in this
process or in another one, perhaps on another machine, and writes `job.yaml` at its end.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from movlr_jax._util.progress import interruptible
from movlr_jax._util.resources import resource_dir
from movlr_jax._util.settings import plain
from movlr_jax.cli import outcome
from movlr_jax.config.compose import compose, compose_all, hydra_at_conf, hydra_sentence, search_path
from movlr_jax.config.defaults import store_defaults
from movlr_jax.config.overrides import expand, first_line, for_hydra, name_of, quoted, with_quotes
from movlr_jax.engine.environment import prepare_environment, prepare_physics
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.report.sweep import JOB, write_sweep_page
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.writing import write_atomically

_BASIC = "BasicSweeper"
_OF_A_SWEEP = tuple(f"hydra{sign}{name}" for name in ("launcher", "sweeper", "sweep") for sign in "./")


@dataclass(frozen=True)
class Job:
    """What a launcher calls for each job of a sweep."""

    module: str  # module and name of the command
    name: str
    config_dir: Path | None
    count: int | None  # jobs of the sweep, if known

    def __call__(self, _: Any) -> float:
        """Run the job that Hydra describes. Return the score of the best program for sweepers that optimise.

        The score of a job that fails is NaN. A job whose folder holds a run already continues it: a cluster may start
        a job again.
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
            why = str(error).strip().partition("\n")[0]
            errors.append(f"{type(error).__name__}: {why}".removesuffix(": "))
            status = 1
        about_job = {"overrides": overrides, "status": status, "error": "; ".join(errors)}
        write_atomically(folder / JOB, yaml.safe_dump(about_job, sort_keys=False).encode())
        if status == outcome.INTERRUPTED:
            raise KeyboardInterrupt
        return float("nan") if errors else score_of_run(folder)

    def _config(self, overrides: Sequence[str], folder: Path) -> Any:
        config = compose(overrides, self.config_dir)
        prepare_physics(config.physics)
        if config.resume:
            return config
        begun = (folder / "config.yaml").exists()
        return dataclasses.replace(config, run_dir=str(folder), resume=str(folder) if begun else None)


def score_of_run(folder: Path) -> float:
    """Return the score of the best program of a search, as its task measures it; NaN without one."""
    if not (folder / "run.db").exists():
        return float("nan")
    with Archive.open(folder, write=False) as archive:
        score = (archive.get("finished") or {}).get("score")
    return float("nan") if score is None else float(score)


def sweep(command: Callable[[Any], int], given: argparse.Namespace) -> int:
    """Run the jobs of a sweep with the chosen sweeper and launcher. Return the highest exit status.

    Raises UserError for settings that cannot be used, before any job starts.
    """
    from hydra import compose as hydra_compose

    mine, others = _with_folder(*_of_hydra(given.overrides))
    with hydra_at_conf(), _sentences(mine):
        hydra = hydra_compose("config", [*search_path(given.config_dir), *mine], return_hydra_config=True).hydra
        folder = Path(str(hydra.sweep.dir)).absolute()
        launcher = str(hydra.runtime.choices["hydra/launcher"])
    count = None
    if str(hydra.sweeper._target_).endswith(_BASIC):
        jobs = expand(others)
        compose_all(jobs, given.config_dir)  # no job starts when one is wrong
        count = len(jobs)
    print(f"sweep: {f'{count} jobs' if count else 'jobs'} by {launcher} in {folder}", file=sys.stderr)
    job = Job(command.__module__, command.__name__, given.config_dir, count)
    status = 0
    try:
        with interruptible():  # also while the jobs run in other processes
            # the folder may contain the time, and is the same for all
            here = f"hydra.sweep.dir={quoted(str(folder))}"
            _hydra_main(job, [*given.flags, *mine, here, *for_hydra(others)])
    except KeyboardInterrupt:
        print("interrupted; the same command with the same folder continues", file=sys.stderr)
        status = outcome.INTERRUPTED
    except Exception as error:  # plugins have exceptions of their own
        print(f"{launcher} ended the sweep: {first_line(error)}", file=sys.stderr)
        status = 2
    return _end(folder, count, status)


def show(given: argparse.Namespace) -> int:
    """Print settings, what Hydra knows, or a shell's completion, without running anything. Raises UserError."""
    mine, others = _of_hydra(given.overrides)
    if given.cfg == "job":
        _print_settings(compose(others, given.config_dir), given.package)
        return 0
    search_path(given.config_dir)
    with _sentences(given.overrides):
        _hydra_main(lambda _: None, [*given.flags, *mine, *for_hydra(others)])
    return 0


def _hydra_main(task: Callable[[Any], Any], words: Sequence[str]) -> None:
    """Do what Hydra does with these words of a command line. Its errors are raised, not printed."""
    from hydra import main
    from hydra.core.global_hydra import GlobalHydra

    store_defaults()
    GlobalHydra.instance().clear()
    run = main(version_base="1.3", config_path=str(resource_dir("conf").resolve()), config_name="config")(task)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors are raised, not printed
    log = logging.getLogger()  # Hydra prints --info by logging
    before = sys.argv, log.handlers, log.level
    sys.argv, log.handlers = [sys.argv[0], *words], []
    try:
        run()
    finally:
        sys.argv, log.handlers, level = before
        log.setLevel(level)


def _of_hydra(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate Hydra's own settings of a sweep from the settings of its jobs: (of Hydra, of the jobs)."""
    mine = [o for o in overrides if o.lstrip("+").startswith(_OF_A_SWEEP)]
    return mine, [o for o in overrides if o not in mine]


def _with_folder(mine: list[str], others: list[str]) -> tuple[list[str], list[str]]:
    """Return Hydra's and the jobs' settings with run_dir=... as the folder of the sweep. Raises UserError."""
    given = [o for o in others if name_of(o) == "run_dir"]
    if not given:
        return mine, others
    if any(name_of(o) == "hydra.sweep.dir" for o in mine):
        raise UserError("run_dir= and hydra.sweep.dir= both name the folder of the sweep; give one of them")
    folder = with_quotes(given[-1]).partition("=")[2]
    return [*mine, f"hydra.sweep.dir={folder}"], [o for o in others if o not in given]


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


def _print_settings(config: Any, package: str | None) -> None:
    """Print all settings of a job as YAML, or those of `package` (dotted). Raises UserError."""
    values, done = plain(config), ""
    for name in (package or "").split(".") if package else []:
        if not isinstance(values, dict) or name not in values:
            near = [f"{done}{known}" for known in values] if isinstance(values, dict) else []
            raise UserError(unknown_name("setting", f"{done}{name}", near))
        values, done = values[name], f"{done}{name}."
    print(yaml.safe_dump(values, sort_keys=False).removesuffix("...\n"), end="")


@contextlib.contextmanager
def _sentences(overrides: Sequence[str]) -> Iterator[None]:
    """Turn errors of Hydra into sentences."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        sentence = hydra_sentence(error, overrides)
        if sentence.startswith(("there is no hydra/launcher", "there is no hydra/sweeper")):
            sentence += "; joblib and submitit_* need pip install 'movlr-jax[sweep]', others a package of their own"
        raise UserError(sentence) from None
