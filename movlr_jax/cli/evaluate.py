"""`python -m movlr_jax.evaluate +task=T reward=FILE|human|initial|RUN_DIR`: evaluate one reward and film the motion.

The last line of stdout is one JSON object with the metrics.
"""

from __future__ import annotations

import dataclasses
import json

from movlr_jax._util.progress import Reporter
from movlr_jax.cli import common
from movlr_jax.config.schema import Config
from movlr_jax.errors import UserError


def evaluate(config: Config, job: int | None = None) -> int:
    """Optimise control under one reward, film the motion, print the metrics. Raises UserError.

    job: number of the job in a sweep without run_dir, each of which has a folder.
    """
    # slow to import, and --help does not need them
    from movlr_jax.engine.description import about_success
    from movlr_jax.engine.evaluate import about_training, default_folder, prepared, run_and_film
    from movlr_jax.engine.tasks import task_of
    from movlr_jax.sandbox.warm import start_ahead

    if config.resume:
        raise UserError(f"resume continues a search; to evaluate its best program, give reward={config.resume}")
    if config.tracker.name != "none":
        raise UserError(
            f"tracker={config.tracker.name} is not used: only a search is shown in a tracker; give tracker=none"
        )
    reporter = Reporter()
    start_ahead()
    task = task_of(config)
    if job is not None:
        config = dataclasses.replace(config, run_dir=str(default_folder(task) / str(job)))
    setup = prepared(config, reporter, task=task)
    for sentence in (about_training(config), about_success(task), *task.origin.warnings):
        if sentence:
            reporter.say(sentence)
    run_and_film(setup, config.seed, reporter, lambda record: print(json.dumps(record), flush=True))
    return 0


def main(argv: list[str] | None = None) -> int:
    return common.run(evaluate, argv, numbered=True)
