"""Any server that speaks OpenAI's chat completions: vLLM, OpenRouter, DashScope, Ollama, OpenAI itself."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from movlr_jax.errors import needed
from movlr_jax.language import wire
from movlr_jax.language.call import BadAnswer, Media, Question, Reply, Transient
from movlr_jax.language.keys import key_from
from movlr_jax.language.settings import ModelConfig

OWN_URL = "https://api.openai.com/v1"


class OpenAICompatible:
    """The openai SDK without its own retries."""

    name = "openai_compatible"

    def __init__(self, config: ModelConfig, where: str):
        with needed(f"{where}={self.name}", "openai"):
            import openai
        self._config, self._sdk = config, openai
        self._url = config.base_url or OWN_URL
        key = key_from(config.key_env, needed=bool(config.key_env) and not _local(self._url), where=where)
        self._client = openai.AsyncOpenAI(
            api_key=key or "none", base_url=self._url, max_retries=0, timeout=config.timeout_s
        )

    @property
    def model(self) -> str:
        return self._config.model or ""

    def parameters(self, question: Question) -> Mapping[str, Any]:
        return parameters(self._config, question)

    async def send(self, question: Question, key: str) -> Reply:
        form = question.schema
        schema = {"name": form.__name__, "schema": wire.schema_of(form), "strict": True}
        try:
            create: Any = self._client.chat.completions.create  # its overloads know no media of other servers
            answer = await create(
                model=self.model,
                messages=[_message(m.role, m.parts) for m in question.messages],
                response_format={"type": "json_schema", "json_schema": schema},
                extra_headers={"Idempotency-Key": key},
                **parameters(self._config, question),
            )
        except self._sdk.APIStatusError as error:
            where = f"openai_compatible at {urlsplit(self._url).netloc}"
            raise wire.failure(
                error.status_code,
                error.message,
                error.response.headers,
                where=where,
                key_env=self._config.key_env,
            ) from None
        except self._sdk.APITimeoutError:
            raise Transient("no answer in time") from None
        except self._sdk.APIError as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            raise wire.transport(cause) or Transient(type(error).__name__) from None
        except Exception as error:
            raise wire.transport(error) or error from None
        return _reply(answer)

    async def close(self) -> None:
        await self._client.close()


def parameters(config: ModelConfig, question: Question) -> dict[str, Any]:
    """What is sent beside the messages."""
    temperature = question.temperature if config.temperature is None else config.temperature
    limit = "max_completion_tokens" if (config.base_url or OWN_URL) == OWN_URL else "max_tokens"
    return {limit: config.max_tokens} | ({} if temperature is None else {"temperature": temperature})


def _reply(answer: Any) -> Reply:
    """The text of an answer. Raises BadAnswer for refusals, empty and cut answers."""
    usage = getattr(answer, "usage", None)
    tokens = (getattr(usage, "prompt_tokens", 0) or 0, getattr(usage, "completion_tokens", 0) or 0)
    version = str(getattr(answer, "model", "") or "")
    choices = getattr(answer, "choices", None)
    if not choices:
        raise BadAnswer("the answer has no choices", Reply("", version, *tokens))
    choice = choices[0]
    message = choice.message
    reply = Reply((message.content if message else None) or "", version, *tokens)
    if message and getattr(message, "refusal", None):
        raise BadAnswer(f"the model refused: {message.refusal}", reply)
    if choice.finish_reason == "content_filter":
        raise BadAnswer("the answer was blocked by a content filter", reply)
    if choice.finish_reason == "length":
        raise BadAnswer("the answer was cut off at max_tokens", reply)
    return reply


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


def _local(url: str) -> bool:
    """Whether a server is this machine's or this network's own, and may need no key."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost" or "." not in host
