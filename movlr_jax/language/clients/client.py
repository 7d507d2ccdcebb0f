"""The model client: looks up recorded answers, checks prices and the budget, sends calls and retries them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from movlr_jax._util.keys import redact
from movlr_jax.errors import BudgetSpent, UserError, printable, resuming
from movlr_jax.language.clients.answers import read
from movlr_jax.language.clients.call import Answer, BadAnswer, ModelBackend, Question, Reply, Transient, key_of
from movlr_jax.language.clients.gemini import Gemini
from movlr_jax.language.clients.manual import Manual
from movlr_jax.language.clients.openai_compatible import OpenAICompatible
from movlr_jax.language.clients.person import Person
from movlr_jax.language.clients.replay import Recording, Replayed, RunAnswers, open_answers
from movlr_jax.language.settings import ModelConfig
from movlr_jax.storage.archive import Archive

_T = TypeVar("_T")
Say = Callable[[str], None]
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


@dataclass(frozen=True)
class Budget:
    """Limits for all models of a run together. Calls in progress count, also those that a crash interrupted."""

    ledger: Archive
    max_calls: int | None = None
    max_cost_usd: float | None = None

    def check(self, most_usd: float) -> None:
        """Raise BudgetSpent if one more call of at most `most_usd` would exceed a limit."""
        calls, cost = self.ledger.spent()
        if self.max_calls is not None and calls + 1 > self.max_calls:
            raise BudgetSpent(f"max_calls={self.max_calls} is used up: {calls} calls were made")
        if self.max_cost_usd is not None and cost + most_usd > self.max_cost_usd:
            raise BudgetSpent(
                f"max_cost_usd={self.max_cost_usd:g} is used up: {calls} calls cost {cost:.4f} USD, and the "
                f"next one may cost {most_usd:.4f} USD"
            )


@dataclass
class ModelClient:
    """The client of one model. Send questions with `ask` and call `close` at the end."""

    backend: ModelBackend
    config: ModelConfig
    price: Price
    budget: Budget
    say: Say
    answers_of: RunAnswers | Recording | None = None  # replay: the only source of answers
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    _asked: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    _warned_of_tokens: bool = False

    @property
    def go_on_later(self) -> str:
        """The end of error messages for failures that are temporary or that the user can fix."""
        return f"; continue later with {resuming(self.budget.ledger.root)}"

    @property
    def name(self) -> str:
        return f"{self.backend.name} {self.backend.model}"

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the answers in the order of the questions. Recorded answers are reused.

        Raises BudgetSpent, and UserError if a provider cannot be reached or denies access. Answers received before
        the error are recorded.
        """
        return self._outside(lambda: self._runner.run(self._ask_all(questions)))

    def close(self) -> None:
        def end() -> None:
            self._runner.run(self.backend.close())
            self._runner.close()

        self._outside(end)

    def _outside(self, act: Callable[[], _T]) -> _T:
        """Call `act`, which runs the event loop; in another thread if this one runs a loop, as in a notebook."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return act()
        loop = self._runner.get_loop()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(act)
            try:
                return done.result()
            except KeyboardInterrupt:
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
                raise

    async def _ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        limit = asyncio.Semaphore(self.config.calls.concurrency)

        async def one(question: Question) -> Answer:
            key = key_of(self.backend, question)
            async with self._asked[key], limit:  # equal concurrent questions share one call
                return await self._ask(question, key)

        results = await asyncio.gather(*(one(q) for q in questions), return_exceptions=True)
        for result in results:  # only after all calls have ended: paid answers are kept
            if isinstance(result, BaseException):
                raise result
        return [r for r in results if isinstance(r, Answer)]

    async def _ask(self, question: Question, key: str) -> Answer:
        ledger = self.budget.ledger
        known = ledger.find_call(key)
        if self.answers_of is not None and (known is None or known.get("about") != question.about):
            new, known = known is None, self.answers_of.find(key, question)
            if known is None:
                return Answer(problem=f"the recorded search did not {question.purpose} this")
            if new:
                ledger.log_call(key, known["state"], {**known, "cost_usd": 0.0, "replayed": True})
        elif known is not None:
            ledger.log_reuse(known, question.about)
        if known is None:
            return await self._fetch(question, key)
        if known["state"] == "refused":
            return Answer(problem=known["error"])
        reply = Reply(known["answer"], known["model_version"], logprobs=known.get("logprobs") or ())
        return Answer(read(question.schema, reply))

    async def _fetch(self, question: Question, key: str) -> Answer:
        """Ask until a valid answer arrives or no attempt is left. The SDK repeats requests that fail by itself."""
        problem, bad, idempotency_key, most = "", False, key, self.config.calls.attempts
        for attempt in range(1, most + 1):
            try:
                return Answer(await self._attempt(question, key, idempotency_key, attempt))
            except BadAnswer as error:
                problem, bad = plain(error), True
                # under the same key, a server may send the same answer again
                idempotency_key = hashlib.sha256(idempotency_key.encode()).hexdigest()
            except Transient as error:
                problem, bad = plain(error), False
            then = f"attempt {attempt + 1} of {most}" if attempt < most else f"gave up after {most} attempts"
            self.say(f"  {question.purpose} {self.name}: {problem}; {then}")
        if not bad:
            raise UserError(f"{self.name} gave no answer in {most} attempts: {problem}{self.go_on_later}")
        self.budget.ledger.log_call(key, "refused", self._entry(question, error=problem, sent=False))
        return Answer(problem=problem)

    async def _attempt(self, question: Question, key: str, idempotency_key: str, attempt: int) -> Any:
        """Send one call. It is logged in every case."""
        most = self.price.most(question, self.config.max_tokens)
        self.budget.check(most)
        ledger, begun = self.budget.ledger, time.monotonic()
        reply, state, error, settled = None, "failed", None, False
        call = ledger.log_call(key, "under_way", {**self._entry(question, attempt=attempt), "cost_usd": most})
        try:
            async with asyncio.timeout(self.config.calls.timeout_s):
                reply = clean(await self.backend.send(question, idempotency_key))
            settled = True
            value = read(question.schema, reply)
            state = "answered"
            return value
        except TimeoutError:
            error = f"no answer within {self.config.calls.timeout_s:g} s"
            raise Transient(error) from None
        except BadAnswer as bad:
            settled, error = True, str(bad)
            reply = clean(bad.reply) if bad.reply else None
            raise
        except (Transient, UserError) as failure:  # the server has refused it, or was not reached
            settled, error = True, str(failure)
            if isinstance(failure, UserError):
                raise UserError(f"{plain(failure)}{self.go_on_later}") from None
            raise
        finally:
            seconds = round(time.monotonic() - begun, 3)
            entry = self._entry(question, reply, error, attempt=attempt, seconds=seconds)
            # a server continues with a request that was abandoned
            ledger.end_call(call, state, {**entry, "cost_usd": self._cost(reply, most) if settled else most})

    def _cost(self, reply: Reply | None, most: float) -> float | None:
        """Return the cost in USD of a call: at least `most`, with one warning, without valid token counts."""
        if reply is None:
            return self.price.of(0, 0)
        known = self.price.of(reply.tokens_in or 0, reply.tokens_out or 0)
        if known is None or None not in (reply.tokens_in, reply.tokens_out):
            return known
        if not self._warned_of_tokens:
            self._warned_of_tokens = True
            self.say(
                f"  {self.name}: token counts are missing or invalid; such a call is charged with its maximum "
                f"cost, {most:.4f} USD"
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
            **({"changed": dict(reply.changed)} if reply and reply.changed else {}),
            "messages": [
                {**m, "parts": [redact(p) if isinstance(p, str) else p for p in m["parts"]]}
                for m in question.transcript()
            ],
            "sample": question.sample,
            "about": question.about,
            "sent": sent,
            "attempt": attempt,
            "seconds": seconds,
            "answer": reply.text if reply else None,
            **({"logprobs": reply.logprobs} if reply and reply.logprobs else {}),
            "model_version": reply.model_version if reply else None,
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "cost_usd": self.price.of(0, 0),
            "error": redact(error) if error else None,
        }


def plain(error: Exception) -> str:
    """Return the error text without API keys and control codes."""
    return printable(redact(str(error)))


def clean(reply: Reply) -> Reply:
    """Remove API keys from a reply: a server may send them back, and replies are written to many places."""
    return replace(reply, text=redact(reply.text), model_version=redact(reply.model_version))


def open_client(model: ModelConfig, where: str, source: Path | None, budget: Budget, say: Say) -> ModelClient:
    """Return the client of one model.

    source: the run directory or recording whose answers are replayed, or None. Raises UserError if a package or key
    is missing, or if the model has no known price and max_cost_usd is set.
    """
    price = price_of(model)
    if source is not None:
        return ModelClient(Replayed(model), model, price, budget, say, open_answers(source))
    if budget.max_cost_usd is not None and price.tokens_in is None and model.name not in ("manual", "person"):
        raise UserError(
            f"the price of {model.model} is unknown, so max_cost_usd cannot be enforced; set {where}.price=[in,out] "
            "in USD per million tokens, or limit max_calls instead"
        )
    backend: ModelBackend
    if model.name == "gemini":
        backend = Gemini(model, where)
    elif model.name == "openai_compatible":
        backend = OpenAICompatible(model, where, say)
    elif model.name == "person":
        backend = Person(model, budget.ledger, say)
    else:
        backend = Manual(model, budget.ledger.root, say)
    return ModelClient(backend, model, price, budget, say)


def price_of(config: ModelConfig) -> Price:
    """Return the price of a model from the settings, or else from the price table."""
    if config.calls.price:
        return Price(*config.calls.price)
    from genai_prices import Usage, calc_price  # takes long to import

    million = 1_000_000
    try:
        known = calc_price(Usage(input_tokens=million, output_tokens=million), config.model or "")
        return Price(float(known.input_price), float(known.output_price))
    except LookupError:  # a private or a very new model
        return Price(None, None)
