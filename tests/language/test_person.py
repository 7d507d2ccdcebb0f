"""Searches that people judge over HTTP, as the page does: undone votes, several raters, resume, replay."""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from outcomes import outcome
from test_llm_search import TASK, calls, shared  # noqa: F401

from movlr_jax.cli.search import main
from movlr_jax.errors import UserError
from movlr_jax.voting.questions import Asked, SearchQuestions
from movlr_jax.voting.votes import votes_of

SMALL = ["candidates=3", "generations=1"]
PERSON = [*SMALL, "vlm=person", "vlm.size=[64,64]", "vlm.port=0"]
Act = Callable[["Rater", dict], None]


class Rater(threading.Thread):
    """A page that is open while a search runs: votes with `act` whenever there is a question."""

    def __init__(self, run: Path, name: str, act: Act | None = None):
        super().__init__(daemon=True)
        self.run_dir, self.rater, self.act = run, name, act or Rater.prefer_left
        self.done, self.seen, self.states = threading.Event(), [], []

    def run(self) -> None:
        while not self.done.is_set():
            with contextlib.suppress(httpx.HTTPError, FileNotFoundError):
                self.client = httpx.Client(base_url=(self.run_dir / ".vote").read_text())
                while not self.done.is_set():
                    self.look()
            time.sleep(0.05)

    def look(self) -> None:
        state = self.client.get("/api/state", params={"rater": self.rater}).json()
        self.states.append(state)
        if state["question"]:
            self.seen.append(state["question"])
            self.act(self, state)
        time.sleep(0.02)

    def post(self, path: str, **values) -> httpx.Response:
        return self.client.post(f"/api/{path}", json={"rater": self.rater, **values})

    def vote(self, state: dict, winner: str) -> None:
        self.post("vote", question=state["question"]["id"], winner=winner, reason="it is nearer")

    def criticise(self, state: dict) -> None:
        terms = state["question"]["terms"]
        advice = [{"action": "strengthen", "term": terms[0]["name"], "reason": "more"}]
        self.post("critique", question=state["question"]["id"], problems=["it is slow"], advice=advice)

    def prefer_left(self, state: dict) -> None:
        (self.criticise if state["question"]["kind"] == "criticise" else self.left)(state)

    def left(self, state: dict) -> None:
        self.vote(state, "first")


def search(run: Path, *raters: Rater, settings: tuple[str, ...] = ()) -> str:
    """Search while the raters vote. Returns what the terminal shows."""
    said = io.StringIO()
    for rater in raters:
        rater.start()
    try:
        with contextlib.redirect_stderr(said):
            assert main([*TASK, *PERSON, f"run_dir={run}", *settings]) == 0
    finally:
        for rater in raters:
            rater.done.set()
            rater.join()
    return said.getvalue()


@pytest.fixture(scope="module")
def undecided(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest):
    """A search judged by one person, who takes the first vote back, and another one when asked for a critique."""
    request.getfixturevalue("shared")
    run, undone = tmp_path_factory.mktemp("person") / "run", []

    def act(rater: Rater, state: dict) -> None:
        kind = state["question"]["kind"]
        voted = [q for q in rater.seen[:-1] if q["kind"] == "compare"]
        if (not undone and voted) or (len(undone) == 1 and kind == "criticise"):
            undone.append(kind)
            assert rater.post("undo").status_code == 200
        else:
            rater.prefer_left(state)

    rater = Rater(run, "ana", act)
    return run, rater, search(run, rater), undone


def test_search_shows_its_address_and_takes_votes_of_a_person(undecided):
    run, rater, said, undone = undecided
    assert "people vote at http://127.0.0.1:" in said
    assert "vision model: person person" in said
    assert not (run / ".vote").exists(), "the page is gone with the search"
    assert undone == ["compare", "criticise"]
    made = calls(run)
    assert {c["purpose"] for c in made} == {"judge", "criticise"}
    assert {c["provider"] for c in made} == {"person"}
    assert {c["model_version"] for c in made if c["state"] in ("answered", "retracted")} == {"ana"}
    assert [c["state"] for c in made].count("retracted") == 2
    _, ranked, _ = outcome(run)
    compared = [(c["first"], c["second"], c["winner"]) for c in ranked[0]["comparisons"]]
    votes = [(v.first, v.second, v.winner) for v in votes_of(made)]
    assert {*votes} <= {*compared}, "what counts is what was not taken back"
    standings = [s["standing"] for s in rater.states if s["standing"]]
    assert standings[0]["given"] == 0
    assert max(s["given"] for s in standings) >= 1


