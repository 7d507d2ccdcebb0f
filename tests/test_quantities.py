"""The terminal and the report say the same of a run: values in the same words, generations by the same number."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from cli_cases import LEG

from movlr_jax._util.quantities import measures, quantity, span
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


@pytest.mark.parametrize(
    ("low", "high", "metric", "beside", "text"),
    [
        (0.9, 1.1, "height_m", (), "0.9 to 1.1 m"),
        (0.948, 0.948, "height_m", (0.9, 1.1), "0.948 m"),
        (0.08, 0.12, "rise_m", (), "8.0 to 12.0 cm"),
        (-0.009, 0.432, "left_arm_raised_m", (0.05,), "−0.9 to 43.2 cm"),
        (0.783, 0.957, "distance_m", (), "0.783 to 0.957 m"),
        (1.4, 1.57, "turned_rad", (), "80 to 90°"),
        (0.602, 0.789, "closed_fraction", (), "60.2 to 78.9 %"),
        (0.7, math.inf, "progress_m_s", (), "at least 0.7 m/s"),
        (-math.inf, 0.3, "drift_error_m", (2.0,), "at most 0.3 m"),
        (-math.inf, math.inf, "drift_error_m", (), "any"),
        (1.0, 3.0, "jumps", (), "1 to 3"),
    ],
)
def test_a_range_has_one_unit_also_with_what_is_beside_it(low, high, metric, beside, text):
    assert span(low, high, metric, beside) == text
