"""Tune settings and weights: an Optuna study over evaluations."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from movlr_jax._util.progress import Reporter
from movlr_jax._util.settings import check_seeds, flat, from_mapping
from movlr_jax.config.compose import compose
from movlr_jax.config.option_file import read_option_file
from movlr_jax.config.overrides import overrides_of
from movlr_jax.config.schema import Config
from movlr_jax.config.trust import task_file
from movlr_jax.control.build import acting, build_optimizer, close
from movlr_jax.control.settings import known_settings
from movlr_jax.engine.environment import prepare_environment
from movlr_jax.engine.evaluate import prepared
from movlr_jax.engine.tasks import task_folder, task_of
from movlr_jax.errors import UserError, needed, shortened, unknown_name
from movlr_jax.evolution.evaluation import evaluate
from movlr_jax.evolution.gates import score_of
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox.source import with_weights
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.storage.writing import locked, write_atomically
from movlr_jax.tasks import Task
from movlr_jax.tasks.instruction import folder_name

if TYPE_CHECKING:
    import optuna


WEIGHTS = "weights."  # prefix of the weights of the reward program
OPTIMIZER, TASK = "optimizer.", "task.settings."
LOST = -1e6  # score of a seed whose simulation failed: lower than that of any motion
FIRST = 5  # trials that are never pruned
SHOWN = (
    "success",
    "distance_m",
    "time_to_fall_s",
    "object_position_error_m",
    "object_orientation_error_rad",
    "diverged_fraction",
    "wall_s_per_sim_s",
)


@dataclass(frozen=True)
class Range:
    """Allowed values of one setting: from low to high, or one of choices."""

    low: float | None = None
    high: float | None = None
    log: bool = False  # sample on a logarithmic scale
    choices: Sequence[str | float] = ()

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        if self.choices:
            return trial.suggest_categorical(name, list(self.choices))
        assert self.low is not None
        assert self.high is not None
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def nearest(self, value: Any) -> Any:
        """Return `value` clipped to the range, or the first choice if `value` is not among the choices."""
        if self.choices:
            return value if value in self.choices else self.choices[0]
        assert self.low is not None
        assert self.high is not None
        return min(max(value, self.low), self.high)


def read_space(names: Sequence[str]) -> dict[str, Range]:
    """Return the ranges of the spaces `names`: options of conf/space, or paths of files. Raises UserError."""
    found: dict[str, Range] = {}
    for name in names:
        ranges = read_option_file("space", name)[1]
        found |= {setting: _range(setting, value) for setting, value in ranges.items()}
    if not found:
        raise UserError(f"space={','.join(names)} names nothing to vary; give NAME: {{low: ..., high: ...}}")
    return found


def _range(setting: str, value: Any) -> Range:
    if not setting.startswith((WEIGHTS, OPTIMIZER, TASK)):
        raise UserError(
            f"{setting} cannot be tuned: a space contains optimizer.*, task.settings.* and weights.*; give other "
            "settings as name=value"
        )
    if not isinstance(value, Mapping):
        raise UserError(f"{setting}: {value!r}: it must be {{low: ..., high: ...}} or {{choices: [...]}}")
    found = from_mapping(Range, {**value}, setting)
    low, high = (value.get(end) for end in ("low", "high"))
    if found.choices and (low is not None or high is not None):
        raise UserError(f"{setting}: give choices, or low and high, not both")
    if not found.choices:
        if low is None or high is None:
            raise UserError(f"{setting}: it needs low and high, or choices")
        if low >= high or (found.log and low <= 0):
            raise UserError(f"{setting}: low={low:g} must be less than high={high:g}, and more than 0 with log: true")
        found = Range(low, high, found.log)  # keep integers, which from_mapping converts to floats
    return found


@dataclass(frozen=True)
class StudySettings:
    """Settings of a study."""

    config: Config
    overrides: Sequence[str]  # what the user set, for every trial
    space: Mapping[str, Range]
    trials: int
    seeds: Sequence[int]
    root: Path


def study_settings(
    overrides: Sequence[str],
    *,
    space: Sequence[str] = ("planner",),
    trials: int = 40,
    seeds: Sequence[int] = (0, 1, 2),
) -> StudySettings:
    """Return the settings of a study. Raises UserError.

    Args:
        overrides: Settings of every trial, as on the command line.
        space: Names of ranges in conf/space, or of YAML files.
        trials: Number of trials, those of earlier sessions included.
        seeds: Seeds of the episodes of a trial.
    """
    prepare_environment()
    if trials < 1:
        raise UserError(f"trials={trials}: expected an integer of 1 or more")
    check_seeds(seeds)
    config = compose(overrides)
    folder = task_folder(config) / "tune" / folder_name(config.model)
    root = Path(config.run_dir) if config.run_dir else folder
    return StudySettings(config, tuple(overrides), read_space(space), trials, tuple(seeds), root)


def tune(plan: StudySettings) -> dict[str, Any]:
    """Run the trials that are left and write the best one. Return its settings and scores. Raises UserError."""
    with needed("tune", "tune"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    reporter, config = Reporter(), plan.config
    bench = prepared(config, reporter)
    close(bench.optimizer)  # every trial builds its own
    task, verdict, origin = bench.task, bench.verdict, bench.origin
    assert verdict.program is not None
    defaults = _defaults(bench.config, verdict.program.weights, plan.space)

    def objective(trial: optuna.Trial) -> float:
        values = {name: allowed.suggest(trial, name) for name, allowed in plan.space.items()}
        return _trial(plan, task, verdict, values, trial, reporter)

    with locked(plan.root):
        study = _study(plan, origin, verdict.program)
        if not _ended(study):  # the first to end has the current settings
            study.enqueue_trial(defaults)
        left = plan.trials - len(_ended(study))
        if left <= 0:
            reporter.say(f"{plan.root} already has {plan.trials} trials; give a larger trials=... to run more")
        try:
            study.optimize(objective, n_trials=max(left, 0))
        finally:
            result = _write(plan, study, verdict.program)
    return result


def _defaults(config: Config, weights: Mapping[str, float], space: Mapping[str, Range]) -> dict[str, Any]:
    """Return the current values of all tuned settings, for the first trial. Raises UserError."""
    known = {f"{WEIGHTS}{name}": value for name, value in weights.items()}
    known |= {f"{OPTIMIZER}{n}": v for n, v in flat(known_settings(config.optimizer)).items()}
    known |= {f"{TASK}{name}": value for name, value in config.task.settings.items()}
    for name, allowed in space.items():
        if name not in known:
            raise UserError(unknown_name("setting of the space", name, known))
        value = known[name]
        if not allowed.choices and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UserError(
                f"{name} is {shortened(value)}, but low and high need a number; give {{choices: [...]}} in the space"
            )
    return {name: allowed.nearest(known[name]) for name, allowed in space.items()}


def _study(plan: StudySettings, origin: str, program: RewardProgram) -> optuna.Study:
    """Open or create the study of `plan.root`. A trial left running by a crash counts as failed. Raises UserError."""
    import optuna

    path = plan.root / "study.db"
    made_with = {
        "settings": sorted(plan.overrides),
        "reward": origin,
        "seeds": list(plan.seeds),
        "space": {name: dataclasses.asdict(allowed) for name, allowed in plan.space.items()},
        "content of the reward": hashlib.sha256(program.source.encode()).hexdigest(),
        "content of the task file": (task_file(plan.config) or {}).get("sha256"),
    }
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{path}", study_name="tune", direction="maximize", load_if_exists=True
        )
    except Exception as error:  # SQLAlchemy raises many types for a file that is not a study
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{path} cannot be read as an Optuna study: {first}; give another run_dir=") from None
    given = json.loads(json.dumps(made_with))
    recorded = study.user_attrs.get("made_with", given)
    if changed := [name for name, value in given.items() if recorded.get(name) != value]:
        raise UserError(
            f"{path} was created with other {', '.join(changed)}; undo the change, or give another run_dir="
        )
    study.set_user_attr("made_with", given)
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    # a new seed, so that a continued study does not repeat its earlier samples
    study.sampler = optuna.samplers.TPESampler(seed=plan.config.seed + 1000 * len(study.trials), multivariate=True)
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=FIRST)
    return study


def _ended(study: optuna.Study) -> list[Any]:
    import optuna

    state = optuna.trial.TrialState
    return study.get_trials(deepcopy=False, states=(state.COMPLETE, state.PRUNED))


def _trial(
    plan: StudySettings,
    task: Task,
    verdict: Verdict,
    values: Mapping[str, Any],
    trial: optuna.Trial,
    reporter: Reporter,
) -> float:
    """Return the mean score over the seeds. Raises TrialPruned if it falls behind the median of the earlier trials.

    `task` scores the episodes even if the trial changes settings of the task, so that a lower target speed does not
    make the goal easier.
    """
    import optuna

    program = verdict.program
    assert program is not None
    settings = overrides_of({name: v for name, v in values.items() if not name.startswith(WEIGHTS)})
    weights = _weights(program.weights, values)
    config = compose([*plan.overrides, *settings])
    weighted = dataclasses.replace(verdict, program=dataclasses.replace(program, weights=weights))
    trial_task = task_of(config) if any(name.startswith(TASK) for name in values) else task
    trial_task = acting(config.optimizer, trial_task)
    optimizer = build_optimizer(config.optimizer, trial_task, config.physics)
    scores, started = [], time.monotonic()
    try:
        for i, seed in enumerate(plan.seeds):
            ((outcome,),) = evaluate(optimizer, trial_task, [weighted], [seed])
            score = score_of(task, outcome)
            lost = "" if math.isfinite(score) else outcome.reason or "its score is not finite"
            scores.append(LOST if lost else score)
            shown = {**outcome.metrics, **outcome.timing}
            if lost:
                trial.set_user_attr("lost", lost)
            trial.set_user_attr(f"seed {seed}", {name: shown[name] for name in SHOWN if name in shown})
            trial.report(sum(scores) / len(scores), i)
            reporter.say(
                f"trial {trial.number}, seed {seed}: {lost or f'score {score:.2f}'}; "
                + ", ".join(f"{name} {shown[name]:.3g}" for name in SHOWN if name in shown)
            )
            if i + 1 < len(plan.seeds) and trial.should_prune():
                trial.set_user_attr("wall_s", round(time.monotonic() - started, 1))
                raise optuna.TrialPruned
    finally:
        close(optimizer)
    trial.set_user_attr("wall_s", round(time.monotonic() - started, 1))
    return sum(scores) / len(scores)


def _weights(weights: Mapping[str, float], values: Mapping[str, Any]) -> dict[str, float]:
    """Return `weights` with the tuned weights in `values` applied."""
    return {name: values.get(f"{WEIGHTS}{name}", weight) for name, weight in weights.items()}


def _write(plan: StudySettings, study: optuna.Study, program: RewardProgram) -> dict[str, Any]:
    """Write best.yaml (settings, in the format of conf/tuned_for) and best.py. Return the JSON result."""
    ended = _ended(study)
    result: dict[str, Any] = {"study": str(plan.root / "study.db"), "trials": len(ended)}
    complete = [trial for trial in ended if trial.value is not None and trial.state.name == "COMPLETE"]
    complete = [trial for trial in complete if "lost" not in trial.user_attrs]
    if not complete:
        reasons = [trial.user_attrs["lost"] for trial in ended if "lost" in trial.user_attrs]
        return {**result, **({"reason": f"no trial can be used: {reasons[-1]}"} if reasons else {})}
    best = max(complete, key=lambda trial: trial.value)
    write_atomically(plan.root / "best.yaml", _tuned_yaml(best.params).encode())
    write_atomically(
        plan.root / "best.py", with_weights(program.source, _weights(program.weights, best.params)).encode()
    )
    first = ended[0].value if ended[0] in complete else None  # that of the current settings
    return {
        **result,
        "best_trial": best.number,
        "score": best.value,
        "score_before": first,
        **{f"seed_{seed}": best.user_attrs[f"seed {seed}"] for seed in plan.seeds},
        **best.params,
    }


def _tuned_yaml(values: Mapping[str, Any]) -> str:
    """Return the settings in `values`, without weights, as the text of a file for conf/tuned_for."""
    nested = OmegaConf.create()
    for name, value in values.items():
        if not name.startswith(WEIGHTS):
            OmegaConf.update(nested, name, value)
    return "# @package _global_\n" + OmegaConf.to_yaml(nested)
