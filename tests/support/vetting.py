"""Programs of a task in the sandbox."""

from __future__ import annotations

from contextlib import closing

from movlr_jax.evolution.evaluation import make_probe
from movlr_jax.evolution.scripted.terms import library
from movlr_jax.physics.native import NativePhysics
from movlr_jax.sandbox.genome import Genome
from movlr_jax.sandbox.vet import Sandbox
from movlr_jax.tasks import Task


def refusals(task: Task, *sources: str) -> list[str]:
    """What the sandbox says against these programs on states of the task."""
    physics = NativePhysics(task.model, task.layout, sim_dt=0.002, ctrl_dt=0.016, threads=2)
    probe = make_probe(task, physics, seed=0, rows=4, steps=4)
    physics.close()
    with closing(Sandbox(probe)) as sandbox:
        return [verdict.message for verdict in map(sandbox.vet, sources) if verdict.message]


def with_every_term(task: Task, parts: int = 1) -> list[str]:
    """Programs that together have all terms of the library for the task, each a part of them."""
    terms = list(library(task).values())
    return [Genome({t.name: (t.weight, t.expression) for t in terms[i::parts]}).source() for i in range(parts)]
