"""Servers with OpenAI's chat completions API: vLLM, OpenRouter, DashScope, Ollama, OpenAI itself."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from movlr_jax._util.keys import key_from
from movlr_jax.errors import UserError, needed
from movlr_jax.language import prompts
from movlr_jax.language.clients import wire
from movlr_jax.language.clients.answers import Descriptors, Program
from movlr_jax.language.clients.call import BadAnswer, Media, ModelBackend, Question, Reply, Transient
from movlr_jax.language.settings import ModelConfig

OWN_URL = "https://api.openai.com/v1"
_REFUSED = (400, 422)  # statuses of a refused parameter
_REASONING = ("reasoning_content", "reasoning", "thinking")
_ALSO = {  # other words for a parameter, as a regular expression
    "response_format": r"json[_ ]?schema|json[_ ]object|json[_ ]mode|structured[_ ]outputs?|guided[_ ]\w+|grammar"
}


class OpenAICompatible(ModelBackend):
    """Backend for chat completions through the openai SDK, which repeats requests that fail."""

    name = "openai_compatible"

    def __init__(self, config: ModelConfig, where: str, say: Callable[[str], None]):
        with needed(f"{where}={self.name}", "openai"):
            import openai
        self.model = config.model or ""
        self._config, self._sdk, self._where, self._say = config, openai, where, say
        self._changes: dict[str, Any] = {}  # what this server refuses -> what is sent instead; None: nothing
        url = config.base_url or OWN_URL
        here = _local(url, here=True)
        key = key_from(config.key_env, needed=bool(config.key_env) and not _local(url), where=where)
        try:
            client = openai.DefaultAsyncHttpxClient(timeout=config.calls.timeout_s, trust_env=not here)
        except (ImportError, OSError, ValueError) as error:
            raise UserError(
                f"{where}={self.name} cannot connect with the proxy or certificate that the environment sets "
                f"(ALL_PROXY, HTTPS_PROXY, SSL_CERT_FILE, ...): {wire.brief(str(error))}"
            ) from error
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=url,
            max_retries=config.calls.attempts - 1,
            timeout=config.calls.timeout_s,
            http_client=client,
        )

    def parameters(self, question: Question) -> Mapping[str, Any]:
        return parameters(self._config, question)

    async def send(self, question: Question, key: str) -> Reply:
        """Send the question; once more for each parameter that the server refuses for the first time."""
        wanted = {"response_format": _response_format(question), "stream": False}
        wanted |= parameters(self._config, question)
        instructions = wanted.pop("instruction")
        while True:
            sent = self._applied(wanted)
            try:
                completion = await self._completion(question, instructions, sent, key)
            except self._sdk.APIStatusError as error:
                said = error.body.get("message") if isinstance(error.body, dict) else None
                message = wire.brief(said or error.body or "", 1000)  # FastAPI's body has no message
                if error.status_code not in _REFUSED or not self._adapted(message, wanted, sent):
                    where = f"{self.name} at {wire.brief(self._config.base_url or OWN_URL)}"
                    raise wire.failure(
                        error.status_code, message, where=where, key_env=self._config.key_env
                    ) from None
                # another request needs another key
                key = hashlib.sha256(f"{key} {self._changes}".encode()).hexdigest()
                continue
            except self._sdk.APIConnectionError as error:
                cause = wire.brief(str(error.__cause__ or error))
                raise UserError(f"{self.name} gave no answer ({cause})") from None
            except Transient:
                raise
            except Exception as error:  # a response that is none
                raise Transient(f"{type(error).__name__}: {wire.brief(str(error))}") from None
            changed = {n: v for n, v in self._changes.items() if wanted.get(n) != v}
            return _reply(completion, changed)

    def _applied(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that are sent in place of `wanted`."""
        return {name: value for name, value in {**wanted, **self._changes}.items() if value is not None}

    def _adapted(self, message: str, wanted: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
        """Return whether the next request differs, since this one names a parameter that the server refuses."""
        if self._applied(wanted) != sent:  # a concurrent call was refused before
            return True
        name = _named(message, sent)
        if name is None:
            return False
        change = _changed(name, message, sent[name])
        self._changes |= change
        values = {n: v.get("type", "set") if isinstance(v, dict) else v for n, v in change.items()}
        ways = [f"{n} is {'no longer sent' if v is None else f'now {v}'}" for n, v in values.items()]
        self._say(
            f"  {self._where} {self.name} {self.model}: the server refuses {name} ({message[:200]}), so "
            f"{' and '.join(ways)}; {self._where}.parameters sets this from the start"
        )
        return True

    async def _completion(self, question: Question, instructions: str, sent: Mapping[str, Any], key: str) -> Any:
        """Return the chat completion, put together from its pieces if the server sends a stream."""
        *earlier, last = question.messages
        messages: Any = [
            *(_message(m.role, m.parts) for m in earlier),
            _message(last.role, _instructed(last.parts, instructions)),
        ]
        response = await self._client.chat.completions.with_raw_response.create(
            model=self.model,
            messages=messages,
            extra_headers={"Idempotency-Key": key},
            extra_body={name: value for name, value in sent.items() if (name, value) != ("stream", False)},
        )
        if "event-stream" not in response.headers.get("content-type", ""):
            return response.parse()
        return self._sdk.types.chat.ChatCompletion.construct(**_joined(response.text))

    async def close(self) -> None:
        await self._client.close()


def parameters(config: ModelConfig, question: Question) -> dict[str, Any]:
    """Return the parameters sent with the messages. `instruction` is appended to the last message."""
    temperature = question.temperature if config.temperature is None else config.temperature
    limit = "max_completion_tokens" if (config.base_url or OWN_URL) == OWN_URL else "max_tokens"
    sent: dict[str, Any] = {limit: config.max_tokens, "instruction": instruction(question)}
    if config.logprobs and question.schema is Descriptors:
        sent["logprobs"] = True
    if temperature is not None:
        sent["temperature"] = temperature
    return {**sent, **(config.parameters or {})}


def _response_format(question: Question) -> dict[str, Any]:
    form = question.schema
    schema = {"name": form.__name__, "schema": wire.schema_of(form), "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def instruction(question: Question) -> str:
    """Return instructions on the answer format, since many servers ignore response_format."""
    form = question.schema
    return prompts.fill(
        "answer", schema=json.dumps(wire.schema_of(form), ensure_ascii=False), program=form is Program
    )


def _reply(completion: Any, changed: Mapping[str, Any]) -> Reply:
    """Return the text of an answer. Raises BadAnswer for refused, empty and cut off answers, else Transient."""
    if error := getattr(completion, "error", None):
        raise Transient(f"the server answers with an error: {wire.brief(error, 300)}")
    try:
        usage = completion.usage
        empty = Reply(
            "",
            wire.name_of(completion.model),
            wire.tokens(usage.prompt_tokens) if usage else None,
            wire.tokens(usage.completion_tokens) if usage else None,
            changed=changed,
        )
        if not completion.choices:
            raise BadAnswer("the answer has no choices", empty)
        choice = completion.choices[0]
        message, reason = choice.message, choice.finish_reason
        text = _text(message.content)
        if not text and message.tool_calls:  # as which some servers send an answer with a schema
            text = message.tool_calls[0].function.arguments or ""
        reply = replace(empty, text=text, logprobs=_logprobs(choice.logprobs, text))
        blank, refusal, extra = not text.strip(), message.refusal, message.model_extra or {}
    except (AttributeError, TypeError, IndexError, KeyError):
        raise Transient(
            f"the response is not a chat completion; it begins {wire.brief(str(completion), 60)!r}. Is base_url "
            "correct?"
        ) from None
    if refusal:
        raise BadAnswer(f"the model refused: {wire.brief(refusal, 300)}", empty)
    if reason == "content_filter":
        raise BadAnswer("the answer was blocked by a content filter", reply)
    if reason == "length":
        raise BadAnswer("the answer was cut off at max_tokens", reply)
    if blank:
        reasoned = any(extra.get(name) for name in _REASONING)
        raise BadAnswer(f"the answer is empty{': the server sent only reasoning' if reasoned else ''}", reply)
    return reply


def _text(content: Any) -> str:
    """Return the text of a message; some servers send it in parts, with reasoning in parts of another type."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") in ("text", "output_text"))
    return content or ""


def _joined(stream: str) -> dict[str, Any]:
    """Return the chat completion whose pieces are the events of a stream. Raises Transient if its end is missing."""
    events = [line.removeprefix("data:").strip() for line in stream.splitlines() if line.startswith("data:")]
    try:
        pieces = [json.loads(event) for event in events if event not in ("", "[DONE]")]
    except ValueError:
        raise Transient("the stream ended before its last event") from None
    choices = [choice for piece in pieces for choice in (piece.get("choices") or [])[:1]]
    deltas = [choice.get("delta") or {} for choice in choices]
    tools = [tool for delta in deltas for tool in delta.get("tool_calls") or []]
    reason = next((c["finish_reason"] for c in choices if c.get("finish_reason")), None)
    if reason is None and "[DONE]" not in events and not any("error" in piece for piece in pieces):
        raise Transient("the stream ended before its last event")
    called = "".join((tool.get("function") or {}).get("arguments") or "" for tool in tools)
    message: dict[str, Any] = {
        name: "".join(str(delta[name]) for delta in deltas if delta.get(name))
        for name in ("content", "refusal", *_REASONING)
    }
    message["tool_calls"] = [{"function": {"arguments": called}}] if called else None
    whole = {key: value for piece in pieces for key, value in piece.items() if value is not None}
    return {**whole, "choices": [{"message": message, "finish_reason": reason}] if choices else []}


def _logprobs(value: Any, text: str) -> list[list[float]]:
    """Return the length and log-probability of each token; empty unless the tokens make up `text`."""
    tokens = (value and value.content) or []
    whole = "".join(token.token for token in tokens) == text
    numbers = all(isinstance(t.logprob, int | float) and math.isfinite(t.logprob) for t in tokens)
    return [[len(token.token), token.logprob] for token in tokens] if whole and numbers else []


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


def _named(message: str, names: Mapping[str, Any]) -> str | None:
    """Return the parameter that an error is about: the first that its text names, there the longest name."""
    found = []
    for name in names:
        pattern = rf"(?<!\w)(?:{re.escape(name)}|{_ALSO.get(name, name)})(?!\w)"
        if match := re.search(pattern, message, re.IGNORECASE):
            found.append((match.start(), -len(name), name))
    return min(found)[2] if found else None


def _changed(name: str, message: str, value: Any) -> dict[str, Any]:
    """Return what is sent in place of a refused parameter."""
    if name == "response_format" and value.get("type") == "json_schema":
        return {name: {"type": "json_object"}}
    if name == "stream":
        return {name: None if value else True}
    if name == "max_tokens" and "max_completion_tokens" in message:
        return {name: None, "max_completion_tokens": value}
    return {name: None}
