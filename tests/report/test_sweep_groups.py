"""Which settings name the groups of a folder of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from movlr_jax.report.sweep import read_members, write_sweep_page
from movlr_jax.storage.archive import Archive

ARM = {"task.name": "bottle_pour", "model": "myoarm_r", "optimizer.mppi.sigma": 0.05}
LEGS = {"task.name": "stand", "model": "myolegs", "optimizer.mppi.sigma": 0.1}


def groups(folder: Path, *runs: dict[str, Any]) -> list[str]:
    for number, settings in enumerate(runs):
        with Archive.create(folder / str(number), "") as archive:
            archive.record("run", {"task": "t", "settings": settings, "seed": settings.get("seed", 0)})
    return [member.group for member in read_members(folder)]


def test_settings_are_written_as_on_the_command_line(tmp_path: Path):
    words = {"instruction": "squat, then stand", "method.name": "harmon", "episode_s": 4.0}
    plain = {"instruction": None, "method.name": "movlr", "episode_s": 2.0}
    assert groups(tmp_path, words, plain) == [
        "instruction='squat, then stand' method=harmon episode_s=4",
        "method=movlr episode_s=2",
    ]


def test_settings_name_a_group_only_if_they_vary_within_a_choice(tmp_path: Path):
    def found(name: str, *samples: int) -> list[str]:
        runs = [
            {**place, "optimizer.name": optimizer, "optimizer.mppi.samples": n, "optimizer.knots": knots}
            for place in (ARM, LEGS)
            for optimizer, knots in (("mpc2", 3), ("mppi", 5))
            for n in samples
        ]
        return groups(tmp_path / name, *runs)

    assert found("one", 16)[::2] == [
        f"task={t} optimizer=mpc2" for t in ("bottle_pour model=myoarm_r", "stand model=myolegs")
    ]
    assert found("two", 16, 256)[:2] == [
        f"task=bottle_pour model=myoarm_r optimizer=mpc2 optimizer.mppi.samples={n}" for n in (16, 256)
    ]


def test_seeds_are_one_group_and_the_page_numbers_it(tmp_path: Path):
    assert groups(tmp_path, {**ARM, "seed": 0}, {**ARM, "seed": 1}) == ["", ""]
    page = write_sweep_page(tmp_path).read_text()
    assert "2 jobs, 1 group of settings" in page
    assert "all runs" in page
