"""What K trainings cost: ours in one batch beside K runs of `brax.training.agents.ppo.train`, one after another.

The same environment (Brax's inverted pendulum), sizes and rewards. Ours steps C MuJoCo and compiles once; Brax's
trainer has the reward inside and compiles for each. The last line of stdout is one JSON object. `ratio_sequential`
counts everything, compilation included; `ratio_steady` counts training alone: ours under rewards that were compiled
before, Brax's between two looks at its progress after the first.

    nice python benchmarks/ppo_candidates.py [--k 1 2 4 8 16] [--env-steps 102400] [--quick]

`ppo.train` of brax 0.14 needs jax < 0.10.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from dataclasses import replace
from typing import Any

from movlr_jax import cli

os.environ[cli.CACHE_SWITCH] = "off"  # both start cold
cli.prepare_environment()

import jax  # noqa: E402
from brax.training.agents.ppo.train import train  # noqa: E402
from pendulum import PPO, Reward, brax_settings, environment, rewards, settings, task  # noqa: E402

from movlr_jax.control.build_ppo import build_ppo  # noqa: E402
from movlr_jax.control.ppo_config import PpoConfig  # noqa: E402
from movlr_jax.machine import hardware, versions  # noqa: E402

EPOCHS = 4  # looks at Brax's progress; the first pays for compiling


def ours(config: PpoConfig, chosen: list[Reward], physics: str) -> dict[str, Any]:
    """Seconds of K trainings from nothing, of a new generation, and with everything compiled."""
    begun = time.perf_counter()
    ppo = build_ppo(settings(config), task(), physics)
    seconds, curves = [], []
    shifted = [replace(r, lean=r.lean + 0.25) for r in chosen]  # another generation: other programs
    for generation, programs in enumerate((chosen, shifted, shifted)):
        done = ppo.optimise([r.program for r in programs], jax.random.key(generation))
        jax.block_until_ready(done.learners)
        seconds.append(time.perf_counter() - begun)
        curves.append(done.learning)
        begun = time.perf_counter()
    collect = max(n for name, n in ppo.physics.traces.items() if name.startswith(("policy", "rollout")))
    returns = [[r for r in c["return"] if r is not None][-1] for c in curves[0]]
    return {
        "total_s": seconds[0],
        "new_generation_s": seconds[1],
        "steady_s": seconds[2],
        "collect_traces": collect,
        "update_traces": ppo.traces["update"],
        "returns": returns,
    }


def theirs(config: PpoConfig, reward: Reward) -> dict[str, float]:
    """Seconds of one training by Brax, compiling included, and of training alone."""
    marks: list[tuple[int, float]] = []
    begun = time.perf_counter()
    train(
        environment=environment(reward),
        **brax_settings(config, seed=0),
        num_evals=EPOCHS + 1,
        run_evals=False,
        progress_fn=lambda steps, metrics: marks.append((steps, time.perf_counter())),
    )
    total = time.perf_counter() - begun
    pace = statistics.median(
        (later - sooner) / (b - a)
        for (a, sooner), (b, later) in zip(marks[-EPOCHS:-1], marks[1 - EPOCHS :], strict=True)
    )
    return {"total_s": total, "steady_s": pace * marks[-1][0], "env_steps": marks[-1][0]}


def main() -> None:
    parser = argparse.ArgumentParser(description="K trainings in one batch beside K of Brax's")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--env-steps", type=int, default=102_400, help="of each training")
    parser.add_argument("--physics", default="native", choices=("native", "mjx", "warp"))
    parser.add_argument("--quick", action="store_true", help="one tenth of the steps, two of Brax's runs")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning, module="brax")
    steps = arguments.env_steps // 10 if arguments.quick else arguments.env_steps
    per_look = PPO.batch * EPOCHS  # so that Brax trains for no more steps than were asked for
    config = replace(PPO, env_steps=-(-steps // per_look) * per_look)
    largest = max(arguments.k)
    brax_runs = [
        theirs(config, reward) for reward in rewards(min(largest, 2) if arguments.quick else largest)
    ]
    rows = []
    for k in arguments.k:
        mine = ours(config, rewards(k), arguments.physics)
        # what was run counts; a quick run stands for those it left out
        runs = [brax_runs[i % len(brax_runs)] for i in range(k)]
        sequential, steady = (sum(r[name] for r in runs) for name in ("total_s", "steady_s"))
        rows.append(
            {
                "k": k,
                "ours_s": round(mine["total_s"], 2),
                "ours_new_generation_s": round(mine["new_generation_s"], 2),
                "ours_steady_s": round(mine["steady_s"], 2),
                "brax_s": round(sequential, 2),
                "brax_steady_s": round(steady, 2),
                "ratio_sequential": round(sequential / mine["total_s"], 2),
                "ratio_new_generation": round(sequential / mine["new_generation_s"], 2),
                "ratio_steady": round(steady / mine["steady_s"], 2),
                "collect_traces": mine["collect_traces"],
                "update_traces": mine["update_traces"],
                "returns": [round(r, 1) for r in mine["returns"]],
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    shown = next((row for row in rows if row["k"] == 8), rows[-1])
    about = {
        "benchmark": "ppo_candidates",
        "environment": "brax inverted_pendulum",
        "physics": arguments.physics,
        "env_steps": config.env_steps,
        "quick": arguments.quick,
        **shown,
        "rows": rows,
        "hardware": hardware(),
        "versions": versions(),
    }
    print(json.dumps(about))


if __name__ == "__main__":
    main()
