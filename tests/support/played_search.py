"""Searches whose trials are looked up instead of simulated: the whole loop in a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tiny_task import task as tiny_task

from movlr_jax._util.progress import Reporter
from movlr_jax.config.compose import compose
from movlr_jax.engine.description import to_yaml
from movlr_jax.evolution.context import Clock, Roles, SearchContext
from movlr_jax.evolution.journal import CONFIRM
from movlr_jax.evolution.scripted.metrics import MetricsCritic, MetricsJudge
from movlr_jax.evolution.trials import trial_seed
from movlr_jax.language.base import Judge, ProposalRequest
from movlr_jax.records import Trial as Episode
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import Task

# program, generation, number -> metrics, or a reason
Trial = Callable[[str, int, int], Mapping[str, float] | str]
SEED = 5
KNOWN = {trial_seed(SEED, g, n): (g, n) for g in range(CONFIRM, 8) for n in range(64)}


_PROGRAM = '''"""%s"""

WEIGHTS = {"up": 1.0}


def reward(state, action):
    return {"up": state.pos("foot")[2]}
'''


def program(name: str) -> str:
    return _PROGRAM % name


def name_of(source: str) -> str:
    return source.split('"""')[1]


@dataclass
class LookedUp:
    """Workers that simulate nothing. `ends`: the batch at which they are interrupted."""

    trial: Trial
    ends: int | None = None
    batches: list[tuple[list[str], list[tuple[int, int]]]] = field(default_factory=list)
    steps_done: int = 0

    def evaluate(
        self, verdicts: Sequence[Verdict], seeds: Sequence[int], progress: Any = None, folder: Any = None
    ) -> list[list[Episode]]:
        if len(self.batches) == self.ends:
            raise KeyboardInterrupt
        numbers = [KNOWN[seed] for seed in seeds]
        sources = [v.program.source for v in verdicts if v.program]
        self.batches.append(([name_of(source) for source in sources], numbers))
        return [[self._trial(source, seed, *KNOWN[seed]) for seed in seeds] for source in sources]

    def _trial(self, source: str, seed: int, g: int, n: int) -> Episode:
        found = self.trial(name_of(source), g, n)
        if isinstance(found, str):
            return Episode(seed=seed, reason=found, stage="run")
        return Episode(seed=seed, metrics=dict(found))

    def close(self) -> None: ...


@dataclass
class Written:
    """A proposer that gives the programs of each generation."""

    names: Sequence[Sequence[str]]
    name: str = "list"

    def propose(self, request: ProposalRequest, count: int) -> list[str]:
        return [program(name) for name in self.names[request.generation][-count:]]


@cache
def loaded(source: str) -> Verdict:
    return Verdict("probe", None, 0.0, load(parse(source)))


class Loaded:
    """Programs of the tests are loaded without a sandbox."""

    def vet(self, source: str) -> Verdict:
        return loaded(source)

    def vet_all(self, sources: Sequence[str], progress: Any = None) -> list[Verdict]:
        return [self.vet(source) for source in sources]


def played(
    root: Path,
    names: Sequence[Sequence[str]],
    trial: Trial,
    *settings: str,
    task: Task | None = None,
    judge: Judge | None = None,
    human: str | None = None,
    ends: int | None = None,
) -> SearchContext:
    """Return the parts of a search with these programs; names[0][0] is the first. A run in `root` goes on."""
    file = Path(__file__).parent / "tiny_task.py"
    sizes = [f"candidates={len(names[0])}", f"generations={len(names)}", f"seed={SEED}"]
    config = compose([f"+task={file}", "optimizer=mppi", "films=false", *sizes, *settings])
    first = names[0][0]
    archive = Archive.open(root) if root.exists() else Archive.create(root, to_yaml(config))
    made = task or tiny_task().replace(score=lambda metrics: metrics["score"])
    parts: dict[str, Any] = {
        "optimizer": SimpleNamespace(scorer=SimpleNamespace(prepare=lambda programs: None)),
        "roles": Roles(Written(names), judge or MetricsJudge(), MetricsCritic(), models_used="none"),
        "sandbox": Loaded(),
        "workers": LookedUp(trial, ends),
    }
    return SearchContext(
        config=config,
        task=made.replace(initial=program(first), human=program(human or first)),
        archive=archive,
        clock=Clock.of(archive, time.monotonic()),
        reporter=Reporter(),
        films=False,
        **parts,
    )
