"""The cost of candidates over workers: bytes and driver seconds per candidate, and workers against one process.

    python benchmarks/shards.py [--candidates 64] [--workers 2] [--repeats 3] [--out benchmarks/results]

Needs the extra `ray`. The last line of stdout is one JSON object:

- bytes: what travels to a worker and back per candidate of `bottle_pour` (63 muscles, an episode of 3 s), pickled.
  `film_s`: processor time to film that episode.
- driver_ms: processor time of the driver's process per candidate (small task, shards of `shard` candidates): handing
  out, looking at progress and collecting. `record_ms` is the processor time to write and record a candidate,
  `vet_ms` to vet one, over all processes.
- ranking_s: processor time to rank K programs with a judge that answers at once.
- ratio: wall time of one process with all cores over that of as many workers with one core each, alternating; K = 4.
"""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()

from quick import TINY, read_options  # noqa: E402
from record import circumstances, write  # noqa: E402

from movlr_jax._util.machine import cores  # noqa: E402
from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.config.schema import WorkersConfig  # noqa: E402
from movlr_jax.engine.parts import task_and_optimizer  # noqa: E402
from movlr_jax.evolution.evaluation import make_probe  # noqa: E402
from movlr_jax.evolution.film import clip_of  # noqa: E402
from movlr_jax.evolution.pairwise import rank  # noqa: E402
from movlr_jax.evolution.workers.base import ThisProcess  # noqa: E402
from movlr_jax.evolution.workers.ray_workers import RayWorkers  # noqa: E402
from movlr_jax.evolution.workers.shard import shards  # noqa: E402
from movlr_jax.film.captions import Caption  # noqa: E402
from movlr_jax.film.clips import film  # noqa: E402
from movlr_jax.film.renderer import renderer  # noqa: E402
from movlr_jax.records import Evaluation, Preference, Program, Trial  # noqa: E402
from movlr_jax.sandbox.source import parse, with_weights  # noqa: E402
from movlr_jax.sandbox.vet import Sandbox, Verdict  # noqa: E402
from movlr_jax.storage.archive import Archive  # noqa: E402
from movlr_jax.storage.events import written  # noqa: E402
from movlr_jax.storage.layout import candidate_path  # noqa: E402

LARGE = ["+task=bottle_pour", "optimizer.mppi.samples=2", "optimizer.horizon_s=0.05"]


def vetted(overrides: Sequence[str], count: int) -> tuple[Any, Any, Any, list[Verdict], float]:
    """Return (config, task, optimizer, verdicts of `count` programs, processor time to vet one in s)."""
    config = compose(overrides)
    task, optimizer = task_and_optimizer(config)
    first = parse(task.rewards.initial).weights
    texts = [
        with_weights(task.rewards.initial, {k: w * (1 + 0.01 * i) for k, w in first.items()}) for i in range(count)
    ]
    sandbox = Sandbox(make_probe(task, optimizer.sim_physics, 0))
    sandbox.vet(texts[0])
    before = cpu_s() + sandbox.cpu_s
    verdicts = sandbox.vet_all(texts)
    seconds = (cpu_s() + sandbox.cpu_s - before) / count
    sandbox.close()
    assert all(v.accepted for v in verdicts)
    return config, task, optimizer, verdicts, seconds


def cpu_s() -> float:
    """Return the processor time of this process and of those that it has waited for, s."""
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def travelling(episode_s: float) -> tuple[dict[str, int], float | None]:
    """Return the bytes per candidate of an episode of the arm, and the processor time to film it, s.

    Bytes: to a worker, back, and of that the states. The time is None without a renderer.
    """
    _, task, optimizer, verdicts, _ = vetted([*LARGE, f"episode_s={episode_s}"], 1)
    (shard,) = shards(verdicts, 1, [0], None)
    ((back,),) = ThisProcess(optimizer, task).evaluate(verdicts, [0])
    sizes = {"out": len(pickle.dumps(shard)), "back": len(pickle.dumps(back)), "states": len(back.states or b"")}
    if renderer().name is None:
        return sizes, None
    clip = clip_of(task, back.states or b"", Caption("bottle_pour g00k00", "", ""))
    film(clip)
    before = cpu_s()
    film(clip)
    return sizes, cpu_s() - before


def ranking_s(scheme: str, count: int) -> float:
    """Return the time to rank `count` programs whose judge prefers the one with the smaller number, s."""

    def ask(pairs: Sequence[tuple[int, int]]) -> list[Preference]:
        return [Preference("first" if i < j else "second", "") for i, j in pairs]

    before = cpu_s()
    found = rank(range(count), ask, scheme)
    assert found.order[0] == 0
    return cpu_s() - before


