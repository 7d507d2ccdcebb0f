"""`tracker=mlflow`: MLflow, on a server or in a folder (`tracker.uri`)."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from movlr_jax.errors import needed
from movlr_jax.tracking.base import Ended, Shown, TrackerConfig, reached

_LONGEST = 500  # characters of a parameter
_AT_ONCE = 100  # parameters or numbers of one request
# MLflow would wait for a server for minutes, without a word
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
_STATUS: Mapping[Ended, str] = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
DATABASE, ARTIFACTS = "mlflow.db", "artifacts"  # in the folder of `tracker.uri`


class MlflowTracker:
    """One run of an experiment. A resumed search continues it."""

    def __init__(self, config: TrackerConfig, root: Path):
        with needed("tracker=mlflow", "tracking"):
            from mlflow.entities import Metric, Param  # pyright: ignore[reportMissingImports]
            from mlflow.exceptions import MlflowException  # pyright: ignore[reportMissingImports]
            from mlflow.tracking import MlflowClient  # pyright: ignore[reportMissingImports]
        self._metric, self._param, self._failed, self._make = Metric, Param, MlflowException, MlflowClient
        self._config, self._root, self._run = config, root, ""
        self._folder = _folder(config.uri)
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # its tables are of no interest

    def begin(self, about: Mapping[str, Any], key: str | None) -> str:
        with self._reached():
            if self._folder:
                self._folder.mkdir(parents=True, exist_ok=True)
            store = f"sqlite:///{self._folder / DATABASE}" if self._folder else self._config.uri
            self._client = self._make(tracking_uri=store)
            if key:
                self._run = self._client.get_run(key).info.run_id
                self._client.update_run(self._run, "RUNNING")
                return key
            project = self._config.project
            known = self._client.get_experiment_by_name(project)
            files = (self._folder / ARTIFACTS / project).as_uri() if self._folder else None
            experiment = known.experiment_id if known else self._client.create_experiment(project, files)
            self._run = self._client.create_run(experiment, run_name=self._root.name).info.run_id
            params = [self._param(name, str(value)[:_LONGEST]) for name, value in about.items()]
            for first in range(0, len(params), _AT_ONCE):
                self._client.log_batch(self._run, params=params[first : first + _AT_ONCE])
            return self._run

    def generation(self, shown: Shown) -> None:
        now = int(1e3 * time.time())
        metrics = [self._metric(name, value, now, shown.generation) for name, value in shown.numbers.items()]
        with self._reached():
            for first in range(0, len(metrics), _AT_ONCE):
                self._client.log_batch(self._run, metrics=metrics[first : first + _AT_ONCE])
            for path in shown.films.values():
                self._client.log_artifact(self._run, str(path), f"films/gen_{shown.generation:02d}")

    def finish(self, best: Path, report: Path | None) -> None:
        with self._reached():
            for path in filter(None, (best, report)):
                self._client.log_artifact(self._run, str(path))

    def close(self, ended: Ended) -> None:
        if self._run:
            with self._reached():
                self._client.set_terminated(self._run, _STATUS[ended])

    def _reached(self) -> AbstractContextManager[None]:
        where = self._config.uri or "the default of MLflow"
        return reached("mlflow", where, "check tracker.uri, and resume", self._failed)


def _folder(uri: str | None) -> Path | None:
    """Return the folder that `tracker.uri` names, None for an address and for the default of MLflow."""
    if uri is None or ":" in uri or uri.startswith("databricks"):
        return None
    return Path(uri).expanduser().absolute()


def open_tracker(config: TrackerConfig, root: Path) -> MlflowTracker:
    return MlflowTracker(config, root)
