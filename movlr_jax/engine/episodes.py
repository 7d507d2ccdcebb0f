"""Episodes that were recorded, in a run directory or a trajectory, and the task that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from movlr_jax.config.compose import compose
from movlr_jax.config.recorded import kept_settings
from movlr_jax.config.schema import Config
from movlr_jax.config.trust import TASK
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.report.data import read_run
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.inside import inside
from movlr_jax.storage.layout import candidate_path
from movlr_jax.tasks import Task

BEST, ALL = "best", "all"


@dataclass(frozen=True)
class EpisodeRequest:
    """Which episodes are meant."""

    source: Path  # a run directory or a trajectory
    out: Path | None = None  # folder of the files that are made of them
    candidate: str = BEST
    trust: bool = False
    settings: Sequence[str] = ()  # of the task, if they were not recorded

    def __post_init__(self) -> None:
        if not self.source.exists():
            raise UserError(f"there is no run directory or trajectory {self.source}")
        if self.source.is_file() and self.candidate != BEST:
            raise UserError("candidate= chooses an episode of a run directory; a trajectory has only one")

    def task(self) -> Task:
        """Build the task of the episodes. Raises UserError."""
        return task_of(self._config())

    def episodes(self, kind: str) -> Iterator[tuple[str, bytes | Path, Path]]:
        """Yield name, npz file or its bytes, and folder of the files of each episode. Raises UserError.

        kind: name of the folder in a run directory, if `out` is not given.
        """
        source = self.source
        if source.is_file():
            run = _run_of(source)
            file = source.resolve()  # a relative name may lack the folder of the generation
            name = f"{file.parent.name.replace('gen_', 'g')}{file.stem}" if run else source.stem
            yield name, source, self.out or (inside(run, kind) if run else source.parent)
            return
        with Archive.open(source, write=False) as archive:
            run = read_run(archive)
            if self.candidate == BEST and run.best is None:
                raise UserError(f"{source} has no best program yet: no generation is ranked; give candidate=all")
            ran = {name: c for name, c in run.candidates.items() if not c.failed}
            wanted = [run.best.name] if self.candidate == BEST and run.best else [self.candidate]
            for name in ran if self.candidate == ALL else wanted:
                if name in run.candidates and name not in ran:
                    raise UserError(f"{name} has no trajectory: {run.candidates[name].reason}")
                if name not in ran:
                    raise UserError(unknown_name("candidate", name, [BEST, ALL, *ran]))
                c = ran[name]
                states = archive.read(candidate_path(c.generation, c.candidate, ".npz"))
                yield name, states, self.out or inside(source, kind)

    def _config(self) -> Config:
        """Return the settings given, else those recorded for the episode. Raises UserError."""
        run = self.source if self.source.is_dir() else _run_of(self.source)
        moved = [setting for setting in self.settings if setting.startswith("model=")]
        if self.settings and not (run and moved == list(self.settings)):
            return compose(self.settings)
        if run:
            given = [f"resume={run}", *moved, *(["trust=true"] if self.trust else [])]
            return compose(given, parts=TASK)
        kept = self.source.with_suffix(".yaml")
        if (config := kept_settings(kept, TASK, self.trust)) is None:
            raise UserError(
                f"the task of {self.source} is not known: there is no {kept.name} next to it; give +task=NAME, "
                "model=..."
            )
        return config


def _run_of(trajectory: Path) -> Path | None:
    """Return the run directory of the trajectory of a candidate, as RUN/gen_00/k00.npz, else None."""
    run = trajectory.resolve().parent.parent
    return run if trajectory.resolve().parent.name.startswith("gen_") and (run / "config.yaml").exists() else None
