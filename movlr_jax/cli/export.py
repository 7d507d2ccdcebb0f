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

from collections.abc import Sequence

from movlr_jax.cli import common
from movlr_jax.cli.episodes import EpisodeRequest, episodes, read_request, task_of_request
from movlr_jax.cli.export_policy import export_policy
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.language.clients.replay import write_recording
from movlr_jax.storage.inside import inside
from movlr_jax.storage.tables import FORMATS
from movlr_jax.storage.trajectory import EpisodeRecord

ANSWERS = "answers"


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(_run, __doc__, argv)


def _run(arguments: list[str]) -> int:
    if any(argument.lstrip("+").startswith(("policy=", "recipe=")) for argument in arguments):
        return export_policy(arguments)
    request, given = read_request(
        "export", "export runs/flat_walk/TIME format=mot", arguments, {"format": "mot"}
    )
    formats = formats_of(given["format"])
    if ANSWERS in formats:
        if not request.source.is_dir():
            raise UserError(f"format=answers takes a run directory, not {request.source}")
        for path in write_recording(request.source, request.out or inside(request.source, "export")):
            print(path, flush=True)
        formats.remove(ANSWERS)
    return export(request, formats) if formats else 0


def formats_of(given: str) -> list[str]:
    """Return the formats of the option `format`. Raises UserError."""
    formats = common.listed(given)
    for name in formats or [""]:
        if name not in (*FORMATS, ANSWERS):
            raise UserError(unknown_name("format", name, [*FORMATS, ANSWERS]))
    return formats


def export(request: EpisodeRequest, formats: Sequence[str]) -> int:
    """Write the files and print their paths. Raises UserError."""
    task = task_of_request(request)
    for name, states, folder in list(episodes(request, "export")):
        try:
            record = EpisodeRecord.read(states, task.model, task.adapter)
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        for kind in formats:
            for path in record.export((request.out or folder) / f"{name}.{kind}"):
                print(path, flush=True)
    return 0
