"""`tracker=wandb`: Weights & Biases. `tracker.online=false` or WANDB_MODE=offline writes files for `wandb sync`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from movlr_jax.errors import needed
from movlr_jax.tracking.base import Ended, Shown, TrackerConfig, reached

_EXIT_CODES: Mapping[Ended, int] = {"finished": 0, "interrupted": 130, "failed": 1}


class WandbTracker:
    """One run of a project. A resumed search continues it."""

    def __init__(self, config: TrackerConfig, root: Path):
        with needed("tracker=wandb", "tracking"):
            import wandb  # pyright: ignore[reportMissingImports]
        self._wandb, self._config, self._root = wandb, config, root
        self._run: Any = None

    def begin(self, about: Mapping[str, Any], begun: Mapping[str, Any]) -> dict[str, Any]:
        key = begun.get("key")
        mode = os.environ.get("WANDB_MODE") or ("online" if self._config.online else "offline")
        with self._reached():
            self._run = self._wandb.init(
                project=self._config.project,
                name=self._root.name,
                id=key,
                resume="allow" if key and mode == "online" else None,
                reinit="create_new",  # never another search of this process
                mode=mode,  # pyright: ignore[reportArgumentType]
                dir=str(self._root.absolute()),  # its service stays in the folder where it was started
                config=dict(about),
                # links inside a run directory are not followed, and a run with one is not resumed
                settings=self._wandb.Settings(silent=True, console="off", symlink=False),
            )
        return {"key": str(self._run.id)}

    def generation(self, shown: Shown) -> None:
        with self._reached():
            films = {
                f"films/{name}": self._wandb.Video(str(path), format="mp4") for name, path in shown.films.items()
            }
            self._run.log({**shown.numbers, **films, "generation": shown.generation}, step=shown.generation)

    def finish(self, best: Path, report: Path | None) -> None:
        with self._reached():
            artifact = self._wandb.Artifact(f"reward-{self._run.id}", type="reward")
            for path in filter(None, (best, report)):
                artifact.add_file(str(path))
            self._run.log_artifact(artifact)

    def close(self, ended: Ended) -> None:
        if self._run is not None:
            with self._reached():
                self._run.finish(exit_code=_EXIT_CODES[ended])

    def _reached(self) -> AbstractContextManager[None]:
        fix = "run `wandb login`, or give tracker.online=false"
        return reached("wandb", f"the project {self._config.project}", fix, self._wandb.errors.Error)


open_tracker = WandbTracker
