"""The number of samples for this machine: the rule worked by hand, and measured once for the leg of the tests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import mujoco
import pytest
from bodies import BODIES
from cli_cases import LEG
from tiny_task import task as tiny_task

from movlr_jax.cli.search import main
from movlr_jax.config.compose import compose
from movlr_jax.control import settings
from movlr_jax.control.build import build_planner, close
from movlr_jax.control.mpc import autosize, rules
from movlr_jax.control.mpc.autosize import chosen, largest, measured
from movlr_jax.control.optimizers import Mpc2, Mppi
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import simple_task

SHORT = Mpc2(horizon_s=0.048, mppi=rules.Mppi(samples=1))


def test_the_largest_number_within_a_tenth_of_the_best():
    # ms per sample: 1, 0.5, 0.4, 0.43, 0.5
    assert largest({8: 0.008, 16: 0.008, 32: 0.0128, 64: 0.02752, 128: 0.064}) == 64
    assert largest({8: 0.008, 16: 0.008, 32: 0.0128, 64: 0.0288, 128: 0.064}) == 32
    assert largest({8: 2.0}) == 8


def test_measuring_ends_at_the_memory_and_at_a_second():
    took = {8: 0.1, 16: 0.2, 32: 0.4, 64: 0.8, 128: 1.6}
    assert measured(took.get, took) == {8: 0.1, 16: 0.2, 32: 0.4, 64: 0.8}
    assert measured({**took, 32: None}.get, took) == {8: 0.1, 16: 0.2}
    assert measured({8: 3.0}.get, took) == {8: 3.0}
    assert largest(measured({}.get, took)) == 8  # the smallest, in parts


def test_a_machine_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(autosize, "SIZES", (8, 16))
    said: list[str] = []
    planner = build_planner(SHORT, tiny_task())
    n = chosen(planner, 2, said.append)
    assert n in (8, 16)
    (kept,) = (tmp_path / "movlr-jax" / "samples").iterdir()
    assert json.loads(kept.read_text())["samples"] == n
    monkeypatch.setattr(autosize, "replan_seconds", None)  # not measured again
    assert chosen(planner, 2, said.append) == n
    assert said[-1].startswith(f"optimizer.mppi.samples=auto: {n}, as measured before")


def test_a_search_that_goes_on_elsewhere_keeps_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    search, run = [*LEG, "optimizer.mppi.samples=auto"], tmp_path / "run"

    def samples() -> int:
        with Archive.open(run, write=False) as archive:
            return (archive.get("run") or {})["settings"]["optimizer.mppi.samples"]

    monkeypatch.setattr(settings, "SAMPLES", 3)
    assert main([*search, f"run_dir={run}"]) == 0
    begun = samples()
    assert begun in (3, 12)
    monkeypatch.setattr(settings, "SAMPLES", 5)  # as on another machine
    assert main([*search, "generations=2", f"resume={run}"]) == 0
    assert samples() == begun


def test_auto_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = compose(["task=bottle_pour", "optimizer.mppi.samples=auto"])
    own = compose([LEG[0], "optimizer.mppi.samples=auto"])
    assert own.optimizer.mppi.samples == 0
    assert given.optimizer.mppi.samples == 0
    planner = build_planner(replace(SHORT, mppi=rules.Mppi(samples=0)), tiny_task())
    assert planner.config.mppi.samples == settings.SAMPLES == 32
    close(planner)


def chain(links: int) -> str:
    """Return a chain of bodies on hinges with motors."""
    bodies = "".join(
        f'<body name="link{i}" pos="0 0 .1"><joint name="j{i}"/><geom size=".05"/>' for i in range(links)
    )
    motors = "".join(f'<motor joint="j{i}"/>' for i in range(links))
    return f"<mujoco><worldbody>{bodies}{'</body>' * links}</worldbody><actuator>{motors}</actuator></mujoco>"


@pytest.mark.parametrize(("xml", "samples"), [(BODIES["panda"], 128), (chain(12), 128), (chain(13), 32)])
def test_samples_of_at_most_12_motors_are_128(xml: str, samples: int):
    task = simple_task(name="body", model=mujoco.MjSpec.from_string(xml), description="stand still")
    assert Mppi().usual_samples(task) == samples


def test_samples_of_muscles_are_32():
    assert Mppi().usual_samples(tiny_task()) == settings.SAMPLES == 32
