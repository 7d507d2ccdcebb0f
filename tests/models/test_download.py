"""Downloads of models that are not possible: how fast that is noticed, and what is said."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from movlr_jax.errors import MissingModel
from movlr_jax.models import MODELS, ms_human
from movlr_jax.models.download import SWITCH, unreachable
from movlr_jax.tasks import build_task

CLOSED = "http://127.0.0.1:9"  # a port where nothing listens


@pytest.fixture
def nothing_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No folder is named, and the caches are empty."""
    for name in ("MENAGERIE_ROOT", "OSTRICH_ROOT", SWITCH):
        monkeypatch.delenv(name, raising=False)
    for name in ("MENAGERIE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def refusing() -> Iterator[tuple[str, list[str]]]:
    """A server that refuses everything, also as a proxy, and the lines of the requests that it got."""
    asked: list[str] = []

    class Refusing(http.server.BaseHTTPRequestHandler):
        def refuse(self) -> None:
            asked.append(self.requestline)
            self.send_error(403)

        do_GET = do_HEAD = do_CONNECT = refuse

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}", asked
        httpd.shutdown()


@pytest.mark.usefixtures("nothing_here")
def test_a_server_is_reachable_if_it_answers_even_with_an_error(refusing: tuple[str, list[str]]):
    url, asked = refusing
    assert unreachable(f"{url}/file") == ""
    assert asked == ["HEAD /file HTTP/1.1"]
    assert "refused" in unreachable(CLOSED)


@pytest.mark.usefixtures("nothing_here")
def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_asked():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert unreachable(f"http://127.0.0.1:{silent.getsockname()[1]}", seconds=0.3)
        assert time.monotonic() - began < 3


@pytest.mark.usefixtures("nothing_here")
def test_nothing_is_asked_of_a_server_with_downloads_off(
    refusing: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MENAGERIE_BASE_URL", refusing[0])
    monkeypatch.setenv(SWITCH, "off")
    with pytest.raises(MissingModel, match=r"cannot be downloaded from 127\.0\.0\.1: MOVLR_DOWNLOADS=off; "):
        ms_human.folder()
    assert not refusing[1]


@pytest.mark.usefixtures("nothing_here")
def test_without_a_network_the_fix_is_told_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MENAGERIE_BASE_URL", CLOSED)
    began = time.monotonic()
    with pytest.raises(MissingModel, match=r"cannot be downloaded.*refused.*MENAGERIE_ROOT.*ms_human_700/"):
        ms_human.folder()
    assert time.monotonic() - began < 5  # the package waits for 7 s between its tries


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize(
    ("task", "model", "instead"),
    [
        ("flat_walk", "ms_human_700", "model=myolegs, which is here, does flat_walk, too"),
        ("ostrich_walk", "ostrich", "vittorione94/ostrichrl; no other model that is here does ostrich_walk"),
        ("described", "ms_human_700_manipulation", "model=myoarm_r, which is here, has such a body, too"),
    ],
)
def test_a_task_names_the_model_that_can_replace_one_that_is_missing(
    task: str, model: str, instead: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(SWITCH, "off")
    with pytest.raises(MissingModel) as caught:
        build_task(task, model, 1.0, {}, "wave")
    assert str(caught.value).endswith(instead)
    if "model=" in instead:
        assert MODELS[instead.split(",")[0].removeprefix("model=")].load()
