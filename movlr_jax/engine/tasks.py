"""The task that the settings name."""

from __future__ import annotations

from pathlib import Path

from movlr_jax._util.parts import services_of
from movlr_jax.config.schema import Config
from movlr_jax.engine.environment import prepare_physics
from movlr_jax.errors import UserError
from movlr_jax.language.registry import Auto
from movlr_jax.language.settings import EMBEDDED
from movlr_jax.models.from_path import is_path
from movlr_jax.tasks import Task, build_task
from movlr_jax.tasks.base import check_episode
from movlr_jax.tasks.instruction import described, folder_name, with_instruction
from movlr_jax.tasks.reference import with_reference
from movlr_jax.tasks.registry import DESCRIBED_TASK, ENVIRONMENTS, FILE_TASK, TASKS


def task_of(config: Config) -> Task:
    """Set what the physics needs, then build the task that the settings name. Raises UserError."""
    if config.resume and config.task.name not in (FILE_TASK, DESCRIBED_TASK, *ENVIRONMENTS, *TASKS):
        raise UserError(
            f"the task {config.task.name!r} of {config.resume} was made or registered in Python; give it there, "
            f"as in run_search(task, resume={config.resume!r}) or open_run({config.resume!r}, task)"
        )
    moved = config.resume and config.task.name == DESCRIBED_TASK and is_path(config.model)
    if moved and not Path(config.model).is_file():
        raise UserError(
            f"there is no model file {config.model}, with which {config.resume} began; if it was moved, add "
            "model=FILE, where it is now"
        )
    prepare_physics(config.physics)
    task = build_task(config.task.name, config.model, config.episode_s, config.task.settings, config.instruction)
    return adapted(task, config)


def check_read(config: Config, task: Task) -> None:
    """Refuse an instruction with words that nobody reads. Raises UserError.

    A language model reads all of it; `instruction.partial=true` goes on with the words that were read.
    """
    if config.instruction is None or config.instruction_partial or config.resume or _model_writes(config):
        return
    if task.scoring.motion is not None and task.scoring.motion.problem:
        raise UserError(task.scoring.motion.problem)


def _model_writes(config: Config) -> bool:
    """Return whether a language model writes the programs, and so reads the instruction."""
    if not isinstance(config.proposer, Auto):
        return "client" in services_of(config.proposer) and config.llm.name not in EMBEDDED
    return (config.vlm if config.method.watches else config.llm).name not in EMBEDDED


def task_folder(config: Config) -> Path:
    """Return the folder of the results of a task that is not built yet."""
    named = config.task.name != DESCRIBED_TASK
    return Path("runs") / (config.task.name if named else folder_name(config.model))


def adapted(task: Task, config: Config) -> Task:
    """Return the task with the recorded motion and the instruction that the settings give. Raises UserError."""
    check_episode(task.episode_s, config.optimizer.ctrl_dt)
    if config.reference and not task.reference:
        task = with_reference(task, config.reference, config.reference_by)
    if config.instruction is not None and task.description != described(config.instruction):
        task = with_instruction(task, config.instruction)
    return task
