"""Names and paths of a run directory, defined in one place.

runs/<task>/<time>/
  config.yaml  run.db  best.py  report.html
  gen_00/      k00.py  k00.json  k00.npz  k00.mp4 ...
"""

from __future__ import annotations

from typing import Any

POLICY = "policy_k00.npz"  # of a training of one program
VOTE_PAGE = ".vote"  # address of the page of a search that people judge, while it runs


def generation_folder(generation: int) -> str:
    """Return the folder of a generation, relative to the run directory."""
    return f"gen_{generation:02d}"


def stage_folder(generation: int) -> str:
    """Return the folder of the trials of a generation, or of the confirmation (-1), relative to the run directory."""
    return "confirmation" if generation < 0 else f"{generation_folder(generation)}/trials"


def trial_stem(generation: int, program: str, number: int) -> str:
    """Return the path of a trial's files without the ending, relative to the run directory."""
    return f"{stage_folder(generation)}/{program}_{number:02d}"


def stem_of(shown: Any) -> str:
    """Return the path of the files of an evaluation without the ending: of its trial, else of its candidate."""
    return shown.stem or candidate_path(shown.generation, shown.candidate)


def candidate_path(generation: int, candidate: int, ending: str = "") -> str:
    """Return the path of a file of a candidate, relative to the run directory, as `gen_01/k03.npz`.

    ending: what follows the number, as `.py` (program), `.json` (record), `.npz` (trajectory), `.mp4` (film).
    """
    return f"{generation_folder(generation)}/k{candidate:02d}{ending}"
