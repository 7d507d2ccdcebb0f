"""Batches of rollouts that fit into the memory of a device, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from movlr_jax.errors import UserError
from movlr_jax.physics.base import Physics
from movlr_jax.physics.programs import out_of_memory


class Batches:
    """Splits the N plans of a batch: by an estimate of their memory, and further if the device has not enough."""

    def __init__(self, physics: Physics, steps: int, say: Callable[[str], object], worlds: int = 1):
        """steps: control steps of a plan. worlds: rollouts of each plan."""
        self._physics, self._steps, self._say, self._worlds = physics, steps, say, worlds
        self._least: dict[tuple[int, int], int] = {}  # (rows, N) -> parts, of batches that did not fit
        self._known: set[tuple[int, int, int]] = set()  # (rows, N, parts) that have run
        self._said = 1

    def of(self, rows: int, n: int) -> list[slice]:
        """Split the N plans of `rows` rows into equal parts."""
        needed = max(self._physics.parts(rows * n * self._worlds, self._steps), self._least.get((rows, n), 1))
        count = next(c for c in range(1, n + 1) if n % c == 0 and (c >= needed or c == n))
        if count > self._said:
            self._said = count
            number = rows * n * self._worlds
            self._say(
                f"  memory: {number} rollouts of {self._steps} steps do not fit into memory together; they run in "
                f"{count} parts of {number // count}"
            )
        return [slice(i, i + n // count) for i in range(0, n, n // count)]

    def run(self, rows: int, n: int, function: Callable[[slice], Any]) -> list[Any]:
        """Return the results of `function` for all parts; smaller parts if the device runs out of memory.

        Raises UserError if the rollouts of a single plan do not fit.
        """
        while True:
            parts = self.of(rows, n)
            size = (rows, n, len(parts))
            try:
                done = [function(part) for part in parts]
                if size not in self._known:
                    jax.block_until_ready(done)  # a device reports its errors when it is done
                    self._known.add(size)
                return done
            except jax.errors.JaxRuntimeError as error:
                if not out_of_memory(error):
                    raise
                self._least[rows, n] = len(parts) + 1
                if len(parts) == n:
                    raise UserError(
                        f"physics={self._physics.name}: {rows * self._worlds} rollouts of {self._steps} steps do not "
                        "fit into the memory of the device; use fewer candidates or a smaller optimizer.horizon_s"
                    ) from None
