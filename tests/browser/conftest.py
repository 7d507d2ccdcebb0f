"""A Chromium and axe-core for tests of pages.

Needs pip install 'movlr-jax[browser]', a Chromium (apt-get install chromium) and, for axe-core, npm.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# graphics without a graphics card
SOFTWARE_GL = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'movlr-jax[browser]'")
    if BROWSER is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as p:
        made = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", *SOFTWARE_GL])
        yield made
        made.close()


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
