"""A person in the place of both models: reads what is asked from files, answers with files, makes mistakes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import threading
import time
from pathlib import Path

import pytest
from test_llm_search import TASK, calls, shared  # noqa: F401

from movlr_jax.cli.search import main
from movlr_jax.language.clients.answers import Ready
from movlr_jax.language.clients.call import Media, Message, Question
from movlr_jax.language.clients.manual import Manual
from movlr_jax.language.settings import ModelConfig

MANUAL = ["llm=manual", "vlm=manual", "vlm.model=agent", "vlm.media=frames", "vlm.frames=2", "vlm.size=[64,64]"]
PROGRAM = '''"""Kick."""

WEIGHTS = {"near": %s}


def reward(state, action):
    return {"near": -jnp.linalg.norm(state.pos("foot") - state.goal("foot_pos"))}
'''


class Person:
    """Sees the run directory alone."""

    def __init__(self, run: Path):
        self.run, self.seen, self.wrong = run, [], 0

    def look(self) -> bool:
        """Answers one request, if there is one; whether there was."""
        for request in sorted(self.run.glob("requests/*/request.md")):
            folder = request.parent
            if folder.name not in self.seen:
                self.seen.append(folder.name)
                self.answer(folder, request.read_text())
                return True
        return False

    def answer(self, folder: Path, said: str) -> None:
        if "program.py" in said:
            (folder / "program.py").write_text(PROGRAM % f"{len(self.seen)}.0")
            return
        pictures = re.findall(r"\[see (.*)\]", said)
        assert pictures
        assert all((folder / name).stat().st_size > 0 for name in pictures)
        example = json.loads(re.findall(r"```json\n(.*?)```", said, flags=re.DOTALL)[0])
        answer = folder / "answer.json"
        if "winner" in example and not self.wrong:  # a slip, seen later and mended
            self.wrong += 1
            answer.write_text(json.dumps({**example, "winner": "the left one"}))
            time.sleep(2.2)
        if "advice" in example:  # an editor that writes in two halves
            whole = json.dumps(example)
            answer.write_text(whole[:20])
            time.sleep(0.7)
            answer.write_text(whole)
            return
        answer.write_text(json.dumps(example))


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest):
    """A search whose models are a person."""
    request.getfixturevalue("shared")
    run = tmp_path_factory.mktemp("manual") / "run"
    person, said, done = Person(run), io.StringIO(), threading.Event()

    def answer() -> None:
        while not done.is_set():
            person.look()
            time.sleep(0.05)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with contextlib.redirect_stderr(said):
            assert main([*TASK, *MANUAL, "generations=1", f"run_dir={run}"]) == 0
    finally:
        done.set()
        thread.join()
    return run, person, said.getvalue()


def test_search_through_files_is_answered_and_slips_are_mended(answered: tuple[Path, Person, str]):
    run, person, said = answered
    made = calls(run)
    assert {c["purpose"] for c in made} == {"propose", "judge", "criticise"}
    assert {c["state"] for c in made} == {"answered"}, "a slip is mended, not an attempt lost"
    assert sorted(c["key"][:16] for c in made) == sorted(person.seen), "everything was asked once, and read"
    assert "winner: Input should be 'first', 'second' or 'tie'; please correct it" in said
    assert re.search(r"propose: read .*/request.md, write answer.json or program.py next to it", said)
    assert "language model: manual unnamed; vision model: manual agent" in said


def test_answer_written_while_the_search_was_down_is_read(tmp_path: Path):
    """The process died while a person was writing: after resume= the answer is taken from where it lies."""
    (tmp_path / "requests" / "k").mkdir(parents=True)
    (tmp_path / "requests" / "k" / "answer.json").write_text('{"ready": true}')
    manual = Manual(ModelConfig("manual"), tmp_path, print)
    for _ in range(2):  # and again, when it died before it was recorded
        reply = asyncio.run(manual.send(Question("check", [Message("user", ["hello"])], Ready), "k"))
        assert reply.text == '{"ready": true}'


def test_both_orders_of_a_pair_are_never_open_together(tmp_path: Path):
    one, other = Media("image/jpeg", b"one"), Media("image/jpeg", b"other")
    manual = Manual(ModelConfig("manual"), tmp_path, print)

    def asked(*parts: str | Media) -> Question:
        return Question("judge", [Message("user", parts)], Ready)

    async def both() -> list[set[str]]:
        questions = {"a": asked(one, other), "b": asked(other, one), "c": asked(one), "d": asked("no film")}
        sent = [asyncio.create_task(manual.send(q, key)) for key, q in questions.items()]
        await asyncio.sleep(0.1)
        open_ = [{p.name for p in (tmp_path / "requests").iterdir()}]
        (tmp_path / "requests" / "a" / "answer.json").write_text('{"ready": true}')
        await asyncio.sleep(1.5)
        open_.append({p.name for p in (tmp_path / "requests").iterdir()})
        for task in sent:
            task.cancel()
        await asyncio.gather(*sent, return_exceptions=True)
        return open_

    assert asyncio.run(both()) == [{"a", "c", "d"}, {"a", "b", "c", "d"}]
