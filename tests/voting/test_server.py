"""The server of the vote page under malformed requests and floods: the search next to it goes on."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from movlr_jax.voting import connections
from movlr_jax.voting.questions import Asked, SearchQuestions
from movlr_jax.voting.server import Server

CARD = {"id": "question", "kind": "compare", "films": []}
FILES = Path("/proc/self/fd")


@pytest.fixture
def page() -> Iterator[str]:
    questions = SearchQuestions(1, ())
    questions.ask(Asked("question", ("g00k00", "g00k01"), CARD, {}))
    server = Server(questions, "127.0.0.1", 0)
    server.start()
    yield server.address
    server.stop()


def place(page: str) -> tuple[str, int]:
    parts = urlsplit(page)
    return str(parts.hostname), int(parts.port or 0)


def state(page: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{page}api/state", params={"rater": "ana"}, headers=headers, timeout=20)


def open_files() -> int:
    return len(list(FILES.iterdir()))


@pytest.mark.skipif(not FILES.is_dir(), reason="counts open files")
def test_flood_of_connections_leaves_files_to_the_search_and_the_page_to_voters(page: str):
    before, clients = open_files(), []
    try:
        for _ in range(200):
            clients.append(client := socket.create_connection(place(page), timeout=10))
            client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1")
        time.sleep(0.5)
        taken = open_files() - before - len(clients)  # by the server; the clients are in this process too
        assert taken <= connections.most_connections() + connections.BACKLOG
        assert state(page).status_code == 200
    finally:
        for client in clients:
            client.close()


def test_connections_few_open_files_allow_few(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 4096))
    assert connections.most_connections() == 32


@pytest.mark.parametrize(
    "begin", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\nGET / HT"], ids=["first", "second"]
)
def test_unfinished_request_is_closed_after_its_time(page: str, begin: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "HEADER_S", 0.3)
    with socket.create_connection(place(page), timeout=10) as client:
        client.sendall(begin)
        began = time.monotonic()
        ended = False
        while not ended and time.monotonic() - began < 5:
            try:
                client.sendall(b"x")  # a byte now and then does not extend it
                client.settimeout(0.05)
                ended = client.recv(1 << 16) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_call_of_another_site_claims_no_pair(page: str, site: str):
    assert state(page, **{"Sec-Fetch-Site": site}).status_code == 403
    assert state(page, Origin="http://evil.example").status_code == 403
    found = httpx.get(f"{page}api/state", params={"rater": "ben"}, headers={"Sec-Fetch-Site": "same-origin"})
    assert found.json()["question"]["id"] == "question"


BODIES = [b"{", b"[" * 100_000, b"\xff\xfe", b'{"rater": ' + b"9" * 10_000 + b"}", b'{"rater": "\\ud800"}', b"null"]


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
        with socket.create_connection(place(page), timeout=10) as client:
            client.sendall(data)
            if start:
                assert client.recv(200).startswith(start)
    time.sleep(0.5)
    assert state(page).status_code == 200
    assert capfd.readouterr() == ("", "")
