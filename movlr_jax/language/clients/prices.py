"""Prices of calls, from an offline price table or from the settings."""

from __future__ import annotations

from dataclasses import dataclass

from movlr_jax.language.clients.call import Question
from movlr_jax.language.settings import ModelConfig

_CHARACTERS_PER_TOKEN, _TOKENS_PER_MEDIUM = 3.0, 3000


@dataclass(frozen=True)
class Price:
    """USD per million input and output tokens; None if unknown."""

    tokens_in: float | None
    tokens_out: float | None

    def of(self, tokens_in: int, tokens_out: int) -> float | None:
        """Return the cost of one call in USD, or None if the price is unknown."""
        if self.tokens_in is None or self.tokens_out is None:
            return None
        return (self.tokens_in * tokens_in + self.tokens_out * tokens_out) / 1e6

    def most(self, question: Question, max_tokens: int) -> float:
        """Return an upper estimate of the cost of a call in USD. It is reserved while the call is in progress."""
        text = sum(len(m.text) for m in question.messages) / _CHARACTERS_PER_TOKEN
        media = len(question.media) * _TOKENS_PER_MEDIUM
        return self.of(round(text + media), max_tokens) or 0.0


def price_of(config: ModelConfig) -> Price:
    """Return the price of a model from the settings, or else from the price table."""
    if config.calls.price:
        return Price(*config.calls.price)
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return Price(None, None)
    million = 1_000_000
    try:
        known = calc_price(Usage(input_tokens=million, output_tokens=million), config.model or "")
        return Price(float(known.input_price), float(known.output_price))
    except LookupError:  # a private or a very new model
        return Price(None, None)
