"""The programs of a search that ran, with their trials, and the champion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from movlr_jax.records import Evaluation, Program, Trial

Trials = Mapping[str, Sequence[Trial]]  # by the name of the program


@dataclass(frozen=True)
class Population:
    """All programs of a search that ran, with their trials, and the champion."""

    programs: Mapping[str, Program] = field(default_factory=dict)  # in the order of their first trials
    trials: Trials = field(default_factory=dict)
    champion: str | None = None

    @property
    def names(self) -> list[str]:
        return list(self.programs)

    @property
    def failed(self) -> bool:
        """Whether all trials of all programs failed."""
        return all(trial.failed for trials in self.trials.values() for trial in trials)

    def with_programs(self, programs: Mapping[str, Program]) -> Population:
        return replace(self, programs={**self.programs, **programs})

    def with_trials(self, trials: Trials) -> Population:
        """Return the population with further trials of its programs, each once."""
        added = dict(self.trials)
        for name, new in trials.items():
            earlier = added.get(name, ())
            seeds = {trial.seed for trial in earlier}
            added[name] = [*earlier, *(trial for trial in new if trial.seed not in seeds)]
        return replace(self, trials=added)

    def with_champion(self, name: str) -> Population:
        return replace(self, champion=name)

    def shown(self, name: str, trial: Trial) -> Evaluation:
        """Return a program of the population with one of its trials."""
        return Evaluation.of(self.programs[name], trial)
