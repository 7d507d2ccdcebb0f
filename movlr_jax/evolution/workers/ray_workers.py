"""Workers of Ray (https://docs.ray.io): each holds compiled physics and stays alive over generations.

The driver hands out shards. The shard of a worker that dies, or that makes no progress for too long, is evaluated
again by another one. Results do not depend on the number of workers: the episode of a candidate depends on nothing
outside its own rows.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from movlr_jax._util.machine import CORES, versions
from movlr_jax._util.progress import stop_if_asked
from movlr_jax.config.schema import WorkersConfig
from movlr_jax.errors import UserError, needed
from movlr_jax.evolution.evaluation import failed
from movlr_jax.evolution.workers.ray_worker import Parts, Worker
from movlr_jax.evolution.workers.shard import Shard, shards
from movlr_jax.records import Trial
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.types import Progress

_LOOK_S = 0.5  # between two questions to a worker for its progress
_LOOKS_PER_S = 200  # of all workers together, at most
_ATTEMPTS = 20  # workers that one shard may lose, or that may die in a row before they are ready
_START_S = 600.0  # that a worker may take to start, at least
_REACH_S = 10.0  # that a cluster may take to answer
# of a cluster on this machine: Ray gives up on its own parts after 15 s, which a busy machine exceeds
_STARTS = 4
_NODES_S = 10.0  # between two questions whether any machine is left
_FINE = 1000  # units of progress per shard
# variables that must be the same in the driver and in its workers for the same results
_SHARED = ("XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "MENAGERIE_ROOT")


@dataclass(eq=False)
class _Remote:
    """A worker as the driver sees it."""

    number: int
    actor: Any
    born: float
    about: dict[str, Any] = field(default_factory=dict)  # empty until it is ready
    shard: Shard | None = None
    seen: float = 0.0  # when it last made progress
    asked: float = 0.0  # when it was last asked for its progress
    latest: tuple[int, int, int] = (0, 1, 0)  # parts of its shard, done and in all; its simulation steps so far


class RayWorkers:
    """A pool of Ray actors; see the module. Raises UserError if Ray is missing or its cluster cannot be reached."""

    name = "ray"

    def __init__(self, config: WorkersConfig, make: Callable[[], Parts], rows: int, say: Callable[[str], object]):
        """rows: programs of a batch. make: builds task and optimizer in a worker; it travels by Ray's pickle."""
        with needed("workers=ray", "ray"):
            import ray  # pyright: ignore[reportMissingImports]
        self._ray, self._config, self._make, self._say = ray, config, make, say
        self._begun = not ray.is_initialized()
        if self._begun:
            _start(ray, config, say)
        room = _room(ray, config)
        if not room and self._begun and not config.address:  # other clusters may grow
            has = ray.cluster_resources()
            ray.shutdown()
            raise UserError(
                f"no worker has room: it needs workers.cores={config.cores:g} and workers.gpus={config.gpus:g}, and "
                f"this machine has {has.get('CPU', 0):g} cores and {has.get('GPU', 0):g} GPUs; give fewer"
            )
        self.count = min(config.count or max(1, room), rows)
        self._size = config.shard or math.ceil(rows / self.count)
        options = {"num_cpus": config.cores, "num_gpus": config.gpus, "max_concurrency": 2, "max_restarts": 0}
        self._actor = ray.remote(**options)(Worker)
        self._workers: list[_Remote] = []
        self._pending: dict[Any, tuple[str, _Remote]] = {}  # reference -> (what, worker)
        self._steps, self._numbers, self._died_early, self._looked = 0, 0, 0, 0.0
        self.took: list[dict[str, Any]] = []  # of each shard of the last batch: what it took
        where = f"the cluster at {config.address}" if config.address else "this machine"
        say(f"workers: {self.count} of Ray on {where}, {config.cores:g} cores each, shards of {self._size} programs")
        self._fill()

    @property
    def steps_done(self) -> int:
        return self._steps + sum(w.latest[2] for w in self._workers)

    def evaluate(
        self,
        verdicts: Sequence[Verdict],
        seeds: Sequence[int],
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> list[list[Trial]]:
        rows = {
            row: [failed(verdict, seed) for seed in seeds]
            for row, verdict in enumerate(verdicts)
            if not verdict.program
        }
        for shard, trials in self._run(shards(verdicts, self._size, seeds, folder), progress):
            rows.update(zip(shard.rows, trials, strict=True))
        return [rows[row] for row in range(len(verdicts))]

    def close(self) -> None:
        """End all workers, and the local cluster if this object started it."""
        for worker in self._workers:
            self._end(worker)
        self._workers.clear()
        self._pending.clear()
        if self._begun:
            self._ray.shutdown()

    def _run(self, given: Sequence[Shard], progress: Progress | None) -> list[tuple[Shard, Sequence[list[Trial]]]]:
        """Evaluate all shards, each until a worker has returned it. Raises UserError if workers keep dying."""
        waiting, done, lost = deque(given), [], Counter[tuple[int, ...]]()
        self.took = []
        while len(done) < len(given):
            stop_if_asked()
            self._check_machines()
            self._fill()
            for worker in self._workers:
                if waiting and worker.about and worker.shard is None:
                    self._give(worker, waiting.popleft())
            for what, worker, answer in self._answers():
                if isinstance(answer, Exception):
                    if (shard := self._lose(worker, f"{what}: {_first_line(answer)}")) is not None:
                        waiting.appendleft(shard)
                        lost[shard.rows] += 1
                elif what == "evaluate" and worker.shard is not None:
                    evaluations, took = answer
                    done.append((worker.shard, evaluations))
                    self.took.append(took)
                    worker.shard, worker.latest = None, (0, 1, worker.latest[2])
                elif what == "about":
                    self._welcome(worker, answer)
                elif what == "progress" and answer != worker.latest:
                    worker.latest, worker.seen = answer, time.monotonic()
            for worker in list(self._workers):
                if (shard := self._silent(worker)) is not None:
                    waiting.appendleft(shard)
                    lost[shard.rows] += 1
            if lost and max(lost.values()) >= _ATTEMPTS:
                raise UserError(
                    f"{_ATTEMPTS} workers were lost while they evaluated the same programs; look at the logs of Ray "
                    "(/tmp/ray/session_latest/logs) for the reason, often too little memory, and resume the search"
                )
            if progress and given:
                parts = sum(w.latest[0] / max(w.latest[1], 1) for w in self._workers if w.shard)
                progress(int(_FINE * (len(done) + parts)), _FINE * len(given))
        return done

    def _fill(self) -> None:
        """Start workers until there are `count`. They build their physics while the driver goes on."""
        while len(self._workers) < self.count:
            cores = max(1, int(self._config.cores))
            environment = {name: os.environ[name] for name in _SHARED if name in os.environ}
            environment |= {CORES: str(cores), "PJRT_NPROC": os.environ.get("PJRT_NPROC", str(cores))}
            worker = _Remote(self._numbers, self._actor.remote(environment, self._make), time.monotonic())
            self._numbers += 1
            self._workers.append(worker)
            self._pending[worker.actor.about.remote()] = ("about", worker)

    def _check_machines(self) -> None:
        """Raise UserError if no machine of the cluster is left, on which a new worker would never start."""
        now = time.monotonic()
        if any(w.about for w in self._workers) or now - self._looked < _NODES_S:
            return
        self._looked = now
        if not any(node["Alive"] for node in self._ray.nodes()):
            raise UserError(
                "Ray has ended on all machines, often for too little memory; finished work is saved, continue with "
                "resume=RUN_DIR"
            )

    def _give(self, worker: _Remote, shard: Shard) -> None:
        worker.shard, worker.seen = shard, time.monotonic()
        self._pending[worker.actor.evaluate.remote(shard)] = ("evaluate", worker)

    def _answers(self) -> list[tuple[str, _Remote, Any]]:
        """Wait shortly for answers. Return (what was asked, worker, answer or the error that came instead)."""
        now, between = time.monotonic(), max(_LOOK_S, len(self._workers) / _LOOKS_PER_S)
        for worker in self._workers:
            asked = ("progress", worker) in self._pending.values()
            if worker.shard is not None and not asked and now - worker.asked >= between:
                worker.asked = now
                self._pending[worker.actor.progress.remote()] = ("progress", worker)
        if not self._pending:
            return []
        ready, _ = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=_LOOK_S)
        found = []
        for reference in ready:
            what, worker = self._pending.pop(reference)
            if worker not in self._workers:  # given up before
                continue
            try:
                found.append((what, worker, self._ray.get(reference)))
            except self._ray.exceptions.RayTaskError as error:
                cause = getattr(error, "cause", None)  # raised by code of this package in the worker
                raise (cause if isinstance(cause, UserError) else error) from None
            except self._ray.exceptions.RayError as error:
                found.append((what, worker, error))
        return found

    def _welcome(self, worker: _Remote, about: dict[str, Any]) -> None:
        """Take a worker that is ready. Raises UserError if its packages differ from those of the driver."""
        mine, self._died_early = versions(), 0
        if different := [
            f"{k} {about['versions'].get(k)} there and {v} here"
            for k, v in mine.items()
            if about["versions"].get(k) != v
        ]:
            raise UserError(
                f"the worker on {about['host']} has other packages ({', '.join(different)}), so its results would "
                "differ; install the same versions on all machines"
            )
        worker.about = about

    def _lose(self, worker: _Remote, why: str, *, reacts: bool = True) -> Shard | None:
        """Forget a worker. Return the shard that it had, if any. Raises UserError if too many die at their start."""
        if worker not in self._workers:
            return None
        shard, name = worker.shard, f"worker {worker.number}"
        worker.shard = None
        self._end(worker, reacts=reacts)
        self._workers.remove(worker)
        self._steps += worker.latest[2]
        if not worker.about:
            self._died_early += 1
            if self._died_early >= _ATTEMPTS:
                raise UserError(f"{_ATTEMPTS} workers in a row ended before they were ready, the last one: {why}")
        again = f"; its {len(shard.rows)} programs are evaluated again by another one" if shard else ""
        self._say(f"  {name} {'ended' if reacts else 'is given up'} ({why}){again}")
        return shard

    def _silent(self, worker: _Remote) -> Shard | None:
        """Give up a worker that has made no progress for too long. Return its shard, if it had one.

        One that is not ready yet may wait for room in the cluster, as long as another one is ready.
        """
        limit, since, now = self._config.deadline_s, worker.seen, time.monotonic()
        if not worker.about:
            limit, since = max(limit, _START_S), worker.born
        idle = worker.shard is None if worker.about else any(w.about for w in self._workers)
        if idle or now - since <= limit:
            return None
        if not worker.about:
            free = self._ray.available_resources()
            raise UserError(
                f"no worker was ready within {limit:g} s; the cluster has {free.get('CPU', 0):g} free cores and "
                f"{free.get('GPU', 0):g} free GPUs, and a worker needs workers.cores={self._config.cores:g} and "
                f"workers.gpus={self._config.gpus:g}; give fewer, or a longer workers.deadline_s"
            )
        return self._lose(worker, f"no progress for {limit:g} s", reacts=False)

    def _end(self, worker: _Remote, *, reacts: bool = True) -> None:
        """End the process of a worker. On this machine also one that does not react."""
        self._ray.kill(worker.actor, no_restart=True)
        if worker.about.get("host") == socket.gethostname() and not reacts:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.about["pid"], signal.SIGKILL)


