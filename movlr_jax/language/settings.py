"""Settings of the models that write programs (`llm.*`) or watch motions (`vlm.*`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from movlr_jax._util.settings import above_0, at_least, no_secrets, one_of
from movlr_jax.errors import UserError, unknown_name

_SENT = (
    "model",
    "base_url",
    "key_env",
    "temperature",
    "max_tokens",
    "timeout_s",
    "attempts",
    "backoff_s",
    "patience_s",
    "concurrency",
    "price",
)
_ADAPTS = ("parameters", "adapt")  # fmt: skip
_SHOWN = ("media", "frames", "fps", "slow", "views", "size")  # of a model that watches
# the settings that each backend has, as llm and as vlm
SETTINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "llm": {
        "scripted": (),
        "gemini": (*_SENT, "thinking"),
        "openai_compatible": (*_SENT, *_ADAPTS),
        "manual": ("model", "timeout_s", "concurrency"),
        "replay": ("run",),
    },
    "vlm": {
        "metrics": (),
        "gemini": (*_SENT, *_SHOWN, "thinking", "inline_mb"),
        "openai_compatible": (*_SENT, *_ADAPTS, *_SHOWN, "logprobs"),
        "manual": ("model", "timeout_s", "concurrency", *_SHOWN),
        "person": ("timeout_s", "concurrency", "raters", "host", "port", *_SHOWN),
        "replay": ("run",),
    },
}
WRITERS, WATCHERS = (tuple(SETTINGS[role]) for role in ("llm", "vlm"))
EMBEDDED = ("scripted", "metrics")  # no language or vision model
_FIXED = {"model", "messages", "instruction", "n", "extra_headers"}  # not among the parameters
MEDIA = ("video", "frames")
NO_PROGRAM = "# no program: "  # first words of the source of a candidate for which the model wrote no program


@dataclass(frozen=True)
class ModelConfig:
    """Settings of one model: the backend, its limits, and how motions are shown to it."""

    name: str
    model: str | None = None  # manual: who answers, for the record
    base_url: str | None = None  # None: the provider's default
    key_env: str | None = None  # environment variable with the key; None: no key
    temperature: float | None = None  # None: the method's temperature
    max_tokens: int = 8192  # of an answer
    thinking: str | None = None  # gemini: low, high ... (3.x), or a number of tokens (2.5)
    timeout_s: float = 180.0  # of one attempt
    attempts: int = 6  # per call, if the network fails or the answer is invalid
    backoff_s: float = 1.0  # wait before the second attempt, doubled for each further one
    patience_s: float = 120.0  # longest wait that a server may request
    concurrency: int = 4  # concurrent calls
    logprobs: bool = (
        False  # confidences of descriptors from log-probabilities of tokens, if the server reports them
    )
    # openai_compatible: further parameters of a request, or other values of them; null: not sent
    parameters: Mapping[str, Any] | None = None
    adapt: bool = True  # openai_compatible: send a parameter that the server refuses otherwise, or not at all
    price: tuple[float, float] | None = (
        None  # USD per million input and output tokens; None: from the price table
    )
    media: str = "video"  # how motions are shown: video or frames
    frames: int = 8  # pictures of a motion, with media=frames
    fps: float = 8.0  # pictures per second of a video
    slow: float = 1.0  # 2: the video plays at half the speed
    views: int = 2  # cameras side by side: the task's first, then others around it
    size: tuple[int, int] = (384, 384)  # px, of each view
    inline_mb: float = 18.0  # MB; gemini: larger videos are uploaded first
    raters: int = 1  # person: how many people vote on each pair
    host: str = "127.0.0.1"  # person: address of the page; another one than this machine's needs a token
    port: int = 8765  # person: of the page; a free one if it is in use
    run: str | None = None  # replay: run directory whose recorded answers are reused

    @property
    def embedded(self) -> bool:
        return self.name in EMBEDDED

    @property
    def orders(self) -> int:
        """How often a pair is shown when it meets: to a model in both orders, to each rater once."""
        return self.raters if self.name == "person" else 2


def check_model(config: ModelConfig, where: str, choices: tuple[str, ...]) -> None:
    """Raise UserError for invalid values. `where` is "llm" or "vlm"."""
    if config.name not in choices:
        raise UserError(unknown_name(where, config.name, choices))
    one_of(config, f"{where}.", media=MEDIA)
    at_least(1, config, f"{where}.", "max_tokens", "attempts", "concurrency", "frames", "views", "raters")
    above_0(config, f"{where}.", "timeout_s", "fps", "slow", "inline_mb")
    at_least(0, config, f"{where}.", "backoff_s", "patience_s", "temperature")
    if any(side % 2 or side < 64 for side in config.size):
        raise UserError(f"{where}.size={list(config.size)}: both numbers must be even and 64 or more")
    if config.key_env and not re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", config.key_env):
        # the value is not shown, since it may be the key itself
        raise UserError(
            f"{where}.key_env must be the NAME of an environment variable, such as OPENAI_API_KEY, not the key itself"
        )
    instead = f"the key is read from the environment variable named by {where}.key_env"
    no_secrets(f"{where}.base_url", config.base_url, instead)
    url = urlsplit(config.base_url or "")
    if config.base_url and (url.scheme not in ("http", "https") or not url.hostname):
        raise UserError(f"{where}.base_url is not a valid URL; write http://host:port/v1")
    if fixed := sorted(_FIXED & (config.parameters or {}).keys()):
        raise UserError(f"{where}.parameters must not contain {fixed[0]}, which the request itself sets")
    if not 0 <= config.port <= 65535:
        raise UserError(f"{where}.port={config.port}: it must be from 0 (any free port) to 65535")
    if config.name in ("gemini", "openai_compatible") and not config.model:
        raise UserError(f"{where}={config.name} needs a model name; set {where}.model=NAME")
    if config.name == "replay" and not config.run:
        raise UserError(f"{where}=replay needs a run to replay; set {where}.run=RUN_DIR")
