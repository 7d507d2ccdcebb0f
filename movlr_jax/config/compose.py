"""Compose checked settings from command-line overrides, with Hydra."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from movlr_jax._util.resources import resource_dir
from movlr_jax.config.defaults import CHOICES, store_defaults
from movlr_jax.config.methods import METHODS
from movlr_jax.config.override import quoted, unquoted
from movlr_jax.config.schema import WORKERS
from movlr_jax.control.build import OPTIMIZERS
from movlr_jax.errors import UserError, shortened, unknown_name
from movlr_jax.storage.archive import SETTINGS, Archive
from movlr_jax.tasks.file_task import OWN_FILE
from movlr_jax.tasks.instruction import absolute_model
from movlr_jax.tasks.registry import DESCRIBED_TASK, FILE_TASK, TASKS
from movlr_jax.tracking.base import TRACKERS

GROUPS = ("task", "optimizer", "method", "llm", "vlm", "workers", "tracker")
SHORTHANDS = ("env", "file")  # top-level shorthands for settings of a task; composing copies them there
_REMOVABLE = {"llm": "scripted", "vlm": "metrics", "optimizer": "mppi", "method": "movlr"}
_OF_A_SWEEP = ("launcher", "sweeper", "sweep")  # Hydra's own settings that -m reads
_UNUSED = {  # Hydra settings without effect here, and what to use instead
    "hydra.run.": "give run_dir=..., the folder of the results",
    **dict.fromkeys(
        (f"hydra{sign}{name}" for name in _OF_A_SWEEP for sign in "./"), "it belongs to a sweep; add -m"
    ),
    "hydra.job.chdir": "commands run in the current folder; change to another folder first",
    "hydra.searchpath": "give --config-dir DIR, a folder with your own files of settings",
    "hydra.mode": "-m runs a sweep",
    "hydra": "of Hydra's own settings, only those of hydra/launcher, hydra/sweeper and hydra.sweep are, with -m",
}
_NUMBER = re.compile(r"[\d._eE+-]+", re.ASCII)  # what Hydra may read as one
_TASK_OF_FILE = ("/task", "override /task")  # in the defaults of an experiment file
_PATHS = ("run_dir", "resume", "reward", "replay", "reference", "file", "model")
_REFERENCE = re.compile(r"(?<!\\)\$\{")  # to another setting, not escaped
REPLAYABLE = ("run_dir", "films", "preview", "workers", "tracker")  # may change when a recording is replayed
# may change when a run is resumed
RESETTABLE = ("generations", "films", "preview", "max_calls", "max_cost_usd", "workers", "tracker")


def of_hydra(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate Hydra's own settings of a sweep from the settings of its jobs: (of Hydra, of the jobs)."""
    starts = tuple(f"hydra{sign}{name}" for name in _OF_A_SWEEP for sign in "./")
    mine = [o for o in overrides if o.lstrip("+").startswith(starts)]
    return mine, [o for o in overrides if o not in mine]


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Return every combination of the sweep values, in the order of Hydra's basic sweeper. Raises UserError."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides([with_quotes(o) for o in overrides])
        choices = [
            [f"{o.get_key_element()}={value}" for value in o.sweep_string_iterator()]
            if o.is_sweep_override()
            else [str(o.input_line)]
            for o in parsed
        ]
    except HydraException as error:
        raise UserError(
            f"cannot read {' '.join(overrides)!r}: {_first_line(error)}; write name=value, "
            "with a value of other characters in quotes, as in 'llm.model=\"a=b\"'"
        ) from None
    return [list(job) for job in itertools.product(*choices)]


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


