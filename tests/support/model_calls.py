"""A client of a fake server, and questions for it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from fake_servers import FakeServer

from movlr_jax._util.settings import changed
from movlr_jax.language.clients.answers import Judgement, Program, Ready
from movlr_jax.language.clients.call import Answer, Message, Question
from movlr_jax.language.clients.client import Budget, ModelClient, open_client
from movlr_jax.language.settings import ModelConfig
from movlr_jax.storage.archive import Archive

KEY = "sk-SECRET-0123456789-zz"
KINDS = {"openai": "openai_compatible", "gemini": "gemini"}
COMMON = {"timeout_s": 5.0, "attempts": 3, "key_env": "MOVLR_TEST_KEY", "model": "m-1"}
OF_SERVER = {field.name for field in fields(FakeServer)}


def question(text: str = "are you there", sample: int = 0) -> Question:
    messages = [Message("system", ["be brief"]), Message("user", [text])]
    return Question("check", messages, Ready, 0.7, sample)


def judging(*parts: Any) -> Question:
    return Question("judge", [Message("user", parts or ["which"])], Judgement)


def writing(text: str = "write") -> Question:
    return Question("propose", [Message("user", [text])], Program, 1.0)


class Asking:
    """A client of `server`, and all that it printed."""

    def __init__(self, server: FakeServer, archive: Archive, **settings: Any):
        self.server, self.said = server, list[str]()
        budget = {name: settings.pop(name) for name in ("max_calls", "max_cost_usd") if name in settings}
        config = changed(ModelConfig(KINDS[server.kind]), base_url=server.url, **{**COMMON, **settings})
        self.client: ModelClient = open_client(config, "llm", None, Budget(archive, **budget), self.said.append)
        self.ask = self.client.ask

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.server.requests

    def one(self, asked: Question | None = None) -> Answer:
        """Return the answer to one question, by default `question()`."""
        (answer,) = self.ask([asked or question()])
        return answer
