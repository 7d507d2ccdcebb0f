"""Search spaces of `tune`: ranges of optimizer settings, task settings and reward weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from movlr_jax._util.settings import from_mapping
from movlr_jax.config.option_file import read_option_file
from movlr_jax.errors import UserError

if TYPE_CHECKING:
    import optuna

WEIGHTS = "weights."  # prefix of the weights of the reward program
OPTIMIZER, TASK = "optimizer.", "task.settings."


@dataclass(frozen=True)
class Range:
    """Allowed values of one setting: from low to high, or one of choices."""

    low: float | None = None
    high: float | None = None
    log: bool = False  # sample on a logarithmic scale
    choices: Sequence[str | float] = ()

    @property
    def whole(self) -> bool:
        return all(isinstance(end, int) for end in (self.low, self.high))

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        if self.choices:
            return trial.suggest_categorical(name, list(self.choices))
        assert self.low is not None
        assert self.high is not None
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def nearest(self, value: Any) -> Any:
        """Return `value` clipped to the range, or the first choice if `value` is not among the choices."""
        if self.choices:
            return value if value in self.choices else self.choices[0]
        assert self.low is not None
        assert self.high is not None
        return min(max(value, self.low), self.high)


def read_space(names: Sequence[str]) -> dict[str, Range]:
    """Return the ranges of the spaces `names`: options of conf/space, or paths of files. Raises UserError."""
    found: dict[str, Range] = {}
    for name in names:
        ranges = read_option_file("space", name)[1]
        found |= {setting: _range(setting, value) for setting, value in ranges.items()}
    if not found:
        raise UserError(f"space={','.join(names)} names nothing to vary; give NAME: {{low: ..., high: ...}}")
    return found


def _range(setting: str, value: Any) -> Range:
    if not setting.startswith((WEIGHTS, OPTIMIZER, TASK)):
        raise UserError(
            f"{setting} cannot be tuned: a space contains optimizer.*, task.settings.* and weights.*; give other "
            "settings as name=value"
        )
    if not isinstance(value, Mapping):
        raise UserError(f"{setting}: {value!r}: it must be {{low: ..., high: ...}} or {{choices: [...]}}")
    found = from_mapping(Range, {**value}, setting)
    low, high = (value.get(end) for end in ("low", "high"))
    if found.choices and (low is not None or high is not None):
        raise UserError(f"{setting}: give choices, or low and high, not both")
    if not found.choices:
        if low is None or high is None:
            raise UserError(f"{setting}: it needs low and high, or choices")
        if low >= high or (found.log and low <= 0):
            raise UserError(f"{setting}: low={low:g} must be less than high={high:g}, and more than 0 with log: true")
        found = Range(low, high, found.log)  # keep integers, which from_mapping converts to floats
    return found