def compose(overrides: Sequence[str], config_dir: Path | None = None, parts: Sequence[str] = ("",)) -> Any:
    """Return the checked `Config` of one job. Raises UserError with near matches.

    config_dir: folder with files of settings in addition to those of the package, as Hydra's --config-dir.
    parts: with resume, beginnings of the names of the settings that are used, as `config.trust.TASK`.
    """
    from hydra import compose as hydra_compose
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from movlr_jax._util.settings import from_mapping
    from movlr_jax.config.schema import Config, check, recorded_config
    from movlr_jax.config.trust import acts, obey
    from movlr_jax.tasks.reference import PEOPLE, STEPS

    _refuse_unused(overrides)
    for kind, changeable in (("resume", RESETTABLE), ("replay", REPLAYABLE)):
        if (found := _recorded(overrides, kind, changeable)) is None:
            continue
        try:
            config = recorded_config(found.values)
        except UserError as error:
            raise (
                _broken(found.run, str(error)) if kind == "resume" and _changed(found.run) else error
            ) from None
        asked = {name: value for name, value in acts(config).items() if not found.given(name)}
        wanted = {n: v for n, v in {**asked, **found.more}.items() if n.startswith(tuple(parts))}
        obey(wanted, found.run, kind, config.trust)
        return config
    folder = resource_dir("conf").resolve()
    overrides = _ordered([*search_path(config_dir), *composable(overrides, config_dir)])
    described = False
    with hydra_at_conf():
        try:
            plain = composed = hydra_compose("config", overrides=list(overrides))
            if described := _is_described(composed):
                overrides = [f"+task={FILE_TASK}", *overrides]  # its defaults
                plain = composed = hydra_compose("config", overrides=overrides)
            if tuned := _tuned(composed, folder):  # the settings of the user override the tuned ones
                composed = hydra_compose("config", overrides=_ordered(overrides, tuned))
            values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=False)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise UserError(hydra_sentence(error, overrides)) from None
    assert isinstance(values, dict)
    if tuned:
        values["tuned_settings"] = _differences(plain, composed)
    values = {str(name): value for name, value in values.items() if name not in SHORTHANDS}
    if "experiment" in values:
        given = next(o for o in overrides if o.lstrip("+").startswith("experiment="))
        raise UserError(
            f"{given} needs the folder of your own files: --config-dir DIR, with {_file_of(given)} in it"
        )
    if values["task"] == "???":
        raise UserError(_without_task(values))
    # absolute, because a run may be resumed from another folder
    if values.get("reference") and values["reference"] not in (PEOPLE, STEPS):
        values["reference"] = str(Path(str(values["reference"])).expanduser().resolve())
    for role in ("llm", "vlm"):
        if isinstance(values.get(role), dict) and values[role].get("run"):
            values[role]["run"] = str(Path(str(values[role]["run"])).expanduser().resolve())
    if described:
        values["task"] = {"name": DESCRIBED_TASK, "settings": {}}
        values["model"] = absolute_model(values["model"])
    elif f"+task={FILE_TASK}" in overrides:  # absolute for the same reason
        settings = values["task"]["settings"]
        settings["file"] = settings["file"] and str(Path(str(settings["file"])).expanduser().resolve())
    return check(from_mapping(Config, values))


def _is_described(composed: Any) -> bool:
    """Return whether the settings name no task, but a model and an instruction, which are one."""
    from omegaconf import OmegaConf

    given = (not OmegaConf.is_missing(composed, name) and composed[name] for name in ("model", "instruction"))
    return OmegaConf.is_missing(composed, "task") and all(isinstance(value, str) for value in given)


def _without_task(values: Mapping[str, Any]) -> str:
    """Return the error message for settings without a task: what is missing to what they have."""
    ways = "give +task=NAME, or +task=FILE.py for your own"
    if values["model"] != "???":
        asked = f'say what model={values["model"]} should do, as in instruction="reach the target", or {ways}'
    elif values["instruction"] is not None:
        asked = f"name the model that should move, as in model=arm.xml, or {ways}"
    else:
        asked = f'{ways}, or model=MODEL with instruction="..."'
    return f"no task is set; {asked}. Available: {', '.join(options('task'))}"


