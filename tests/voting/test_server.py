"""The server of the vote page under malformed requests and requests of other sites."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from movlr_jax.voting.questions import Asked, SearchQuestions
from movlr_jax.voting.server import Server

CARD = {"id": "question", "kind": "compare", "films": []}


@pytest.fixture
def page() -> Iterator[str]:
    questions = SearchQuestions(1, ())
    questions.ask(Asked("question", ("g00k00", "g00k01"), CARD, {}))
    server = Server(questions, "127.0.0.1", 0)
    server.start()
    yield server.address
    server.stop()


def state(page: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{page}api/state", params={"rater": "ana"}, headers=headers, timeout=20)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_call_of_another_site_claims_no_pair(page: str, site: str):
    assert state(page, **{"Sec-Fetch-Site": site}).status_code == 403
    assert state(page, Origin="http://evil.example").status_code == 403
    found = httpx.get(f"{page}api/state", params={"rater": "ben"}, headers={"Sec-Fetch-Site": "same-origin"})
    assert found.json()["question"]["id"] == "question"


BODIES = [b"{", b"[" * 100_000, b"\xff\xfe", b'{"rater": "\\ud800"}', b"null"]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:12]))
def test_post_without_a_vote_is_answered_quietly(page: str, body: bytes, capfd: pytest.CaptureFixture[str]):
    answer = httpx.post(f"{page}api/vote", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 409)
    assert capfd.readouterr() == ("", "")


def test_malformed_requests_end_quietly(page: str, capfd: pytest.CaptureFixture[str]):
    host = f"Host: {urlsplit(page).netloc}\r\n".encode()
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
    post = b"POST /api/vote HTTP/1.1\r\n" + host + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    for data, start in (
        (b"GET /api/state?rater=ana HTTP/1.1\r\n" + host + upgrade, b"HTTP/1.1 "),
        (b"\x16\x03\x01\x00garbage\r\n\r\n", b"HTTP/1.1 400 "),
        (post, b""),  # the client leaves in the middle of a vote
    ):
        with socket.create_connection(("127.0.0.1", int(urlsplit(page).port or 0)), timeout=10) as client:
            client.sendall(data)
            if start:
                assert client.recv(200).startswith(start)
    time.sleep(0.5)
    assert state(page).status_code == 200
    assert capfd.readouterr() == ("", "")
