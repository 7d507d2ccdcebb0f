"""The doctor: a row for everything, a status that can be trusted, and no secrets."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import mujoco
import pytest
from bodies import HAND, MOTOR_DOG
from cli_cases import LEG

from movlr_jax.cli import doctor, doctor_control
from movlr_jax.cli.doctor import Check
from movlr_jax.cli.search import main as search
from movlr_jax.errors import UserError
from movlr_jax.film.encoding import ffmpeg_version
from movlr_jax.models import MODELS, ModelAdapter, ModelInfo
from movlr_jax.models.download import SWITCH
from movlr_jax.sandbox import confine

MASSLESS = "<mujoco><worldbody><body><joint/></body></worldbody></mujoco>"


def test_doctor_runs_as_command_and_never_shows_key():
    done = subprocess.run(
        [sys.executable, "-m", "movlr_jax", "doctor"],
        env={**os.environ, "GEMINI_API_KEY": "secret-g-123", "OPENAI_API_KEY": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout + done.stderr
    assert "secret" not in shown
    lines = {line.split("│")[1].strip(): line for line in shown.splitlines() if line.count("│") > 2}
    assert "yes" in lines["GEMINI_API_KEY"]
    assert "no" in lines["OPENAI_API_KEY"]
    assert "63 muscles" in lines["model myoarm_r"]
    assert ("confined: no_new_privs, Landlock" in lines["sandbox"]) == (not confine.missing())
    for name in ("python", "mujoco", "jax", "myo-sim", "CPU", "memory", "disk", "GPU", "renderer", "ffmpeg"):
        assert name in lines
    assert done.stdout.splitlines()[-1].startswith("physics=auto picks native here: JAX finds no accelerator")
    assert "Traceback" not in shown


def test_package_that_is_missing_is_row(monkeypatch):
    real = doctor.metadata.version

    def version(name: str) -> str:
        if name in ("myo-sim", "openai"):
            raise PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    rows = {row.name: row for row in doctor.packages()}
    assert rows["myo-sim"] == Check("myo-sim", False, "not installed; pip install myo-sim")
    assert rows["openai"].ok is None
    assert rows["mujoco"].ok


@pytest.mark.parametrize(
    ("robot", "told"),
    [
        (MOTOR_DOG, ("base: trunk, travels through the world", "8 motors without servos", "joint targets for all 8")),
        (HAND, ("base: palm, fixed to the world", "9 position servos", "hands: palm")),
    ],
)
def test_model_card_shows_how_a_planner_moves_a_robot(robot, told, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "400")
    if robot is HAND:  # the dog's plans are measured
        monkeypatch.setattr(doctor_control, "replan_seconds", lambda *_: 0.01)
    file = tmp_path / "robot.xml"
    file.write_text(robot, encoding="utf-8")
    assert doctor.main([f"model={file}"]) == 0
    shown = capsys.readouterr().out
    for line in (*told, "128 samples", "steps/s in plans", "search: about"):
        assert line in shown, shown


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([Check("a", True, "fine"), Check("b", None, "optional")], 0),
        ([Check("a", True, "fine"), Check("b", False, "gone [red]")], 1),
    ],
)
def test_status_is_1_only_when_something_needed_does_not_work(monkeypatch, capsys, rows, status):
    monkeypatch.setattr(doctor, "LOOKS", {"all": lambda: rows})
    assert doctor.main([]) == status
    out = capsys.readouterr().out
    assert rows[1].detail in out, "square brackets are shown as they are"
    assert ("do not work here: b" in out) == bool(status)


def test_look_that_fails_is_row_and_says_whether_it_matters():
    def fails() -> list[Check]:
        raise RuntimeError("two\nlines")

    assert doctor._guarded("films", fails) == [Check("films", None, "RuntimeError: two lines")]
    assert doctor._guarded("ffmpeg", fails) == [Check("ffmpeg", False, "RuntimeError: two lines")]


def test_ffmpeg_that_does_not_run_is_needed(monkeypatch):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/nowhere/ffmpeg")
    ffmpeg_version.cache_clear()
    row = {row.name: row for row in doctor.films()}["ffmpeg"]
    assert row.ok is False
    assert "/nowhere/ffmpeg" in row.detail


def test_search_without_ffmpeg_makes_no_films_and_says_so(monkeypatch, capfd, tmp_path):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/bin/false")
    ffmpeg_version.cache_clear()
    given = [argument for argument in LEG if argument != "films=false"]
    assert search([*given, f"run_dir={tmp_path / 'run'}"]) == 0
    assert "no films: ffmpeg does not run: " in capfd.readouterr().err
    assert (tmp_path / "run" / "best.py").is_file()
    assert not list((tmp_path / "run").rglob("*.mp4"))
    ffmpeg_version.cache_clear()


def test_model_whose_package_is_missing_is_row(monkeypatch):
    real = builtins.__import__

    def without(name: str, *args, **kwargs):
        if name == "myo_sim":
            raise ImportError("no myo_sim")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    rows = {row.name: row for row in doctor.models()}
    assert rows["model myoarm_r"].ok is False
    assert "pip install myo-sim" in rows["model myoarm_r"].detail


def test_overview_loads_no_heavy_model_and_tells_where_to_get_others(monkeypatch):
    def heavy():
        raise AssertionError("loaded")

    def at(files: Callable[[], Path | None]) -> ModelAdapter:
        return replace(MODELS["ostrich"], load=heavy, info=ModelInfo(files=files))

    adapters = {
        "myoarm_r": MODELS["tiny_muscle"],
        "here": at(lambda: Path("/somewhere")),
        "not_yet": at(lambda: None),
        "missing": at(_not_installed),
    }
    monkeypatch.setattr("movlr_jax.models.MODELS", adapters)
    monkeypatch.delenv(SWITCH, raising=False)
    rows = {row.name: row for row in doctor.models()}
    assert "7 muscles" in rows["model myoarm_r"].detail
    assert rows["model here"].ok
    assert rows["model not_yet"].ok is None
    assert "first use downloads it" in rows["model not_yet"].detail
    monkeypatch.setenv(SWITCH, "off")
    rows |= {row.name: row for row in doctor.models()}
    assert "not downloaded yet, and MOVLR_DOWNLOADS=off; " in rows["model not_yet"].detail
    assert rows["model missing"] == Check("model missing", None, "not installed; pip install it")


def _not_installed() -> Path:
    raise UserError("not installed; pip install it")


def test_model_card_shows_what_task_needs_to_know(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "150")
    assert doctor.main(["model=tiny_muscle"]) == 0
    shown = capsys.readouterr().out
    for fact in (
        "nq 3, nv 3, 4 bodies, 7 muscles",
        "22.8 kg",  # 12 + 7 + 3 + 0.8
        "faces +x, up is +z",
        "assets/models/tiny_muscle.xml",
        "2 planned, 0 kept, 0 coupled, 0 locked",
        "-0.5 to 1.6 rad",
        "steps/s",
        "Apache-2.0",
        "pelvis, sole",
        "height, hip, knee",
    ):
        assert fact in shown, fact
    height = 0.90 - 0.038  # m, of the pelvis in the posture
    assert f"+0.000 +0.000 {height:+.3f}" in shown


def test_model_of_ones_own_is_shown_in_its_scene(tmp_path: Path, monkeypatch, capsys):
    text = (Path(__file__).parents[2] / "assets" / "models" / "tiny_muscle.xml").read_text(encoding="utf-8")
    post = '<worldbody><body name="post" pos="3 0 1"><geom size=".1" mass="50"/></body>'
    own = tmp_path / "my leg.xml"
    own.write_text(text.replace("<worldbody>", post), encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "200")
    assert doctor.main([f"model={own}"]) == 0
    shown = capsys.readouterr().out
    assert "22.8 kg, centre of mass" in shown, "a post does not move"
    assert "(C MuJoCo, one core)" in shown, "there is something to touch"
    assert "steps of 8 ms: within 0.32 s of holding the start posture" in shown
    assert "set optimizer.plan_dt" not in shown, "it does not shake"
    assert "in the scene of my_leg: " in shown


def test_model_card_says_which_time_step_misleads_plans(monkeypatch, capsys):
    """The whole body shakes its trunk where it is simulated in steps of 8 ms."""
    pytest.importorskip("musclemimic_models")
    monkeypatch.setenv("COLUMNS", "200")
    assert doctor.main(["model=musclemimic_fullbody"]) == 0
    shown = capsys.readouterr().out
    assert "steps of 8 ms: within 0.32 s of holding the start posture" in shown
    assert "set optimizer.plan_dt=0.004 for this model" in shown


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("model=myoleg", "there is no model 'myoleg'; did you mean 'myolegs'"),
        ("model=nowhere/model.xml", "there is no model file nowhere/model.xml"),
        ("model=", "doctor takes model=NAME, or llm=... vlm=..., or judge"),
    ],
)
def test_model_that_cannot_be_shown_is_sentence_and_status_2(capsys, setting, said):
    assert doctor.main([setting]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert said in told.err
    assert told.err.count("\n") == 1


def test_model_without_its_files_is_told_with_fix(monkeypatch, capsys):
    monkeypatch.setenv("MENAGERIE_ROOT", "/nowhere")
    assert doctor.main(["model=ms_human_700"]) == 2
    assert "MENAGERIE_ROOT=/nowhere contains no folder ms_human_700" in capsys.readouterr().err


def test_model_that_does_not_compile_is_told(monkeypatch, capsys):
    broken = replace(MODELS["tiny_muscle"], load=lambda: mujoco.MjSpec.from_string(MASSLESS))
    monkeypatch.setitem(MODELS, "tiny_muscle", broken)
    assert doctor.main(["model=tiny_muscle"]) == 2
    assert "'tiny_muscle' does not compile" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("installed", "picked"), [(True, "physics=auto picks warp here"), (False, "physics=auto picks mjx here")]
)
def test_physics_choice_on_nvidia_gpu(monkeypatch, installed, picked):
    gpu = SimpleNamespace(platform="gpu", device_kind="NVIDIA H100")
    monkeypatch.setattr("jax.devices", lambda: [gpu])
    monkeypatch.setattr("mujoco.mjx.warp.WARP_INSTALLED", installed)
    assert doctor.physics_choice().startswith(picked)


def test_physics_choice_is_said_even_where_jax_is_broken(monkeypatch):
    def broken():
        raise RuntimeError("no jax")

    monkeypatch.setattr("jax.devices", broken)
    assert doctor.physics_choice().startswith("physics=auto picks native here")
