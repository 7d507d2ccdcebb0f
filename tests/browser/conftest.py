"""Chromium, Firefox and axe-core for tests of pages.

Needs pip install 'movlr-jax[browser]', a browser (apt-get install chromium firefox-esr) and, for axe-core, npm.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FIREFOX = ("firefox-esr", "firefox")
# graphics without a graphics card
SOFTWARE_GL = "--enable-unsafe-swiftshader"


@pytest.fixture(scope="session")
def playwright():
    library = pytest.importorskip("playwright.sync_api", reason="pip install 'movlr-jax[browser]'")
    with library.sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def chromium(playwright):
    program = _installed(CHROMIUM, "apt-get install chromium")
    made = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", SOFTWARE_GL])
    yield made
    made.close()


@pytest.fixture(scope="session")
def firefox(playwright):
    """The Firefox of the system. It needs no build of Playwright's: they speak WebDriver BiDi."""
    program = _installed(FIREFOX, "apt-get install firefox-esr")
    made = playwright.firefox.launch(executable_path=program, channel="moz-firefox")
    yield made
    made.close()


def _installed(names: Sequence[str], fix: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    return found or pytest.skip(f"no {names[0]} here: {fix}")


@pytest.fixture(params=["chromium", "firefox"])
def browser(request: pytest.FixtureRequest):
    """Each of the two browsers in turn. Its pages are closed after the test: an open one draws on, on all cores."""
    made = request.getfixturevalue(request.param)
    yield made
    for context in made.contexts:
        context.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, from npm."""
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "install", "--no-save", "--ignore-scripts", "--prefix", str(folder), "axe-core@4"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("npm cannot install axe-core here")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="session")
def findings(axe: str) -> Callable[..., list[str]]:
    """What returns the serious and critical findings of axe-core on a page."""

    def found(page) -> list[str]:
        page.evaluate(axe)  # not as a script element: the page's policy would refuse it
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{v['id']}: {n['html'][:300]}"
            for v in result["violations"]
            for n in v["nodes"][:3]
            if v["impact"] in ("serious", "critical")
        ]

    return found
