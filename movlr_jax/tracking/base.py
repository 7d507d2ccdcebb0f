"""The protocol of trackers, their settings, and what they show of a generation."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from movlr_jax._util.parts import setting
from movlr_jax._util.settings import no_secrets
from movlr_jax.errors import UserError

Ended = Literal["finished", "interrupted", "failed"]  # how a search ended
TRACKERS = ("none", "tensorboard", "wandb", "mlflow")


@dataclass(frozen=True)
class TrackerConfig:
    """Where the course of a search is shown, in addition to its run directory."""

    name: str = setting("none", f"one of {', '.join(TRACKERS)}", choices=TRACKERS)
    project: str = setting("movlr-jax", "wandb: project; mlflow: experiment")
    uri: str | None = setting(
        None,
        "mlflow: address of a server or database, or a folder; null: MLFLOW_TRACKING_URI, else `mlflow.db` in the "
        "current folder",
    )
    online: bool = setting(True, "wandb: false writes files only, for `wandb sync` later")

    def check(self, where: str) -> None:
        no_secrets(f"{where}.uri", self.uri, "give it in the environment variable MLFLOW_TRACKING_URI")


@dataclass(frozen=True)
class Shown:
    """What a tracker shows of one generation."""

    generation: int
    numbers: Mapping[str, float]  # by name; / separates groups
    films: Mapping[str, Path] = field(default_factory=dict)  # candidate -> mp4


@dataclass
class Unsent:
    """What a tracker lacks. It gets nothing before its run has begun."""

    begun: bool = False
    generations: list[Shown] = field(default_factory=list)  # the oldest first


class Tracker(Protocol):
    """Shows a search while it runs. Every method raises UserError if the tracker cannot be reached."""

    def begin(self, about: Mapping[str, Any], begun: Mapping[str, Any]) -> dict[str, Any]:
        """Begin the run, or continue the one of an earlier session if it is still there.

        about: its settings. begun: the record of the earlier session, empty for none. Returns what to record of the
        run: its `key`, and whatever else continues it.
        """
        ...

    def generation(self, shown: Shown) -> None: ...

    def finish(self, best: Path, report: Path | None) -> None:
        """Keep the best program, and the report if there is one and the tracker keeps files."""
        ...

    def close(self, ended: Ended) -> None:
        """End the run, if it has begun. A resumed search continues it."""
        ...


@contextlib.contextmanager
def reached(name: str, where: object, fix: str, *failures: type[Exception]) -> Iterator[None]:
    """Turn a missing package, errors of files and networks, and `failures` into a sentence with a `fix`."""
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"tracker={name} cannot use {where}: it needs the package {error.name}, which is not installed; "
            f"pip install {error.name}"
        ) from None
    except (*failures, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"tracker={name} cannot use {where}: {first}; {fix}") from None


def open_tracker(config: TrackerConfig, root: Path) -> Tracker | None:
    """Return the tracker of the settings, None without one. Raises UserError if it or its package cannot be used.

    root: the run directory.
    """
    if config.name == "none":
        return None
    return importlib.import_module(f"movlr_jax.tracking.{config.name}_tracker").open_tracker(config, root)
