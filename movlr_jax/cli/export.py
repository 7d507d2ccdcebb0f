"""`movlr-jax export RUN_DIR_OR_TRAJECTORY format=mot`: write episodes as files for other programs.

RUN_DIR is a run directory: its best program is exported, candidate=g01k02 another one, candidate=all every one.
TRAJECTORY is an npz file of a run or of `evaluate`. format is
  mot      coordinates of OpenSim, angles in degrees
  sto      states of OpenSim (values, speeds, activations) in rad and m, and the forces in a second file
  csv      states, controls and forces in one table, in SI units
  parquet  the same as Parquet (extra `parquet`)
  answers  the answers of the language and vision models and the settings, to repeat the search on any machine without
           them: search replay=FOLDER
Several with commas. out=DIR is the folder of the files: by default that of the trajectory, or RUN_DIR/export.
The task comes from the settings next to the trajectory; +task=NAME model=... names it if there are none. trust=true
runs the Python file of a recorded task. Prints the path of each file.

`movlr-jax export policy=FILE.npz out=walk.onnx` writes a trained policy as an ONNX graph, and next to it
the model that it acts on, for examples/run_policy.py. policy is a file of a training, or the name of a recipe
or of a policy of the package. Its settings are those of the training, else +task=NAME model=... names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from movlr_jax.cli import common
from movlr_jax.cli.words import EpisodeWords, read_episodes, read_words
from movlr_jax.engine.export import export_episodes, export_policy, settings_of_policy


@dataclass(frozen=True)
class _Episodes(EpisodeWords):
    format: tuple[str, ...] = ("mot",)


@dataclass(frozen=True)
class _Policy:
    policy: str = ""
    recipe: str = ""
    out: Path | None = None
    trust: bool = False


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(_run, __doc__, argv)


def _run(words: list[str]) -> int:
    if any(word.lstrip("+").startswith(("policy=", "recipe=")) for word in words):
        own, settings = read_words(_Policy, words, {"format": "policies are written as ONNX graphs"})
        written = export_policy(settings_of_policy(own.policy, own.recipe, settings, own.trust), own.out)
    else:
        request, own = read_episodes("export runs/flat_walk/TIME format=mot", _Episodes, words)
        written = export_episodes(request, own.format)
    for path in written:
        print(path, flush=True)
    return 0