@contextlib.contextmanager
def hydra_at_conf() -> Iterator[Any]:
    """Initialise Hydra with the folder conf/ and the defaults of the package. Yields Hydra's own object."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    store_defaults()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(resource_dir("conf").resolve()), job_name="movlr_jax", version_base="1.3"):
        yield GlobalHydra.instance().hydra


def search_path(config_dir: Path | None) -> list[str]:
    """Return the overrides that add the folder of the user to Hydra's search path. Raises UserError."""
    if config_dir is None:
        return []
    if not config_dir.is_dir():
        raise UserError(f"--config-dir {config_dir}: there is no such folder")
    return [f"hydra.searchpath=[{quoted(f'file://{config_dir.resolve()}')}]"]


def composable(overrides: Sequence[str], config_dir: Path | None = None) -> list[str]:
    """Return overrides in the form that Hydra composes. Raises UserError for options that do not exist."""
    folders = [resource_dir("conf"), *([config_dir] if config_dir else [])]
    return _with_task(_with_task_of_experiment(overrides, config_dir), folders)


def _ordered(overrides: Sequence[str], tuned: str | None = None) -> list[str]:
    """Return the overrides with the task first, then `tuned`, then the others, as +experiment=mine, in their order.

    Hydra adds groups in the order of the overrides, and values of later groups override those of earlier ones.
    """
    task = [o for o in overrides if o.startswith("+task=")]
    return [*task, *([tuned] if tuned else []), *(o for o in overrides if o not in task)]


def _tuned(composed: Any, folder: Path) -> str | None:
    """Return the override that adds the settings tuned for this task and model, or None without such settings.

    The option is MODEL for mpc2, MODEL_prior for mpc2 around a policy, MODEL_stride around a recorded stride, and
    MODEL_ppo for ppo.
    """
    from omegaconf import OmegaConf

    from movlr_jax.control.ppo.config import REFERENCE

    name, model, optimizer = (OmegaConf.select(composed, x) for x in ("task.name", "model", "optimizer.name"))
    if not composed.tuned or not isinstance(model, str) or optimizer not in ("mpc2", "ppo"):
        return None
    prior = OmegaConf.select(composed, "optimizer.prior.policy")
    around = "_stride" if prior == REFERENCE else "_prior" if prior else ""
    choice = f"{model}{'_ppo' if optimizer == 'ppo' else around}"
    return (
        f"+tuned_for/{name}={choice}"
        if (folder / "tuned_for" / str(name) / f"{choice}.yaml").is_file()
        else None
    )


@dataclass(frozen=True)
class _Recorded:
    """The settings of a run or recording, with what the user changes."""

    run: Path
    values: Mapping[str, Any]
    own: Sequence[str]  # names, or beginnings that end in a dot, of the settings that the user gives
    more: Mapping[str, Any]  # what the record asks for besides `values`

    def given(self, name: str) -> bool:
        """Return whether a setting is the user's."""
        return any(name == own or (own.endswith(".") and name.startswith(own)) for own in self.own)


