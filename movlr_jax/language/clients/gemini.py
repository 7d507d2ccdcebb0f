"""Google Gemini through the google-genai SDK: videos inline or uploaded, answers by JSON schema."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from movlr_jax._util.keys import key_from
from movlr_jax.errors import UserError
from movlr_jax.language.clients import wire
from movlr_jax.language.clients.call import BadAnswer, Media, ModelBackend, Question, Reply, Transient
from movlr_jax.language.settings import ModelConfig

# Models that ignore the temperature, and models whose thinking is set in tokens (2.5) instead of levels (3.x).
_IGNORE_TEMPERATURE = ("gemini-3.5-flash", "gemini-3.6", "gemini-3.7", "gemini-3.8", "gemini-4")
_THINK_BY_TOKENS = ("gemini-2.5",)
_MEGABYTE = 1_000_000
_REPEATED = {"ConnectError", "TimeoutException"}  # errors of httpx after which the SDK asks again
_LOOK_S = 1.0  # between two questions whether an uploaded video can be used


class Gemini(ModelBackend):
    """Backend for Gemini's generateContent. The SDK repeats requests that fail."""

    name = "gemini"

    def __init__(self, config: ModelConfig, where: str):
        from google import genai  # takes long to import
        from google.genai import errors, types

        thinks_by_tokens = (config.model or "").startswith(_THINK_BY_TOKENS)
        if config.thinking is not None and thinks_by_tokens and not config.thinking.isdigit():
            raise UserError(
                f"{where}.thinking={config.thinking}: {config.model} expects a number of tokens, not a level"
            )
        self.model = config.model or ""
        self._config, self._types, self._errors = config, types, errors
        key = key_from(config.key_env, needed=True, where=where)
        options = types.HttpOptions(
            base_url=config.base_url,
            api_version="v1beta",
            timeout=round(1000 * config.calls.timeout_s),  # milliseconds
            retry_options=types.HttpRetryOptions(attempts=config.calls.attempts),
        )
        self._client = genai.Client(api_key=key, vertexai=False, http_options=options)
        self._uploaded: dict[str, Any] = {}  # sha256 of a video -> its URI at the server

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
        )
        try:
            contents = [
                types.Content(
                    role="model" if m.role == "assistant" else "user", parts=[await self._part(p) for p in m.parts]
                )
                for m in question.messages
                if m.role != "system"
            ]
            answer = await self._client.aio.models.generate_content(
                model=self.model, contents=contents, config=settings
            )
        except self._errors.APIError as error:
            raise wire.failure(
                error.code, str(error.message), where=self.name, key_env=self._config.key_env
            ) from None
        except Exception as error:
            message = f"{type(error).__name__}: {wire.brief(str(error))}"
            if _REPEATED & {kind.__name__ for kind in type(error).__mro__}:
                raise UserError(f"{self.name} gave no answer ({message})") from None
            raise Transient(message) from None  # a connection that broke off, or a response that is none
        return _reply(answer)

    async def close(self) -> None:
        await self._client.aio.aclose()

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
            while file.state == self._types.FileState.PROCESSING:
                await asyncio.sleep(_LOOK_S)
                file = await self._client.aio.files.get(name=file.name or "")
            if file.state == self._types.FileState.FAILED or not file.uri:
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
        budget = {"thinking_budget": int(config.thinking)} if by_tokens else {"thinking_level": config.thinking}
        sent["thinking"] = budget
    if any(m.fps for m in question.media):
        sent["fps"] = [m.fps for m in question.media]
    return sent


def _reply(answer: Any) -> Reply:
    """Return the text of an answer. Raises BadAnswer for blocked, empty and cut off answers."""
    usage, feedback = answer.usage_metadata, answer.prompt_feedback
    empty = Reply(
        "",
        wire.name_of(answer.model_version),
        wire.tokens(usage.prompt_token_count) if usage else None,
        wire.tokens(usage.candidates_token_count, usage.thoughts_token_count or 0) if usage else None,
    )
    if feedback and feedback.block_reason:
        raise BadAnswer(f"the request was blocked: {feedback.block_reason.name}", empty)
    if not answer.candidates:
        raise BadAnswer("the answer has no candidates", empty)
    reply, reason = replace(empty, text=answer.text or ""), answer.candidates[0].finish_reason
    if reason and reason.name == "MAX_TOKENS":
        raise BadAnswer("the answer was cut off at max_tokens", reply)
    if reason and reason.name not in ("STOP", "FINISH_REASON_UNSPECIFIED"):
        raise BadAnswer(f"the answer was blocked: {reason.name}", reply)
    return reply
