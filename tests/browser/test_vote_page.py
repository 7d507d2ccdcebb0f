"""The page for votes in Chromium: a ranking by keyboard, a reload, two raters, a search, accessibility."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from voted_run import make_run, moving_bar

from movlr_jax.storage.archive import Archive
from movlr_jax.voting.votes import votes_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def films() -> Callable[[int], bytes]:
    made: dict[int, bytes] = {}
    return lambda k: made.setdefault(k, moving_bar(k, seconds=1.0 - 0.3 * (k == 1)))


@pytest.fixture
def served(tmp_path: Path, films) -> Iterator[tuple[Path, str, subprocess.Popen]]:
    """A run of five candidates on the page of `movlr-jax vote`."""
    terms = ("near", "calm", "<b>bold</b>")
    shows = ("the right side of the body", "the front, <i>far</i>")
    run = make_run(tmp_path / "run", 5, film=films, description="kick <i>hard</i>", terms=terms, cameras=shows)
    process = subprocess.Popen(
        [sys.executable, "-m", "movlr_jax", "vote", str(run), "port=0"],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    address = process.stderr.readline().split()[2]
    yield run, address, process
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait(60)


class Page:
    """One person's browser."""

    def __init__(self, browser, address: str, name: str, size: tuple[int, int] = (1400, 900)):
        self.context = browser.new_context(viewport={"width": size[0], "height": size[1]})
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.problems.append(m.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.goto(address)
        self.page.keyboard.type(name)  # the field has the focus
        self.page.keyboard.press("Enter")

    def ready(self) -> None:
        self.page.wait_for_function("() => document.querySelector('#films video').readyState >= 2")
        self.page.wait_for_timeout(500)

    def text(self, selector: str) -> str:
        return self.page.text_content(selector) or ""

    def comparing(self) -> bool:
        self.page.wait_for_selector("#compare:not([hidden]), #results:not([hidden])")
        return self.page.is_visible("#compare")

    def press(self, key: str) -> None:
        """Vote and wait until the next question is shown."""
        self.ready()
        said = self.text("#left-text")
        self.page.keyboard.press(key)
        self.page.wait_for_function("said => document.querySelector('#left-text').textContent != said", arg=said)


def votes(run: Path):
    with Archive.open(run, write=False) as archive:
        return votes_of(archive.calls())


def test_a_whole_ranking_by_keyboard_with_a_reload_in_the_middle(browser, served, findings):
    run, address, process = served
    me = Page(browser, address, "Ana")
    page, keys = me.page, "120"
    assert me.comparing()
    assert me.text("#task") == "kick <i>hard</i>"
    me.ready()
    assert findings(page) == []
    for n in range(40):
        if not me.comparing():
            break
        if n == 1:
            me.ready()
            page.keyboard.press("w")
            page.keyboard.type("it is nearer, 1 of 2")
            page.keyboard.press("Enter")
        if n == 3:
            shown = page.evaluate("document.querySelector('#left-text').textContent")
            page.reload()
            assert me.comparing()
            me.ready()
            assert page.evaluate("document.querySelector('#left-text').textContent") == shown
            page.keyboard.press("u")
            page.wait_for_function("() => document.querySelector('#last').textContent.includes('taken back')")
            assert len(votes(run)) == 2
        me.press(keys[n % 2])
    given = votes(run)
    assert 4 <= len(given) <= 20, "4 per candidate; somebody who prefers any of them leaves it open"
    assert [v.reason for v in given].count("it is nearer, 1 of 2") == 1
    page.wait_for_selector("#results:not([hidden])")
    assert page.locator("#rows tr").count() == 5
    assert findings(page) == []
    page.click("button[aria-label='near: more']")
    page.fill("[aria-label='Why should near change?']", "too far")
    page.click("button[aria-label='<b>bold</b>: away']")
    page.fill("#new-term", "height")
    page.fill("#problems", "it is slow\nit shakes")
    page.click("text=Send the critique")
    page.wait_for_function("() => document.querySelector('#alert').textContent.includes('recorded')")
    with Archive.open(run, write=False) as archive:
        critique = json.loads(archive.calls()[-1]["answer"])
    assert [(a["action"], a["term"]) for a in critique["advice"]] == [
        ("strengthen", "near"), ("remove", "<b>bold</b>"), ("add", "height"),
    ]  # fmt: skip
    assert critique["problems"] == ["it is slow", "it shakes"]
    assert me.problems == []
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert json.loads(out.splitlines()[-1])["votes"] == len(given)
    page.wait_for_function("() => document.querySelector('#alert').textContent.startsWith('No answer')")


def test_films_play_in_step_scrub_slow_down_and_change_cameras(browser, served):
    _, address, _ = served
    me = Page(browser, address, "Ana")
    page = me.page
    me.ready()
    both = "[...document.querySelectorAll('#films video')].map((video) => video.currentTime)"
    gap = f"(([a, b]) => Math.abs(a - b))({both})"
    times = []
    for _ in range(20):  # twice round: they hold the end for a moment
        page.wait_for_timeout(130)
        times.append((page.evaluate("document.querySelector('#films video').currentTime"), page.evaluate(gap)))
    assert len({t for t, _ in times}) > 5, "they play, over and over"
    assert sum(g < 0.12 or g >= 0.25 for _, g in times) >= 12, "in step; one film of 0.7 s holds its end"
    page.keyboard.press(" ")
    page.wait_for_function("() => document.querySelector('#films video').paused")
    page.keyboard.press("e")
    ends = "(v) => v.paused && v.duration - v.currentTime < 0.05"
    page.wait_for_function(f"() => [...document.querySelectorAll('#films video')].every({ends})")
    assert "Play" in me.text("#transport")
    page.keyboard.press("r")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => Math.abs(document.querySelector('#films video').currentTime - 0.08) < 1e-3")
    assert page.evaluate(gap) < 1e-3
    page.locator("#transport input[type=range]").fill("0.5")
    page.wait_for_function("() => Math.abs(document.querySelector('#films video').currentTime - 0.5) < 1e-3")
    page.keyboard.press("s")
    page.keyboard.press("s")
    page.keyboard.press(" ")
    assert "Speed 1/4" in me.text("#transport")
    page.wait_for_function("() => document.querySelector('#films video').playbackRate == 0.25")
    wide = page.evaluate("document.querySelector('#films .frame').getBoundingClientRect().toJSON()")
    assert me.text("#films figcaption") == "Right side of the bodyFront"
    page.keyboard.press("c")
    one = page.evaluate("document.querySelector('#films .frame').getBoundingClientRect().toJSON()")
    assert wide["width"] / wide["height"] == pytest.approx(2, rel=0.05)
    assert one["width"] / one["height"] == pytest.approx(1, rel=0.05)
    assert "View: 1" in me.text("#transport")
    assert me.text("#films figcaption") == "Right side of the body"
    assert me.problems == []


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits(browser, served, findings, width: int):
    _, address, _ = served
    me = Page(browser, address, "Ana", (width, 800))
    me.ready()
    assert me.page.evaluate("document.documentElement.scrollWidth") <= width
    assert findings(me.page) == []


def test_a_search_waits_for_the_page(browser, tmp_path: Path, findings):
    """vlm=person on the small leg: vote, take back, criticise; the search ends by itself."""
    run = tmp_path / "run"
    from model_search import TASK

    process = subprocess.Popen(
        [sys.executable, "-m", "movlr_jax.search", *TASK, "generations=1", "candidates=3", "vlm=person",
         "vlm.size=[128,128]", "vlm.port=0", f"run_dir={run}"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while not (run / ".vote").exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.2)
        me = Page(browser, (run / ".vote").read_text(), "Ana")
        page = me.page
        page.wait_for_selector("#compare:not([hidden])", timeout=180_000)
        me.press("1")
        page.wait_for_selector("#compare:not([hidden])")
        page.keyboard.press("u")
        page.wait_for_function("() => document.querySelector('#last').textContent.includes('taken back')")
        for _ in range(12):
            page.wait_for_selector("#compare:not([hidden]), #critique:not([hidden])")
            if not page.is_visible("#compare"):
                break
            me.ready()
            page.keyboard.press("2")
            page.wait_for_timeout(700)
        assert findings(page) == []
        page.click("text=Send the critique")
        assert process.wait(120) == 0
        assert [e for e in me.problems if "ERR_CONNECTION" not in e] == [], "it is gone with the search"
    finally:
        process.kill()
        process.communicate()
    assert (run / "best.py").exists()
    assert {v.rater for v in votes(run)} == {"Ana"}
