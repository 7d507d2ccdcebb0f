"""The strip of trials in a browser: dots open films, nothing overflows, and it is accessible in both schemes."""

from __future__ import annotations

from pathlib import Path

import pytest
from voted_run import moving_bar

from movlr_jax.report import page as report
from movlr_jax.storage.archive import Archive

pytestmark = pytest.mark.slow
NAME = "g00k00"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A confirmed run of one program with four fresh trials, one of which fell."""
    film = moving_bar(0, views=1, seconds=1.0)
    root = tmp_path_factory.mktemp("trials") / "run"
    with Archive.create(root, "{}\n") as archive:
        tried = {}
        for n, distance in enumerate([0.5, 2.5, 2.5, 0.1]):
            stem = f"confirmation/{NAME}_{n:02d}"
            archive.put(f"{stem}.mp4", film)
            metrics = {"distance_m": distance, "success": float(distance > 2), "fell": float(n == 3)}
            tried[str(n)] = {"seed": 100 + n, "stem": stem, "reason": None, "metrics": metrics}
        archive.record("run", {"task": "hop", "backends": {"judge": "metrics judge"}, "settings": {}})
        data = {"source": "WEIGHTS = {}", "film": None, "metrics": {"distance_m": 0.5, "success": 0.0}}
        archive.record("evaluated", data, 0, 0)
        archive.record("ranked", {"names": [NAME], "best": NAME, "strengths": [1.0], "noise": 1.0}, 0)
        archive.record("trials", {"programs": {NAME: tried}}, -1)
        claim = {"n": 4, "successes": 2, "failed": 0, "metrics": {"distance_m": 1.4}}
        said = {"champion": NAME, "first": NAME, "claims": {NAME: claim}}
        said |= {"text": "g00k00 from 4 fresh starts: 2 of 4 succeed"}
        archive.record("confirmed", said | {"verdict": "no better program than the first was found"})
        archive.record("finished", {"best": NAME, "interrupted": False})
        report.write_report(archive)
    return root


def test_a_dot_opens_the_film_of_its_trial(browser, run):
    page = browser.new_context().new_page()
    page.goto((run / "report.html").as_uri())
    page.locator('#trials a.dot[title*="seed 102"]').first.click()
    assert page.locator("dialog video").count() == 1
    assert "trial 3, seed 102: success" in page.locator("dialog figcaption").inner_text()
    page.wait_for_function("document.querySelector('dialog video').readyState >= 1")


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (390, "dark")])
def test_the_strip_fits_and_is_accessible(chromium, run, findings, width, scheme):
    page = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    page.goto((run / "report.html").as_uri())
    box = page.locator("#trials").bounding_box()
    dots = [dot.bounding_box() for dot in page.locator("#trials .track .dot").all()]
    assert len(dots) == 4
    for i, a in enumerate(dots):
        assert box["x"] <= a["x"]
        assert a["x"] + a["width"] <= box["x"] + box["width"]
        for b in dots[:i]:
            apart = abs(a["x"] - b["x"]) >= a["width"] - 1 or abs(a["y"] - b["y"]) >= a["height"] - 1
            assert apart, "a dot hides another"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert findings(page) == []
