"""Films: what is drawn, what is written around it, and what is said where nothing can be drawn."""

from __future__ import annotations

import copy
import ctypes.util
import itertools
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
from cli_cases import LEG

from movlr_jax.errors import UserError
from movlr_jax.film import clips as films
from movlr_jax.film import renderer as render
from movlr_jax.film.clips import Caption, Clip, film, frames, side_by_side, title
from movlr_jax.film.renderer import Canvas, RenderBackend, place, renderer
from movlr_jax.tasks import build_task
from movlr_jax.tasks.base import Camera

SCENE = """
<mujoco>
  <worldbody>
    <light pos="0 0 3"/>
    <geom type="plane" size="2 2 .1" rgba=".3 .3 .3 1"/>
    <body name="ball" pos="0 0 .5">
      <freejoint/>
      <geom size=".1" rgba="0 0 1 1"/>
    </body>
    <body name="hidden" pos=".3 0 .5"><geom size=".2" rgba="0 1 0 1" group="3"/></body>
    <body name="bar" pos="0 0 1">
      <joint name="hinge" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/>
      <site name="on_bar" pos=".3 0 0" size=".2" rgba="0 1 0 1"/>
    </body>
    <site name="on_floor" pos=".3 0 0" size=".2" rgba="0 1 0 1"/>
  </worldbody>
  <tendon>
    <spatial name="cord" width=".03"><site site="on_bar"/><site site="on_floor"/></spatial>
  </tendon>
  <actuator><muscle name="cord" tendon="cord" lengthrange=".5 1.5"/></actuator>
</mujoco>
"""
FRONT = Camera((0.0, 0.0, 0.6), 2.0, 90.0, -10.0)
SMALL = (160, 120)  # px

needs_gl = pytest.mark.skipif(renderer().name is None, reason=f"nothing draws here: {renderer().reason}")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(SCENE)


def clip_of(model: mujoco.MjModel, seconds: float = 0.5, cameras: Any = (FRONT,), **changes: Any) -> Clip:
    """The ball moves 0.5 m/s along x, one state each 0.1 s from 0.1 s on."""
    times = 0.1 + np.arange(round(seconds / 0.1) + 1) * 0.1
    qpos = np.repeat(model.qpos0[None], len(times), axis=0)
    qpos[:, 0] = 0.5 * (times - 0.1)
    task = SimpleNamespace(model=model, cameras=cameras)
    parts = {"qpos": qpos, "times": times, "caption": Caption("a title", "a measure", "a note")}
    return Clip(task, **{**parts, **changes})  # pyright: ignore[reportArgumentType]


def read(data: bytes, folder: Any) -> np.ndarray:
    """The pictures of an mp4, [frames, height, width, 3] uint8."""
    import imageio_ffmpeg
    import mediapy

    mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())
    path = folder / "film.mp4"
    path.write_bytes(data)
    return np.asarray(mediapy.read_video(path))


def in_child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@needs_gl
def test_film_has_the_size_length_and_codec_that_were_asked_for(model, tmp_path):
    told = []
    clip = clip_of(model, cameras=(FRONT, Camera((0, 0, 0.6), 2.0, 0.0, -10.0)))
    data = film(clip, size=SMALL, fps=20, progress=lambda done, total: told.append((done, total)))
    pictures = read(data, tmp_path)
    assert pictures.shape == (11, 120, 320, 3)  # 0.5 s at 20 frames/s with both ends, two cameras
    assert told == [(i, 11) for i in range(1, 12)]

    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(tmp_path / "film.mp4")]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    assert "h264" in said
    assert "yuv420p" in said
    assert "20 fps" in said


@needs_gl
def test_film_plays_in_real_time_between_control_steps(model):
    clip = clip_of(model, 0.2)

    def ball_x(picture: np.ndarray) -> float:
        blue = picture[..., 2].astype(int) - picture[..., 0]
        return float((blue > 40).nonzero()[1].mean())

    at = [ball_x(p[8:-8]) for p in frames(clip, size=SMALL, fps=20)]
    assert len(at) == 5
    assert np.diff(at) == pytest.approx(np.diff(at).mean(), abs=1.0)  # px; halves of steps are halves of ways
    assert at[-1] - at[0] > 5


