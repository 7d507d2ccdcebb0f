"""Settings of the models that write programs (`llm.*`) or watch motions (`vlm.*`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from movlr_jax._util.parts import setting
from movlr_jax._util.settings import group_of, no_secrets
from movlr_jax.errors import UserError, unknown_name

_SENT = (
    "model", "base_url", "key_env", "temperature", "max_tokens", "timeout_s", "attempts", "concurrency", "price",
)  # fmt: skip
_SHOWN = ("media", "frames", "fps", "slow", "views", "size")  # of a model that watches
# the settings that each backend has, as llm and as vlm
SETTINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "llm": {
        "scripted": (),
        "gemini": (*_SENT, "thinking"),
        "openai_compatible": (*_SENT, "parameters"),
        "manual": ("model", "timeout_s", "concurrency"),
        "replay": ("run",),
    },
    "vlm": {
        "metrics": (),
        "gemini": (*_SENT, *_SHOWN, "thinking", "inline_mb"),
        "openai_compatible": (*_SENT, "parameters", *_SHOWN, "logprobs"),
        "manual": ("model", "timeout_s", "concurrency", *_SHOWN),
        "person": ("timeout_s", "concurrency", "raters", "host", "port", *_SHOWN),
        "replay": ("run",),
    },
}
EMBEDDED = ("scripted", "metrics")  # no language or vision model
_FIXED = {"model", "messages", "instruction", "n", "extra_headers"}  # not among the parameters
MEDIA = ("video", "frames")
_REMOVED = ("backoff_s", "patience_s", "adapt")  # settings that earlier versions recorded
NO_PROGRAM = "# no program: "  # first words of the source of a candidate for which the model wrote no program


@dataclass(frozen=True)
class ShownConfig:
    """How motions are shown to a model."""

    media: str = setting("video", "how motions are shown: video or frames", choices=MEDIA)
    frames: int = setting(8, "pictures of a motion, with media=frames", least=1)
    fps: float = setting(8.0, "pictures per second of a video", above=0)
    slow: float = setting(1.0, "2: the video plays at half the speed", above=0)
    views: int = setting(2, "cameras side by side: the task's first, then others around it", least=1)
    size: tuple[int, int] = setting((384, 384), "px, of each view")

    def check(self, where: str) -> None:
        if any(side % 2 or side < 64 for side in self.size):
            raise UserError(f"{where}.size={list(self.size)}: both numbers must be even and 64 or more")


@dataclass(frozen=True)
class CallsConfig:
    """How calls are made."""

    timeout_s: float = setting(180.0, "s, of one attempt", above=0)
    attempts: int = setting(6, "per call, if the network fails or the answer is invalid", least=1)
    concurrency: int = setting(4, "concurrent calls", least=1)
    price: tuple[float, float] | None = setting(
        None, "USD per million input and output tokens; null: from the price table"
    )


@dataclass(frozen=True)
class PageConfig:
    """The page on which people vote."""

    raters: int = setting(1, "how many people vote on each pair", least=1)
    host: str = setting("127.0.0.1", "address of the page; another one than this machine's needs a token")
    port: int = setting(8765, "of the page; a free one if it is in use", least=0, most=65535)


@dataclass(frozen=True)
class ModelConfig:
    """Settings of one model: the backend, its limits, and how motions are shown to it."""

    name: str
    model: str | None = setting(None, "manual: who answers, for the record")
    base_url: str | None = setting(None, "null: the provider's default")
    key_env: str | None = setting(None, "environment variable with the key; null: no key")
    temperature: float | None = setting(None, "null: the method's temperature", least=0)
    max_tokens: int = setting(8192, "of an answer", least=1)
    thinking: str | None = setting(None, "gemini: low, high ... (3.x), or a number of tokens (2.5)")
    logprobs: bool = setting(
        False, "confidences of descriptors from log-probabilities of tokens, if the server reports them"
    )
    parameters: Mapping[str, Any] | None = setting(
        None, "openai_compatible: further parameters of a request, or other values of them; null: not sent"
    )
    inline_mb: float = setting(18.0, "MB; gemini: larger videos are uploaded first", above=0)
    calls: CallsConfig = group_of(CallsConfig)
    shown: ShownConfig = group_of(ShownConfig)
    page: PageConfig = group_of(PageConfig)
    run: str | None = setting(None, "replay: run directory whose recorded answers are reused")

    @property
    def embedded(self) -> bool:
        return self.name in EMBEDDED

    @property
    def orders(self) -> int:
        """How often a pair is shown when it meets: to a model in both orders, to each rater once."""
        return self.page.raters if self.name == "person" else 2

    def check(self, where: str) -> None:
        """Raise UserError for invalid values. `where` is "llm" or "vlm"."""
        if self.name not in SETTINGS[where]:
            raise UserError(unknown_name(where, self.name, SETTINGS[where]))
        if self.key_env and not re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", self.key_env):
            # the value is not shown, since it may be the key itself
            raise UserError(
                f"{where}.key_env must be the NAME of an environment variable, such as OPENAI_API_KEY, not the key "
                "itself"
            )
        instead = f"the key is read from the environment variable named by {where}.key_env"
        no_secrets(f"{where}.base_url", self.base_url, instead)
        url = urlsplit(self.base_url or "")
        if self.base_url and (url.scheme not in ("http", "https") or not url.hostname):
            raise UserError(f"{where}.base_url is not a valid URL; write http://host:port/v1")
        if fixed := sorted(_FIXED & (self.parameters or {}).keys()):
            raise UserError(f"{where}.parameters must not contain {fixed[0]}, which the request itself sets")
        if self.name in ("gemini", "openai_compatible") and not self.model:
            raise UserError(f"{where}={self.name} needs a model name; set {where}.model=NAME")
        if self.name == "replay" and not self.run:
            raise UserError(f"{where}=replay needs a run to replay; set {where}.run=RUN_DIR")


def without_removed(values: Any) -> Any:
    """Return the recorded settings of a model without those that only earlier versions had."""
    return {n: v for n, v in values.items() if n not in _REMOVED} if isinstance(values, Mapping) else values
