"""The server of the vote page under clients that mean it ill: the search next to it goes on, and says nothing."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from movlr_jax.language.voting import connections
from movlr_jax.language.voting.desk import Asked, SearchDesk
from movlr_jax.language.voting.server import Server

CARD = {"id": "question", "kind": "compare", "films": []}


@pytest.fixture
def page() -> Iterator[str]:
    desk = SearchDesk(1, ())
    desk.ask(Asked("question", ("g00k00", "g00k01"), CARD, {}))
    server = Server(desk, "127.0.0.1", 0)
    server.start()
    yield server.address
    server.stop()


def place(page: str) -> tuple[str, int]:
    parts = urlsplit(page)
    return str(parts.hostname), int(parts.port or 0)


def sent(page: str, data: bytes) -> bytes:
    """Return the first bytes of the answer to `data`."""
    with socket.create_connection(place(page), timeout=10) as client:
        client.sendall(data)
        return client.recv(200)


def state(page: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{page}api/state", params={"rater": "ana"}, headers=headers, timeout=20)


FILES = Path("/proc/self/fd")


def open_files() -> int:
    return len(list(FILES.iterdir()))


@pytest.mark.skipif(not FILES.is_dir(), reason="counts open files")
def test_unfinished_headers_leave_the_search_its_files_and_the_voter_the_page(page: str):
    before, clients = open_files(), []
    try:
        for _ in range(300):
            clients.append(client := socket.create_connection(place(page), timeout=10))
            client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1")
        time.sleep(0.5)
        taken = open_files() - before - len(clients)  # of the server; the clients are in this process too
        assert taken <= connections.most_connections() + connections.AT_ONCE
        assert state(page).status_code == 200, "a voter displaces the one that has waited longest"
    finally:
        for client in clients:
            client.close()


def test_few_open_files_allow_few_connections():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert connections.most_connections() == 32
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "begin", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\nGET / HT"], ids=["first", "second"]
)
def test_a_request_that_does_not_come_whole_is_given_up(
    page: str, begin: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "HEADER_S", 0.3)
    with socket.create_connection(place(page), timeout=10) as client:
        client.sendall(begin)
        began = time.monotonic()
        ended = False
        while not ended and time.monotonic() - began < 5:
            try:
                client.sendall(b"x")  # a byte now and then keeps it no longer
                client.settimeout(0.05)
                ended = client.recv(1 << 16) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_call_of_another_site_claims_no_pair(page: str, site: str):
    assert state(page, **{"Sec-Fetch-Site": site}).status_code == 403
    assert state(page, Origin="http://evil.example").status_code == 403
    found = httpx.get(f"{page}api/state", params={"rater": "ben"}, headers={"Sec-Fetch-Site": "same-origin"})
    assert found.json()["question"]["id"] == "question"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"rater": ' + b"9" * 10_000 + b"}",
        b'{"rater": "\\ud800"}',
        b"null",
    ],
)
def test_what_is_no_vote_is_answered_and_nothing_is_printed(
    page: str, body: bytes, capfd: pytest.CaptureFixture[str]
):
    answer = httpx.post(f"{page}api/vote", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 409)
    assert capfd.readouterr() == ("", "")


def test_what_is_no_request_of_a_page_ends_quietly(page: str, capfd: pytest.CaptureFixture[str]):
    host = f"Host: {urlsplit(page).netloc}\r\n".encode()
    socket_of = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    for path in (b"/", b"/api/state?rater=ana", b"/none"):
        assert sent(page, b"GET " + path + b" HTTP/1.1\r\n" + host + socket_of + b"\r\n").startswith(
            b"HTTP/1.1 "
        )
    assert b" 400 " in sent(page, b"\x16\x03\x01\x00garbage\r\n\r\n")
    with socket.create_connection(place(page), timeout=10) as client:  # leaves in the middle of a vote
        client.sendall(
            b"POST /api/vote HTTP/1.1\r\n"
            + host
            + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        time.sleep(0.2)
    time.sleep(0.3)
    assert state(page).status_code == 200
    assert capfd.readouterr() == ("", "")
