"""People vote on a finished run over HTTP: the ranking, the record, several raters, and who is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
from voted_run import JUDGE, SOURCE, make_run

from movlr_jax._util.resources import resource_text
from movlr_jax.cli.vote_questions import RunQuestions
from movlr_jax.report.data import read_run
from movlr_jax.storage.archive import Archive
from movlr_jax.voting.server import application

HERE = "http://127.0.0.1:8765"


class Client:
    """Sends requests from this thread, to which the archive belongs."""

    def __init__(self, transport: httpx.ASGITransport, base_url: str):
        self.runner = asyncio.Runner()
        self.client = httpx.AsyncClient(transport=transport, base_url=base_url)

    def get(self, path: str, **values) -> httpx.Response:
        return self.runner.run(self.client.get(path, **values))

    def post(self, path: str, **values) -> httpx.Response:
        return self.runner.run(self.client.post(path, **values))

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()


class Page:
    """A run directory that is open on a page, and the requests of that page."""

    def __init__(self, root: Path, token: str | None = None, base_url: str = HERE):
        self.archive = Archive.open(root)
        self.questions = RunQuestions(self.archive, read_run(self.archive))
        self.client = Client(httpx.ASGITransport(application(self.questions, token, 8765)), base_url)

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.archive.close()

    def state(self, rater: str = "ana", further: int = 0) -> dict:
        return self.client.get("/api/state", params={"rater": rater, "further": further}).json()

    def post(self, path: str, rater: str = "ana", **values) -> dict:
        answer = self.client.post(f"/api/{path}", json={"rater": rater, **values})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def pair(self, state: dict) -> tuple[str, str]:
        """The names of the motions that a page shows, which the page is not told."""
        left, right = (self.questions._ids[film["id"]] for film in state["question"]["films"])
        return left, right

    def vote(self, winner: str, rater: str = "ana", reason: str = "") -> dict:
        question = self.state(rater)["question"]["id"]
        return self.post("vote", rater, question=question, winner=winner, reason=reason)


def calls(root: Path) -> list[dict]:
    with Archive.open(root, write=False) as archive:
        return archive.calls()


def test_a_person_finds_the_best_of_ten_in_less_than_forty_votes(tmp_path: Path):
    strengths = np.random.default_rng(4).permutation(10)
    rng = np.random.default_rng(0)
    make_run(tmp_path / "run", 10)
    with Page(tmp_path / "run") as page:
        state, given = page.state(), 0
        while state["question"]["kind"] == "compare":
            left, right = (strengths[int(name[-2:])] for name in page.pair(state))
            chance = 1 / (1 + np.exp(-2.0 * (left - right)))
            state = page.vote("first" if rng.random() < chance else "second")
            given += 1
            assert state["standing"]["given"] == given < 40
            assert 0 <= state["standing"]["expected"] <= state["standing"]["at_most"] == 40 - given
        rows = state["question"]["rows"]
    assert rows[0]["name"] == f"g00k{strengths.argmax():02d}"
    pairs = [frozenset(call["about"].split()) for call in calls(tmp_path / "run")]
    assert len(pairs) == given
    assert max(map(pairs.count, pairs)) <= 3, "nobody sees the same pair over and over"


def test_votes_are_recorded_like_those_of_any_judge_and_a_later_page_goes_on(tmp_path: Path):
    make_run(tmp_path / "run", 4)
    with Page(tmp_path / "run") as page:
        shown = page.pair(page.state())
        page.vote("second", reason="the foot comes nearer")
        after = page.state()
    (call,) = calls(tmp_path / "run")
    assert {name: call[name] for name in ("purpose", "provider", "model_version", "about", "state")} == {
        "purpose": "judge", "provider": "person", "model_version": "ana", "about": " ".join(shown),
        "state": "answered",
    }  # fmt: skip
    assert json.loads(call["answer"])["winner"] == "second"
    with Page(tmp_path / "run") as page:
        again = page.state()
        assert again["standing"] == after["standing"]
        assert again["raters"] == [{"name": "ana", "votes": 1}]
        assert page.pair(again)[0] in shown or page.pair(again)[1] in shown, "the leader meets the next"
        recorded = page.archive.get("voted")
    assert recorded is not None
    assert recorded["best"] == shown[1]
    assert recorded["comparisons"] == [
        {
            "first": shown[0], "second": shown[1], "winner": "second", "reason": "the foot comes nearer",
            "rater": "ana",
        }
    ]  # fmt: skip
    with Archive.open(tmp_path / "run", whole=True) as archive:
        assert archive.spent() == (0, 0.0), "votes do not count against max_calls"


def test_a_vote_is_taken_back_and_its_pair_is_shown_again(tmp_path: Path):
    make_run(tmp_path / "run", 3)
    with Page(tmp_path / "run") as page:
        shown = page.pair(page.state())
        assert not page.state()["undo"]
        page.vote("first")
        state = page.post("undo")
        assert page.pair(state) == shown
        assert state["standing"]["given"] == 0
        assert not state["undo"]
        assert page.archive.get("voted") is None, "without votes there is no ranking by people"
        page.vote("tie")
        refused = page.client.post("/api/undo", json={"rater": "somebody else"})
        assert refused.json() == {"error": "you have no vote to take back"}
    assert [(c["state"], json.loads(c["answer"])["winner"]) for c in calls(tmp_path / "run")] == [
        ("retracted", "first"), ("answered", "tie"),
    ]  # fmt: skip


def test_a_stale_question_is_refused_and_changes_nothing(tmp_path: Path):
    make_run(tmp_path / "run", 3)
    with Page(tmp_path / "run") as page:
        old = page.state()["question"]["id"]
        page.vote("first")
        refused = page.client.post("/api/vote", json={"rater": "ana", "question": old, "winner": "first"})
        assert refused.status_code == 409
        assert "no longer shown" in refused.json()["error"]
        assert len(page.questions.votes) == 1


def test_the_ranking_stands_next_to_that_of_the_judge(tmp_path: Path):
    """The judge preferred 0 to 1 and 2 to 0; people prefer the lower number: one of the two pairs agrees."""
    make_run(tmp_path / "run", 3, said=[(0, 1, "first"), (0, 2, "second"), (2, 0, "first")])
    with Page(tmp_path / "run") as page:
        state = page.state()
        while state["question"]["kind"] == "compare":
            left, right = page.pair(state)
            state = page.vote("first" if left < right else "second")
        question = state["question"]
        assert question["rows"][0]["name"] == "g00k00"
        assert question["judge"]["name"] == JUDGE
        met = {v.pair for v in page.questions.votes}
        assert question["judge"]["both"] == len(met & {frozenset(("g00k00", f"g00k0{i}")) for i in (1, 2)}) == 2
        assert question["judge"]["same"] == 1
        assert question["best"]["source"] == SOURCE
        assert [term["name"] for term in question["best"]["terms"]] == ["near", "calm"]
        form = {"observation": "it kicks", "success": True, "problems": ["the knee is stiff"]}
        advice = [{"action": "strengthen", "term": "calm", "reason": ""}]
        page.post("critique", question="results", advice=advice, **form)
        assert page.state(further=1)["question"]["kind"] == "compare", "who wants to can go on"
    critique = calls(tmp_path / "run")[-1]
    assert (critique["purpose"], critique["about"]) == ("criticise", "g00k00")
    said = json.loads(critique["answer"])
    assert said["advice"][0]["action"] == "strengthen"
    assert said["problems"] == ["the knee is stiff"]


def test_hostile_text_stays_text(tmp_path: Path):
    bad = "<img src=x onerror=alert(1)>\u202e\x1b[31m"
    make_run(tmp_path / "run", 2, description=bad, terms=(bad,))
    with Page(tmp_path / "run") as page:
        bad = "<img src=x onerror=alert(1)>\u202e\x1b"  # with its escapes it is a name of less than 40 characters
        answer = page.client.get("/api/state", params={"rater": bad})
        assert answer.headers["content-type"] == "application/json"
        assert "\u202e" not in answer.json()["question"]["task"]
        state = page.vote("first", rater=bad, reason=bad)
        (rater,) = state["raters"]
        assert rater["name"].isprintable()
        while state["question"]["kind"] == "compare":
            state = page.vote("first", rater=bad)
        policy = page.client.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    scripts = [resource_text("assets", "vote", name) for name in ("vote.js", "films.js", "critique.js")]
    assert not [
        s for s in scripts for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write") if word in s
    ]


VOTE = {"rater": "ana", "question": "x", "winner": "first"}


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"headers": {"host": "evil.example:8765"}}, 421),
        ({"headers": {"host": "127.0.0.1.evil.example:8765"}}, 421),
        ({"headers": {"host": "[::1"}}, 421),
        ({"headers": {"origin": "http://evil.example"}}, 403),
        ({"headers": {"origin": "null"}}, 403),
        ({"headers": {"origin": "http://127.0.0.1:9999"}}, 403),
        ({"headers": {"sec-fetch-site": "cross-site"}}, 403),
        ({"headers": {"sec-fetch-site": "same-site"}}, 403),
        ({"json": None, "content": json.dumps(VOTE), "headers": {"content-type": "text/plain"}}, 415),
        ({"json": {**VOTE, "reason": "x" * 200_000}}, 413),
        ({"json": None, "content": "{", "headers": {"content-type": "application/json"}}, 400),
        ({"json": [VOTE]}, 409),
        ({"json": {**VOTE, "rater": ""}}, 409),
        ({"json": {**VOTE, "rater": "x" * 41}}, 409),
        ({"json": {**VOTE, "winner": "none"}}, 409),
        ({"json": {**VOTE, "reason": {"a": 1}}}, 409),
    ],
)
def test_what_does_not_come_from_the_page_is_refused(tmp_path: Path, request_: dict, status: int):
    make_run(tmp_path / "run", 2)
    with Page(tmp_path / "run") as page:
        request_.setdefault("json", {**VOTE, "question": page.state()["question"]["id"]})
        assert page.client.post("/api/vote", **request_).status_code == status
        assert page.questions.votes == []


def test_other_machines_need_the_token(tmp_path: Path):
    make_run(tmp_path / "run", 2)
    with Page(tmp_path / "run", token="secret", base_url="http://lab.example:8765") as page:
        for path in ("/", "/vote.js", "/api/state?rater=ana", "/?token=wrong", "/api/state?rater=ana&token=secret"):
            assert page.client.get(path).status_code == 401, path
        assert page.client.post("/api/vote", json=VOTE).status_code == 401
        entered = page.client.get("/?token=secret", follow_redirects=False)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert page.client.get("/").status_code == 200
        page.vote("first")
