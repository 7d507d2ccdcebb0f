"""Optimise control under one reward, measure its trials and film one of them, from settings."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import yaml

from movlr_jax._util.progress import Reporter
from movlr_jax._util.settings import CONFIG_BYTES, plain, read_yaml
from movlr_jax.config.schema import Config
from movlr_jax.config.trust import began, task_file
from movlr_jax.control.base import Optimizer
from movlr_jax.control.build import acting, build_optimizer, scored_at_once
from movlr_jax.control.settings import PpoSettings
from movlr_jax.engine.description import about_tuned, to_yaml
from movlr_jax.engine.parts import films_here, sized
from movlr_jax.engine.rewards import reward_source
from movlr_jax.engine.tasks import check_read, task_of
from movlr_jax.errors import UserError
from movlr_jax.evolution.evaluation import evaluate as evaluate_programs
from movlr_jax.evolution.evaluation import make_probe, middle
from movlr_jax.evolution.film import clip_of, store, style_of
from movlr_jax.evolution.trials import claim_of
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import film
from movlr_jax.records import Trial
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox.vet import Sandbox, Verdict
from movlr_jax.storage.inside import read_inside
from movlr_jax.storage.layout import POLICY
from movlr_jax.storage.writing import check_writable
from movlr_jax.storage.writing import write_atomically as write
from movlr_jax.tasks import Task
from movlr_jax.tasks.words.sentence import verdict


@dataclass(frozen=True)
class EvaluationSetup:
    """A vetted reward, and the task and optimizer that evaluate it."""

    config: Config
    task: Task
    optimizer: Optimizer
    verdict: Verdict
    origin: str  # of the reward: its file, or `human` or `initial`
    folder: Path  # for films, trajectories and training checkpoints
    human: RewardProgram | None = None  # the hand-written reward, where it is wanted and another one

    @property
    def engine(self) -> str:
        """Name of the physics that runs the episodes."""
        return self.optimizer.sim_physics.name

    @property
    def where(self) -> str:
        """Suffix of titles and file names that names the physics; empty for C MuJoCo."""
        return "" if self.engine == "native" else f" in {self.engine}"

    def digest(self, seed: int) -> str:
        """Return a hash of task, settings and policies, without the reward and what does not affect the result."""
        relevant = dataclasses.replace(self.config, seed=seed, run_dir=None, films=False, preview=False, reward="")
        given = repr((plain(relevant), task_file(relevant))).encode() + fingerprint(self.task)
        given += "".join(relevant.optimizer.file_hashes()).encode()
        return hashlib.sha256(given).hexdigest()[:12]


def fingerprint(task: Task) -> bytes:
    """Return the model, the goals and the first start states and controls of a task: tasks of one name may differ."""
    model = np.empty(mujoco.mj_sizeModel(task.model), np.uint8)
    mujoco.mj_saveModel(task.model, None, model)
    goals = [(name, np.asarray(goal).tolist()) for name, goal in task.goals.items()]
    starts = [array.tolist() for array in task.start(np.random.default_rng(0), 2)]
    starts += [] if task.course.rest is None else [np.asarray(task.course.rest).tolist()]
    return model.tobytes() + repr((task.name, task.description, task.episode_s, goals, starts)).encode()


def prepared(
    config: Config,
    reporter: Reporter,
    given: tuple[str, str] | None = None,
    task: Task | None = None,
    compare: bool = False,
) -> EvaluationSetup:
    """Build what an evaluation needs. Raises UserError.

    Args:
        given: Source and origin of a reward that replaces the one in `config`.
        task: The task, if it is built already.
        compare: Whether the hand-written reward of the task is wanted too.
    """
    task = task or task_of(config)
    check_read(config, task)
    task = acting(config.optimizer, task)
    config = sized(config, task, 1, reporter.say)
    folder = Path(config.run_dir) if config.run_dir else default_folder(task)
    source, origin = given or reward_source(config.reward, task)
    if sentence := about_tuned(config):
        reporter.say(sentence)
    optimizer = build_optimizer(config.optimizer, task, config.physics, reporter.say)
    sandbox = Sandbox(
        make_probe(task, optimizer.sim_physics, config.seed),
        name=config.sandbox,
        batch=scored_at_once(config.optimizer, task),
    )
    try:
        with reporter.stage("vet"):
            verdict = sandbox.vet(source)
            human = sandbox.vet(task.rewards.human).program if compare and source != task.rewards.human else None
    finally:
        sandbox.close()
    if not verdict.accepted:
        raise UserError(f"reward {origin}: {verdict.message}")
    for note in verdict.notes:
        reporter.say(f"note: {note}")
    return EvaluationSetup(config, task, optimizer, verdict, origin, folder, human)


def about_training(config: Config) -> str:
    """Return a sentence if the reward of an evaluation trains nothing, else an empty one."""
    if not isinstance(config.optimizer, PpoSettings) or config.optimizer.ppo.env_steps:
        return ""
    return (
        f"note: nothing is trained (optimizer.ppo.env_steps=0): the policy {config.optimizer.ppo.init} runs "
        "unchanged and the reward only scores it; give optimizer.ppo.env_steps=1000000 to train it under this reward"
    )


def default_folder(task: Task) -> Path:
    return Path("runs") / task.name / "evaluate"


def run_episode(setup: EvaluationSetup, seed: int, reporter: Reporter) -> tuple[Trial, dict[str, Any]]:
    """Run the trials of a reward and save the trajectory of the middle one. Return its evaluation and a JSON record.

    The seeds of the trials are `seed` and those after it. The measures in the record are means over the trials; its
    seed, and that in the names of the files, is the one of the middle trial.
    """
    config = setup.config
    check_writable(setup.folder)  # before the work, whose result could not be kept
    kept = setup.folder / "training" / setup.digest(seed)
    with reporter.stage("optimise") as tick:  # an interrupted training is continued
        seeds = range(seed, seed + (config.trials or 1))
        (trials,) = evaluate_programs(setup.optimizer, setup.task, [setup.verdict], seeds, tick, kept)
    outcome, claim = middle(setup.task, trials), claim_of(setup.task.scoring.motion, trials)
    if len(trials) > 1:
        for trial in trials:
            reporter.say(
                f"  seed {trial.seed}: {trial.reason or verdict(setup.task.scoring.motion, dict(trial.metrics))}"
            )
        reporter.say(f"{setup.origin} from {claim.n} starts: {claim.text(interval=True)}")
    result: dict[str, Any] = {
        "task": setup.task.name,
        "model": setup.task.adapter.name,
        "reward": setup.origin,
        "seed": _seed(outcome, seed),
        "optimizer": config.optimizer.name,
        "sandbox": config.sandbox,
        **{
            kind: {name: term[kind] for name, term in outcome.terms.items() if term[kind]}
            for kind in ("nonfinite", "nonfinite_planned")
        },
        **(claim.metrics or outcome.metrics),
        **outcome.timing,
        **(claim.record() if len(trials) > 1 else {}),
    }
    if outcome.states:
        stem = _stem(setup, _seed(outcome, seed))
        result["trajectory"] = str(write(setup.folder / f"{stem}.npz", outcome.states))
        write(setup.folder / f"{stem}.yaml", to_yaml(config).encode())  # export builds the task from it
        began(setup.folder, config)
        reporter.say(f"trajectory: {result['trajectory']}")
    if (policy := kept / POLICY).is_file():
        write(kept / "config.yaml", to_yaml(config).encode())  # as next to a policy of `train`
        began(kept, config)
        result["policy"] = str(policy)
        reporter.say(f"policy: {policy}")
    if outcome.reason:
        result["reason"] = outcome.reason
    return outcome, result


def _seed(outcome: Trial, first: int) -> int:
    """Return the seed of a trial, or the first one if it did not run."""
    return first if outcome.seed is None else outcome.seed


def _stem(setup: EvaluationSetup, seed: int) -> str:
    """Return the file name of a result without its suffix; one of other settings is kept."""
    stem = f"{Path(setup.origin).stem}_seed{seed}{setup.where.replace(' ', '_')}"
    given = to_yaml(dataclasses.replace(setup.config, run_dir=None, films=False, preview=False))
    try:
        recorded = read_inside(setup.folder, f"{stem}.yaml", CONFIG_BYTES)
        before = None if recorded is None else read_yaml(recorded.decode())
        now = yaml.safe_load(given)
        same = before is None or {**before, "run_dir": None, "films": False, "preview": False} == now
    except (UserError, KeyError, TypeError, ValueError):  # not from an evaluation
        same = False
    return stem if same else f"{stem}_{hashlib.sha256(given.encode()).hexdigest()[:8]}"


def run_and_film(
    setup: EvaluationSetup,
    seed: int,
    reporter: Reporter,
    on_result: Callable[[dict[str, Any]], object] = lambda record: None,
) -> dict[str, Any]:
    """Run one episode, film it if films are available, and return its JSON record. Raises UserError.

    `on_result` is called with the record even if the film fails.
    """
    outcome, result = run_episode(setup, seed, reporter)
    try:
        if outcome.reason:
            raise UserError(f"reward {setup.origin}: {outcome.reason}")
        if films_here(setup.config, reporter):
            name = f"{setup.origin} reward, seed {result['seed']}{setup.where}"
            caption = Caption(setup.task.description, name, verdict(setup.task.scoring.motion, dict(outcome.metrics)))
            with reporter.stage("film") as tick:
                clip = clip_of(setup.task, outcome.states or b"", caption)
                made = film(clip, style_of(setup.config.preview), tick)
            path = Path(result["trajectory"]).with_suffix(".mp4")
            result["film"] = str(store(lambda name, data: write(Path(name), data), str(path), made))
            reporter.say(f"film: {result['film']}")
    finally:
        on_result(result)
    return result