def test_pair_is_shown_once_and_its_films_are_not_named(undecided):
    run, rater, _, _ = undecided
    first = next(q for q in rater.seen if q["kind"] == "compare")
    assert len({film["id"] for film in first["films"]}) == 2
    assert "g00k" not in json.dumps(first)
    assert first["task"].startswith("bring the foot to the mark")
    _, ranked, _ = outcome(run)
    one, other = ({c["first"], c["second"]} for c in ranked[0]["comparisons"][:2])
    assert one != other, "a model would see the same pair again in the other order"
    critique = next(q for q in rater.seen if q["kind"] == "criticise")
    assert critique["terms"]
    assert "def reward" in critique["source"]


@pytest.mark.usefixtures("shared")
def test_votes_are_replayed(undecided, tmp_path: Path):
    run, _, _, _ = undecided
    replay = [*SMALL, "vlm=replay", f"vlm.run={run}"]
    assert main([*TASK, *replay, f"run_dir={tmp_path / 'again'}"]) == 0
    assert outcome(tmp_path / "again") == outcome(run)


@pytest.mark.slow
@pytest.mark.usefixtures("shared")
def test_two_raters_vote_on_every_pair_of_a_resumed_search(tmp_path: Path):
    """max_calls ends the search after three votes; the resumed one asks for the others alone."""
    run, settings = tmp_path / "run", ("vlm.raters=2",)
    search(run, Rater(run, "ana"), Rater(run, "bo"), settings=(*settings, "max_calls=3"))
    before = votes_of(calls(run))
    assert 2 <= len(before) <= 3
    raters = Rater(run, "ana"), Rater(run, "bo")
    for rater in raters:
        rater.start()
    assert main([f"resume={run}", "max_calls=null"]) == 0
    for rater in raters:
        rater.done.set()
        rater.join()
    votes = votes_of(calls(run))
    assert votes[: len(before)] == before
    by: dict[frozenset[str], list[str]] = {}
    for vote in votes:
        by.setdefault(vote.pair, []).append(vote.rater)
    assert all(names.count("ana") == names.count("bo") for names in by.values()), by
    (ranked,) = outcome(run)[1]
    assert len(ranked["comparisons"]) == len(votes)
    counts = raters[0].states[-1]["agreement"]
    assert counts["both"] >= 2


@pytest.mark.parametrize(("method", "task"), [("vlm_only", "write programs"), ("motionvl", "describe motions")])
def test_method_that_needs_more_than_the_page_has_is_refused(method: str, task: str, capsys, tmp_path: Path):
    assert main([*TASK, *PERSON, f"method={method}", f"run_dir={tmp_path / 'run'}"]) == 2
    assert f"method={method} asks its vision model to {task}" in capsys.readouterr().err


def asked(key: str, *about: str) -> Asked:
    return Asked(key, about, {"id": key, "kind": "compare", "films": []}, {})


def test_pages_show_different_questions_and_a_closed_page_keeps_none():
    time_s = [0.0]
    questions = SearchQuestions(1, [], now=lambda: time_s[0])
    one, other = questions.ask(asked("1", "a", "b")), questions.ask(asked("2", "a", "c"))

    def shown(rater: str) -> str | None:
        return (questions.state(rater, False)["question"] or {}).get("id")

    assert (shown("ana"), shown("bo"), shown("cy")) == ("1", "2", None)
    assert (shown("ana"), shown("bo")) == ("1", "2"), "and stay with them"
    questions.vote("bo", "2", "first", "")
    assert other.done.is_set()
    assert not one.done.is_set()
    time_s[0] = 20.0
    assert shown("cy") == "1", "Ana has closed the page"
    questions.vote("cy", "1", "tie", "")
    with pytest.raises(UserError, match="answered already"):
        questions.vote("ana", "1", "first", "")


def test_pair_needs_two_different_raters():
    questions = SearchQuestions(2, [])
    questions.ask(asked("1", "a", "b"))
    second = questions.ask(asked("2", "b", "a"))
    questions.vote("ana", "1", "first", "")
    assert questions.state("ana", False)["waiting_for"] == "others"
    with pytest.raises(UserError, match="another person votes on it next"):
        questions.vote("ana", "2", "first", "")
    questions.vote("bo", "2", "second", "")
    assert second.done.is_set()
    assert questions.state("bo", False)["agreement"] == {"same": 1, "both": 1}