def _room(ray: Any, config: WorkersConfig) -> int:
    """Return how many workers the machines of the cluster have room for."""
    places = 0
    for node in ray.nodes():
        has = node["Resources"] if node["Alive"] else {}
        fit = has.get("CPU", 0.0) // config.cores
        places += int(min(fit, has.get("GPU", 0.0) // config.gpus) if config.gpus else fit)
    return places


def _start(ray: Any, config: WorkersConfig, say: Callable[[str], object]) -> None:
    """Connect to the cluster at `config.address`, or start one on this machine. Raises UserError."""
    for left in reversed(range(1 if config.address else _STARTS)):
        try:
            return _start_once(ray, config)
        except UserError as error:
            ray.shutdown()
            if not left:
                raise
            say(f"  {error}; trying again, {left} more {'time' if left == 1 else 'times'}")


def _start_once(ray: Any, config: WorkersConfig) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _reach(config.address or "")
    main = threading.current_thread() is threading.main_thread()
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)} if main else {}
    # "local": otherwise Ray looks for a cluster that somebody else has started, also one that has ended
    local: dict[str, Any] = {"address": "local", "include_dashboard": False}
    if config.count:
        local["num_cpus"] = math.ceil(config.count * config.cores)
    where: dict[str, Any] = {"address": config.address} if config.address else local
    try:
        with warnings.catch_warnings():
            # JAX's about forks; Ray executes a program at once
            warnings.simplefilter("ignore", RuntimeWarning)
            ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises exceptions of many kinds
        what = f"workers.address={config.address}" if config.address else "a cluster on this machine"
        raise UserError(f"Ray cannot use {what}: {_first_line(error)}") from None
    finally:
        for number, handler in handlers.items():  # Ray sets its own
            signal.signal(number, handler)


def _reach(address: str) -> None:
    """Raise UserError if nothing answers at HOST:PORT or ray://HOST:PORT. Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"nothing answers at workers.address={address} ({error}); start a cluster there with ray start --head, "
            "or leave workers.address out"
        ) from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