@needs_gl
def test_caption_is_written_around_the_picture_and_never_over_it(model):
    still = np.repeat(model.qpos0[None], 6, axis=0)
    with_text = list(frames(clip_of(model, qpos=still), size=SMALL, fps=10))
    without = list(frames(clip_of(model, qpos=still, caption=Caption("")), size=SMALL, fps=10))
    strip = max(10, round(0.07 * 120))
    inside = slice(strip, -strip)
    assert (with_text[0][inside] == without[0][inside]).all()
    assert (with_text[0][:strip] != without[0][:strip]).any()
    assert (with_text[0][-strip:] != without[0][-strip:]).any()
    assert (with_text[0][-strip:] == with_text[5][-strip:]).all()
    assert (without[0][:strip] != without[5][:strip]).any(), "the clock runs"
    assert with_text[0].std() > 10


@needs_gl
def test_long_captions_are_cut_and_stay_on_their_line(model):
    long = Caption("title " * 40, "measure " * 40, "note " * 40)
    for picture in frames(clip_of(model, 0.1, caption=long), size=SMALL, fps=10):
        assert picture.shape == (120, 160, 3)
    assert films._fitted("much too long a text", films._font(12, False), 60).endswith("…")
    assert films._fitted("two\nlines", films._font(12, False), 600) == "two lines"


@needs_gl
def test_only_groups_0_to_2_are_drawn_and_no_sites(model):
    picture = next(frames(clip_of(model), size=SMALL)).astype(int)
    green = picture[..., 1] - np.maximum(picture[..., 0], picture[..., 2])
    assert green.max() < 60


@needs_gl
def test_active_muscles_are_brighter_and_the_model_of_the_task_is_left_alone(model):
    before = model.tendon_rgba.copy(), model.vis.quality.shadowsize, model.vis.global_.offwidth
    act = np.linspace(0, 1, 6)[:, None]
    first, *_, last = frames(clip_of(model, act=act), size=SMALL)

    def red(picture: np.ndarray) -> float:
        body = picture[8:-8].astype(int)
        return float((body[..., 0] - body[..., 1:].max(axis=-1)).max())

    assert red(last) > red(first) + 30
    after = model.tendon_rgba.copy(), model.vis.quality.shadowsize, model.vis.global_.offwidth
    assert (before[0] == after[0]).all()
    assert before[1:] == after[1:]


def test_colour_of_a_muscle_is_between_rest_and_active():
    model = mujoco.MjModel.from_xml_string(SCENE)
    films.colour_muscles(model, np.array([0.25]))
    assert model.tendon_rgba[0] == pytest.approx(0.75 * films._REST + 0.25 * films._ACTIVE)
    films.colour_muscles(model, np.array([7.0]))
    assert model.tendon_rgba[0] == pytest.approx(films._ACTIVE)


@needs_gl
def test_a_diverged_simulation_holds_its_last_good_state_and_says_so(model):
    clip = clip_of(model)
    clip.qpos[3:, 2] = np.nan
    clip.qpos[4:, 2] = 1e30
    pictures = list(frames(clip, size=SMALL, fps=10))
    assert len(pictures) == 6
    assert (pictures[2][10:] == pictures[5][10:]).all()
    assert (pictures[1][10:] != pictures[2][10:]).any()
    alarm = pictures[3][:10].astype(int)
    assert ((alarm[..., 0] - alarm[..., 2]) > 60).any()
    assert not ((pictures[2][:10, :, 0].astype(int) - pictures[2][:10, :, 2]) > 60).any()


def test_a_state_lost_from_the_start_is_filmed_at_the_reference_posture(model):
    clip = clip_of(model)
    clip.qpos[:] = np.inf
    held, lost_s = films._until_lost(clip)
    assert (held.qpos == model.qpos0).all()
    assert lost_s == pytest.approx(0.1)


@needs_gl
def test_side_by_side_shows_both_and_holds_the_shorter(model, tmp_path):
    short, long = clip_of(model, 0.2), clip_of(model, 0.5)
    pictures = read(side_by_side([short, long], size=SMALL, fps=10), tmp_path)
    assert pictures.shape == (6, 120, 2 * 160 + films.GAP, 3)
    alone = list(frames(short, size=SMALL, fps=10))
    assert np.abs(pictures[5][:, :160].astype(int) - alone[-1]).mean() < 8  # but for what H.264 loses


@needs_gl
def test_a_tracking_camera_follows_over_the_ground_but_not_up(model):
    data = mujoco.MjData(model)
    views = films._Views(model, [Camera((1.0, 2.0, 3.0), 1.0, 0.0, 0.0, track="ball"), FRONT])
    place(model, data, model.qpos0)
    assert views.at(data)[0].lookat == pytest.approx([1, 2, 3])
    moved = model.qpos0.copy()
    moved[:3] += [0.5, -0.25, 0.7]
    place(model, data, moved)
    follower, fixed = views.at(data)
    assert follower.lookat == pytest.approx([1.5, 1.75, 3])
    assert fixed.lookat == pytest.approx(FRONT.lookat)


