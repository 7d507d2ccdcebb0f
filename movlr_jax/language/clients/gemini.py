"""Google Gemini through the google-genai SDK: videos inline or uploaded, answers by JSON schema."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from movlr_jax._util.keys import key_from
from movlr_jax.errors import UserError
from movlr_jax.language.clients import wire
from movlr_jax.language.clients.call import BadAnswer, Media, Question, Reply, Transient
from movlr_jax.language.settings import ModelConfig

# Models that ignore the temperature, and models whose thinking is set in tokens (2.5) instead of levels (3.x).
_IGNORE_TEMPERATURE = ("gemini-3.5-flash", "gemini-3.6", "gemini-3.7", "gemini-3.8", "gemini-4")
_THINK_BY_TOKENS = ("gemini-2.5",)
_MEGABYTE = 1_000_000
OWN_URL = "https://generativelanguage.googleapis.com"


class Gemini:
    """Backend for Gemini's generateContent, without the retries of the SDK, which ignore Retry-After."""

    name = "gemini"

    def __init__(self, config: ModelConfig, where: str):
        from google import genai  # takes long to import
        from google.genai import errors, types

        from movlr_jax.language.clients.transport import Client

        thinks_by_tokens = (config.model or "").startswith(_THINK_BY_TOKENS)
        if config.thinking is not None and thinks_by_tokens and not config.thinking.isdigit():
            raise UserError(
                f"{where}.thinking={config.thinking}: {config.model} expects a number of tokens, not a level"
            )
        self._config, self._types, self._errors = config, types, errors
        key = key_from(config.key_env, needed=True, where=where)
        self.address = wire.address(config.base_url or os.environ.get("GOOGLE_GEMINI_BASE_URL") or OWN_URL)
        self._http = Client(timeout=config.timeout_s)
        options = types.HttpOptions(
            httpx_async_client=self._http,
            base_url=config.base_url,
            api_version="v1beta",
            timeout=round(1000 * config.timeout_s),  # milliseconds
            retry_options=types.HttpRetryOptions(attempts=1),
        )
        self._client = genai.Client(api_key=key, vertexai=False, http_options=options)
        self._uploaded: dict[str, Any] = {}  # sha256 of a video -> its URI at the server

    @property
    def model(self) -> str:
        return self._config.model or ""

    def parameters(self, question: Question) -> Mapping[str, Any]:
        return parameters(self._config, question)

    async def send(self, question: Question, key: str) -> Reply:
        types, sent = self._types, parameters(self._config, question)
        system = [m.text for m in question.messages if m.role == "system"]
        thinking = sent.get("thinking")
        settings = types.GenerateContentConfig(
            system_instruction="\n".join(system) or None,
            temperature=sent.get("temperature"),
            max_output_tokens=sent["max_output_tokens"],
            response_mime_type="application/json",
            response_json_schema=wire.schema_of(question.schema),
            http_options=types.HttpOptions(headers={"Idempotency-Key": key}),
            thinking_config=types.ThinkingConfig(**thinking) if thinking else None,
            should_return_http_response=True,  # the answer is parsed here, since the SDK does not validate it
        )
        try:
            contents = [
                types.Content(
                    role="model" if m.role == "assistant" else "user",
                    parts=[await self._part(p) for p in m.parts],
                )
                for m in question.messages
                if m.role != "system"
            ]
            answer = await self._client.aio.models.generate_content(
                model=self.model, contents=contents, config=settings
            )
        except self._errors.APIError as error:
            answer = error.response
            raise wire.failure(
                answer.status_code, answer.text, answer.headers, where="gemini", key_env=self._config.key_env
            ) from None
        except Exception as error:
            raise wire.transport(error) from None
        response = answer.sdk_http_response
        value = wire.envelope((response and response.body) or "")
        if failure := wire.failed_inside(value, "gemini", self._config.key_env):
            raise failure
        return _reply(value)

    async def close(self) -> None:
        await self._client.aio.aclose()
        await self._http.aclose()

    async def _part(self, part: str | Media) -> Any:
        types = self._types
        if isinstance(part, str):
            return types.Part(text=part)
        video = types.VideoMetadata(fps=part.fps) if part.fps and part.mime.startswith("video/") else None
        if len(part.data) <= self._config.inline_mb * _MEGABYTE:
            blob = types.Blob(data=part.data, mime_type=part.mime)
            return types.Part(inline_data=blob, video_metadata=video)
        uri = await self._upload(part)
        return types.Part(file_data=types.FileData(file_uri=uri, mime_type=part.mime), video_metadata=video)

    async def _upload(self, media: Media) -> str:
        """Upload a video once, wait until it can be used, and return its URI."""
        if media.sha256 not in self._uploaded:
            file = await self._client.aio.files.upload(
                file=io.BytesIO(media.data), config=self._types.UploadFileConfig(mime_type=media.mime)
            )
            while str(getattr(file.state, "name", file.state)) == "PROCESSING":
                await asyncio.sleep(min(1.0, self._config.backoff_s))
                file = await self._client.aio.files.get(name=file.name or "")
            if str(getattr(file.state, "name", file.state)) == "FAILED" or not file.uri:
                raise Transient("the server could not process the uploaded video")
            self._uploaded[media.sha256] = file.uri
        return self._uploaded[media.sha256]


