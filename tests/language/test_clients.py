"""The real SDKs against local servers: what is sent, how each failure ends, what is recorded."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from model_calls import KEY, KINDS, Asking, judging, question

from movlr_jax.errors import BudgetSpent, UserError
from movlr_jax.language.clients.answers import Descriptors, Judgement, read
from movlr_jax.language.clients.call import Media, Message, Question, Reply
from movlr_jax.language.clients.client import Budget, ModelClient, open_client
from movlr_jax.language.clients.openai_compatible import OpenAICompatible, instruction
from movlr_jax.language.clients.replay import Replayed, RunAnswers
from movlr_jax.language.settings import ModelConfig
from movlr_jax.storage.archive import Archive

FILM = Media("video/mp4", bytes(range(256)) * 40, fps=8.0)
WATCHING = judging("First motion:", FILM, "Second motion:", Media("image/jpeg", b"picture"), "Which?")
PRICE = (1.0, 10.0)
both_kinds = pytest.mark.parametrize("kind", KINDS)


@both_kinds
def test_call_is_recorded_and_never_sent_again(kind: str, serve, archive: Archive):
    asking = serve(kind, key=KEY, price=PRICE)
    assert asking.one().value.ready
    (request,) = asking.requests
    assert request["asked"].system == "be brief"
    asked = {"openai": f"are you there\n\n{instruction(question())}", "gemini": "are you there"}
    assert request["asked"].texts == [asked[kind]]
    assert request["asked"].settings["temperature"] == 0.7
    (call,) = archive.calls()
    assert call["state"] == "answered"
    assert call["model_version"] == {"openai": "m-1-2026-10-01", "gemini": "m-1-002"}[kind]
    assert (call["tokens_in"], call["tokens_out"]) == (6500, 1500)
    assert call["cost_usd"] == pytest.approx((6500 * 1 + 1500 * 10) / 1e6)
    assert asking.one().value.ready
    assert len(asking.requests) == 1


def test_call_in_a_running_event_loop_is_answered(serve, archive: Archive):
    async def cell(asking: Asking) -> bool:  # of a notebook
        return asking.one().value.ready

    assert asyncio.run(cell(serve()))
    (call,) = archive.calls()
    assert call["state"] == "answered"


@both_kinds
@pytest.mark.parametrize("fault", ["429", "503"])
def test_request_that_fails_is_repeated_by_the_sdk(kind: str, fault: str, serve, archive: Archive):
    asking = serve(kind, script=[fault])
    assert asking.one().value.ready
    assert len(asking.requests) == 2
    assert [call["state"] for call in archive.calls()] == ["answered"]
    asking.server.script = [fault] * 9
    with pytest.raises(UserError, match=r"gave no answer .*resume="):
        asking.one(question("more"))
    assert len(asking.requests) == 5, "one layer of retries, not two multiplied"


@both_kinds
@pytest.mark.parametrize("fault", ["stall", "schema", "empty", "blocked", "length"])
def test_answer_that_is_none_is_reported_and_asked_for_again(kind: str, fault: str, serve, archive: Archive):
    asking = serve(kind, script=[fault], stall_s=1.5, timeout_s=1.0 if fault == "stall" else 5.0)
    assert asking.one().value.ready
    states = [(c["state"], bool(c["error"])) for c in archive.calls()]
    assert states == [("failed", True), ("answered", False)]
    expected = {
        "schema": "does not match the schema", "length": "cut off",
        "blocked": "refused" if kind == "openai" else "SAFETY", "stall": "no answer within 1 s",
        "empty": "no choices" if kind == "openai" else "no candidates",
    }  # fmt: skip
    assert expected[fault] in asking.said[0]


@both_kinds
@pytest.mark.parametrize("fault", ["cut", "half_body"])
def test_connection_that_breaks_off_is_opened_again(kind: str, fault: str, serve):
    asking = serve(kind, script=[fault])
    assert asking.one().value.ready
    assert len(asking.requests) == 2


@both_kinds
def test_idempotency_key_changes_after_a_bad_answer_only(kind: str, serve):
    """A server may answer each key once: a lost answer is wanted again, a bad one is not."""
    asking = serve(kind, script=["503", "schema", "cut", "503", "truncated", "", ""], attempts=6)
    assert asking.one().value.ready
    assert asking.one(question("more")).value.ready
    keys = [r["asked"].seed for r in asking.requests]
    first, again, last, more = dict.fromkeys(keys)
    assert keys == [first] * 2 + [again] * 3 + [last, more]


@both_kinds
def test_wrong_key_is_reported_at_once_and_never_shown(kind: str, serve, archive: Archive):
    asking = serve(kind, key="sk-another")
    with pytest.raises(UserError, match=r"denies access .*MOVLR_TEST_KEY") as told:
        asking.one()
    assert len(asking.requests) == 1
    assert "[key]" in str(told.value), "the server's own words, without the key in them"
    everything = b"".join(p.read_bytes() for p in archive.root.rglob("*") if p.is_file())
    assert KEY not in everything.decode("latin-1") + str(told.value) + "".join(asking.said)


@both_kinds
def test_missing_key_is_reported_before_anything_is_sent(kind: str, archive: Archive):
    config = ModelConfig(KINDS[kind], model="m", key_env="MOVLR_TEST_KEY")
    with pytest.raises(UserError, match="llm needs a key: set the environment variable MOVLR_TEST_KEY"):
        open_client(config, "llm", None, Budget(archive), print)


def test_server_on_this_machine_needs_no_key_and_no_proxy(serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    monkeypatch.delenv("MOVLR_TEST_KEY")
    assert serve().one().value.ready
    config = ModelConfig("openai_compatible", base_url="https://example.org/v1", model="m")
    with pytest.raises(UserError, match="llm=openai_compatible cannot connect with the proxy or certificate"):
        OpenAICompatible(config, "llm", print)


@both_kinds
def test_samples_are_separate_calls_within_the_concurrency(kind: str, serve):
    asking = serve(kind, delay_s=0.1, concurrency=2)
    assert all(a.value.ready for a in asking.ask([question(sample=i) for i in range(6)]))
    assert len(asking.requests) == 6
    assert asking.server.most_under_way == 2


def test_equal_concurrent_questions_are_one_call(serve):
    """As when two motions are alike, and are shown in both orders."""
    asking = serve(delay_s=0.1)
    assert all(a.value.ready for a in asking.ask([question(), question()]))
    assert len(asking.requests) == 1


def test_film_is_sent_inline_by_both_protocols(serve):
    openai, gemini = serve("openai"), serve("gemini")
    for asking in (openai, gemini):
        assert asking.one(WATCHING).value.winner in ("first", "second")
        asked = asking.requests[0]["asked"]
        assert asked.media == [("video/mp4", FILM.data), ("image/jpeg", b"picture")]
        assert set(asked.schema["required"]) == set(Judgement.model_fields)
    kinds = [p["type"] for p in openai.requests[0]["body"]["messages"][0]["content"]]
    assert kinds == ["text", "video_url", "text", "image_url", "text"]
    part = gemini.requests[0]["body"]["contents"][0]["parts"][1]
    assert (part.get("videoMetadata") or part["video_metadata"])["fps"] == 8.0


def test_large_film_is_uploaded_once(serve):
    asking = serve("gemini", inline_mb=0.001)
    asking.one(WATCHING)
    asking.one(Question("judge", WATCHING.messages, Judgement, sample=1))
    assert [r["bytes"] for r in asking.requests if "upload_id" in r["path"]] == [len(FILM.data)]
    assert [r["asked"].media[0] for r in asking.requests if "asked" in r] == [("video/mp4", FILM.data)] * 2


def test_temperature_that_gemini_ignores_is_not_sent(serve, archive: Archive):
    asking = serve("gemini", model="gemini-3.8-flash", thinking="low")
    asking.one()
    settings = asking.requests[0]["asked"].settings
    assert "temperature" not in settings
    assert "low" in str(settings).lower()
    (call,) = archive.calls()
    assert call["asked"]["temperature"] == 0.7, "what was wanted is recorded with what was sent"
    assert "temperature" not in call["parameters"]


@both_kinds
def test_max_calls_counts_calls_under_way(kind: str, serve, archive: Archive):
    asking = serve(kind, delay_s=0.05, max_calls=3, concurrency=8)
    with pytest.raises(BudgetSpent, match="max_calls=3 is used up"):
        asking.ask([question(sample=i) for i in range(8)])
    assert len(asking.requests) == archive.spent()[0] == 3


def test_max_cost_is_never_exceeded_and_needs_a_price(serve, archive: Archive):
    asking = serve(price=PRICE, max_tokens=2000, max_cost_usd=0.06, concurrency=8)
    with pytest.raises(BudgetSpent, match=r"max_cost_usd=0.06 is used up"):
        asking.ask([question(sample=i) for i in range(8)])
    assert archive.spent()[1] <= 0.06
    with pytest.raises(UserError, match=r"the price of m-1 is unknown.*llm.price="):
        serve(max_cost_usd=1.0)


def test_cost_of_an_abandoned_request_is_the_maximum(serve, archive: Archive):
    asking = serve(script=["stall"], stall_s=1.5, price=PRICE, max_tokens=2000, timeout_s=0.5, max_cost_usd=1.0)
    asking.one()
    late, answered = (c["cost_usd"] for c in archive.calls())
    assert late >= 2000 * 10 / 1e6
    assert answered == pytest.approx((6500 * 1 + 1500 * 10) / 1e6)


def test_replay_answers_from_the_record_only(serve, archive: Archive, tmp_path: Path):
    asking = serve(script=["blocked"] * 3)
    asking.one(question("refused"))
    asking.one(question("answered"))
    requests = len(asking.requests)
    with Archive.create(tmp_path / "again", "") as again:
        config, price = asking.client.config, asking.client.price
        client = ModelClient(Replayed(config), config, price, Budget(again), print, RunAnswers(archive.root))
        refused, answered = client.ask([question("refused"), question("answered")])
        assert "refused" in refused.problem
        assert answered.value.ready
        assert again.spent() == (0, 0.0)
        with pytest.raises(UserError, match="no answer to this call"):
            client.ask([question("never asked")])
    assert len(asking.requests) == requests


LABELS = {"knees": "left knee flexion", "torso": "upright", "hands": 'a "grip" \u00e9'}
SEEN = [{"region": region, "label": label, "confidence": 0.9} for region, label in LABELS.items()]
DESCRIBED = {"descriptors": SEEN, "success": True, "alignment": 0.5}


def confidences(asking: Asking) -> list[float]:
    described = Question("describe", [Message("user", ["describe"])], Descriptors)
    answer = asking.one(described)
    assert asking.one(described).value == answer.value, "from the record"
    return [d.confidence for d in answer.value.descriptors]


def test_confidences_are_those_of_the_tokens_of_the_labels(serve, archive: Archive):
    """Tokens take what stands before a word along: quote and left, blank and knee. All others are certain."""
    chances = {"left": 0.5, "knee": 0.25, "flexion": 0.5, "upright": 0.36}

    def logprob(token: str) -> float:
        return next((math.log(p) for word, p in chances.items() if token.endswith(word)), 0.0)

    asking = serve(brain=lambda asked: DESCRIBED, logprob=logprob, logprobs=True)
    assert confidences(asking) == [round((0.5 * 0.25 * 0.5) ** (1 / 3), 3), 0.36, 1.0]
    assert len(asking.requests) == 1
    assert asking.requests[0]["asked"].settings["logprobs"] is True
    (call,) = archive.calls()
    assert '"confidence": 0.9' in call["answer"], "the record keeps what the model said"


def test_recorded_log_probabilities_that_are_invalid_are_ignored():
    text = json.dumps(DESCRIBED)
    for logprobs in ([[len(text)]], [[None, -1.0]], [["x", "y"]], [3], [[len(text) - 1, -1.0]]):
        form: Any = read(Descriptors, Reply(text, "", logprobs=logprobs))  # pyright: ignore
        assert [d.confidence for d in form.descriptors] == [0.9, 0.9, 0.9]
    form = read(Descriptors, Reply(text, "", logprobs=[[len(text), math.log(0.5)]]))
    assert [d.confidence for d in form.descriptors] == [0.5, 0.5, 0.5]
