"""The terminal and the report say the same of a run: values in the same words, generations by the same number."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_cases import LEG

from movlr_jax._util.quantities import quantity, summary
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


def test_what_came_out_is_one_short_line():
    assert summary(
        {"object_position_error_m": 0.0169, "object_orientation_error_rad": 0.105, "success": 1.0}
    ) == ("1.7 cm, 6° off: success")
    assert (
        summary({"distance_m": 6.638, "success": 0.0, "time_to_fall_s": 3.72})
        == "fell at 3.72 s: moved 6.64 m: no success"
    )
    # what the author of a task measures comes before success, what all tasks measure after it
    hop = {
        "distance_m": 2.1,
        "lowest_m": 0.62,
        "knee_range_rad": 1.0,
        "pauses": 3.0,
        "success": 1.0,
        "effort": 0.1,
    }
    turn = {"upright_fraction": 0.45, "turned_rad": 10.128, "effort": 0.2}
    assert summary(turn) == "turned 580°: upright fraction 45 %", "a motion from words has no success"
    assert summary(hop) == "moved 2.1 m: lowest 62.0 cm: knee range 57°: success"


def test_a_length_of_nothing_has_no_sign():
    assert quantity(-1e-5, "raised_m") == "0.0 cm"
    assert quantity(-0.012, "raised_m") == "−1.2 cm"
