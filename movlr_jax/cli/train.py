"""Train a policy from nothing, for a task or in the stages of a recipe.

`movlr-jax train model=hopper.xml instruction="hop forward"` trains under the first program of the task, or under
reward=FILE or reward=RUN_DIR, the best one of a search; optimizer.ppo.env_steps=1000000 is how long. Then the policy
runs from starts=8 fresh start states in C MuJoCo, is filmed, and written as policy.onnx for examples/run_policy.py.
run_dir is by default runs/train/TASK/seedN.

`movlr-jax train +recipe=flat_walk_legs` trains in the stages of a recipe.

recipe= names a file of conf/recipe or your own YAML file, seed=0 the random numbers, run_dir= the results (default
runs/train/RECIPE/seedN). Further settings apply to every stage. The same command continues an interrupted training.
Afterwards the policy runs from starts=8 fresh start states; a table of its gait is printed on stderr, one JSON object
on stdout. run_dir has policy.npz, stages/*/ with checkpoints, curves and TensorBoard events, curves.png and
evaluation.json. With another reward=, the curves also have the hand-written reward of the task, which nothing is then
trained on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from movlr_jax._util.parts import check_ranges, setting
from movlr_jax.cli import common
from movlr_jax.cli.words import read_words
from movlr_jax.config.recipe import read_recipe
from movlr_jax.engine import train as engine
from movlr_jax.errors import UserError

SHOWN = {  # metric -> title and digits
    "fell": ("fell", 0),
    "distance_m": ("distance, m", 2),
    "mean_speed_m_s": ("speed, m/s", 2),
    "gait_r": ("gait r", 2),
    "knee_swing_deg": ("knee in swing, deg", 0),
    "symmetry": ("symmetry", 2),
    "dropped": ("dropped", 0),
    "object_position_error_m": ("object off, m", 3),
    "object_orientation_error_rad": ("object off, rad", 2),
    "success": ("success", 0),
}


_MEAN_DIGITS = 2  # at least: the mean of a yes or no is a share

_REFUSED = {"resume": "the same command continues a training", "tracker": "only a search is shown in a tracker"}
_NAMED = "the recipe names it, as in +recipe=flat_walk_legs"


@dataclass(frozen=True)
class _Words:
    recipe: str = ""
    seed: int = setting(0, "of the random numbers", least=0)
    starts: int = setting(8, "states from which the policy is evaluated", least=0)
    run_dir: Path | None = None


def main(argv: list[str] | None = None) -> int:
    """Train, or continue a training. Return the exit status."""
    return common.run_with_arguments(train, __doc__, argv)


def train(words: Sequence[str]) -> int:
    """Train what is left to train, then evaluate the policy. Return 0. Raises UserError."""
    names = {word.lstrip("+").partition("=")[0] for word in words}
    own, settings = read_words(_Words, words, _REFUSED | ({"task": _NAMED} if "recipe" in names else {}))
    check_ranges(own)
    given = {"seed": own.seed, "starts": own.starts, "root": own.run_dir}
    if own.recipe:
        result = engine.train(read_recipe(own.recipe), settings, **given)
    elif names & {"task", "model", "instruction"}:
        result = engine.train_task(settings, **given)
    else:
        raise UserError(
            'train needs a task or a recipe, as in movlr-jax train model=hopper.xml instruction="hop forward" or '
            "movlr-jax train +recipe=flat_walk_legs"
        )
    if "episodes" in result:
        print("\n".join(table(result["episodes"])), file=sys.stderr, flush=True)
    print(json.dumps(result), flush=True)
    return 0


def table(episodes: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the episodes as lines of text, with their mean."""
    shown = {name: spec for name, spec in SHOWN.items() if any(name in e for e in episodes)}
    lines = ["".join([f"{'start':>6}", *(f"{title:>20}" for title, _ in shown.values())])]
    means = {n: float(np.mean([e[n] for e in episodes if n in e])) for n in shown}
    rows = [(str(e.get("start", i)), e, 0) for i, e in enumerate(episodes)]
    for label, row, least in [*rows, ("mean", means, _MEAN_DIGITS)]:
        cells = [
            f"{row[n]:>20.{max(digits, least)}f}" if n in row else f"{'-':>20}" for n, (_, digits) in shown.items()
        ]
        lines.append("".join([f"{label:>6}", *cells]))
    return lines
