"""The gait section of a report: curves and measures of a walk."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_walk import made_walk
from test_report import page_of, steps

from movlr_jax.biomech.gait.analysis import analyse
from movlr_jax.report.gait import charts, phases, picture, table


@pytest.fixture(scope="module")
def record() -> dict:
    analysis = analyse(made_walk())
    assert analysis is not None
    return analysis.record()


def test_every_chart_is_drawn_with_the_colours_of_the_page(record: dict):
    drawn = dict(charts(record))
    assert list(drawn) == [
        "hip flexion (deg)",
        "knee flexion (deg)",
        "ankle dorsiflexion (deg)",
        "vertical force (body weights)",
    ]
    for chart in drawn.values():
        legs = [line for line in chart["lines"] if line["name"] != "people"]
        assert [(line["name"], line["colour"]) for line in legs] == [("left", "c0"), ("right", "c1")]
        assert chart["lines"][-2:] == legs, "people's line is behind those of the legs"
        assert chart["x"][-1] == 100
    alone = {**record, "legs": {"right": record["legs"]["right"]}}
    assert {line["colour"] for line in dict(charts(alone))["knee flexion (deg)"]["lines"]} == {"c1"}
    assert len(drawn["hip flexion (deg)"]["bands"]) == 3
    rows = {row["muscle"]: row for row in phases(record)}
    assert set(rows["tibialis anterior"]["legs"]) == {"left", "right"}
    assert all(0 <= start <= start + width <= 100 for row in rows.values() for start, width in row["people"])
    assert len(picture(record, "a walk").axes) == 5


def test_the_table_has_both_legs_and_people(record: dict):
    rows = {label: (values, people) for label, values, people in table(record)}
    (left, right), people = rows["knee flexion in swing (deg)"]
    assert left == pytest.approx(59, abs=1)
    assert right == pytest.approx(59, abs=1)
    assert people == "60"
    (cadence,), _ = rows["cadence (steps/min)"]
    assert cadence == pytest.approx(109, abs=1)


@pytest.mark.parametrize("broken", [{"legs": {"left": None}}, {"speed_class": "sprint"}, {"legs": {"left": {}}}])
def test_a_record_that_cannot_be_drawn_does_not_stop_the_page(tmp_path: Path, record: dict, broken: dict):
    def page(gait: dict) -> str:
        recorded = [(k, d | {"gait": gait} if k == "evaluated" else d, *place) for k, d, *place in steps()]
        return page_of(tmp_path / str(len(gait)), recorded)

    assert "knee flexion in swing" in page(record)
    assert 'id="gait"' in page({**record, **broken, "more": 0})
