"""A person or an agent in place of a model: each request is a folder of files, and the answer is a file in it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from movlr_jax.language.clients import wire
from movlr_jax.language.clients.answers import Program, read
from movlr_jax.language.clients.call import BadAnswer, Media, ModelBackend, Question, Reply
from movlr_jax.language.settings import ModelConfig
from movlr_jax.storage.writing import write_atomically

_LOOK_S = 0.5
_SETTLED_S = 1.5  # a file that did not change for this time is complete


class Manual(ModelBackend):
    """Writes <run>/requests/<key>/request.md with its media, and waits for a valid answer file in the same folder.

    Two requests that show the same motions, such as a comparison in both orders, are never open together, so that
    whoever answers does not see them as one. No file is ever deleted: an answer written after the run was interrupted
    is read when the run is resumed.
    """

    name = "manual"

    def __init__(self, config: ModelConfig, root: Path, say: Callable[[str], None]):
        self.model = config.model or "unnamed"
        self._root, self._say = root / "requests", say
        self._open: set[frozenset[str]] = set()  # the motions of each request that waits for its answer

    async def send(self, question: Question, key: str) -> Reply:
        shown = frozenset(media.sha256 for media in question.media)
        while shown and shown in self._open:
            await asyncio.sleep(_LOOK_S)
        self._open.add(shown)
        try:
            return await self._answered(question, self._root / key[:16])
        finally:
            self._open.discard(shown)

    async def _answered(self, question: Question, folder: Path) -> Reply:
        problem = ""
        _write(folder, question)
        names = " or ".join(_files(question))
        announced = False
        while True:
            try:
                reply = _answer(folder, question, self.model)
            except BadAnswer as error:
                if str(error) != problem:
                    problem = str(error)
                    self._say(f"  {question.purpose}: {folder}: {problem}; please correct it")
            else:
                if reply:
                    return reply
                if not announced:
                    self._say(f"  {question.purpose}: read {folder / 'request.md'}, write {names} next to it")
                    announced = True
            await asyncio.sleep(_LOOK_S)


def _files(question: Question) -> tuple[str, ...]:
    return ("answer.json", "program.py") if question.schema is Program else ("answer.json",)


def _answer(folder: Path, question: Question, model: str) -> Reply | None:
    """Return the answer, or None if there is no answer file or it is still being written. Raises BadAnswer."""
    for name in _files(question):
        path = folder / name
        if not path.is_file():
            continue
        settled = abs(time.time() - path.stat().st_mtime) > _SETTLED_S  # its clock may be ahead
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        if name == "program.py":
            if not settled:
                continue
            text = json.dumps({"changes": "answered with program.py", "program": text})
        reply = Reply(text, model)
        try:
            read(question.schema, reply)
        except BadAnswer:
            if settled:
                raise
            continue
        return reply
    return None


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
    schema = wire.schema_of(question.schema)
    lines.append("# answer\n\nWrite answer.json next to this file, for example:\n")
    lines.append(f"```json\n{json.dumps(_example(schema), indent=1)}\n```\n")
    if question.schema is Program:
        lines.append("or only the program, as program.py.\n")
    lines.append(f"The schema:\n\n```json\n{json.dumps(schema, indent=1)}\n```\n")
    write_atomically(folder / "request.md", "\n".join(lines).encode())


def _example(schema: Mapping[str, Any]) -> Any:
    """Return an example value for a JSON schema."""
    if "anyOf" in schema:
        return _example(schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: _example(part) for name, part in schema["properties"].items()}
    if schema["type"] == "array":
        return [_example(schema["items"])]
    return {"boolean": False, "number": 1.0, "integer": 1}.get(schema["type"], "...")
