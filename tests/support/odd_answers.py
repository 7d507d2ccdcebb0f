"""Answers of chat completions in shapes of a test's own, and a program that is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fake_servers import Asked, scripted_model

READY = '{"ready": true}'
ANSWER = {"first_motion": "a", "second_motion": "b", "winner": "second", "reason": "c"}
PROGRAM = """\"\"\"Kick.\"\"\"

WEIGHTS = {"near": 1.0}


def reward(state, action):
    return {"near": -state.time}"""


def openai(content: Any = READY, **more: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The envelope with another content, or with other things around it."""

    def shape(answer: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": content}
        return {**answer, "choices": [{"index": 0, "finish_reason": "stop", "message": message}], **more}

    return shape


def written(asked: Asked) -> dict[str, Any]:
    return {"changes": "a", "program": PROGRAM} if asked.wants == "program" else scripted_model(asked)
