"""The terminal and the report say the same of a run: values in the same words, generations by the same number."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_cases import LEG

from movlr_jax._util.quantities import measures, quantity
from movlr_jax.cli.search import main as search
from movlr_jax.storage.archive import Archive

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_terminal_and_report_say_the_same(capfd: pytest.CaptureFixture[str]):
    assert search([*LEG, "generations=2", "run_dir=run"]) == 0
    said, page = capfd.readouterr().err, Path("run/report.html").read_text()
    for g in (0, 1):
        assert f"\ngeneration {g} ({g + 1} of 2)\n" in said
        assert f"<b>Generation {g}</b>" in page
        assert Path(f"run/gen_{g:02d}").is_dir()
    with Archive.open(Path("run"), write=False) as archive:
        metrics = (archive.get("evaluated", 0, 0) or {})["metrics"]
    error = quantity(metrics["object_position_error_m"], "object_position_error_m")
    assert error.endswith(" cm")
    assert f"{error} off" in said
    assert error in page


def test_return_of_an_environment_is_said_first():
    episode = {"return": 43.26, "fell": 1.0, "time_to_fall_s": 1.25, "distance_m": 1.7, "effort": 0.2}
    assert measures(episode) == ["fell at 1.25 s", "return 43.3", "moved 1.7 m"]
