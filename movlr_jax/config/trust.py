"""What a run may make happen: obeyed for runs that this user began on this machine, else asked for.

A run directory is data. Its settings may name a Python file to run, servers, keys, a weaker sandbox and other files:
`acts` lists them. `obey` lets a command follow them if `storage.begun` knows that the user began this folder with
them, or if the user consents to all of them with trust=true. docs/sandbox.md has the model.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from movlr_jax._util.resources import resource_dir
from movlr_jax._util.settings import flat, plain
from movlr_jax.config.schema import Config
from movlr_jax.control.mpc.rules import RULES
from movlr_jax.control.muscle_controllers import LAWS
from movlr_jax.control.ppo.config import policy_path
from movlr_jax.control.settings import OPTIMIZERS, Mpc2Settings, PlanningSettings, PpoSettings
from movlr_jax.errors import UserError, printable
from movlr_jax.language.registry import CRITICS, JUDGES, PROPOSERS
from movlr_jax.language.settings import EMBEDDED
from movlr_jax.models.from_path import is_path
from movlr_jax.storage import begun
from movlr_jax.storage.inside import read_bounded
from movlr_jax.tasks.reference import PEOPLE, STEPS
from movlr_jax.tasks.registry import FILE_TASK, TASKS

EVENT = "task_file"  # event kind in run.db: the task file with which a run began
OBEYED = "obeyed"  # event kind in run.db: what a resumed session asked for and was given
TASK = ("task.", "content of task.", "model", "reference")  # what building the task alone asks for
POLICY = (*TASK, "optimizer.")
CONTENT = "content of task.settings.file"
_OF_A_SERVER = ("name", "model", "base_url", "key_env", "host", "port", "run")
_SILENT = (*EMBEDDED, "manual")  # models that reach nothing beyond the run directory
_ALONE = ("none", "tensorboard")  # trackers that write only to the run directory
_FILE_BYTES = 2**24  # of a task file
_MOST, _LONGEST = 40, 300  # things in a message, characters of one


def task_file(config: Config) -> dict[str, str] | None:
    """Return the path and the hash of the file of the task, or None for a built-in task. Raises UserError."""
    named = config.task.settings.get("file") if config.task.name == FILE_TASK else None
    file = Path(str(named))
    if not named or not file.is_file():
        return None
    try:
        return {"path": str(named), "sha256": hashlib.sha256(read_bounded(file, _FILE_BYTES)).hexdigest()}
    except OSError as error:
        raise UserError(f"cannot read the task file {file}: {error.strerror or error}") from None


def acts(config: Config) -> dict[str, Any]:
    """Return the settings that reach beyond the run directory, by dotted name. Raises UserError.

    They run code, read or write other files, name servers, keys and addresses, or weaken the sandbox. The content of
    the task file is one of them.
    """
    found: dict[str, Any] = {}
    if config.task.name not in TASKS.packaged and config.task.name in (FILE_TASK, *TASKS):
        file = task_file(config)
        found |= {CONTENT: file["sha256"]} if file else {}
        found |= {"task.name": config.task.name} if config.task.name != FILE_TASK else {}
        found |= {f"task.settings.{name}": value for name, value in config.task.settings.items()}
    o = config.optimizer
    if config.sandbox != "confined":
        found["sandbox"] = config.sandbox
    for role in ("llm", "vlm"):
        model = getattr(config, role)
        if model.name not in _SILENT:
            of_page = {"host", "port"} if model.name != "person" else set()
            values = plain(model)
            found |= {f"{role}.{name}": values[name] for name in _OF_A_SERVER if name not in of_page}
    if config.workers.name != "none":
        found |= {f"workers.{name}": value for name, value in vars(config.workers).items()}
    if config.tracker.name not in _ALONE:
        found |= {f"tracker.{name}": value for name, value in vars(config.tracker).items()}
    if is_path(config.model):
        found["model"] = config.model
    if config.reference not in (None, PEOPLE, STEPS):
        found["reference"] = config.reference
    for name, files in o.files().items():
        if not all(map(_packaged, [files] if isinstance(files, str) else files)):
            found[f"optimizer.{name}"] = files if isinstance(files, str) else list(files)
    parts = {"optimizer": (OPTIMIZERS, o)}
    parts |= {"optimizer.mppi": (RULES, o.mppi)} if isinstance(o, PlanningSettings) else {}
    parts |= {"optimizer.muscle": (LAWS, o.muscle)} if isinstance(o, Mpc2Settings | PpoSettings) else {}
    parts |= {"proposer": (PROPOSERS, config.proposer), "judge": (JUDGES, config.judge)}
    parts["critic"] = CRITICS, config.critic
    for group, (registry, made) in parts.items():
        if registry.name_of(made) not in registry.packaged:  # code of another package, or of the user
            record = registry.record(made)
            flat_record = flat(record) if isinstance(record, dict) else {}
            found |= {f"{group}.{name}": value for name, value in flat_record.items()} or {group: record}
    return {name: value for name, value in found.items() if value is not None}


def _packaged(policy: str) -> bool:
    """Return whether a policy comes with the package."""
    folder = resource_dir("assets") / "policies"
    named = re.fullmatch(r"[\w-]+", policy) and policy_path(policy).parent == folder
    return bool(named)


def obey(asked: Mapping[str, Any], folder: Path, done: str, trust: bool) -> None:
    """Raise UserError unless the user began `folder` here with all that is asked for, or consents with `trust`.

    done: what is done with the folder, the name of a setting or command. What is obeyed is recorded; what is obeyed
    because of `trust` is printed too.
    """
    if not asked:
        return
    known, what = begun.asked_here(folder), listed(asked)
    here = begun.covers(known, asked)
    if not (here or trust):
        why = "was changed since you began it here" if known else "was not begun by you on this machine"
        raise UserError(
            f"{folder} {why}, and asks for: {what}; check each of them, and give trust=true to allow them all"
        )
    why = "you began it here" if here else "of trust=true"
    begun.log({"folder": str(folder.absolute()), "done": done, "because": why, "obeyed": dict(asked)})
    if not here:
        print(printable(f"obeying {what} of {folder}, because {why}"), file=sys.stderr, flush=True)


def listed(asked: Mapping[str, Any]) -> str:
    """Return what is asked for as words, each thing by name and value."""
    shown = [f"{name}={_short(value)}" for name, value in asked.items() if name != CONTENT]
    more = [f"and {len(shown) - _MOST} more"] if len(shown) > _MOST else []
    return ", ".join([*shown[:_MOST], *more])


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"


def began(folder: Path, config: Config) -> None:
    """Record that the user begins the work whose settings are in `folder`. Says so if that cannot be recorded."""
    if not begun.begin(folder, acts(config)):
        print(
            f"there is no state folder to record that you began {folder}; going on with it will need trust=true "
            "(XDG_STATE_HOME names a folder that only you may write)",
            file=sys.stderr,
        )