def _recorded(overrides: Sequence[str], kind: str, changeable: Sequence[str]) -> _Recorded | None:
    """Return the recorded settings if `resume=RUN_DIR` or `replay=FOLDER` is given, else None. Raises UserError.

    kind: resume or replay. The settings in `changeable` may be changed, others given as they are. With resume, the
    name of a task asks for a comparison with the record instead (None). +task=FILE.py says where the file of the task
    is now, and model=FILE where the model of a task without a name is.
    """
    from movlr_jax._util.settings import CONFIG_BYTES, read_yaml
    from movlr_jax.storage.inside import read_inside

    parts = [override.lstrip("+").partition("=") for override in overrides]
    given: dict[str, str] = {
        name: unquoted(value) if name in (kind, "run_dir") else value for name, _, value in parts
    }
    file = unquoted(given.get("task", "")) if kind == "resume" else ""
    if not given.get(kind) or (kind == "resume" and "task" in given and not file.endswith(".py")):
        return None
    if "task" in given and not file:
        raise UserError(
            f"replay={given[kind]} takes the task from the recording; leave out task={given['task']}"
        )
    run, done = Path(given[kind]), f"{kind.removesuffix('e')}ed"
    text = read_inside(run, SETTINGS, CONFIG_BYTES)
    if text is None:
        raise UserError(f"{run} is not a run directory of movlr-jax: it has no config.yaml")
    new: dict[str, Any] = {
        "trust": False,
        "run_dir": None,
        "reward": "human",
        "bank": None,
    }  # never from the run
    own: list[str] = []
    try:
        values = read_yaml(text.decode("utf-8"))
    except ValueError as error:
        raise _broken(run, _first_line(error)) from None
    if not isinstance(values, dict):
        raise _broken(
            run, "it is empty" if values is None else f"it is {shortened(values)}, expected settings"
        )
    if file:
        del given["task"]
        if _group(values, "task").get("name") != FILE_TASK:
            raise UserError(f"{run} is a search of another task, which is not a file; leave out +task={file}")
        settings = _group(values["task"], "settings")
        settings = {**settings, "file": str(Path(file).expanduser().resolve())}
        values["task"] = {"name": FILE_TASK, "settings": settings}
        own += ["task.settings.file", "content of task.settings.file"]
    if "model" in given and _group(values, "task").get("name") == DESCRIBED_TASK:  # where it is now
        values["model"] = absolute_model(unquoted(given.pop("model")))
        own.append("model")
    recorded = _leaves(values)
    for name, value in given.items():
        group, dot, field = name.partition(".")
        try:
            read = value if name in (kind, "run_dir") else read_yaml(value)
        except ValueError as error:
            raise UserError(f"cannot read {name}={shortened(value)}: {error}") from None
        own += [name, f"{name}." if name in changeable else f"{name}.name"]
        if group not in (kind, "trust", *changeable):
            if file and not {name, f"{name}.name"} & set(recorded):
                return None  # as +experiment=mine, which stands for other settings
            auto = (override := f"{name}={value}") != _with_number(override)  # is the number of the run
            if not auto and recorded.get(name, recorded.get(f"{name}.name")) != read:
                raise UserError(
                    f"{name} cannot be changed when a run is {done}, only {', '.join(changeable)}; start a new run"
                )
        elif group in CHOICES:  # workers=ray workers.count=2
            known = new.get(group) or _group(values, group)
            new[group] = {**known, field: read} if dot else {"name": read}
        else:
            new[name] = read
    more = {}
    if kind == "replay":
        values, more = _answered_by(run, values)
        own += ["llm.", "vlm."]
        new["resume"] = None
        del new["replay"]
    return _Recorded(run, {**values, **new}, own, more)


