"""The program that is edited next."""

from __future__ import annotations

from collections.abc import Sequence

from movlr_jax.config.methods import Method
from movlr_jax.language.base import Evaluation


def parent_of(method: Method, best: Evaluation, ranked: Sequence[str], latest: Sequence[Evaluation]) -> Evaluation:
    """Return the candidate whose program is edited next. `ranked` are the last ranking's names, best first."""
    if method.parent == "best":
        return best
    ran = {e.name: e for e in latest if not e.failed}
    return next((ran[name] for name in ranked if name in ran), best)