@needs_gl
def test_a_camera_that_follows_vertically_keeps_a_body_in_its_place(model):
    data = mujoco.MjData(model)
    views = films._Views(model, [Camera((1.0, 2.0, 3.0), 1.0, 0.0, 0.0, track="ball", vertical=True)])
    place(model, data, model.qpos0)
    assert views.at(data)[0].lookat == pytest.approx([1, 2, 3])  # at the start, where it was placed
    moved = model.qpos0.copy()
    moved[:3] += [0.5, -0.25, 0.7]
    place(model, data, moved)
    assert views.at(data)[0].lookat == pytest.approx([1.5, 1.75, 3.7])


@needs_gl
def test_canvases_of_two_models_can_draw_in_turns(model):
    camera, data = mujoco.MjvCamera(), mujoco.MjData(model)
    camera.distance = 2.0
    place(model, data, model.qpos0)
    with Canvas(model, (32, 32)) as one, Canvas(model, (64, 32)) as two:
        first = one.draw(data, [camera])
        assert two.draw(data, [camera]).shape == (32, 64, 3)
        assert (one.draw(data, [camera]) == first).all()


@needs_gl
def test_film_of_the_bottle_task(tmp_path):
    task = build_task("bottle_pour", "myoarm_r", 1.0, {})
    qpos, _, act = task.start(np.random.default_rng(0), 1)
    caption = Caption(title(task.name, 0, 2), "success no", "scripted proposer, metrics judge")
    clip = Clip(task, np.repeat(qpos, 3, 0), np.array([0.02, 0.04, 0.06]), caption, np.repeat(act, 3, 0))
    pictures = read(film(clip, size=(240, 180), fps=50), tmp_path)
    assert pictures.shape == (3, 180, 240 * len(task.cameras), 3)
    inside = pictures[0, 14:-14].astype(int)
    assert (inside[..., 0] - inside[..., 2] > 60).mean() > 0.01, "red muscles"
    assert (inside[..., 2] - inside[..., 0] > 60).mean() > 0.005, "a blue bottle"


@needs_gl
@pytest.mark.parametrize("name", ["bottle_pour", "cube_rotate"])
def test_the_outline_of_the_target_hides_little_and_tints_nothing(name: str):
    """Without it the picture is the same, but for lines in its colours."""
    task = build_task(name, "myoarm_r", 1.0, {})
    qpos = task.start(np.random.default_rng(0), 1)[0]
    pictures = []
    for shown in (True, False):
        model = copy.copy(task.model)
        of_target = model.geom_bodyid == model.body(f"target_{task.roles['object']}").id
        if not shown:
            model.geom_group[of_target] = 5
        clip = Clip(replace(task, model=model), qpos, np.zeros(1), Caption(""))
        pictures.append(next(frames(clip, size=(384, 384), captions=False)).astype(int))
    changed = (pictures[0] != pictures[1]).any(axis=-1)
    assert 0.002 < changed.mean() < 0.02
    red, green, blue = pictures[0][changed].T
    magenta = (red - green > 100) & (blue - green > 100)
    coloured = (red - blue > 40) & (
        green - blue > 40
    )  # the orange and yellow frames inside the cube's outline
    assert (magenta | coloured if name == "cube_rotate" else magenta).all()
    assert magenta.mean() > 0.4


def test_half_way_between_two_turns_is_half_the_turn(model):
    quarter = np.cos(np.pi / 4)
    qpos = np.stack([model.qpos0, model.qpos0])
    qpos[1, 0], qpos[1, 3:7], qpos[1, 7] = 1.0, [quarter, 0, 0, quarter], 0.4
    middle = films._between(model, qpos, 0, 0.5)
    assert middle[0] == pytest.approx(0.5)
    assert middle[3:7] == pytest.approx([np.cos(np.pi / 8), 0, 0, np.sin(np.pi / 8)])
    assert middle[7] == pytest.approx(0.2)
    assert (qpos[0] == model.qpos0).all()


def test_resampling_gives_real_time_and_ends_at_the_last_state():
    times = np.array([0.05, 0.10, 0.15, 0.20])
    at, index, fraction = films._resample(times, 40.0)
    assert at == pytest.approx([0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2])
    assert index + fraction == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5, 3])
    at, index, fraction = films._resample(times[:1], 40.0)
    assert (at, index, fraction) == (pytest.approx([0.05]), [0], [0])


