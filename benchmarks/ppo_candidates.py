"""What K trainings cost: ours in one batch against K runs of `brax.training.agents.ppo.train`, one after another.

The same environment (Brax's inverted pendulum), sizes and rewards. Of Brax's runs `--brax` are measured, each under
another reward, and count as often as K asks (`brax_runs` in the JSON). Ours steps C MuJoCo and compiles once; Brax's
trainer has the reward inside and compiles for each. The last line of stdout is one JSON object. `ratio_sequential`
counts everything, compilation included; `ratio_steady` counts training alone: ours under rewards that were compiled
before, Brax's between two looks at its progress after the first. `ratio_sequential_cpu` is the first in seconds of
the processor, which others on the machine disturb least.

    nice python benchmarks/ppo_candidates.py [--k 1 2 4 8 16] [--env-steps 102400] [--brax 3] [--quick]

With --kept FILE every measurement is written there at once and none is made twice; --for-s 200 begins none after so
many seconds and ends with status 3: the same command goes on. So a machine need be idle for minutes at a time only.

`ppo.train` of brax 0.14 needs jax < 0.10.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

os.environ[environment.CACHE_SWITCH] = "off"  # both start cold
environment.prepare_environment()

import jax  # noqa: E402
from brax.training.agents.ppo.train import train  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from pendulum import PPO, Reward, brax_settings, environment, rewards, settings, task  # noqa: E402
from quick import read_options  # noqa: E402

from movlr_jax._util.machine import hardware, versions  # noqa: E402
from movlr_jax.control.ppo.build import build_ppo  # noqa: E402
from movlr_jax.control.ppo.config import PpoConfig  # noqa: E402

UNFINISHED = 3  # exit status, with measurements left to make
EPOCHS = 4  # looks at Brax's progress; the first pays for compiling


def ours(config: PpoConfig, chosen: list[Reward], physics: str) -> dict[str, Any]:
    """Seconds of K trainings from nothing, of a new generation, and with everything compiled."""
    begun, processed = time.perf_counter(), time.process_time()
    ppo = build_ppo(settings(config), task(), physics)
    seconds, cpu, curves = [], [], []
    shifted = [replace(r, lean=r.lean + 0.25) for r in chosen]  # another generation: other programs
    for generation, programs in enumerate((chosen, shifted, shifted)):
        done = ppo.optimise([r.program for r in programs], jax.random.key(generation))
        jax.block_until_ready(done.learners)
        seconds.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - processed)
        curves.append(done.learning)
        begun = time.perf_counter()
    collect = max(n for name, n in ppo.physics.traces.items() if name.startswith(("policy", "rollout")))
    returns = [[r for r in c["return"] if r is not None][-1] for c in curves[0]]
    return {
        "total_s": seconds[0],
        "new_generation_s": seconds[1],
        "steady_s": seconds[2],
        "cpu_s": cpu[0],
        "collect_traces": collect,
        "update_traces": ppo.traces["update"],
        "returns": returns,
    }


def theirs(config: PpoConfig, reward: Reward) -> dict[str, float]:
    """Seconds of one training by Brax, compiling included, and of training alone."""
    marks: list[tuple[int, float]] = []
    begun, processed = time.perf_counter(), time.process_time()
    train(
        environment=environment(reward),
        **brax_settings(config, seed=0),
        num_evals=EPOCHS + 1,
        run_evals=False,
        progress_fn=lambda steps, metrics: marks.append((steps, time.perf_counter())),
    )
    total, cpu = time.perf_counter() - begun, time.process_time() - processed
    pace = statistics.median(
        (later - sooner) / (b - a)
        for (a, sooner), (b, later) in zip(marks[-EPOCHS:-1], marks[1 - EPOCHS :], strict=True)
    )
    return {"total_s": total, "steady_s": pace * marks[-1][0], "cpu_s": cpu, "env_steps": marks[-1][0]}


class Kept:
    """Measurements by name, in a file where one is given: what it has is not measured again."""

    def __init__(self, path: Path | None, about: dict[str, Any], for_s: float):
        self.path, self.end = path, time.monotonic() + for_s
        self.known: dict[str, Any] = {"about": about}
        if path and path.is_file():
            self.known = json.loads(path.read_text())
            if self.known["about"] != about:
                raise SystemExit(f"{path} is of {self.known['about']}, not of {about}; give another file")

    def of(self, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if name not in self.known:
            if time.monotonic() > self.end:
                raise SystemExit(UNFINISHED)
            self.known[name] = measure()
            print(name, json.dumps(self.known[name]), file=sys.stderr, flush=True)
            if self.path:
                self.path.write_text(json.dumps(self.known))
        return self.known[name]


def row(k: int, mine: dict[str, Any], brax_runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """One line of the table: what was run of Brax's counts, and stands for what was left out."""
    runs = [brax_runs[i % len(brax_runs)] for i in range(k)]
    sequential, steady, cpu = (sum(r[name] for r in runs) for name in ("total_s", "steady_s", "cpu_s"))
    return {
        "k": k,
        "ours_s": round(mine["total_s"], 2),
        "ours_new_generation_s": round(mine["new_generation_s"], 2),
        "ours_steady_s": round(mine["steady_s"], 2),
        "brax_s": round(sequential, 2),
        "brax_steady_s": round(steady, 2),
        "ours_cpu_s": round(mine["cpu_s"], 2),
        "brax_cpu_s": round(cpu, 2),
        "ratio_sequential": round(sequential / mine["total_s"], 2),
        "ratio_sequential_cpu": round(cpu / mine["cpu_s"], 2),
        "ratio_new_generation": round(sequential / mine["new_generation_s"], 2),
        "ratio_steady": round(steady / mine["steady_s"], 2),
        "collect_traces": mine["collect_traces"],
        "update_traces": mine["update_traces"],
        "returns": [round(r, 1) for r in mine["returns"]],
    }


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    figure = Figure(figsize=(5.0, 3.4), layout="constrained")
    ax, ks = figure.add_subplot(), [row["k"] for row in rows]
    for name, label, colour in (
        ("brax_s", "Brax's ppo.train, one after another", "tab:orange"),
        ("ours_s", "ours, one batch, from nothing", "tab:blue"),
        ("ours_new_generation_s", "ours, another generation of rewards", "tab:cyan"),
        ("ours_steady_s", "ours, nothing left to compile", "tab:gray"),
    ):
        ax.plot(ks, [row[name] for row in rows], "o-", label=label, color=colour)
    ax.set(xscale="log", yscale="log", xlabel="K, trainings", ylabel="wall time (s)")
    ax.set_xticks(ks, [str(k) for k in ks], minor=False)
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="K trainings in one batch beside K of Brax's")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--env-steps", type=int, default=102_400, help="of each training")
    parser.add_argument("--physics", default="native", choices=("native", "mjx", "warp"))
    parser.add_argument("--brax", type=int, default=3, help="Brax's runs to measure; they stand for K of them")
    parser.add_argument("--kept", type=Path, help="file of measurements; what it has is not measured again")
    parser.add_argument("--for-s", type=float, default=float("inf"), help="begin no measurement after that")
    parser.add_argument("--plot", type=Path, help="a picture of wall times over K")
    arguments = read_options(parser, k=[2], env_steps=PPO.batch * EPOCHS, brax=1)
    warnings.filterwarnings("ignore", category=UserWarning, module="brax")
    per_look = PPO.batch * EPOCHS  # so that Brax trains for no more steps than were asked for
    config = replace(PPO, env_steps=-(-arguments.env_steps // per_look) * per_look)
    about = {"physics": arguments.physics, "env_steps": config.env_steps, "hardware": hardware()}
    kept = Kept(arguments.kept, about | {"versions": versions()}, arguments.for_s)
    brax_runs = [
        kept.of(f"brax {i}", lambda reward=reward: theirs(config, reward))
        for i, reward in enumerate(rewards(min(max(arguments.k), max(arguments.brax, 1))))
    ]
    rows = []
    for k in arguments.k:
        mine = kept.of(f"ours {k}", lambda k=k: ours(config, rewards(k), arguments.physics))
        rows.append(row(k, mine, brax_runs))
        print(json.dumps(rows[-1]), flush=True)
    shown = next((row for row in rows if row["k"] == 8), rows[-1])
    about = {
        "benchmark": "ppo_candidates",
        "environment": "brax inverted_pendulum",
        "quick": arguments.quick,
        "brax_runs": len(brax_runs),
        **shown,
        "rows": rows,
        **kept.known["about"],
        "date": date.today().isoformat(),
    }
    if arguments.plot:
        plot(rows, arguments.plot)
    print(json.dumps(about))


if __name__ == "__main__":
    main()