def _group(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a group of recorded settings; empty if it is none."""
    return group if isinstance(group := values.get(name), Mapping) else {}


def _broken(run: Path, why: str) -> UserError:
    """Return the error about a config.yaml that cannot be used."""
    changed = "it was changed after the search wrote it; " if _changed(run) else ""
    return UserError(
        f"{run / SETTINGS} is broken ({why}); {changed}restore it from a copy, or start a new search"
    )


def _changed(run: Path) -> bool:
    """Return whether the settings of a run are not those that its search wrote, as far as this is known."""
    try:
        with Archive.open(run, write=False) as archive:
            return archive.lost(SETTINGS)
    except UserError:
        return False


def _answered_by(folder: Path, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a recorded search, with its answers in place of its models, and what else is read.

    That is the folder of a recording whose answers were those of another one.
    """
    from movlr_jax.language.settings import EMBEDDED

    roles = {role: _group(values, role) for role in ("llm", "vlm")}
    models = {
        role: {"name": "replay", "run": str(folder.absolute())}
        for role, model in roles.items()
        if model.get("name") not in EMBEDDED
    }
    more = {f"{role}.run": model.get("run") for role, model in roles.items() if model.get("name") == "replay"}
    return {**values, **models}, more


def _with_task_of_experiment(overrides: Sequence[str], config_dir: Path | None) -> list[str]:
    """Return the overrides with the task that an experiment file in them sets, named once as Hydra expects it.

    `override /task` in its defaults needs a task before it, and `/task` must not have one. Raises UserError if the
    overrides name another task.
    """
    from movlr_jax._util.settings import read_yaml

    given = {o.lstrip("+").partition("=")[0]: o.partition("=")[2] for o in overrides}
    file = config_dir / "experiment" / f"{given.get('experiment')}.yaml" if config_dir else None
    if file is None or not file.is_file():
        return list(overrides)
    try:
        values = read_yaml(file.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return list(overrides)  # Hydra says what is wrong
    defaults = values.get("defaults") if isinstance(values, Mapping) else None
    groups = [entry for entry in defaults or () if isinstance(entry, Mapping)]
    tasks = {name: str(entry[name]) for entry in groups for name in _TASK_OF_FILE if name in entry}
    if not tasks:
        return list(overrides)
    name, task = next(iter(tasks.items()))
    if (said := given.get("task", task)) != task:
        raise UserError(f"task={said} contradicts {file}, which sets the task {task}; leave out one of them")
    others = [o for o in overrides if o.lstrip("+").partition("=")[0] != "task"]
    return others if name == "/task" else [f"+task={task}", *others]


def _with_task(overrides: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """Treat `task=NAME` as `+task=NAME` and `+task=FILE.py` as the task of a file; check the names of groups.

    The settings of a file task are not known in advance, so overrides may add them. Raises UserError.
    """
    result: list[str] = []
    for override in map(with_quotes, overrides):
        group, sign, value = override.lstrip("+").partition("=")
        path = unquoted(value.strip())
        if group == "task" and path.endswith(".py"):
            result += [f"+task={FILE_TASK}", f"file={quoted(path)}"]
            continue
        known = _options(folders, group) if sign and group in GROUPS else [value]
        if value not in known and (group, value) != ("task", FILE_TASK):
            raise UserError(
                _unknown_task(path, known) if group == "task" else unknown_name(group, value, known)
            )
        result.append(f"+task={value}" if group == "task" else override)
    for group, only in (("file", "own"), ("env", "playground")):
        given = next((o for o in result if o.lstrip("+").startswith(f"{group}=")), None)
        if given and f"+task={only}" not in result:
            raise UserError(f"{given.lstrip('+')} works only with +task={only}")
    result = [_with_number(override) for override in result]
    if f"+task={FILE_TASK}" not in result:
        return result
    plain = [o.lstrip("+") for o in result]
    if any(o.startswith("file=") for o in plain):  # then `task.settings.file` is a setting of the function
        plain = [o.replace("task.settings.file=", f"task.settings.{OWN_FILE}=", 1) for o in plain]
    both = zip(plain, result, strict=True)
    return [f"++{o}" if o.startswith("task.settings.") else given for o, given in both]


def _unknown_task(name: str, known: Sequence[str]) -> str:
    """Return the error message for the name of a task that does not exist, which may be that of another file."""
    if Path(name).suffix == ".xml":
        return f'there is no task {name!r}; to move a model, give model={name} with instruction="..."'
    if "/" in name or Path(name).suffix:
        return f"there is no task {name!r}; a task of your own is a .py file (docs/write_a_task.md)"
    return unknown_name("task", name, known)


def with_quotes(override: str) -> str:
    """Return an override with its sentence or path quoted where Hydra would not read it; others as they are.

    The commas of a sentence are no sweep. A ${ in it is escaped, unless it is already: it refers to no other setting.
    A path is quoted if Hydra's grammar has no such word, as a=b, or reads it as a number, as 2026_11_05.
    """
    name, _, value = override.partition("=")
    setting = name.lstrip("+")
    if setting == "instruction.partial":
        return f"instruction_partial={value}"
    if setting == "run_dir" and _NUMBER.fullmatch(value):
        return f"{name}={quoted(value)}"
    if setting in _PATHS or (setting == "task" and value.endswith(".py")):
        return f"{name}={_path_quoted(value)}"
    if setting != "instruction" or value == "null":
        return override
    escaped = _REFERENCE.sub(r"\\${", value) if value[:1] in ("'", '"') else quoted(value)
    return f"{name}={escaped}"


def _path_quoted(value: str) -> str:
    """Return the value of a path, or of a sweep over paths, as Hydra reads it. It may refer to other settings."""
    if _is_read(value) or (set(value) & set("'\"([{") and "," in value):
        return value
    paths = (path if _is_read(path) else quoted(_from_home(path)) for path in value.split(","))
    return ",".join(paths).replace(r"\${", "${")


def _is_read(value: str) -> bool:
    """Return whether Hydra's grammar has this value."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(f"x={value}")
    except HydraException:
        return False
    return True


def _from_home(path: str) -> str:
    return str(Path(path).expanduser()) if path.startswith("~/") else path


def _with_number(override: str) -> str:
    """Return an override with auto for a number as its value 0."""
    name, _, value = override.partition("=")
    return f"{name}=0" if name.lstrip("+") == "optimizer.mppi.samples" and value == "auto" else override


def _refuse_unused(overrides: Sequence[str]) -> None:
    """Raise UserError for overrides that Hydra would accept but that have no effect here."""
    for override in overrides:
        name, _, value = override.lstrip("+~").partition("=")
        if override.startswith("~"):
            example = value or _REMOVABLE.get(name, "...")
            raise UserError(
                f"~{name}: settings cannot be removed; give another value, as in {name}={example}"
            )
        if name.partition(".")[0].partition("/")[0] == "hydra":
            instead = next((hint for start, hint in _UNUSED.items() if name.startswith(start)), "")
            raise UserError(f"{name} is not used: {instead}")


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
        available = re.findall(r"^\t(\S+)$", text, re.MULTILINE)
        return unknown_name(missing[1], missing[2], [name for name in available if name != FILE_TASK])
    unknown = re.search(r"Could not override '([^']*)'", text) or re.search(
        r"Key '([^']*)' is not in struct", text
    )
    if unknown:
        name = unknown.group(1)
        if meant := _SYNONYMS.get(name):
            return f"there is no setting {name!r}; did you mean {meant!r}?"
        return unknown_name("setting", name, _settings(overrides))
    return f"cannot read the settings {' '.join(overrides)!r}: {_first_line(error)}"


def _file_of(override: str) -> str:
    return "/".join(override.lstrip("+").split("=", 1)) + ".yaml"


def _settings(overrides: Sequence[str]) -> list[str]:
    """Return the dotted names of all settings with the groups that `overrides` choose. Hydra must be initialised."""
    from hydra import compose as hydra_compose

    chosen = [o for o in overrides if o.lstrip("+").partition("=")[0] in GROUPS]
    return list(_leaves(hydra_compose("config", overrides=chosen)))


def _differences(plain: Any, tuned: Any) -> dict[str, Any]:
    """Return dotted names and plain Python values of the settings that differ in `tuned`."""
    from omegaconf import OmegaConf

    before, after = _leaves(plain), _leaves(tuned)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return {n: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for n, v in changed.items()}


def _leaves(node: Any, prefix: str = "") -> dict[str, Any]:
    """Return the settings below `node`, a mapping or a config of OmegaConf, by dotted name."""
    from omegaconf import OmegaConf

    found: dict[str, Any] = {}
    for key in node:
        missing = OmegaConf.is_config(node) and OmegaConf.is_missing(node, key)
        child = None if missing else node[key]
        found |= _leaves(child, f"{prefix}{key}.") if hasattr(child, "keys") else {f"{prefix}{key}": child}
    return found


def _options(folders: Sequence[Path], group: str) -> list[str]:
    """Return the options of `group`: the files in the folders and the registered names.

    The task of a file is none of them: it is set by its path.
    """
    registered = {
        "task": TASKS,
        "method": METHODS,
        "optimizer": OPTIMIZERS,
        "workers": WORKERS,
        "tracker": TRACKERS,
    }.get(group, ())
    files = (path.stem for folder in folders for path in (folder / group).glob("*.yaml"))
    return sorted({*files, *registered} - ({FILE_TASK} if group == "task" else set()))


def options(group: str) -> list[str]:
    """Return what users can set `group` (task, optimizer, method, llm, vlm) to."""
    return _options([resource_dir("conf")], group)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
