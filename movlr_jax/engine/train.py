"""Train a policy from nothing, in the stages of a recipe."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import yaml
from rich.console import Console

from movlr_jax._util.progress import Reporter
from movlr_jax._util.settings import flat
from movlr_jax.config.compose import compose
from movlr_jax.config.recipe import STEPS, Recipe, Stage
from movlr_jax.config.schema import Config
from movlr_jax.config.trust import began, task_file
from movlr_jax.control.build import close
from movlr_jax.control.ppo.config import motion_files
from movlr_jax.control.ppo.trainer import PpoTrainer
from movlr_jax.control.settings import PpoSettings
from movlr_jax.engine.description import digest, model_files, to_yaml
from movlr_jax.engine.environment import prepare_environment
from movlr_jax.engine.evaluate import EvaluationSetup, prepared, run_and_film
from movlr_jax.engine.export import export_policy
from movlr_jax.engine.resume import changes
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.evolution.evaluation import evaluate as evaluate_programs
from movlr_jax.evolution.gates import merit
from movlr_jax.evolution.trials import claim_of
from movlr_jax.models.actuators import servos
from movlr_jax.models.from_path import files_of, is_path
from movlr_jax.models.motors import motors, of_joints
from movlr_jax.storage.layout import POLICY
from movlr_jax.storage.writing import locked
from movlr_jax.storage.writing import write_atomically as write
from movlr_jax.tasks import Task

_FRESH = 10_000  # first seed of the start states of an evaluation, far from those of trainings
_STEPS = 500_000  # control steps of a round of a training for a task
# its rounds at most: the policy explores, then gets used to acting without noise
_ROUNDS = {"train": (6, {"optimizer.ppo.entropy": 0.005}), "settle": (2, {"optimizer.ppo.entropy": -0.01})}
_STEADY = {"optimizer.ppo.target_kl": 0.01}
_TARGETS = {"optimizer.ppo.action": "targets", "optimizer.ppo.noise": 0.3}
_SEEN, _CHOICE = 20_000, 8  # first seed and number of the trials that say whether a policy is good enough


def train(
    recipe: Recipe, settings: Sequence[str] = (), *, seed: int = 0, starts: int = 8, root: Path | None = None
) -> dict[str, Any]:
    """Train a policy in the stages of a recipe, or continue such a training, then evaluate it. Raises UserError.

    Args:
        recipe: As `config.recipe.read_recipe` returns it.
        settings: Further settings of every stage, as on the command line.
        seed: Seed of the random numbers.
        starts: Start states from which the policy is evaluated, one episode each; 0 evaluates nothing.
        root: Folder of the results; None for runs/train/RECIPE/seedN.

    Returns:
        The recipe, the seed, the file of the policy, and the measures of each episode.
    """
    prepare_environment()
    root = root or Path(f"runs/train/{recipe.name}/seed{seed}")
    with locked(root):
        return _train(recipe, settings, seed, starts, root)


def _train(recipe: Recipe, settings: Sequence[str], seed: int, starts: int, root: Path) -> dict[str, Any]:
    reporter, clock = Reporter(), _Clock(recipe.stages)
    policy: Path | None = None
    for number in range(len(recipe.stages)):
        policy = _staged(recipe, number, policy, settings, seed, root, clock, reporter)
    assert policy is not None
    write(root / "policy.npz", policy.read_bytes())
    draw_curves(root)
    result = {"recipe": recipe.name, "seed": seed, "policy": str(root / "policy.npz")}
    if starts:
        config = compose(recipe.evaluation(policy, settings))
        found = evaluated(prepared(config, reporter), starts, reporter)
        result |= {"task": config.task.name, "model": config.model, "episodes": found}
        write(root / "evaluation.json", json.dumps(result, indent=1).encode())
    return result


def _staged(
    recipe: Recipe,
    number: int,
    begin: Path | None,
    settings: Sequence[str],
    seed: int,
    root: Path,
    clock: _Clock,
    reporter: Reporter,
) -> Path:
    """Train a stage that begins with the policy `begin`, unless it has been trained. Return its policy."""
    stage = recipe.stages[number]
    folder = root / "stages" / f"{number:02d}_{stage.name}"
    config = compose([*recipe.overrides(stage, begin, settings), f"seed={seed}"])
    _same_settings(folder, config, _contents(config, begin))
    if not (folder / POLICY).exists():
        reporter.say(f"stage {number + 1} of {len(recipe.stages)}: {stage.name}{clock.left(number)}")
        _run(config, folder, jax.random.fold_in(jax.random.key(seed), number), reporter)
        clock.ran(stage)
    return folder / POLICY


def train_task(
    settings: Sequence[str], *, seed: int = 0, starts: int = 8, root: Path | None = None
) -> dict[str, Any]:
    """Train a policy for any task, or continue such a training, confirm it from fresh starts and film it.

    Unless a number of control steps is given, it is trained in rounds, until all of 8 trials succeed with the noise
    of the training, then with less and less noise, until they succeed without. The best policy of all rounds is kept,
    by trials from other starts than those that confirm it.

    Args:
        settings: As on the command line, such as `model=hopper.xml` and `instruction="hop forward"`. The reward is
            the first program of the task, unless `reward=` names another one or a run directory.
        seed, starts, root: As of `train`; the name in the folder is that of the task.

    Returns:
        What `evaluate` returns for the policy with `starts` trials, and its files. Raises UserError.
    """
    prepare_environment()
    given = ["optimizer=ppo", *settings]
    config, set_steps = compose(given), any(word.startswith(f"{STEPS}=") for word in settings)
    if not isinstance(config.optimizer, PpoSettings):
        raise UserError(f"optimizer={config.optimizer.name} trains nothing; give optimizer=ppo or optimizer=dynsyn")
    task, steps = task_of(config), config.optimizer.ppo.env_steps if set_steps else _STEPS
    rounds = {"train": (1, _ROUNDS["train"][1])} if set_steps else _ROUNDS
    stages = [Stage(name, {STEPS: steps, **_STEADY, **how}) for name, (n, how) in rounds.items() for _ in range(n)]
    given = [word for word in given if not word.startswith(f"{STEPS}=")]
    own = any(word.startswith(("optimizer.ppo.action=", "optimizer.ppo.init=")) for word in given)
    recipe = Recipe(task.name, _TARGETS if _of_joints(task) and not own else {}, stages, {})
    root, reporter = root or Path(f"runs/train/{recipe.name}/seed{seed}"), Reporter()
    with locked(root):
        policy = _best_policy(recipe, given, seed, root, reporter)
    acting, result = [*recipe.evaluation(policy, given), f"run_dir={root}"], {}
    if starts:
        reporter.say(f"the policy runs from {starts} fresh starts")
        result = run_and_film(prepared(compose([*acting, f"trials={starts}"]), reporter), _FRESH, reporter)
        write(root / "evaluation.json", json.dumps(result, indent=1).encode())
    try:
        result["onnx"] = [str(path) for path in export_policy(compose(acting), root / "policy.onnx")]
    except UserError as error:  # the policy is kept
        reporter.say(f"not written as ONNX: {error}")
    return result | {"policy": str(policy)}


def _best_policy(recipe: Recipe, given: Sequence[str], seed: int, root: Path, reporter: Reporter) -> Path:
    """Train the rounds of `train_task`. Return the file of the best policy."""
    stages, found = recipe.stages, list[tuple[tuple[float, ...], Path]]()
    clock, policy, good = _Clock(stages, all_of_them=len(stages) == 1), None, ""
    # a policy to begin with, or a teacher, is for the first round; the others go on from the one before
    later = [word for word in given if not word.startswith(("optimizer.ppo.init=", "optimizer.ppo.teacher="))]
    for number, stage in enumerate(stages):
        if stage.name == good:  # its other rounds are not needed
            continue
        policy = _staged(recipe, number, policy, later if policy else given, seed, root, clock, reporter)
        if len(stages) == 1:
            found.append(((), policy))
            continue
        found.append((_tried(recipe, policy, given, reporter), policy))
        noisy = [*given, "optimizer.ppo.acts=sample"]
        tried = found[-1][0] if stage.name == "settle" else _tried(recipe, policy, noisy, reporter)
        good = stage.name if tried[0] == _CHOICE else good
    write(root / "policy.npz", max(found)[1].read_bytes())
    draw_curves(root)
    return root / "policy.npz"


def _tried(recipe: Recipe, policy: Path, given: Sequence[str], reporter: Reporter) -> tuple[float, ...]:
    """Return what a policy comes to in some trials, its successes first."""
    setup = prepared(compose(recipe.evaluation(policy, given)), Reporter(Console(quiet=True)))
    (trials,) = evaluate_programs(setup.optimizer, setup.task, [setup.verdict], range(_SEEN, _SEEN + _CHOICE))
    close(setup.optimizer)
    claim, sampled = claim_of(setup.task.scoring.motion, trials), "optimizer.ppo.acts=sample" in given
    reporter.say(f"{'with the noise of the training' if sampled else policy.parent.name}: {claim.text()}")
    faults, scores = zip(*(merit(setup.task, trial) for trial in trials), strict=True)
    return float(claim.successes or 0), float(sum(faults)), float(sum(scores))


def _of_joints(task: Task) -> bool:
    """Whether each actuator drives one joint, by a servo or a motor, so that actions can be joint targets."""
    model = task.model
    return not task.course.holds_controls and bool((of_joints(model) & (servos(model) | motors(model))).all())


class _Clock:
    """Estimates the time that the stages still take."""

    def __init__(self, stages: Sequence[Stage], all_of_them: bool = True):
        self._stages, self._most = stages, "" if all_of_them else "at most "
        self._steps, self._begun, self._s = 0, time.monotonic(), 0.0

    def ran(self, stage: Stage) -> None:
        self._steps += stage.steps
        self._s = time.monotonic() - self._begun

    def left(self, number: int) -> str:
        """Return the time left before stage `number`, in words; empty while there is nothing to judge it by."""
        steps = sum(stage.steps for stage in self._stages[number:])
        if not self._steps:
            return f", {self._most}{steps:,} control steps to go"
        return f", {self._most}{steps:,} control steps to go, about {self._s / self._steps * steps / 60:.0f} min"


def _contents(config: Config, policy: Path | None) -> dict[str, str]:
    """Return hashes of the user's files that a stage reads, without `policy`, the result of the previous one.

    Raises UserError if one cannot be read.
    """
    reward = Path(config.reward)
    files = {
        f"reward={reward}": [reward / "best.py" if reward.is_dir() else reward],
        **{
            f"optimizer.{name}={files if isinstance(files, str) else list(files)}": (
                [Path(files)] if isinstance(files, str) else motion_files(files)
            )
            for name, files in config.optimizer.files().items()
        },
        f"reference={config.reference}": [Path(config.reference or "")],
        f"model={config.model}": files_of(Path(config.model).expanduser()) if is_path(config.model) else [],
    }
    if made_from := task_file(config):
        files[f"task={made_from['path']}"] = [Path(made_from["path"])]
        files[f"the model of task={made_from['path']}"] = model_files(task_of(config))
    present = {name: [p for p in paths if p != policy and p.is_file()] for name, paths in files.items()}
    return {name: found for name, paths in present.items() if (found := digest(paths))}


def _same_settings(folder: Path, config: Config, contents: Mapping[str, str]) -> None:
    """Write the settings of a stage and hashes of its files. Raises UserError if it was trained with others."""
    path, text, kept = folder / "config.yaml", to_yaml(config), folder / "contents.json"
    begun = (folder / POLICY).exists() or any(p.is_file() for p in (folder / "checkpoints").rglob("*"))
    if path.exists() and begun:
        recorded = json.loads(kept.read_text()) if kept.exists() else {}
        ours, then = (flat(yaml.safe_load(t)) for t in (text, path.read_text(encoding="utf-8")))
        changed = changes(ours, then) + [f"{name} is no longer given" for name in sorted(then.keys() - ours.keys())]
        changed += [f"the content of {name} has changed" for name in contents if contents[name] != recorded.get(name)]
        if changed:
            raise UserError(
                f"{folder} was trained with other settings: {'; '.join(changed)}; give another run_dir, or remove "
                "this stage and those after it to train them again"
            )
    folder.mkdir(parents=True, exist_ok=True)
    write(path, text.encode())
    began(folder, config)
    write(kept, json.dumps(contents).encode())


def _run(config: Config, folder: Path, key: jax.Array, reporter: Reporter) -> None:
    """Train one stage and write its curves. An interrupted one goes on from its last checkpoint."""
    setup = prepared(config, reporter, compare=True)
    trainer = setup.optimizer
    if not isinstance(trainer, PpoTrainer):
        raise UserError(f"optimizer={config.optimizer.name} trains nothing; a recipe needs optimizer: ppo")
    trainer.yardstick = setup.human
    assert setup.verdict.program is not None
    with reporter.stage("train") as tick:
        controllers = trainer.optimise([setup.verdict.program], key, tick, folder)
    write(folder / "curves.json", json.dumps(controllers.learning[0]).encode())
    close(trainer)


def evaluated(setup: EvaluationSetup, starts: int, reporter: Reporter) -> list[dict[str, Any]]:
    """Return the metrics of one episode from each of `starts` fresh start states, in the reference physics."""
    with reporter.stage("evaluate"):
        (trials,) = evaluate_programs(setup.optimizer, setup.task, [setup.verdict], range(_FRESH, _FRESH + starts))
    return [{"start": i, **trial.metrics} for i, trial in enumerate(trials)]


def draw_curves(root: Path) -> None:
    """Draw the learning curves of all stages one after another as curves.png. Constant terms are left out."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    read = [(path.parent.name, json.loads(path.read_text())) for path in root.glob("stages/*/curves.json")]
    curves = sorted(read, key=lambda pair: pair[0])
    terms = [
        name
        for name in dict.fromkeys(name for _, curve in curves for name in curve["terms"])
        if len({value for _, curve in curves for value in curve["terms"].get(name, ())}) > 1
    ]
    colours = dict(zip(terms, itertools.cycle(colormaps["tab20"].colors), strict=False))  # pyright: ignore[reportAttributeAccessIssue]
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True)
    done, named = 0.0, set[str]()
    for stage, curve in curves:
        steps = [(done + s) / 1e6 for s in curve["env_steps"]]
        upper.plot(steps, curve["reward"], color="tab:blue", label=None if done else "the reward itself")
        if human := curve.get("human_reward"):
            upper.plot(steps, human, color="tab:gray", label=None if done else "hand-written reward")
        for name in terms:
            if values := curve["terms"].get(name):
                lower.plot(steps, values, color=colours[name], label=None if name in named else name)
                named.add(name)
        upper.axvline(steps[-1], color="0.8", linewidth=0.8)
        title = stage.partition("_")[2].replace("_", " ")
        upper.annotate(
            title, (steps[0], 1.01), xycoords=("data", "axes fraction"), fontsize=7, rotation=45,
            annotation_clip=False,
        )  # fmt: skip
        done += curve["env_steps"][-1]
    if "human_reward" in curves[0][1]:
        upper.legend(fontsize=7)
    upper.set_ylabel("reward per control step")
    lower.set_ylabel("weighted terms")
    lower.set_xlabel("control steps, millions")
    figure.legend(*lower.get_legend_handles_labels(), fontsize=7, loc="outside right upper")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write(root / "curves.png", buffer.getvalue())