def test_wrong_sizes_are_said(model):
    with pytest.raises(UserError, match="make both numbers even"):
        film(clip_of(model), size=(161, 120))
    with pytest.raises(ValueError, match=r"expected \[T, 8\] and \[T\]"):
        next(frames(clip_of(model, qpos=np.zeros((6, 3)))))


def test_user_sees_why_nothing_draws_and_what_to_install(monkeypatch):
    monkeypatch.setattr(render, "_probe", lambda name: f"no lib for {name}")
    backend = render._choose.__wrapped__("")
    assert backend.name is None
    for part in (
        "egl failed: no lib for egl",
        "osmesa failed: no lib",
        "libegl1 libgl1-mesa-dri",
        "libosmesa6",
    ):
        assert part in backend.reason


def test_osmesa_is_taken_where_egl_fails(monkeypatch):
    monkeypatch.setattr(render, "_probe", lambda name: "broken" if name == "egl" else None)
    backend = render._choose.__wrapped__("")
    assert backend == RenderBackend("osmesa", "the first that works here; egl failed: broken")


def test_a_probe_that_hangs_or_dies_is_an_answer(monkeypatch):
    monkeypatch.setattr(render, "PROBE_DEADLINE_S", 0.3)
    monkeypatch.setattr(render, "_PROBE", "import time; time.sleep(60)")
    assert "did not finish" in str(render._probe("glfw"))
    monkeypatch.setattr(render, "PROBE_DEADLINE_S", 30.0)
    monkeypatch.setattr(render, "_PROBE", "import os; os.kill(os.getpid(), 11)")
    assert "signal 11" in str(render._probe("glfw"))


def test_a_bad_mujoco_gl_is_named_with_the_remedy():
    done = in_child("from movlr_jax.film.renderer import renderer; print(renderer())", MUJOCO_GL="bogus")
    assert done.returncode == 0, done.stderr
    assert "name=None" in done.stdout
    assert "unset MUJOCO_GL, which is 'bogus', or set it to egl or osmesa" in done.stdout


def test_mujoco_gl_off_is_respected_in_a_sentence():
    code = (
        "import mujoco; from movlr_jax.film.renderer import Canvas; from movlr_jax.errors import UserError\n"
        "try: Canvas(mujoco.MjModel.from_xml_string('<mujoco/>'), (8, 8))\n"
        "except UserError as error: print(error)"
    )
    done = in_child(code, MUJOCO_GL="off")
    assert done.stdout.strip() == "no film: MUJOCO_GL=off disables rendering; unset it to get films"


def test_import_and_probe_leave_the_environment_alone():
    code = (
        "import os; before = dict(os.environ)\n"
        "import movlr_jax.film.clips, movlr_jax.film.renderer; movlr_jax.film.renderer.renderer()\n"
        "print(dict(os.environ) == before)"
    )
    assert in_child(code).stdout.strip() == "True"


def test_titles_name_the_candidate():
    assert title("bottle_pour", 1, 3) == "bottle_pour · generation 1 · candidate 3"
    assert len(set(itertools.starmap(title, [("a", 0, 0), ("a", 0, 1), ("a", 1, 0)]))) == 3


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("evaluate", "bad"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("evaluate", "osmesa"), ("search", "bad"))
        ),
    ],
)
def test_commands_go_on_without_films_under_a_mujoco_gl_that_does_not_work(
    command: str, wanted: str, tmp_path
):
    """MuJoCo itself cannot even be imported under such a setting."""
    if wanted == "osmesa" and ctypes.util.find_library("OSMesa"):
        pytest.skip("OSMesa works here")
    arguments = [a for a in LEG if not a.startswith("films")]
    done = subprocess.run(
        [sys.executable, "-m", f"movlr_jax.{command}", *arguments, f"run_dir={tmp_path / 'run'}"],
        env={**os.environ, "MUJOCO_GL": wanted},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert f"no films: {wanted} failed: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.mp4"))


def test_doctor_says_why_a_bad_mujoco_gl_draws_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "movlr_jax.doctor"],
        env={**os.environ, "MUJOCO_GL": "bad", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    (row,) = (line for line in done.stdout.splitlines() if "renderer" in line)
    assert "unset MUJOCO_GL, which is 'bad'" in row
    (row,) = (line for line in done.stdout.splitlines() if "│ mujoco " in line)
    assert "yes" in row
