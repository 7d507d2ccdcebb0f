"""A simulation of many workers with the measured costs of a shard: where it saturates, and what K = 10,000 costs.

    python benchmarks/thousand_workers.py [--measured benchmarks/results/shards.json] [--out benchmarks/results]

A discrete-event simulation of `RayWorkers`: one driver serves events one after another (hand out a shard, look at a
worker's progress, take an answer), workers compute shards with stragglers (log-normal times and a share of slow
workers), die at random and start again. The last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from quick import read_options
from record import write


@dataclass(frozen=True)
class Cluster:
    """What is simulated. Times in s."""

    workers: int = 1000
    candidates: int = 10_000
    shard: int = 1  # candidates per shard
    candidate_s: float = 60.0  # of one worker for one candidate
    spread: float = 0.2  # standard deviation of the logarithm of a shard's time
    slow_share: float = 0.01  # of the workers
    slow_factor: float = 4.0
    death_h: float = 100.0  # mean time between deaths of one worker, h
    start_s: float = 60.0  # of a worker: process, packages, physics
    out_s: float = 0.001  # of the driver to hand out a shard
    back_s: float = 0.002  # of the driver to take the answer, per candidate
    look_s: float = 0.0002  # of the driver for one question about progress
    between_looks_s: float = 5.0  # of one worker: workers / 200


@dataclass(frozen=True)
class Outcome:
    """What a generation took."""

    seconds: float
    candidates_per_s: float
    driver_busy: float  # share of the time
    workers_busy: float
    deaths: int
    again: int  # candidates that were evaluated more than once
    last_s: float  # time in which fewer than half of the workers had work, at the end


def simulate(c: Cluster, seed: int = 0) -> Outcome:
    """Return the outcome of one generation. All workers are ready at the start."""
    chance = random.Random(seed)
    sizes = deque(min(c.shard, c.candidates - first) for first in range(0, c.candidates, c.shard))
    slow = [chance.random() < c.slow_share for _ in range(c.workers)]
    # events: (time, order, kind, worker, candidates)
    events: list[tuple[float, int, str, int, int]] = [(0.0, w, "idle", w, 0) for w in range(c.workers)]
    order, driver_free, driver_used, worker_used = c.workers, 0.0, 0.0, 0.0
    done = deaths = again = working = 0
    half_at, now = 0.0, 0.0

    def served(at: float, seconds: float) -> float:
        nonlocal driver_free, driver_used
        driver_free = max(driver_free, at) + seconds
        driver_used += seconds
        return driver_free

    while done < c.candidates:
        now, _, kind, worker, size = heapq.heappop(events)
        if kind == "answer":
            now = served(now, c.back_s * size)
            done, working = done + size, working - 1
        elif kind == "death":
            sizes.appendleft(size)
            deaths, again, working = deaths + 1, again + size, working - 1
            order += 1
            heapq.heappush(events, (now + c.start_s, order, "idle", worker, 0))
            continue
        if working < c.workers / 2 <= working + 1:
            half_at = now
        if not sizes:
            continue
        size = sizes.popleft()
        began = served(now, c.out_s)
        seconds = (
            c.candidate_s * size * math.exp(chance.gauss(0.0, c.spread)) * (c.slow_factor if slow[worker] else 1.0)
        )
        served(began, c.look_s * seconds / max(c.between_looks_s, c.workers / 200))
        working, worker_used, order = working + 1, worker_used + seconds, order + 1
        death = chance.expovariate(1 / (3600 * c.death_h))
        end, what = (began + death, "death") if death < seconds else (began + seconds, "answer")
        heapq.heappush(events, (end, order, what, worker, size))
    return Outcome(
        seconds=now,
        candidates_per_s=c.candidates / now,
        driver_busy=driver_used / now,
        workers_busy=worker_used / (now * c.workers),
        deaths=deaths,
        again=again,
        last_s=now - half_at,
    )


def plot(rows: Sequence[Mapping[str, Any]], driver: float, path: Path) -> None:
    """Candidates/s over workers, one line per time of a candidate, and the limit of the driver."""
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    ax = figure.add_subplot()
    for i, seconds in enumerate(dict.fromkeys(r["candidate_s"] for r in rows)):
        mine = [r for r in rows if r["candidate_s"] == seconds]
        ax.plot(
            [r["workers"] for r in mine], [r["candidates_per_s"] for r in mine], "o-", color=f"C{i}",
            label=f"{seconds:g} s",
        )  # fmt: skip
    ax.axhline(driver, color="black", linestyle="--", linewidth=1)
    ax.annotate("the driver's limit", (rows[0]["workers"], driver), (2, 3), textcoords="offset points")
    ax.set(xscale="log", yscale="log", xlabel="workers", ylabel="candidates/s")
    ax.legend(frameon=False, title="one candidate takes")
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, default=Path(__file__).parent / "results" / "shards.json")
    parser.add_argument("--candidates", type=int, default=10_000, help="K of the generation")
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 300, 1000, 3000])
    parser.add_argument("--candidate-s", type=float, nargs="+", default=[1.0, 5.0, 20.0, 60.0, 300.0])
    parser.add_argument("--out", type=Path, help="folder for the JSON and the plot")
    given = read_options(parser, candidates=200, workers=[10, 100], candidate_s=[1.0, 60.0])
    if not given.measured.exists():
        raise SystemExit(f"{given.measured} is missing; write it with benchmarks/shards.py --out FOLDER")
    found = json.loads(given.measured.read_text())
    measured = found["driver"][0]
    # a shard of one: a third of the driver's time to hand it out, the rest to take the answer and to record it
    out, back = measured["driver_ms"] / 3e3, measured["driver_ms"] / 1.5e3 + measured["record_ms"] / 1e3
    vet, k = measured["vet_ms"] / 1e3, given.candidates
    base = Cluster(candidates=k, out_s=out, back_s=back)
    driver = {"candidates_per_s": 1 / (out + back), "with_vetting_candidates_per_s": 1 / (out + back + vet)}
    print(f"driver: {driver['candidates_per_s']:.0f} candidates/s; with vetting {1 / (out + back + vet):.1f}")
    rows = []
    for seconds in given.candidate_s:
        for workers in given.workers:
            row = simulate(replace(base, candidate_s=seconds, workers=workers))
            rows.append({"candidate_s": seconds, "workers": workers, **asdict(row)})
            print(
                f"{seconds:5.0f} s per candidate, {workers:5d} workers: {row.seconds:9.0f} s, "
                f"{row.candidates_per_s:7.2f} candidates/s, driver {row.driver_busy:4.0%}, "
                f"workers {row.workers_busy:4.0%}, {row.deaths} deaths, tail {row.last_s:.0f} s"
            )
    extra = []
    for name, changes in (
        ("no stragglers, no deaths", {"spread": 0.0, "slow_share": 0.0, "death_h": 1e9}),
        ("1 % slow by 4", {}),
        ("5 % slow by 10", {"slow_share": 0.05, "slow_factor": 10.0}),
        ("a death per worker and h", {"death_h": 1.0}),
        ("shards of 10", {"shard": 10}),
    ):
        cluster = replace(base, workers=min(1000, max(given.workers)), **changes)
        case = simulate(cluster)
        extra.append({"case": name, **asdict(case)})
        print(f"K = {k:,}, {cluster.workers} workers, 60 s each, {name}: {case.seconds:.0f} s, {case}")
    ranking = {r["scheme"] + f"_{r['candidates']}": r["seconds"] for r in found["ranking_s"]}
    result = {
        "benchmark": "thousand_workers",
        "measured": {name: found.get(name) for name in ("date", "hardware", "versions")},
        "driver": driver,
        "cluster": asdict(base),
        "grid": rows,
        "cases": extra,
        "generation_on_the_driver_s": {  # processor time next to the evaluations, for K candidates
            "hand_out_collect_record": k * (out + back),
            "vet": k * vet,
            "film": k * found["film_s"] if found["film_s"] else None,
            "ranking_measured": ranking,
        },
    }
    if given.out:
        stem = given.out / "thousand_workers"
        write(stem.with_suffix(".json"), result)
        plot(rows, driver["candidates_per_s"], stem.with_suffix(".png"))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
