"""Servers with OpenAI's chat completions API: vLLM, OpenRouter, DashScope, Ollama, OpenAI itself."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from movlr_jax._util.keys import key_from
from movlr_jax.errors import UserError, needed
from movlr_jax.language import prompts
from movlr_jax.language.clients import wire
from movlr_jax.language.clients.accepted import MERGED, STATUSES, Accepted
from movlr_jax.language.clients.answers import Descriptors, Program
from movlr_jax.language.clients.call import BadAnswer, Media, Question, Reply, Transient
from movlr_jax.language.clients.streamed import is_streamed, joined
from movlr_jax.language.settings import ModelConfig

OWN_URL = "https://api.openai.com/v1"
_MOST_REQUESTS = 12  # for one attempt: one for each parameter that is refused, and a few for JSON and tokens
_REASONING = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
_CUT_OFF = ("length", "max_tokens", "max_output_tokens", "model_length", "MAX_TOKENS")
_FILTERED = ("content_filter", "safety", "SAFETY", "sensitive")


class OpenAICompatible:
    """Backend for chat completions through the openai SDK, without the retries of the SDK."""

    name = "openai_compatible"

    def __init__(self, config: ModelConfig, where: str, say: Callable[[str], None]):
        with needed(f"{where}={self.name}", "openai"):
            import openai

            from movlr_jax.language.clients.transport import Client
        self._config, self._sdk, self._where, self._say = config, openai, where, say
        self._accepted = Accepted()
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
        """Send the question; once more for each parameter that the server refuses for the first time."""
        wanted = {"response_format": _response_format(question), **parameters(self._config, question)}
        instructions = wanted.pop("instruction")
        requests = 0
        while True:
            sent = self._accepted.applied(wanted)
            status, body, headers = await self._post(question, instructions, sent, key)
            value = _value(body) if status == 200 else {"error": True}
            if not value.get("error"):
                changed = {n: v for n, v in self._accepted.changes.items() if wanted.get(n) != v}
                return _reply(value, changed)
            refused = wire.message_of(body) if status == 200 else body
            requests += 1
            may = self._config.adapt and requests < _MOST_REQUESTS
            if not (may and self._adapted(status, refused, wanted, sent)):
                where, key_env = f"openai_compatible at {self.address}", self._config.key_env
                inside = wire.failed_inside(value, where, key_env) if status == 200 else None
                raise inside or wire.failure(status, body, headers, where=where, key_env=key_env)
            # another request needs another key
            key = hashlib.sha256(f"{key} {self._accepted.changes}".encode()).hexdigest()

    def _adapted(self, status: int, body: str, wanted: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
        """Return whether the next request differs, since this one names a parameter that the server refuses."""
        note = self._accepted.learn(status, body, sent)
        if note:
            self._say(
                f"  {self._where} {self.name} {self.model}: the server {note}; {self._where}.parameters sets this "
                f"from the start, and {self._where}.adapt=false stops instead"
            )
        changed = self._accepted.applied(wanted) != sent  # also by a concurrent call
        return changed and status in STATUSES

    async def _post(
        self, question: Question, instructions: str, sent: Mapping[str, Any], key: str
    ) -> tuple[int, str, Mapping[str, str]]:
        """Return status, body and headers of the response. Raises Transient if there is none."""
        *earlier, last = question.messages
        messages = [
            *(_message(m.role, m.parts) for m in earlier),
            _message(last.role, _instructed(last.parts, instructions)),
        ]
        merged = sent.get("roles") == MERGED
        # the answer is parsed here, since the SDK does not validate it
        create: Any = self._client.chat.completions.with_raw_response.create
        try:
            response = await create(
                model=self.model,
                messages=_merged(messages) if merged else messages,
                extra_headers={"Idempotency-Key": key},
                extra_body={name: value for name, value in sent.items() if name != "roles"},
            )
        except self._sdk.APIStatusError as error:
            return error.response.status_code, error.response.text, error.response.headers
        except self._sdk.APITimeoutError:
            raise Transient("no answer in time") from None
        except Exception as error:
            raise wire.transport(error.__cause__ or error) from None
        return 200, response.content.decode("utf-8", "replace"), {}

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


def _value(body: str) -> dict[str, Any]:
    with wire.replied(Reply("", "", None, None)):
        return joined(body) if is_streamed(body) else wire.envelope(body)


def instruction(question: Question) -> str:
    """Return instructions on the answer format, since many servers ignore response_format."""
    form = question.schema
    return prompts.fill(
        "answer", schema=json.dumps(wire.schema_of(form), ensure_ascii=False), program=form is Program
    )


def _reply(value: Mapping[str, Any], changed: Mapping[str, Any]) -> Reply:
    """Return the text of an answer. Raises BadAnswer for refused, empty, cut off and malformed answers."""
    usage = value.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    tokens_in, tokens_out = (wire.tokens(counts.get(name)) for name in ("prompt_tokens", "completion_tokens"))
    empty = Reply("", wire.name_of(value.get("model")), tokens_in, tokens_out, changed=changed)
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
        content = message.get("content")
        if refusal := message.get("refusal") or _refusal(content):
            raise BadAnswer(f"the model refused: {wire.brief(refusal, 300)}")
        text = wire.text_of(content, "the answer's content")
        reply = replace(empty, text=text, logprobs=_logprobs(choice.get("logprobs"), text))
        if arguments := _called(message):
            reply = replace(
                empty, text="\n".join([text, *arguments.values()]), came=f", {_calls(arguments)},"
            )
    reason = choice.get("finish_reason")
    came = "" if reply.text.strip() else f": {_instead(message, reason)}"
    if reason in _FILTERED:
        raise BadAnswer(f"the answer was blocked by a content filter{came}", reply)
    if reason in _CUT_OFF:
        raise BadAnswer(f"the answer was cut off at max_tokens{came}", reply)
    if came:
        raise BadAnswer(f"the answer is empty{came}", reply)
    return reply


def _refusal(content: Any) -> Any:
    """Return the refusal among the parts of a message, or None."""
    parts = content if isinstance(content, list) else []
    return next((p["refusal"] for p in parts if isinstance(p, dict) and p.get("refusal")), None)


def _called(message: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of the tool calls of a message as JSON, by the name of the tool."""
    calls = wire.listed(message.get("tool_calls"), "the answer's tool calls")
    found = {}
    for call in [*calls, {"function": message.get("function_call")}]:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and function.get("arguments"):
            given = function["arguments"]
            found[wire.brief(function.get("name") or "?", 40)] = (
                given if isinstance(given, str) else json.dumps(given)
            )
    return found


def _calls(arguments: Mapping[str, str]) -> str:
    return f"a call of the tool {' and '.join(arguments)}"


def _instead(message: Mapping[str, Any], reason: Any) -> str:
    """Return what came in place of an answer."""
    name = next((name for name in _REASONING if message.get(name)), None)
    reasoning = (
        f"{len(str(message[name]))} characters of reasoning in {name}, which is not an answer" if name else ""
    )
    with_reason = f", with finish_reason {wire.brief(reason, 40)}" if reason else ""
    return f"the server sent {reasoning or 'no text'}{with_reason}"


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


def _merged(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put system messages in front of the user's, and join messages of the same role."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        role = "user" if message["role"] == "system" else message["role"]
        if not merged or merged[-1]["role"] != role:
            merged.append({"role": role, "content": message["content"]})
            continue
        before, after = merged[-1]["content"], message["content"]
        if isinstance(before, str) and isinstance(after, str):
            merged[-1]["content"] = f"{before}\n\n{after}"
        else:
            parts = ([_part(c)] if isinstance(c, str) else c for c in (before, after))
            merged[-1]["content"] = [part for half in parts for part in half]
    return merged


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
