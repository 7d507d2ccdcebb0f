"""`tracker=mlflow`: MLflow, on a server or in a folder (`tracker.uri`)."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator, Mapping
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
_SQLITE = "sqlite:///"
DATABASE, ARTIFACTS = "mlflow.db", "artifacts"  # in the folder of `tracker.uri`


class MlflowTracker:
    """One run of an experiment. A resumed search continues it."""

    def __init__(self, config: TrackerConfig, root: Path):
        with needed("tracker=mlflow", "tracking"):
            from mlflow.entities import Metric, Param  # pyright: ignore[reportMissingImports]
            from mlflow.exceptions import MlflowException  # pyright: ignore[reportMissingImports]
            from mlflow.tracking import MlflowClient, get_tracking_uri  # pyright: ignore[reportMissingImports]
        self._metric, self._param, self._failed = Metric, Param, MlflowException
        self._make, self._default = MlflowClient, get_tracking_uri
        self._config, self._root, self._run = config, root, ""
        self._folder: Path | None = None
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # its tables are of no interest

    def begin(self, about: Mapping[str, Any], begun: Mapping[str, Any]) -> dict[str, Any]:
        with self._reached():
            store = self._store_of(begun)
            with _alone(store):
                self._client = self._make(tracking_uri=store)
                run = self._still_there(begun.get("key"))
                self._run = run or self._new_run()
            if run:
                self._client.update_run(run, "RUNNING")
            else:
                self._log(params=[self._param(name, str(value)[:_LONGEST]) for name, value in about.items()])
        # an address may hold a password
        return {"key": self._run, "store": store if store.startswith(_SQLITE) else None}

    def _store_of(self, begun: Mapping[str, Any]) -> str:
        """Return the absolute address of the store: that of an earlier session, unless another one is given."""
        uri, store = self._config.uri, begun.get("store")
        folder = _folder(uri)
        if not store or begun.get("uri", uri) != uri:
            store = f"{_SQLITE}{folder / DATABASE}" if folder else uri or self._default()
            if store.startswith(_SQLITE):  # it may be relative to the current folder
                store = f"{_SQLITE}{Path(store.removeprefix(_SQLITE)).absolute()}"
        if folder:
            self._folder = Path(store.removeprefix(_SQLITE)).parent
            self._folder.mkdir(parents=True, exist_ok=True)
        return store

    def _still_there(self, key: str | None) -> str | None:
        """Return the key of a run that the store has, None if it has been deleted."""
        try:
            info = self._client.get_run(key).info if key else None
        except self._failed as error:
            if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        return info.run_id if info and info.lifecycle_stage != "deleted" else None

    def _new_run(self) -> str:
        project = self._config.project
        known = self._client.get_experiment_by_name(project)
        files = (self._folder / ARTIFACTS / project).as_uri() if self._folder else None
        experiment = known.experiment_id if known else self._client.create_experiment(project, files)
        return self._client.create_run(experiment, run_name=self._root.name).info.run_id

    def _log(self, **entries: list[Any]) -> None:
        for kind, values in entries.items():
            for first in range(0, len(values), _AT_ONCE):
                self._client.log_batch(self._run, **{kind: values[first : first + _AT_ONCE]})

    def generation(self, shown: Shown) -> None:
        now = int(1e3 * time.time())
        metrics = [self._metric(name, value, now, shown.generation) for name, value in shown.numbers.items()]
        with self._reached():
            self._log(metrics=metrics)
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
        where, errors = self._config.uri or "the default of MLflow", [self._failed]
        with contextlib.suppress(ImportError):  # only servers can be used then
            from sqlalchemy.exc import SQLAlchemyError

            errors.append(SQLAlchemyError)
        return reached("mlflow", where, "check tracker.uri, and resume", *errors)


def _folder(uri: str | None) -> Path | None:
    """Return the folder that `tracker.uri` names, None for an address and for the default of MLflow."""
    if uri is None or ":" in uri or uri.startswith("databricks"):
        return None
    return Path(uri).expanduser().absolute()


@contextlib.contextmanager
def _alone(store: str) -> Iterator[None]:
    """Let one process at a time make the tables and the experiment of a database of SQLite."""
    path = Path(store.removeprefix(_SQLITE))
    if not store.startswith(_SQLITE) or not path.parent.is_dir():
        yield
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


open_tracker = MlflowTracker
