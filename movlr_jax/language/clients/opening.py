"""From settings to a model that can be asked, over the network, by files, or from the record of another run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from movlr_jax.errors import UserError
from movlr_jax.language.settings import ModelConfig
from movlr_jax.settings import from_mapping
from movlr_jax.storage.archive import Archive

if TYPE_CHECKING:  # they need packages that a search without models does without
    from movlr_jax.language.clients.call import ModelBackend, Question
    from movlr_jax.language.clients.client import Budget, ModelClient

Say = Callable[[str], None]


def open_client(
    model: ModelConfig, where: str, source: Path | None, archive: Archive, budget: Budget, say: Say
) -> ModelClient:
    """Return the client of one model.

    source: the run directory whose recorded answers are replayed, or None. Raises UserError if a package or key is
    missing, or if the model has no known price and max_cost_usd is set.
    """
    from movlr_jax.language.clients.client import ModelClient
    from movlr_jax.language.clients.prices import price_of

    price = price_of(model)
    if source is not None:
        return ModelClient(_Replayed(model), model, price, budget, say, Archive.open(source, write=False))
    if budget.max_cost_usd is not None and price.tokens_in is None and model.name != "manual":
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

        return OpenAICompatible(model, where)
    from movlr_jax.language.clients.manual import Manual

    return Manual(model, archive.root, say)


def recorded_model(model: ModelConfig, where: str, depth: int = 0) -> tuple[ModelConfig, Path | None]:
    """For replay, return the settings of the recorded model and the recorded run; else return `model` and None."""
    if model.name != "replay":
        return model, None
    source = Path(str(model.run))
    path = source / "config.yaml"
    if not path.is_file():
        raise UserError(f"{where}.run={source} is not a run directory of movlr-jax: it has no config.yaml")
    values = yaml.safe_load(path.read_text(encoding="utf-8")).get(where)
    recorded = from_mapping(ModelConfig, values, where)
    if recorded.name == "replay" and depth < 8:
        recorded, _ = recorded_model(recorded, where, depth + 1)
    return recorded, source


class _Replayed:
    """The identity of a backend, used to compute call keys. It sends nothing."""

    def __init__(self, model: ModelConfig):
        from movlr_jax.language.clients import gemini, manual, openai_compatible

        self._config = model
        modules = {"gemini": gemini, "openai_compatible": openai_compatible, "manual": manual}
        self._parameters = modules[model.name].parameters

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def model(self) -> str:
        return self._config.model or ("person" if self._config.name == "manual" else "")

    def parameters(self, question: Question) -> Mapping[str, Any]:
        return self._parameters(self._config, question)

    async def send(self, question: Question, key: str) -> Any:
        raise UserError("a replayed run does not send calls")

    async def close(self) -> None:
        pass
