"""`movlr-jax check +task=T reward=FILE_OR_DIR_OR_JSONL`: only vet reward programs.

Prints one JSON object per program on stdout: name, verdict, stage, message, seconds, notes. The exit status is 1
if any program was rejected. In a .jsonl file, each line is an object with `name` and the program text as `code`.
"""

from __future__ import annotations

import json
from pathlib import Path

from movlr_jax._util.progress import Reporter
from movlr_jax.cli import common
from movlr_jax.config.schema import Config
from movlr_jax.control.build import acting, scored_at_once
from movlr_jax.engine.rewards import program_text
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.evolution.evaluation import make_probe
from movlr_jax.physics.native import NativePhysics
from movlr_jax.sandbox.vet import Sandbox
from movlr_jax.sandbox.warm import start_ahead
from movlr_jax.tasks import Task

REJECTED = 1  # exit status
_LINES = 2**28  # characters of a .jsonl file


def check(config: Config) -> int:
    """Vet every program that `reward` names. Return 0, or 1 if any was rejected. Raises UserError."""
    start_ahead()
    reporter, o = Reporter(), config.optimizer
    task = acting(o, task_of(config))
    found = programs(config.reward, task)
    physics = NativePhysics(task.model, task.layout, sim_dt=o.sim_dt, ctrl_dt=o.ctrl_dt)
    rejected = 0
    sandbox = Sandbox(
        make_probe(task, physics, config.seed), name=config.sandbox, batch=scored_at_once(o, task)
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


def programs(reward: str, task: Task) -> list[tuple[str, str]]:
    """Return (name, source) of every program that the setting `reward` names. Raises UserError."""
    known = {"human": task.human_reward, "initial": task.initial_reward}
    if reward in known:
        return [(reward, known[reward])]
    path = Path(reward)
    try:
        if not reward:  # Path("") is the current folder
            raise FileNotFoundError
        if path.is_dir():
            found = [(str(p), program_text(p)) for p in sorted(path.rglob("*.py"))]
        elif path.suffix == ".jsonl":
            # splitlines would also split within a string of JSON
            lines = program_text(path, _LINES).split("\n")
            found = [_line(path, n, line) for n, line in enumerate(lines, 1) if line.strip()]
        else:
            found = [(str(path), program_text(path))]
    except FileNotFoundError:
        raise UserError(
            f"there is no reward {reward!r}: give a file, a folder, a .jsonl file, or one of: {', '.join(known)}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the reward {reward!r}: {error}") from None
    if not found:
        raise UserError(
            f"{reward} has no reward program: expected .py files in a folder, or one object per line of a .jsonl file"
        )
    return found


def _line(path: Path, number: int, line: str) -> tuple[str, str]:
    try:
        entry = json.loads(line)
        source = entry["code"]
        name = str(entry.get("name", f"{path}:{number}"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        source, name = None, ""
    if not isinstance(source, str):
        raise UserError(
            f'{path}, line {number}: expected an object like {{"name": ..., "code": "WEIGHTS = ..."}}'
        )
    return name, source


def main(argv: list[str] | None = None) -> int:
    return common.run(check, argv)
