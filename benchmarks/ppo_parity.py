"""Whether our PPO learns as Brax's own: the same environment and settings, several seeds each, measured alike.

Both are looked at after the same numbers of steps: the mean return of 32 episodes under the mode of the policy. The
last line of stdout is one JSON object; the curves are drawn next to it.

    nice python benchmarks/ppo_parity.py [--seeds 5] [--env-steps 102400] [--plot benchmarks/results/ppo_parity.png]

`ppo.train` of brax 0.14 needs jax < 0.10.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from dataclasses import replace
from pathlib import Path

from movlr_jax.engine import environment

os.environ[environment.CACHE_SWITCH] = "off"
environment.prepare_environment()

import jax  # noqa: E402
import numpy as np  # noqa: E402
from brax.training.agents.ppo.train import train  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from pendulum import EPISODE, PPO, Reward, brax_settings, environment, settings, task  # noqa: E402
from quick import read_options  # noqa: E402
from record import circumstances  # noqa: E402

from movlr_jax.control.ppo.build import build_ppo  # noqa: E402
from movlr_jax.control.ppo.config import PpoConfig  # noqa: E402
from movlr_jax.control.ppo.trainer import PpoTrainer, TrainedControllers  # noqa: E402
from movlr_jax.control.ppo.training import CurveRecorder  # noqa: E402

LOOKS, EPISODES = 8, 32


def ours(ppo: PpoTrainer, seed: int) -> list[tuple[int, float]]:
    """(steps, return) after each part of a training."""
    program, every = Reward().program, ppo.config.batches // LOOKS
    state, points = ppo.begin(1, jax.random.key(seed)), []
    recorder = CurveRecorder([program], ppo.config.batch, ppo.physics.ctrl_dt)
    start = ppo.sim_physics.start(*task().start(np.random.default_rng(seed), EPISODES))
    for batch in range(ppo.config.batches + 1):
        if batch % every == 0:
            acting = TrainedControllers(ppo, state[0], recorder.curves)
            episode = acting.rollout(start, steps=EPISODE, key=jax.random.key(seed))
            assert ppo.world.over is not None
            over = ppo.world.over(episode.steps, start.step)
            lasted = np.where(over.any(axis=1), over.argmax(axis=1) + 1, over.shape[1])
            points.append((batch * ppo.config.batch, float(lasted.mean())))
        if batch < ppo.config.batches:
            state = ppo.step([program], state, jax.random.fold_in(jax.random.key(seed), batch), recorder)
    return points


def theirs(config: PpoConfig, seed: int) -> list[tuple[int, float]]:
    points: list[tuple[int, float]] = []
    train(
        environment=environment(Reward()),
        **brax_settings(config, seed),
        num_evals=LOOKS + 1,
        num_eval_envs=EPISODES,
        deterministic_eval=True,
        progress_fn=lambda steps, metrics: points.append((steps, float(metrics["eval/episode_reward"]))),
    )
    return points


def plot(curves: dict[str, list[list[tuple[int, float]]]], path: Path) -> None:
    figure = Figure(figsize=(6.0, 3.4), layout="constrained")
    ax = figure.add_subplot()
    for (name, runs), colour in zip(curves.items(), ("tab:blue", "tab:orange"), strict=True):
        for i, run in enumerate(runs):
            ax.plot(*zip(*run, strict=True), color=colour, alpha=0.35, label=name if i == 0 else None)
        steps = [point[0] for point in runs[0]]
        ax.plot(steps, np.mean([[r for _, r in run] for run in runs], axis=0), color=colour, linewidth=2.5)
    ax.set(xlabel="control steps", ylabel="return of an episode (of 1000)")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="our PPO against Brax's")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--env-steps", type=int, default=102_400)
    parser.add_argument("--plot", type=Path, default=Path("benchmarks/results/ppo_parity.png"))
    arguments = read_options(parser, seeds=1, env_steps=PPO.batch * LOOKS, plot=None)
    warnings.filterwarnings("ignore", category=UserWarning, module="brax")
    per_look = PPO.batch * LOOKS
    config = replace(PPO, env_steps=-(-arguments.env_steps // per_look) * per_look)
    ppo = build_ppo(settings(config), task())
    curves = {
        "ours": [ours(ppo, seed) for seed in range(arguments.seeds)],
        "brax": [theirs(config, seed) for seed in range(arguments.seeds)],
    }
    if arguments.plot:
        plot(curves, arguments.plot)
    final = {name: [run[-1][1] for run in runs] for name, runs in curves.items()}
    area = {name: [float(np.mean([r for _, r in run])) for run in runs] for name, runs in curves.items()}
    about = {
        "benchmark": "ppo_parity",
        "environment": "brax inverted_pendulum",
        "env_steps": config.env_steps,
        "seeds": arguments.seeds,
        "final_return": final,
        "final_mean": {name: round(float(np.mean(x)), 1) for name, x in final.items()},
        "final_std": {name: round(float(np.std(x)), 1) for name, x in final.items()},
        "mean_over_training": {
            name: [round(float(np.mean(x)), 1), round(float(np.std(x)), 1)] for name, x in area.items()
        },
        "curves": curves,
        **circumstances(),
    }
    print(json.dumps(about))


if __name__ == "__main__":
    main()
