"""Final training (MotionVL): candidates are trained briefly, and the winner is trained again for longer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from movlr_jax._util.quantities import summary
from movlr_jax.control.build import build_optimizer
from movlr_jax.control.settings import PpoSettings
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.evaluation import evaluate
from movlr_jax.evolution.film import caption, clip_of, sheet_path, store, style_of
from movlr_jax.evolution.vet import vet_one
from movlr_jax.film.clips import film
from movlr_jax.records import Evaluation, FinalTraining, Trial
from movlr_jax.storage.events import read, written

EVENT, STEM = "full", "full"  # event kind in run.db; stem of full.json, full.npz and full.mp4


def has_final_training(context: SearchContext) -> bool:
    """Whether the method has a final training and the optimizer trains a policy."""
    return context.config.method.final_training > 1 and isinstance(context.config.optimizer, PpoSettings)


def run_final_training(context: SearchContext, best: Evaluation) -> FinalTraining:
    """Train `best` for `method.final_training` times the steps of a candidate. Return its metrics and curves.

    The result is recorded once. Checkpoints are in the folder full/ of the run; a resumed run continues from them.
    """
    config, archive = context.config, context.archive
    recorded, film_path = archive.get(EVENT), f"{STEM}.mp4"
    files = [f"{STEM}.json", f"{STEM}.npz", *([film_path, sheet_path(film_path)] if context.films else [])]
    if recorded and recorded["name"] == best.name and not any(map(archive.lost, files)):
        return read(FinalTraining, recorded, generation=best.generation, candidate=best.candidate)
    settings = config.optimizer
    assert isinstance(settings, PpoSettings)
    longer = replace(settings.ppo, env_steps=round(config.method.final_training * settings.ppo.env_steps))
    optimizer = build_optimizer(replace(settings, ppo=longer), context.task, config.physics, context.reporter.say)
    verdict = vet_one(context, best.source)
    with context.reporter.stage(f"final training of {best.name}") as tick:
        ((trial,),) = evaluate(optimizer, context.task, [verdict], [config.seed], tick, archive.root / STEM)
    film_made = _keep(context, best.name, trial)
    trained = replace(FinalTraining.of(best, trial), film=film_made, env_steps=longer.env_steps)
    data = written(trained)
    archive.put(f"{STEM}.json", json.dumps(data, indent=1).encode())
    archive.record(EVENT, data)
    context.reporter.say(f"full:  {best.name}  {trial.reason or summary(trial.metrics)}")
    return trained


def _keep(context: SearchContext, name: str, trial: Trial) -> Path | None:
    """Write the trajectory of a final training and its film. Return the path of the film."""
    if not trial.states:
        return None
    path = f"{STEM}.mp4"
    context.archive.put(f"{STEM}.npz", trial.states)
    if not context.films:
        return None
    shown = clip_of(context.task, trial.states, caption(context, f"{name}, final training", trial))
    store(context.archive.put, path, film(shown, style_of(context.config.preview)))
    return Path(path)
