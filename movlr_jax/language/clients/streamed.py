"""Put an answer together that a server sends in pieces, as server-sent events of chat completion chunks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from movlr_jax.language.clients import wire
from movlr_jax.language.clients.call import Transient

_BEGINS = re.compile(r"\s*(?:data|event|id|retry)?:")
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


def is_streamed(text: str) -> bool:
    return bool(_BEGINS.match(text))


def joined(text: str) -> dict[str, Any]:
    """Return the chat completion whose chunks are in `text`. Raises Transient if it is broken off."""
    whole: dict[str, Any] = {}
    texts: defaultdict[str, list[str]] = defaultdict(list)
    choice: dict[str, Any] = {"index": 0}
    calls: dict[Any, dict[str, Any]] = {}
    tokens: list[Any] = []
    ended = False
    for data in _events(text):
        if data.strip() == "[DONE]":
            ended = True
            break
        chunk = wire.envelope(data)
        if chunk.get("error"):
            return chunk
        whole |= {name: chunk[name] for name in ("model", "usage") if chunk.get(name)}
        piece = next((c for c in wire.listed(chunk.get("choices"), "the answer's choices") if _first(c)), {})
        delta = piece.get("delta") or piece.get("message")
        for name, value in (delta if isinstance(delta, Mapping) else {}).items():
            if name == "tool_calls":
                _add_calls(calls, value)
            elif name in _TEXTS and value is not None:
                texts[name].append(wire.text_of(value, f"the answer's {name}"))
        if piece.get("finish_reason"):
            choice["finish_reason"], ended = piece["finish_reason"], True
        logprobs = piece.get("logprobs")
        tokens += wire.listed(logprobs.get("content"), "tokens") if isinstance(logprobs, dict) else []
    if not ended:
        raise Transient("the stream of the answer ended before the answer did")
    called = {"tool_calls": list(calls.values())} if calls else {}
    choice["message"] = {**{name: "".join(pieces) for name, pieces in texts.items()}, **called}
    if tokens:
        choice["logprobs"] = {"content": tokens}
    return {**whole, "choices": [choice]}


def _first(choice: Any) -> bool:
    return isinstance(choice, dict) and choice.get("index", 0) == 0


def _events(text: str) -> Iterator[str]:
    """Yield the data of each server-sent event. Each is one line; not every server puts a blank line between them."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "data" and value.strip():
            yield value


def _add_calls(calls: dict[Any, dict[str, Any]], pieces: Any) -> None:
    """Add pieces of tool calls, whose arguments arrive a few characters at a time."""
    for piece in wire.listed(pieces, "the answer's tool calls"):
        piece = wire.mapping(piece, "a piece of a tool call")
        given = wire.mapping(piece.get("function"), "the function of a tool call")
        function = calls.setdefault(str(piece.get("index")), {"function": {}})["function"]
        for name in ("name", "arguments"):
            if isinstance(given.get(name), str):
                function[name] = function.get(name, "") + given[name]
