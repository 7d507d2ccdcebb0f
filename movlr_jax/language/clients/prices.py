"""What a call costs, from an offline table of prices or from the settings."""

from __future__ import annotations

from dataclasses import dataclass

from movlr_jax.language.clients.call import Question
from movlr_jax.language.settings import ModelConfig

_CHARACTERS_PER_TOKEN, _TOKENS_PER_MEDIA_SECOND, _LEAST_MEDIA_TOKENS = 3.0, 300, 1500


@dataclass(frozen=True)
class Price:
    """USD per million tokens; None where nobody knows."""

    tokens_in: float | None
    tokens_out: float | None

    def of(self, tokens_in: int, tokens_out: int) -> float | None:
        """USD of one call."""
        if self.tokens_in is None or self.tokens_out is None:
            return None
        return (self.tokens_in * tokens_in + self.tokens_out * tokens_out) / 1e6

    def most(self, question: Question, max_tokens: int) -> float:
        """USD that a call may cost, estimated high: counted while it is under way."""
        text = sum(len(m.text) for m in question.messages) / _CHARACTERS_PER_TOKEN
        media = len(question.media) * max(_LEAST_MEDIA_TOKENS, 10 * _TOKENS_PER_MEDIA_SECOND)
        return self.of(round(text + media), max_tokens) or 0.0


def price_of(config: ModelConfig) -> Price:
    """The price of a model: as set, or as the table has it."""
    if config.price:
        return Price(*config.price)
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return Price(None, None)
    million = 1_000_000
    try:
        known = calc_price(Usage(input_tokens=million, output_tokens=million), config.model or "")
        return Price(float(known.input_price), float(known.output_price))
    except LookupError:  # a model of one's own, or one too new
        return Price(None, None)