def evaluated(verdicts: Sequence[Verdict], trials: Sequence[Trial]) -> list[Evaluation]:
    programs = [v.program for v in verdicts if v.program]
    return [
        Evaluation.of(Program(0, k, program.source, weights=program.weights), trial)
        for k, (program, trial) in enumerate(zip(programs, trials, strict=True))
    ]


def record_s(evaluations: Sequence[Evaluation]) -> float:
    """Return the processor time to write and to record one evaluation, s."""
    with tempfile.TemporaryDirectory() as folder, Archive.create(Path(folder) / "run", "") as archive:
        before = cpu_s()
        for k, e in enumerate(evaluations):
            data = written(e)
            archive.put(candidate_path(0, k, ".py"), e.source.encode())
            archive.put(candidate_path(0, k, ".json"), json.dumps(data, indent=1).encode())
            archive.put(candidate_path(0, k, ".npz"), e.states or b"")
            archive.record("evaluated", data, 0, k)
        return (cpu_s() - before) / len(evaluations)


def driver(candidates: int, count: int, shard: int) -> dict[str, float]:
    """Return what a candidate costs the driver, ms."""
    config, _, _, verdicts, vet_s = vetted(TINY, candidates)
    say: Callable[[str], object] = print
    workers = RayWorkers(
        WorkersConfig("ray", count=count, shard=shard), partial(task_and_optimizer, config), candidates, say
    )
    try:
        workers.evaluate(verdicts, [0])  # the workers start and compile
        before, began = cpu_s(), time.monotonic()
        trials = [trial for (trial,) in workers.evaluate(verdicts, [0])]
        used, wall = cpu_s() - before, time.monotonic() - began
        busy = sum(t["seconds"] for t in workers.took)
    finally:
        workers.close()
    return {
        "shard": shard,
        "driver_ms": 1e3 * used / candidates,
        "wall_ms": 1e3 * wall / candidates,
        "worker_busy_share": busy / (wall * count),
        "vet_ms": 1e3 * vet_s,
        "record_ms": 1e3 * record_s(evaluated(verdicts, trials)),
    }


def ratio(count: int, repeats: int) -> dict[str, Any]:
    """Compare `count` workers of one core with one process of `count` threads, alternating."""
    config, task, optimizer, verdicts, _ = vetted(["+task=bottle_pour", "episode_s=0.4"], 2 * count)
    alone = ThisProcess(optimizer, task)
    workers = RayWorkers(WorkersConfig("ray", count=count), partial(task_and_optimizer, config), len(verdicts), print)
    times: dict[str, list[float]] = {"alone": [], "workers": []}
    try:
        for kind in (alone, workers):  # compile
            kind.evaluate(verdicts, [0])
        for _ in range(repeats):
            for name, kind in (("alone", alone), ("workers", workers)):
                began = time.monotonic()
                found = kind.evaluate(verdicts, [0])
                times[name].append(time.monotonic() - began)
                assert not any(e.failed for (e,) in found)
    finally:
        workers.close()
    ratios = [a / w for a, w in zip(times["alone"], times["workers"], strict=True)]
    return {"seconds": times, "ratio": statistics.median(ratios), "ratios": ratios, "threads_alone": cores()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ranked", type=int, default=4000, help="largest K whose ranking is measured")
    parser.add_argument("--episode-s", type=float, default=3.0, help="of the episode whose bytes are counted")
    parser.add_argument("--skip-ratio", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for the JSON")
    given = read_options(parser, candidates=4, workers=1, ranked=16, episode_s=0.16, skip_ratio=True)
    sizes, film_s = travelling(given.episode_s)
    found: dict[str, Any] = {
        "benchmark": "shards",
        **circumstances(),
        "episode_s": given.episode_s,
        "bytes": sizes,
        "film_s": film_s,
    }
    print(sizes, film_s, flush=True)
    found["driver"] = [driver(given.candidates, given.workers, shard) for shard in (1, 8)]
    print(found["driver"], flush=True)
    if not given.skip_ratio:
        found["two_workers"] = ratio(given.workers, given.repeats)
        print(found["two_workers"], flush=True)
    found["ranking_s"] = [
        {"scheme": scheme, "candidates": k, "seconds": ranking_s(scheme, k)}
        for scheme, k in (
            ("active", 16), ("active", 64), ("active", 256),
            ("knockout", 256), ("knockout", 1000), ("knockout", 4000),
        )
        if k <= given.ranked
    ]  # fmt: skip
    if given.out:
        path = given.out / "shards.json"
        known = json.loads(path.read_text()) if path.exists() else {}  # --skip-ratio keeps the ratio
        write(path, known | found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
