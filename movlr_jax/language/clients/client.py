"""Where every call goes through: the record first, then the budget, then the wire with its one layer of retries."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from movlr_jax.errors import BudgetSpent, UserError, printable
from movlr_jax.keys import redact
from movlr_jax.language.clients.answers import read
from movlr_jax.language.clients.call import (
    Answer,
    BadAnswer,
    ModelBackend,
    Question,
    Reply,
    Transient,
    key_of,
)
from movlr_jax.language.clients.prices import Price
from movlr_jax.language.settings import ModelConfig


class Ledger(Protocol):
    """The record of all calls of a run; `Archive` is one."""

    root: Path  # the run directory

    def begin_call(self, key: str, data: dict[str, Any]) -> int:
        """Before a call is sent; returns its number."""
        ...

    def end_call(self, call: int, state: str, data: dict[str, Any]) -> None: ...

    def log_call(self, key: str, state: str, data: dict[str, Any]) -> int: ...

    def find_call(self, key: str) -> dict[str, Any] | None:
        """What was answered (state answered or refused), or None."""
        ...

    def spent(self) -> tuple[int, float]:
        """Calls sent, and their price in USD; of those under way the most that it may be."""
        ...


@dataclass(frozen=True)
class Budget:
    """What may be spent, over all models of a run; what is under way, or was when a process died, counts."""

    ledger: Ledger
    max_calls: int | None = None
    max_cost_usd: float | None = None

    def check(self, most_usd: float) -> None:
        """Raises BudgetSpent when one more call would be too much."""
        calls, cost = self.ledger.spent()
        if self.max_calls is not None and calls + 1 > self.max_calls:
            raise BudgetSpent(f"max_calls={self.max_calls} is spent: {calls} calls were made")
        if self.max_cost_usd is not None and cost + most_usd > self.max_cost_usd:
            raise BudgetSpent(
                f"max_cost_usd={self.max_cost_usd:g} is spent: {calls} calls cost {cost:.4f} USD, and the "
                f"next may cost {most_usd:.4f}"
            )


@dataclass
class ModelClient:
    """One model, spoken to by one role. Use `ask`; `close` at the end."""

    backend: ModelBackend
    config: ModelConfig
    price: Price
    budget: Budget
    say: Callable[[str], None]
    answers_of: Ledger | None = None  # replay: where answers come from, and only from there
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    _asked: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    _told_of_tokens: bool = False

    @property
    def go_on_later(self) -> str:
        """Ends the sentences of failures that may pass, or can be mended."""
        return f"; go on later with resume={self.budget.ledger.root}"

    @property
    def name(self) -> str:
        return f"{self.backend.name} {self.backend.model}"

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers in the order of the questions; known ones are not asked again.

        Raises BudgetSpent, and UserError when a provider cannot be reached or does not let us in; answers that
        came before that are recorded.
        """
        return self._runner.run(self._ask_all(questions))

    def close(self) -> None:
        self._runner.run(self.backend.close())
        self._runner.close()

    async def _ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        limit = asyncio.Semaphore(self.config.concurrency)

        async def one(question: Question) -> Answer:
            key = key_of(self.backend, question)
            async with self._asked[key], limit:  # who asks the same at the same time waits for that answer
                return await self._ask(question, key)

        results = await asyncio.gather(*(one(q) for q in questions), return_exceptions=True)
        for result in results:  # after all have ended: what was answered is paid for, and is kept
            if isinstance(result, BaseException):
                raise result
        return [r for r in results if isinstance(r, Answer)]

    async def _ask(self, question: Question, key: str) -> Answer:
        ledger = self.budget.ledger
        known = ledger.find_call(key)
        if known is None and self.answers_of is not None:
            known = self.answers_of.find_call(key)
            if known is None:
                raise UserError(
                    f"the replayed run has no answer to this call ({question.purpose}, {self.name}, key "
                    f"{key[:12]}); replay with the settings it was made with, on the machine it was made on"
                )
            ledger.log_call(key, known["state"], {**known, "cost_usd": 0.0, "replayed": True})
        if known is not None:
            return self._known(question, known)
        return await self._fetch(question, key)

    def _known(self, question: Question, known: dict[str, Any]) -> Answer:
        if known["state"] == "refused":
            return Answer(problem=known["error"])
        return Answer(read(question.schema, Reply(known["answer"], known["model_version"])))

    async def _fetch(self, question: Question, key: str) -> Answer:
        """Asks until there is an answer of the asked form, or no attempt is left."""
        problem, bad = "", False
        for attempt in range(1, self.config.attempts + 1):
            try:
                return Answer(await self._attempt(question, key, attempt))
            except BadAnswer as error:
                problem, bad, wait = plain(error), True, 0.0
            except Transient as error:
                problem, bad = plain(error), False
                wait = self.config.backoff_s * 2 ** (attempt - 1)
                if error.retry_after is not None:
                    if error.retry_after > self.config.patience_s:
                        raise UserError(
                            f"{self.name} asks to wait {round(error.retry_after):g} s ({problem}){self.go_on_later}"
                        ) from None
                    wait = error.retry_after
            if attempt < self.config.attempts:
                when = f"in {wait:.2g} s" if wait else "follows"
                self.say(
                    f"  {question.purpose} {self.name}: {problem}; attempt {attempt + 1} of "
                    f"{self.config.attempts} {when}"
                )
                await asyncio.sleep(wait)
        if not bad:
            raise UserError(
                f"{self.name} gave no answer in {self.config.attempts} attempts: {problem}{self.go_on_later}"
            )
        self.say(
            f"  {question.purpose} {self.name}: {problem}; given up after {self.config.attempts} attempts"
        )
        self.budget.ledger.log_call(key, "refused", self._entry(question, error=problem, sent=False))
        return Answer(problem=problem)

    async def _attempt(self, question: Question, key: str, attempt: int) -> Any:
        """One call over the wire, logged whatever becomes of it."""
        most = self.price.most(question, self.config.max_tokens)
        self.budget.check(most)
        ledger, begun = self.budget.ledger, time.monotonic()
        reply, state, error = None, "failed", None
        call = ledger.begin_call(key, {**self._entry(question, attempt=attempt), "cost_usd": most})
        try:
            try:
                async with asyncio.timeout(self.config.timeout_s):
                    reply = clean(await self.backend.send(question, key))
            except TimeoutError:
                raise Transient(f"no answer within {self.config.timeout_s:g} s") from None
            value = read(question.schema, reply)
            state = "answered"
            return value
        except BadAnswer as bad:
            reply, error = clean(bad.reply) if bad.reply else None, str(bad)
            raise
        except Transient as failure:
            error = str(failure)
            raise
        except UserError as failure:
            error = str(failure)
            raise UserError(f"{plain(failure)}{self.go_on_later}") from None
        finally:
            seconds = round(time.monotonic() - begun, 3)
            entry = self._entry(question, reply, error, attempt=attempt, seconds=seconds)
            ledger.end_call(call, state, {**entry, "cost_usd": self._cost(reply, most)})

    def _cost(self, reply: Reply | None, most: float) -> float | None:
        """USD of a call that ended; `most` of one whose tokens nobody knows, which is said once."""
        if reply is None:
            return self.price.of(0, 0)
        known = self.price.of(reply.tokens_in or 0, reply.tokens_out or 0)
        if known is None or None not in (reply.tokens_in, reply.tokens_out):
            return known
        if not self._told_of_tokens:
            self._told_of_tokens = True
            self.say(
                f"  {self.name}: its token counts are missing or no counts; such a call counts as the most that it "
                f"may cost, {most:.4f} USD"
            )
        return max(known, most)

    def _entry(
        self,
        question: Question,
        reply: Reply | None = None,
        error: str | None = None,
        *,
        sent: bool = True,
        attempt: int = 0,
        seconds: float = 0.0,
    ) -> dict[str, Any]:
        tokens_in, tokens_out = (reply.tokens_in, reply.tokens_out) if reply else (0, 0)
        return {
            "purpose": question.purpose,
            "provider": self.backend.name,
            "model": self.backend.model,
            "asked": {"temperature": question.temperature},
            "parameters": dict(self.backend.parameters(question)),
            "messages": [
                {**m, "parts": [redact(p) if isinstance(p, str) else p for p in m["parts"]]}
                for m in question.transcript()
            ],
            "sample": question.sample,
            "sent": sent,
            "attempt": attempt,
            "seconds": seconds,
            "answer": reply.text if reply else None,
            "model_version": reply.model_version if reply else None,
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "cost_usd": self.price.of(0, 0),
            "error": redact(error) if error else None,
        }


def plain(error: Exception) -> str:
    """What went wrong, in words that may be shown."""
    return printable(redact(str(error)))


def clean(reply: Reply) -> Reply:
    """The reply without keys, which a server may send back: what is made of it is written to many places."""
    return replace(reply, text=redact(reply.text), model_version=redact(reply.model_version))
