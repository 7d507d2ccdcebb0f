"""Final training (MotionVL): candidates are trained briefly, and the winner is trained again for longer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from movlr_jax._util.quantities import summary
from movlr_jax.control.build import build_optimizer
from movlr_jax.control.settings import PpoSettings
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.evaluation import evaluate
from movlr_jax.evolution.filming import clip_of, sheet_path, store, style_of
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import film
from movlr_jax.language.base import Evaluation

EVENT, STEM = "full", "full"  # event kind in run.db; stem of full.json, full.npz and full.mp4


def has_final_training(context: SearchContext) -> bool:
    """Whether the method has a final training and the optimizer trains a policy."""
    return context.config.method.final_training > 1 and isinstance(context.config.optimizer, PpoSettings)


def run_final_training(context: SearchContext, best: Evaluation) -> dict[str, Any]:
    """Train `best` for `method.final_training` times the steps of a candidate. Return its metrics and curves.

    The result is recorded once. Checkpoints are in the folder full/ of the run; a resumed run continues from them.
    """
    config, archive = context.config, context.archive
    known, film_path = archive.get(EVENT), f"{STEM}.mp4"
    files = [f"{STEM}.json", f"{STEM}.npz", *([film_path, sheet_path(film_path)] if context.films else [])]
    if known and known["name"] == best.name and not any(map(archive.lost, files)):
        return known
    settings = config.optimizer
    assert isinstance(settings, PpoSettings)
    longer = replace(settings.ppo, env_steps=round(config.method.final_training * settings.ppo.env_steps))
    optimizer = build_optimizer(
        replace(settings, ppo=longer), context.task, config.physics, context.reporter.say
    )
    # it has passed the checks of the method, or is exempt
    verdict = context.verdicts.get(best.source) or context.sandbox.vet(best.source)
    with context.reporter.stage(f"final training of {best.name}") as tick:
        ((outcome,),) = evaluate(optimizer, context.task, [verdict], [config.seed], tick, archive.root / STEM)
    outcome = replace(outcome, generation=best.generation, candidate=best.candidate, parent=best.parent)
    data = {**outcome.record(), "env_steps": longer.env_steps}
    if outcome.states:
        archive.put(f"{STEM}.npz", outcome.states)
        if context.films:
            caption = Caption(
                context.task.description,
                f"{best.name}, final training",
                summary(outcome.metrics),
                context.note,
            )
            made = film(clip_of(context.task, outcome.states, caption), style_of(config.preview))
            store(archive.put, film_path, made)
            data["film"] = film_path
    archive.put(f"{STEM}.json", json.dumps(data, indent=1).encode())
    archive.record(EVENT, data)
    context.reporter.say(f"full:  {best.name}  {outcome.reason or summary(outcome.metrics)}")
    return data
