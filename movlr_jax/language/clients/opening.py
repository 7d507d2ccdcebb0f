"""From settings to a model that can be asked, over the network, by files, or from the record of another run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from movlr_jax.errors import UserError, needed
from movlr_jax.language.clients.replay import Replayed, open_answers
from movlr_jax.language.settings import ModelConfig
from movlr_jax.storage.archive import Archive

if TYPE_CHECKING:  # they need packages that a search without models does without
    from movlr_jax.language.clients.call import ModelBackend
    from movlr_jax.language.clients.client import Budget, ModelClient

Say = Callable[[str], None]


def open_client(
    model: ModelConfig, where: str, source: Path | None, archive: Archive, budget: Budget, say: Say
) -> ModelClient:
    """Return the client of one model.

    source: the run directory or recording whose answers are replayed, or None. Raises UserError if a package or key
    is missing, or if the model has no known price and max_cost_usd is set.
    """
    if model.name == "person":
        with needed("vlm=person", "vote"):
            for package in ("pydantic", "starlette", "uvicorn"):
                importlib.import_module(package)
    from movlr_jax.language.clients.client import ModelClient
    from movlr_jax.language.clients.prices import price_of

    price = price_of(model)
    if source is not None:
        return ModelClient(Replayed(model), model, price, budget, say, open_answers(source))
    if budget.max_cost_usd is not None and price.tokens_in is None and model.name not in ("manual", "person"):
        raise UserError(
            f"the price of {model.model} is unknown, so max_cost_usd cannot be enforced; set {where}.price=[in,out] "
            "in USD per million tokens, or limit max_calls instead"
        )
    return ModelClient(_backend(model, where, archive, say), model, price, budget, say)


def _backend(model: ModelConfig, where: str, archive: Archive, say: Say) -> ModelBackend:
    if model.name == "gemini":
        from movlr_jax.language.clients.gemini import Gemini

        return Gemini(model, where)
    if model.name == "openai_compatible":
        from movlr_jax.language.clients.openai_compatible import OpenAICompatible

        return OpenAICompatible(model, where, say)
    if model.name == "person":
        from movlr_jax.language.clients.person import Person

        return Person(model, archive, say)
    from movlr_jax.language.clients.manual import Manual

    return Manual(model, archive.root, say)
