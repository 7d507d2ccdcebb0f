"""`movlr-jax check +task=T reward=FILE_OR_DIR_OR_JSONL`: only vet reward programs.

Prints one JSON object per program on stdout: name, verdict, stage, message, seconds, notes. The exit status is 1
if any program was rejected. In a .jsonl file, each line is an object with `name` and the program text as `code`.
"""

from __future__ import annotations

import json

from movlr_jax._util.progress import Reporter
from movlr_jax.cli import common
from movlr_jax.config.schema import Config
from movlr_jax.control.build import acting, scored_at_once
from movlr_jax.engine.rewards import programs
from movlr_jax.engine.tasks import task_of
from movlr_jax.evolution.evaluation import make_probe
from movlr_jax.physics.native import NativePhysics
from movlr_jax.sandbox.vet import Sandbox
from movlr_jax.sandbox.warm import start_ahead

REJECTED = 1  # exit status


def check(config: Config) -> int:
    """Vet every program that `reward` names. Return 0, or 1 if any was rejected. Raises UserError."""
    start_ahead()
    reporter, o = Reporter(), config.optimizer
    task = acting(o, task_of(config))
    found = programs(config.reward, task)
    physics = NativePhysics(task.model, task.layout, sim_dt=o.sim_dt, ctrl_dt=o.ctrl_dt)
    rejected = 0
    sandbox = Sandbox(
        make_probe(task, physics, config.seed), name=config.sandbox, batch=scored_at_once(o.suited(task), task)
    )
    try:
        if config.sandbox != "confined":
            reporter.say(f"sandbox: {sandbox.description}")
        with reporter.stage("vet") as tick:
            verdicts = sandbox.vet_all([source for _, source in found], tick)
    finally:
        sandbox.close()
        physics.close()
    for (name, _), verdict in zip(found, verdicts, strict=True):
        rejected += not verdict.accepted
        line = {
            "name": name,
            "verdict": "accept" if verdict.accepted else "reject",
            "stage": verdict.stage,
            "message": verdict.message,
            "seconds": round(verdict.seconds, 4),
            "notes": list(verdict.notes),
        }
        print(json.dumps(line), flush=True)
    return REJECTED if rejected else 0


def main(argv: list[str] | None = None) -> int:
    return common.run(check, argv)
