"""The page of the command view in Chromium: a moving body, a scrubbed time, no console error."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("mjviser", reason="pip install 'movlr-jax[view]'")
from replayed import replay_of

from movlr_jax.film.viewer import Page

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("browser", ["chromium"], indirect=True)  # Firefox needs a graphics driver
def test_a_motion_is_shown_and_plays(browser):
    replay = replay_of(playing=False)
    served = Page(replay, 0)
    threading.Thread(target=served.play, daemon=True).start()
    page = browser.new_context(viewport={"width": 1200, "height": 800}).new_page()
    problems: list[str] = []
    page.on("console", lambda m: m.type == "error" and problems.append(m.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    outside: list[str] = []
    page.on("request", lambda r: r.url.startswith("http") and "127.0.0.1" not in r.url and outside.append(r.url))
    try:
        page.goto(served.address)
        page.wait_for_selector("canvas", timeout=60_000)
        page.wait_for_selector("text=g00k00: turn")
        page.wait_for_timeout(3000)
        before = page.locator("canvas").first.screenshot()
        replay.show(9)
        served._draw()
        page.wait_for_timeout(2000)
        assert page.locator("canvas").first.screenshot() != before
        page.click("text=pause")
        page.wait_for_timeout(1500)
        assert replay.playing
        assert problems == []
        assert outside == []
    finally:
        served.close()
