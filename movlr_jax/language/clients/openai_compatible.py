"""Servers with OpenAI's chat completions API: vLLM, OpenRouter, DashScope, Ollama, OpenAI itself."""

from __future__ import annotations

import base64
import ipaddress
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from movlr_jax.errors import UserError, needed
from movlr_jax.keys import key_from
from movlr_jax.language import prompts
from movlr_jax.language.clients import wire
from movlr_jax.language.clients.answers import Descriptors, Program
from movlr_jax.language.clients.call import BadAnswer, Media, Question, Reply, Transient
from movlr_jax.language.settings import ModelConfig

OWN_URL = "https://api.openai.com/v1"


class OpenAICompatible:
    """Backend for chat completions through the openai SDK, without the retries of the SDK."""

    name = "openai_compatible"

    def __init__(self, config: ModelConfig, where: str):
        with needed(f"{where}={self.name}", "openai"):
            import openai

            from movlr_jax.language.clients.transport import Client
        self._config, self._sdk = config, openai
        self._url = config.base_url or OWN_URL
        here = _local(self._url, here=True)
        self.address = wire.address(self._url, proxied=not here)
        key = key_from(config.key_env, needed=bool(config.key_env) and not _local(self._url), where=where)
        try:
            client = Client(timeout=config.timeout_s, trust_env=not here)
        except (ImportError, OSError, ValueError) as error:
            raise UserError(
                f"{where}={self.name} cannot connect with the proxy or certificate that the environment sets "
                f"(ALL_PROXY, HTTPS_PROXY, SSL_CERT_FILE, ...): {wire.brief(str(error), 200)}"
            ) from error
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=self._url,
            max_retries=0,
            timeout=config.timeout_s,
            http_client=client,
        )

    @property
    def model(self) -> str:
        return self._config.model or ""

    def parameters(self, question: Question) -> Mapping[str, Any]:
        return parameters(self._config, question)

    async def send(self, question: Question, key: str) -> Reply:
        form = question.schema
        schema = {"name": form.__name__, "schema": wire.schema_of(form), "strict": True}
        sent = parameters(self._config, question)
        *earlier, last = question.messages
        instructions = sent.pop("instruction")
        where, key_env = f"openai_compatible at {self.address}", self._config.key_env
        # the answer is parsed here, since the SDK does not validate it
        create: Any = self._client.chat.completions.with_raw_response.create
        try:
            response = await create(
                model=self.model,
                messages=[
                    *(_message(m.role, m.parts) for m in earlier),
                    _message(last.role, _instructed(last.parts, instructions)),
                ],
                response_format={"type": "json_schema", "json_schema": schema},
                extra_headers={"Idempotency-Key": key},
                **sent,
            )
        except self._sdk.APIStatusError as error:
            answer = error.response
            raise wire.failure(
                answer.status_code, answer.text, answer.headers, where=where, key_env=key_env
            ) from None
        except self._sdk.APITimeoutError:
            raise Transient("no answer in time") from None
        except Exception as error:
            raise wire.transport(error.__cause__ or error) from None
        value = wire.envelope(response.content)
        if failure := wire.failed_inside(value, where, key_env):
            raise failure
        return _reply(value)

    async def close(self) -> None:
        await self._client.close()


def parameters(config: ModelConfig, question: Question) -> dict[str, Any]:
    """Return the parameters sent with the messages. `instruction` is appended to the last message."""
    temperature = question.temperature if config.temperature is None else config.temperature
    limit = "max_completion_tokens" if (config.base_url or OWN_URL) == OWN_URL else "max_tokens"
    sent = {limit: config.max_tokens, "instruction": instruction(question)}
    if config.logprobs and question.schema is Descriptors:
        sent["logprobs"] = True
    return sent if temperature is None else {**sent, "temperature": temperature}


def instruction(question: Question) -> str:
    """Return instructions on the answer format, since many servers ignore response_format."""
    form = question.schema
    return prompts.fill(
        "answer", schema=json.dumps(wire.schema_of(form), ensure_ascii=False), program=form is Program
    )


def _reply(value: Mapping[str, Any]) -> Reply:
    """Return the text of an answer. Raises BadAnswer for refused, empty, cut off and malformed answers."""
    usage = value.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    tokens_in, tokens_out = (wire.tokens(counts.get(name)) for name in ("prompt_tokens", "completion_tokens"))
    empty = Reply("", wire.name_of(value.get("model")), tokens_in, tokens_out)
    with wire.replied(empty):
        choices = wire.listed(value.get("choices"), "the answer's choices")
        if not choices:
            raise BadAnswer("the answer has no choices")
        choice = wire.mapping(choices[0], "the answer's first choice")
        message = choice.get("message")
        message = (
            {"content": message}
            if isinstance(message, str)
            else wire.mapping(message, "the answer's message")
        )
        if message.get("refusal"):
            raise BadAnswer(f"the model refused: {wire.brief(message['refusal'], 300)}")
        text = wire.text_of(message.get("content"), "the answer's content")
    reply = replace(empty, text=text, logprobs=_logprobs(choice.get("logprobs"), text))
    if choice.get("finish_reason") == "content_filter":
        raise BadAnswer("the answer was blocked by a content filter", reply)
    if choice.get("finish_reason") == "length":
        raise BadAnswer("the answer was cut off at max_tokens", reply)
    return reply


def _logprobs(value: Any, text: str) -> list[list[float]]:
    """Return the length and log-probability of each token; empty unless the tokens make up `text`."""
    try:
        tokens = [(token["token"], float(token["logprob"])) for token in value["content"]]
        whole = "".join(token for token, _ in tokens) == text
    except (KeyError, TypeError, ValueError, OverflowError):
        return []
    return (
        [[len(token), p] for token, p in tokens] if whole and all(math.isfinite(p) for _, p in tokens) else []
    )


def _instructed(parts: Sequence[str | Media], instructions: str) -> list[str | Media]:
    *earlier, last = parts
    return [*earlier, f"{last}\n\n{instructions}"] if isinstance(last, str) else [*parts, instructions]


def _message(role: str, parts: Any) -> dict[str, Any]:
    if not any(isinstance(p, Media) for p in parts):
        return {"role": role, "content": "\n".join(parts)}
    return {"role": role, "content": [_part(p) for p in parts]}


def _part(part: str | Media) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    url = f"data:{part.mime};base64,{base64.b64encode(part.data).decode()}"
    kind = "video_url" if part.mime.startswith("video/") else "image_url"
    return {"type": kind, kind: {"url": url}}


def _local(url: str, here: bool = False) -> bool:
    """Return whether a server is on this machine or in a private network, where it may need no key.

    here: only on this machine, to which no proxy leads.
    """
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or (not here and "." not in host)
    return address.is_loopback if here else address.is_private