def parameters(config: ModelConfig, question: Question) -> dict[str, Any]:
    """Return the parameters sent with the messages, without those that the model ignores."""
    model = config.model or ""
    sent: dict[str, Any] = {"max_output_tokens": config.max_tokens}
    temperature = question.temperature if config.temperature is None else config.temperature
    if temperature is not None and not model.startswith(_IGNORE_TEMPERATURE):
        sent["temperature"] = temperature
    if config.thinking is not None:
        by_tokens = model.startswith(_THINK_BY_TOKENS)
        budget = (
            {"thinking_budget": int(config.thinking)} if by_tokens else {"thinking_level": config.thinking}
        )
        sent["thinking"] = budget
    if any(m.fps for m in question.media):
        sent["fps"] = [m.fps for m in question.media]
    return sent


def _reply(value: Mapping[str, Any]) -> Reply:
    """Return the text of an answer. Raises BadAnswer for blocked, empty, cut off and malformed answers."""
    usage = value.get("usageMetadata")
    counts = usage if isinstance(usage, dict) else {}
    tokens_in = wire.tokens(counts.get("promptTokenCount"))
    tokens_out = wire.tokens(
        *(counts.get(name, 0) for name in ("candidatesTokenCount", "thoughtsTokenCount"))
    )
    empty = Reply("", wire.name_of(value.get("modelVersion")), tokens_in, tokens_out)
    with wire.replied(empty):
        blocked = wire.mapping(value.get("promptFeedback"), "the answer's feedback").get("blockReason")
        if blocked:
            raise BadAnswer(f"the request was blocked: {wire.brief(blocked, 100)}")
        candidates = wire.listed(value.get("candidates"), "the answer's candidates")
        if not candidates:
            raise BadAnswer("the answer has no candidates")
        candidate = wire.mapping(candidates[0], "the answer's first candidate")
        content = wire.mapping(candidate.get("content"), "the answer's content")
        parts = wire.listed(content.get("parts"), "the answer's parts")
        text = wire.text_of(
            [p for p in parts if not (isinstance(p, dict) and p.get("thought"))], "the answer's text"
        )
    reply = replace(empty, text=text)
    reason = candidate.get("finishReason")
    if reason == "MAX_TOKENS":
        raise BadAnswer("the answer was cut off at max_tokens", reply)
    if reason not in (None, "STOP", "FINISH_REASON_UNSPECIFIED"):
        raise BadAnswer(f"the answer was blocked: {wire.brief(reason, 100)}", reply)
    return reply
