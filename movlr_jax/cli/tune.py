"""`movlr-jax tune +task=T space=planner trials=40 seeds=0,1,2`: tune settings and weights.

Runs an Optuna study (TPE, median pruning after each seed) over `evaluate`. space= names the ranges:
conf/space/NAME.yaml or your own YAML file, several with commas. The first trial uses the current settings. The study
is saved in `run_dir`/study.db (default run_dir: runs/TASK/tune/MODEL); the same command continues it. The last line
of stdout is one JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from movlr_jax.cli import common
from movlr_jax.cli.words import read_words
from movlr_jax.engine import tune as engine

_REFUSED: Mapping[str, str] = dict.fromkeys(
    ("seed", "resume"), "tune takes seeds=0,1,2 and continues the study in its run_dir"
)


@dataclass(frozen=True)
class _Words:
    space: tuple[str, ...] = ("planner",)
    trials: int = 40
    seeds: tuple[int, ...] = (0, 1, 2)


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(tune, __doc__, argv)


def tune(words: Sequence[str]) -> int:
    """Start or continue the study, and print its best trial. Return 0. Raises UserError."""
    own, overrides = read_words(_Words, words, _REFUSED)
    plan = engine.study_settings(overrides, space=own.space, trials=own.trials, seeds=own.seeds)
    print(json.dumps(engine.tune(plan)), flush=True)
    return 0
