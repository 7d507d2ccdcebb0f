"""Fake servers with a client, for tests of the clients of models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_servers import FakeServer
from model_calls import KEY, OF_SERVER, Asking

from movlr_jax.storage.archive import Archive


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch):
    """The SDKs wait only shortly before they repeat a request."""
    monkeypatch.setattr("google.genai._api_client._RETRY_INITIAL_DELAY", 0.01)
    monkeypatch.setattr("google.genai._api_client._RETRY_JITTER", 0.01)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive.create(tmp_path / "run", "") as archive:
        yield archive


@pytest.fixture
def serve(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Asking]]:
    """Start a fake server with a client, `serve(kind="openai", **settings of both)`; both end with the test."""
    monkeypatch.setenv("MOVLR_TEST_KEY", KEY)
    with contextlib.ExitStack() as stack:

        def start(kind: str = "openai", **settings: Any) -> Asking:
            of_server = {name: settings.pop(name) for name in OF_SERVER & settings.keys()}
            server = stack.enter_context(FakeServer(kind, **of_server))
            asking = Asking(server, archive, **settings)
            stack.callback(asking.client.close)
            return asking

        yield start
