"""Reward programs by the names that users give them: a file, a run directory, `human`, `initial` or
`environment`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import mujoco

from movlr_jax.config.schema import Config
from movlr_jax.errors import UserError
from movlr_jax.evolution.evaluation import make_probe
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox.vet import Sandbox
from movlr_jax.storage.inside import read_inside
from movlr_jax.tasks import Task

_LINES = 2**28  # characters of a .jsonl file
_PROGRAM_BYTES = 2**20  # size limit of best.py, larger than any program


def program_text(path: Path, most: int = _PROGRAM_BYTES) -> str:
    """Return the text of a file, of at most `most` characters. Raises UserError, OSError and UnicodeDecodeError."""
    with path.open(encoding="utf-8-sig") as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise UserError(f"{path} has more than {most:,} characters, so it is no reward program; give another file")
    return text


def reward_source(reward: str, task: Task) -> tuple[str, str]:
    """Return the source of a reward and its origin: one of `_named`, a file, or the best.py of a run directory."""
    known = _named(task)
    if reward in known:
        return known[reward], reward
    with _read(reward, ["a file", "a run directory"], known) as path:
        if not path.is_dir():
            return program_text(path), str(path)
        data = read_inside(path, "best.py", _PROGRAM_BYTES)
        if data is None:
            raise UserError(f"{reward} has no best.py: it is not a run directory, or no generation has finished")
        return data.decode("utf-8-sig"), str(path / "best.py")


def _named(task: Task) -> dict[str, str]:
    """Return the programs of a task by the names that users give them."""
    own = {"environment": task.rewards.environment} if task.rewards.environment else {}
    return {"human": task.rewards.human, "initial": task.rewards.initial, **own}


@contextlib.contextmanager
def _read(reward: str, kinds: Sequence[str], known: Iterable[str]) -> Iterator[Path]:
    """Yield the path of a reward. Raises UserError if it does not exist or cannot be read."""
    try:
        if not reward:  # Path("") is the current folder
            raise FileNotFoundError
        yield Path(reward)
    except FileNotFoundError:
        raise UserError(
            f"there is no reward {reward!r}: give {', '.join(kinds)}, or one of: {', '.join(known)}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the reward {reward!r}: {error}") from None


def vetted(reward: str | Path, task: Task, config: Config, model: mujoco.MjModel) -> RewardProgram:
    """Return the program of `reward`, vetted on states of the task. Raises UserError."""
    text = str(reward)
    source, origin = (text, "reward=") if "\n" in text else reward_source(text, task)
    physics = NativePhysics(
        model, task.layout, sim_dt=config.optimizer.sim_dt, ctrl_dt=config.optimizer.ctrl_dt, threads=1
    )
    sandbox = Sandbox(make_probe(task, physics, 0), name=config.sandbox)
    try:
        verdict = sandbox.vet(source)
    finally:
        sandbox.close()
        physics.close()
    if verdict.program is None:
        raise UserError(f"reward {origin}: {verdict.message}")
    return verdict.program


def programs(reward: str, task: Task) -> list[tuple[str, str]]:
    """Return (name, source) of every program that the setting `reward` names. Raises UserError."""
    known = _named(task)
    if reward in known:
        return [(reward, known[reward])]
    with _read(reward, ["a file", "a folder", "a .jsonl file"], known) as path:
        if path.is_dir():
            found = [(str(p), program_text(p)) for p in sorted(path.rglob("*.py"))]
        elif path.suffix == ".jsonl":
            # splitlines would also split within a string of JSON
            lines = program_text(path, _LINES).split("\n")
            found = [_line(path, n, line) for n, line in enumerate(lines, 1) if line.strip()]
        else:
            found = [(str(path), program_text(path))]
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
        raise UserError(f'{path}, line {number}: expected an object like {{"name": ..., "code": "WEIGHTS = ..."}}')
    return name, source
