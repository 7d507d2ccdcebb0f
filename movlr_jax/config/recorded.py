"""Settings of a run that is resumed or replayed: those that it recorded, with what the user changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from movlr_jax._util.settings import CONFIG_BYTES, flat, read_yaml
from movlr_jax.config.defaults import CHOICES
from movlr_jax.config.overrides import first_line, name_of, unquoted
from movlr_jax.config.schema import AUTO_SAMPLES, Config, recorded_config
from movlr_jax.config.trust import acts, obey
from movlr_jax.errors import UserError, shortened
from movlr_jax.language.settings import EMBEDDED
from movlr_jax.storage.archive import SETTINGS, Archive
from movlr_jax.storage.inside import read_inside
from movlr_jax.tasks.instruction import absolute_model
from movlr_jax.tasks.registry import DESCRIBED_TASK, FILE_TASK

REPLAYABLE = ("run_dir", "films", "preview", "workers", "tracker")  # may change when a recording is replayed
# may change when a run is resumed
RESETTABLE = ("generations", "films", "preview", "max_calls", "max_cost_usd", "workers", "tracker")
# never taken from a record
_OF_THE_USER: Mapping[str, Any] = {"trust": False, "run_dir": None, "reward": "human", "bank": None}


@dataclass
class _Record:
    """The settings of a run or recording, with what the user changes."""

    run: Path
    kind: str  # the setting that names it: resume or replay
    values: dict[str, Any]  # as recorded
    new: dict[str, Any] = field(default_factory=lambda: dict(_OF_THE_USER))  # instead of recorded ones
    # names, or beginnings that end in a dot, of what the user gives
    own: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)  # what the record asks for besides `values`

    @property
    def changeable(self) -> Sequence[str]:
        return RESETTABLE if self.kind == "resume" else REPLAYABLE

    def given(self, name: str) -> bool:
        """Return whether a setting is the user's."""
        return any(name == own or (own.endswith(".") and name.startswith(own)) for own in self.own)


def recorded(overrides: Sequence[str], parts: Sequence[str]) -> Config | None:
    """Return the settings of the run that `resume=RUN_DIR` or `replay=FOLDER` names; None without one.

    Some of them may be changed, others given as they are. With resume, the name of a task asks for a comparison with
    the record instead (None). +task=FILE.py says where the file of the task is now, and model=FILE where the model of
    a task without a name is. Raises UserError, also for what the run may not make happen.

    parts: beginnings of the names of the settings that are used, as `config.trust.TASK`.
    """
    given = {name_of(override): override.partition("=")[2] for override in overrides}
    task = unquoted(given.get("task", ""))
    if given.get("resume") and (not task or task.endswith(".py")):
        kind = "resume"
    elif given.get("replay"):
        kind = "replay"
    else:
        return None
    if kind == "replay" and task:
        raise UserError(f"replay={given[kind]} takes the task from the recording; leave out task={given['task']}")
    run = Path(unquoted(given[kind]))
    record = _Record(run, kind, _read(run))
    given = _with_places(record, given)
    if not all(_with_change(record, name, value, bool(task)) for name, value in given.items()):
        return None
    if kind == "replay":
        _answered_by_record(record)
    try:
        config = recorded_config({**record.values, **record.new})
    except UserError as error:
        raise (_broken(run, str(error)) if kind == "resume" and _changed(run) else error) from None
    asked = {name: value for name, value in acts(config).items() if not record.given(name)}
    wanted = {n: v for n, v in {**asked, **record.more}.items() if n.startswith(tuple(parts))}
    obey(wanted, run, kind, config.trust)
    return config


def _read(run: Path) -> dict[str, Any]:
    """Return the settings in a run directory. Raises UserError."""
    text = read_inside(run, SETTINGS, CONFIG_BYTES)
    if text is None:
        raise UserError(f"{run} is not a run directory of movlr-jax: it has no config.yaml")
    try:
        values = read_yaml(text.decode("utf-8"))
    except ValueError as error:
        raise _broken(run, first_line(error)) from None
    if not isinstance(values, dict):
        raise _broken(run, "it is empty" if values is None else f"it is {shortened(values)}, expected settings")
    return values


