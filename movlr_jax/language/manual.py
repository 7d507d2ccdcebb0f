"""A person, or an agent, in place of a model: the request is a folder of files, the answer one more file in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from movlr_jax.archive import write_atomically
from movlr_jax.language import wire
from movlr_jax.language.call import Media, Question, Reply
from movlr_jax.language.settings import ModelConfig

_LOOK_S = 0.5


class Manual:
    """Writes <run>/requests/<key>/request.md with its films, waits for answer.json beside it."""

    name = "manual"

    def __init__(self, config: ModelConfig, root: Path, say: Callable[[str], None]):
        self._config, self._root, self._say = config, root / "requests", say

    @property
    def model(self) -> str:
        return self._config.model or "person"

    def parameters(self, question: Question) -> Mapping[str, Any]:
        return parameters(self._config, question)

    async def send(self, question: Question, key: str) -> Reply:
        folder = self._root / key[:16]
        answer = folder / "answer.json"
        if not answer.exists():
            _write(folder, question)
            self._say(f"  {question.purpose}: read {folder / 'request.md'}, write {answer}")
        while not answer.exists():
            await asyncio.sleep(_LOOK_S)
        text = answer.read_text(encoding="utf-8")
        answer.replace(folder / "answer.read.json")  # a wrong one can be written anew
        return Reply(text, self.model)

    async def close(self) -> None:
        pass


def parameters(config: ModelConfig, question: Question) -> dict[str, Any]:
    return {}


def _write(folder: Path, question: Question) -> None:
    lines, count = [], 0
    for message in question.messages:
        lines.append(f"# {message.role}\n")
        for part in message.parts:
            if isinstance(part, Media):
                count += 1
                name = f"{count:02d}.{'mp4' if part.mime.startswith('video/') else 'jpg'}"
                write_atomically(folder / name, part.data)
                lines.append(f"[see {name}]\n")
            else:
                lines.append(part + "\n")
    schema = json.dumps(wire.schema_of(question.schema), indent=1)
    lines.append(
        f"# answer\n\nWrite answer.json beside this file, of this schema:\n\n```json\n{schema}\n```\n"
    )
    write_atomically(folder / "request.md", "\n".join(lines).encode())
