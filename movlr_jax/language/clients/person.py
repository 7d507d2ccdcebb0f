"""People in place of a vision model: each question is shown on a local page, and the search waits for the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from movlr_jax.errors import UserError, needed
from movlr_jax.language.clients.call import Media, ModelBackend, Question, Reply, Retracted
from movlr_jax.language.settings import ModelConfig
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import VOTE_PAGE
from movlr_jax.storage.writing import write_atomically
from movlr_jax.voting.questions import Asked, Progress, SearchQuestions, cameras, film_name
from movlr_jax.voting.votes import MODEL, PROVIDER, Vote, votes_of

_LOOK_S = 0.1
_SHOWN = ("Pay attention", "Success")  # first words of sentences of prompts/task.md that the page shows, too
# purpose -> kind of question on the page
_KINDS = {"judge": "compare", "criticise": "criticise", "check": "ready"}


class Person(ModelBackend):
    """Asks on a page. Several people may vote; the rater is recorded as the version of the model."""

    name = PROVIDER
    model = MODEL

    def __init__(self, config: ModelConfig, archive: Archive, say: Callable[[str], None]):
        with needed("vlm=person", "vote"):
            from movlr_jax.voting.server import Server

        self._config, self._archive = config, archive
        self._questions = SearchQuestions(config.page.raters, votes_of(archive.calls()))
        self._server = Server(self._questions, config.page.host, config.page.port)
        self._server.start()
        self._page = archive.root / VOTE_PAGE
        write_atomically(self._page, self._server.address.encode())
        self._page.chmod(0o600)  # it may have the token
        say(f"people vote at {self._server.address}")

    def watch(self, generation: int, progress: Progress) -> None:
        """Show on the page how far the ranking of a generation is."""
        self._questions.watch(generation, progress)

    async def send(self, question: Question, key: str) -> Reply:
        """Wait until a person answers. Raises Retracted if an earlier vote is taken back instead."""
        asked = self._questions.ask(self._asked(question, key))
        try:
            while not asked.done.is_set():
                await asyncio.sleep(_LOOK_S)
        finally:
            self._questions.withdraw(asked)
        if asked.taken_back:
            self._archive.retract_call(asked.taken_back)
            raise Retracted
        if isinstance(asked.answer, Vote):
            return Reply(asked.answer.answer, asked.answer.rater)
        return Reply(json.dumps(asked.answer), asked.rater)

    async def close(self) -> None:
        self._server.stop()
        self._page.unlink(missing_ok=True)

    def _asked(self, question: Question, key: str) -> Asked:
        """Return what the page shows of a question. Raises UserError if the page has no such question."""
        if question.purpose not in _KINDS:
            raise UserError(
                f"vlm=person compares and criticises films, but this method also asks it to {question.purpose}; use "
                "vlm=manual"
            )
        about = tuple(question.about.split())
        names = [film_name(media.data) for media in question.media]
        text = [part for part in question.messages[-1].parts if not isinstance(part, Media)][-1]
        task, *details = str(text).partition("\n\n")[0].split("\n")
        card = {
            "id": key[:24],
            "kind": _KINDS[question.purpose],
            "films": [{"id": name, "views": self._config.shown.views, "strip": 0.0} for name in names],
            "slow": self._config.shown.slow,
            "cameras": cameras(self._archive.get("run") or {}),
            "task": task.removeprefix("The task: "),
            "details": "\n".join(line for line in details if line.startswith(_SHOWN)),
        }
        if question.purpose == "criticise":
            name = about[0].partition("#")[0]
            found = (e.data for e in self._archive.events("evaluated") if e.data.get("name") == name)
            card |= program_card(next(found, {}))
        films = dict(zip(names, (media.data for media in question.media), strict=True))
        return Asked(key, about, card, films)


def program_card(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms, the source and the faults in the record of a candidate."""
    terms, weights = data.get("terms") or {}, data.get("weights") or {}
    return {
        "source": data.get("source") or "",
        "faults": list((data.get("faults") or {}).values()),
        "terms": [
            {"name": name, "weight": weight, "mean": (terms.get(name) or {}).get("mean")}
            for name, weight in weights.items()
        ],
    }