def _with_places(record: _Record, given: Mapping[str, str]) -> dict[str, str]:
    """Put where the file of the task and its model are now into `record`. Return the other settings given."""
    values, left = record.values, dict(given)
    name = _group(values, "task").get("name")
    if task := unquoted(left.pop("task", "")):
        if name != FILE_TASK:
            raise UserError(f"{record.run} is a search of another task, which is not a file; leave out +task={task}")
        settings = {**_group(values["task"], "settings"), "file": str(Path(task).expanduser().resolve())}
        values["task"] = {"name": FILE_TASK, "settings": settings}
        record.own += ["task.settings.file", "content of task.settings.file"]
    if "model" in left and name == DESCRIBED_TASK:
        values["model"] = absolute_model(unquoted(left.pop("model")))
        record.own.append("model")
    return left


def _with_change(record: _Record, name: str, text: str, moved: bool) -> bool:
    """Put a setting that the user gives into `record`. Return False if it asks for a comparison with the record.

    moved: whether the user says where the file of the task is. Raises UserError if it may not be changed.
    """
    before, changeable = flat(record.values), record.changeable
    try:
        read = unquoted(text) if name in (record.kind, "run_dir") else read_yaml(text)
    except ValueError as error:
        raise UserError(f"cannot read {name}={shortened(text)}: {error}") from None
    record.own += [name, f"{name}." if name in changeable else f"{name}.name"]
    group, dot, member = name.partition(".")
    if group in CHOICES and group in changeable:  # workers=ray workers.count=2
        known = record.new.get(group) or _group(record.values, group)
        record.new[group] = {**known, member: read} if dot else {"name": read}
    elif group in (record.kind, "trust", *changeable):
        record.new[name] = read
    elif moved and not {name, f"{name}.name"} & before.keys():
        return False  # as +experiment=mine, which stands for other settings
    elif (name, read) != AUTO_SAMPLES and before.get(name, before.get(f"{name}.name")) != read:
        raise UserError(
            f"{name} cannot be changed when a run is {record.kind.removesuffix('e')}ed, only "
            f"{', '.join(changeable)}; start a new run"
        )
    return True


def _answered_by_record(record: _Record) -> None:
    """Put the answers of a recorded search in place of its models.

    What else is read is the folder of another recording, if the answers of this one were replayed.
    """
    roles = {role: _group(record.values, role) for role in ("llm", "vlm")}
    for role, model in roles.items():
        if model.get("name") == "replay":
            record.more[f"{role}.run"] = model.get("run")
        if model.get("name") not in EMBEDDED:
            record.values[role] = {"name": "replay", "run": str(record.run.absolute())}
    record.own += ["llm.", "vlm."]
    record.new["resume"] = None
    del record.new["replay"]


def _group(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a group of recorded settings; empty if it is none."""
    return group if isinstance(group := values.get(name), Mapping) else {}


def _broken(run: Path, why: str) -> UserError:
    """Return the error about a config.yaml that cannot be used."""
    changed = "it was changed after the search wrote it; " if _changed(run) else ""
    return UserError(f"{run / SETTINGS} is broken ({why}); {changed}restore it from a copy, or start a new search")


def _changed(run: Path) -> bool:
    """Return whether the settings of a run are not those that its search wrote, as far as this is known."""
    try:
        with Archive.open(run, write=False) as archive:
            return archive.lost(SETTINGS)
    except UserError:
        return False


def kept_settings(
    file: Path,
    parts: Sequence[str],
    trust: bool,
    change: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    own: Sequence[str] = (),
) -> Config | None:
    """Return the settings that were kept in `file`, next to a trajectory or policy; None without the file.

    Raises UserError if they cannot be read, and for what they may not make happen.

    Args:
        file: A YAML file.
        parts: Beginnings of the names of the settings that are used.
        trust: Allow all that they ask for.
        change: What the user changes in them.
        own: Names of settings that are the user's.
    """
    data = read_inside(file.parent, file.name, CONFIG_BYTES)
    if data is None:
        return None
    try:
        config = recorded_config(change(read_yaml(data.decode("utf-8"))))
    except (ValueError, KeyError, TypeError, UserError) as error:
        raise UserError(f"{file} cannot be read: {error}; give +task=NAME, model=...") from None
    asked = {n: value for n, value in acts(config).items() if n.startswith(tuple(parts)) and n not in own}
    obey(asked, file.parent, file.name, trust)
    return config
