"""The real SDKs against local servers: what is sent, what is made of every kind of failure, what is recorded."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_servers import FAULTS, FakeServer

from movlr_jax.errors import BudgetSpent, UserError
from movlr_jax.language.clients.answers import Descriptors, Judgement, Ready, read
from movlr_jax.language.clients.call import Media, Message, Question, Reply
from movlr_jax.language.clients.client import Budget, ModelClient
from movlr_jax.language.clients.openai_compatible import OpenAICompatible, instruction
from movlr_jax.language.clients.opening import open_client
from movlr_jax.language.settings import ModelConfig
from movlr_jax.storage.archive import Archive

KEY = "sk-SECRET-0123456789-zz"
FILM = Media("video/mp4", bytes(range(256)) * 40, fps=8.0)
KINDS = {"openai": "openai_compatible", "gemini": "gemini"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MOVLR_TEST_KEY", KEY)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive.create(tmp_path / "run", "") as archive:
        yield archive


def question(text: str = "are you there", sample: int = 0, **more) -> Question:
    return Question(
        "check", [Message("system", ["be brief"]), Message("user", [text])], Ready, 0.7, sample, **more
    )


def watching() -> Question:
    parts = ["First motion:", FILM, "Second motion:", Media("image/jpeg", b"picture"), "Which?"]
    return Question("judge", [Message("user", parts)], Judgement)


class Asking:
    """A client of a fake server, and all that it said."""

    def __init__(self, server: FakeServer, archive: Archive, **settings):
        self.said: list[str] = []
        common = {
            "timeout_s": 5.0,
            "backoff_s": 0.01,
            "attempts": 3,
            "key_env": "MOVLR_TEST_KEY",
            "model": "m-1",
        }
        budget = {k: settings.pop(k) for k in ("max_calls", "max_cost_usd") if k in settings}
        config = ModelConfig(KINDS[server.kind], base_url=server.url, **{**common, **settings})
        self.client: ModelClient = open_client(
            config, "llm", None, archive, Budget(archive, **budget), self.said.append
        )
        self.ask = self.client.ask


@pytest.mark.parametrize("kind", KINDS)
def test_call_is_recorded_and_never_sent_again(kind: str, archive: Archive):
    with FakeServer(kind, key=KEY) as server:
        asking = Asking(server, archive, price=(1.0, 10.0))
        (answer,) = asking.ask([question()])
        assert answer.value.ready
        (request,) = server.requests
        assert request["asked"].system == "be brief"
        asked = {"openai": f"are you there\n\n{instruction(question())}", "gemini": "are you there"}
        assert request["asked"].texts == [asked[kind]]
        assert request["asked"].settings["temperature"] == 0.7
        (call,) = archive.calls()
        assert call["state"] == "answered"
        assert call["model_version"] == {"openai": "m-1-2026-10-01", "gemini": "m-1-002"}[kind]
        assert (call["tokens_in"], call["tokens_out"]) == (6500, 1500)
        assert call["cost_usd"] == pytest.approx((6500 * 1 + 1500 * 10) / 1e6)
        assert asking.ask([question()])[0].value.ready
        assert len(server.requests) == 1, "an answered call is never made again"
        asking.client.close()


def test_call_in_a_running_event_loop_is_answered(archive: Archive):
    with FakeServer("openai") as server:
        asking = Asking(server, archive)

        async def cell() -> bool:
            (answer,) = asking.ask([question()])
            asking.client.close()
            return answer.value.ready

        assert asyncio.run(cell())
        (call,) = archive.calls()
        assert call["state"] == "answered"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", [*FAULTS, "length"])
def test_failure_is_reported_and_the_call_is_sent_again(kind: str, fault: str, archive: Archive):
    with FakeServer(kind, script=[fault], stall_s=1.5) as server:
        asking = Asking(server, archive, timeout_s=1.0 if fault == "stall" else 5.0)
        (answer,) = asking.ask([question()])
        assert answer.value.ready
        assert len(server.requests) == 2
        states = [(c["state"], bool(c["error"])) for c in archive.calls()]
        assert states == [("failed", True), ("answered", False)]
        expected = {
            "429": "HTTP 429", "500": "HTTP 500", "503": "HTTP 503", "truncated": "does not match the schema",
            "schema": "does not match the schema", "length": "cut off",
            "blocked": "refused" if kind == "openai" else "SAFETY",
            "empty": "no choices" if kind == "openai" else "no candidates",
        }  # fmt: skip
        assert expected.get(fault, "") in asking.said[0]
        asking.client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_idempotency_key_changes_after_a_bad_answer_only(kind: str, archive: Archive):
    """A server may answer each key once: a lost answer is wanted again, a bad one is not."""
    with FakeServer(kind, script=["503", "schema", "cut", "503", "truncated", "", ""]) as server:
        asking = Asking(server, archive, attempts=6)
        assert asking.ask([question()])[0].value.ready
        assert asking.ask([question("more")])[0].value.ready
        keys = [r["asked"].seed for r in server.requests]
        first, again, last, more = dict.fromkeys(keys)
        assert keys == [first] * 2 + [again] * 3 + [last, more]
        asking.client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_retry_after_is_respected_and_a_long_one_ends_the_search(kind: str, archive: Archive):
    with FakeServer(kind, script=["429"], retry_after="0.6") as server:
        asking = Asking(server, archive)
        begun = time.monotonic()
        asking.ask([question()])
        assert time.monotonic() - begun >= 0.6
        server.script, server.retry_after = ["503"] * 3, "0"
        with pytest.raises(UserError, match=r"no answer in 3 attempts: HTTP 503.*resume="):
            asking.ask([question("other")])
        server.script, server.retry_after = ["429"], "3600"
        with pytest.raises(UserError, match=r"requests a wait of 3600 s .*resume="):
            asking.ask([question("more")])
        assert len(server.requests) == 6, "one layer of retries, not two multiplied"
        asking.client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_network_error_names_the_address_and_the_proxy(
    kind: str, archive: Archive, monkeypatch: pytest.MonkeyPatch
):
    """Nothing listens on the port of either. The password of the proxy stays out of sight."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    common = {"key_env": "MOVLR_TEST_KEY", "model": "m-1", "attempts": 2, "backoff_s": 0.01}

    def error(url: str) -> str:
        said: list[str] = []
        config = ModelConfig(KINDS[kind], base_url=url, **common)
        client = open_client(config, "llm", None, archive, Budget(archive), said.append)
        with pytest.raises(UserError) as raised:
            client.ask([question()])
        client.close()
        assert "(calling http://" in said[0]
        return str(raised.value)

    assert "(calling http://127.0.0.1:9/v1); continue later" in error("http://127.0.0.1:9/v1")
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@127.0.0.1:9")
    told = error("http://models.example/v1")
    assert "(calling http://models.example/v1 through the proxy http://127.0.0.1:9)" in told
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert "proxy" not in error("http://127.0.0.1:9/v1")


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_key_is_reported_at_once_and_never_shown(kind: str, archive: Archive):
    with FakeServer(kind, key="sk-another") as server:
        asking = Asking(server, archive)
        with pytest.raises(UserError, match=r"denies access .*MOVLR_TEST_KEY") as told:
            asking.ask([question()])
        assert len(server.requests) == 1
        assert KEY not in str(told.value)
        assert "[key]" in str(told.value), "the server's own words, without the key in them"
        asking.client.close()
    everything = b"".join(p.read_bytes() for p in archive.root.rglob("*") if p.is_file())
    assert KEY.encode() not in everything
    assert KEY not in "".join(asking.said)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_key_is_reported_before_anything_is_sent(
    kind: str, archive: Archive, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("MOVLR_TEST_KEY")
    config = ModelConfig(KINDS[kind], model="m", key_env="MOVLR_TEST_KEY")
    with pytest.raises(UserError, match="llm needs a key: set the environment variable MOVLR_TEST_KEY"):
        open_client(config, "llm", None, archive, Budget(archive), print)


def test_server_on_this_machine_needs_no_key_and_no_proxy(archive: Archive, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    monkeypatch.delenv("MOVLR_TEST_KEY")
    with FakeServer("openai") as server:
        assert Asking(server, archive).ask([question()])[0].value.ready
    config = ModelConfig("openai_compatible", base_url="https://example.org/v1", model="m")
    with pytest.raises(
        UserError, match=r"llm=openai_compatible cannot connect with the proxy or certificate"
    ):
        OpenAICompatible(config, "llm", print)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_separate_calls_within_the_concurrency(kind: str, archive: Archive):
    with FakeServer(kind, delay_s=0.1) as server:
        asking = Asking(server, archive, concurrency=2)
        answers = asking.ask([question(sample=i) for i in range(6)])
        assert all(a.value.ready for a in answers)
        assert len(server.requests) == 6
        assert server.most_under_way == 2
        asking.client.close()


def test_equal_concurrent_questions_are_one_call(archive: Archive):
    """As when two motions are alike, and are shown in both orders."""
    with FakeServer("openai", delay_s=0.1) as server:
        asking = Asking(server, archive)
        assert all(a.value.ready for a in asking.ask([question(), question()]))
        assert len(server.requests) == 1
        asking.client.close()


def test_film_is_sent_inline_by_both_protocols(archive: Archive):
    with FakeServer("openai") as openai, FakeServer("gemini") as gemini:
        for server in (openai, gemini):
            (answer,) = Asking(server, archive).ask([watching()])
            assert answer.value.winner in ("first", "second")
            asked = server.requests[0]["asked"]
            assert asked.media == [("video/mp4", FILM.data), ("image/jpeg", b"picture")]
            assert set(asked.schema["required"]) == set(Judgement.model_fields)
    kinds = [p["type"] for p in openai.requests[0]["body"]["messages"][0]["content"]]
    assert kinds == ["text", "video_url", "text", "image_url", "text"]
    part = gemini.requests[0]["body"]["contents"][0]["parts"][1]
    assert (part.get("videoMetadata") or part["video_metadata"])["fps"] == 8.0


def test_large_film_is_uploaded_once(archive: Archive):
    with FakeServer("gemini") as server:
        asking = Asking(server, archive, inline_mb=0.001)
        asking.ask([watching()])
        asking.ask([Question("judge", watching().messages, Judgement, sample=1)])
        uploads = [r for r in server.requests if "upload_id" in r["path"]]
        assert [r["bytes"] for r in uploads] == [len(FILM.data)]
        assert [r["asked"].media[0] for r in server.requests if "asked" in r] == [
            ("video/mp4", FILM.data)
        ] * 2
        asking.client.close()


def test_temperature_that_gemini_ignores_is_not_sent(archive: Archive):
    with FakeServer("gemini") as server:
        asking = Asking(server, archive, model="gemini-3.8-flash", thinking="low")
        asking.ask([question()])
        settings = server.requests[0]["asked"].settings
        assert "temperature" not in settings
        assert settings["thinkingConfig"] == {"thinkingLevel": "LOW"} or "low" in str(settings).lower()
        (call,) = archive.calls()
        assert call["asked"]["temperature"] == 0.7, (
            "what was asked for is recorded together with what was sent"
        )
        assert "temperature" not in call["parameters"]
        asking.client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_max_calls_counts_calls_under_way(kind: str, archive: Archive):
    with FakeServer(kind, delay_s=0.05) as server:
        asking = Asking(server, archive, max_calls=3, concurrency=8)
        with pytest.raises(BudgetSpent, match="max_calls=3 is used up"):
            asking.ask([question(sample=i) for i in range(8)])
        assert len(server.requests) == 3
        assert archive.spent()[0] == 3
        asking.client.close()


def test_max_cost_is_never_exceeded_and_needs_a_price(archive: Archive):
    with FakeServer("openai") as server:
        asking = Asking(server, archive, price=(1.0, 10.0), max_tokens=2000, max_cost_usd=0.06, concurrency=8)
        with pytest.raises(BudgetSpent, match=r"max_cost_usd=0.06 is used up"):
            asking.ask([question(sample=i) for i in range(8)])
        assert archive.spent()[1] <= 0.06
        asking.client.close()
        with pytest.raises(UserError, match=r"the price of m-1 is unknown.*llm.price="):
            Asking(server, archive, max_cost_usd=1.0)


def test_cost_of_an_abandoned_request_is_the_maximum_and_of_a_refused_one_nothing(archive: Archive):
    with FakeServer("openai", script=["stall", "500"], stall_s=1.5) as server:
        asking = Asking(server, archive, price=(1.0, 10.0), max_tokens=2000, timeout_s=0.5, max_cost_usd=1.0)
        asking.ask([question()])
        late, refused, answered = (c["cost_usd"] for c in archive.calls())
        assert late >= 2000 * 10 / 1e6
        assert refused == 0.0
        assert answered == pytest.approx((6500 * 1 + 1500 * 10) / 1e6)
        asking.client.close()


def test_price_of_a_known_model_is_in_the_table(archive: Archive):
    with FakeServer("gemini") as server:
        asking = Asking(server, archive, model="gemini-2.5-flash")
        asking.ask([question()])
        assert archive.calls()[0]["cost_usd"] == pytest.approx((6500 * 0.3 + 1500 * 2.5) / 1e6)
        asking.client.close()


def test_replay_answers_from_the_record_only(archive: Archive, tmp_path: Path):
    from movlr_jax.language.clients.replay import Replayed, RunAnswers

    with FakeServer("openai", script=["blocked"] * 3) as server:
        asking = Asking(server, archive)
        asking.ask([question("refused")])
        asking.ask([question("answered")])
        asking.client.close()
        requests = len(server.requests)
    with Archive.create(tmp_path / "again", "") as again:
        config, price = asking.client.config, asking.client.price
        client = ModelClient(Replayed(config), config, price, Budget(again), print, RunAnswers(archive.root))
        refused, answered = client.ask([question("refused"), question("answered")])
        assert "refused" in refused.problem
        assert answered.value.ready
        assert again.spent() == (0, 0.0)
        with pytest.raises(UserError, match="no answer to this call"):
            client.ask([question("never asked")])
        assert len(server.requests) == requests


DESCRIBED = {
    "descriptors": [
        {"region": "knees", "label": "left knee flexion", "confidence": 0.9},
        {"region": "torso", "label": "upright", "confidence": 0.9},
        {"region": "hands", "label": 'a "grip" \u00e9', "confidence": 0.9},
    ],
    "success": True,
    "alignment": 0.5,
}


def confidences(server: FakeServer, archive: Archive, **settings) -> list[float]:
    asking = Asking(server, archive, **settings)
    messages = [Message("user", ["describe"])]
    (answer,) = asking.ask([Question("describe", messages, Descriptors)])
    (again,) = asking.ask([Question("describe", messages, Descriptors)])
    assert again.value == answer.value, "from the record"
    asking.client.close()
    return [d.confidence for d in answer.value.descriptors]


def test_confidences_are_those_of_the_tokens_of_the_labels(archive: Archive):
    """Tokens take what stands before a word along: quote and left, blank and knee. All others are certain."""
    chances = {"left": 0.5, "knee": 0.25, "flexion": 0.5, "upright": 0.36}

    def logprob(token: str) -> float:
        return next((math.log(p) for word, p in chances.items() if token.endswith(word)), 0.0)

    with FakeServer("openai", brain=lambda asked: DESCRIBED, logprob=logprob) as server:
        expected = [round((0.5 * 0.25 * 0.5) ** (1 / 3), 3), 0.36, 1.0]
        assert confidences(server, archive, logprobs=True) == expected
        assert len(server.requests) == 1
        assert server.requests[0]["asked"].settings["logprobs"] is True
        (call,) = archive.calls()
        assert '"confidence": 0.9' in call["answer"], "the record keeps what the model said"


@pytest.mark.parametrize(
    ("logprobs", "logprob"),
    [
        (False, lambda token: -1.0),
        (True, None),
        (True, lambda token: "low"),
        (True, lambda token: math.nan),
        (True, lambda token: None),
    ],
)
def test_confidences_without_usable_log_probabilities_are_those_stated(
    archive: Archive, logprobs: bool, logprob
):
    with FakeServer("openai", brain=lambda asked: DESCRIBED, logprob=logprob) as server:
        assert confidences(server, archive, logprobs=logprobs) == [0.9, 0.9, 0.9]
        assert ("logprobs" in server.requests[0]["asked"].settings) == logprobs


def test_recorded_log_probabilities_that_are_invalid_are_ignored():
    text = json.dumps(DESCRIBED)
    for logprobs in ([[len(text)]], [[None, -1.0]], [["x", "y"]], [3], [[len(text) - 1, -1.0]]):
        form: Any = read(Descriptors, Reply(text, "", logprobs=logprobs))  # pyright: ignore
        assert [d.confidence for d in form.descriptors] == [0.9, 0.9, 0.9]
    form = read(Descriptors, Reply(text, "", logprobs=[[len(text), math.log(0.5)]]))
    assert [d.confidence for d in form.descriptors] == [0.5, 0.5, 0.5]
