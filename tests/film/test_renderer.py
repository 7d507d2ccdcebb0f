"""Films: what is drawn, what is written around it, and what is said where nothing can be drawn."""

from __future__ import annotations

import copy
import ctypes.util
import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
from cli_cases import LEG
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from PIL import Image

from movlr_jax.errors import UserError
from movlr_jax.film import captions, meshes, muscles, views
from movlr_jax.film import clips as films
from movlr_jax.film import renderer as render
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import Clip, Style, film, frames, side_by_side
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
    more = {"goals": {}, "roles": {}, "ground_height": None, "weakened": {}}
    task = SimpleNamespace(model=model, cameras=cameras, **{n: changes.pop(n, v) for n, v in more.items()})
    parts = {
        "qpos": qpos,
        "times": times,
        "caption": Caption("an instruction", "a name", "a measure", "a note"),
    }
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
    data = film(clip, Style(SMALL, 20), progress=lambda done, total: told.append((done, total))).mp4
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

    at = [ball_x(p[8:-8]) for p in frames(clip, Style(SMALL, 20))]
    assert len(at) == 5
    assert np.diff(at) == pytest.approx(np.diff(at).mean(), abs=1.0)  # px; halves of steps are halves of ways
    assert at[-1] - at[0] > 5


@needs_gl
def test_caption_is_written_around_the_picture_and_never_over_it(model):
    still = np.repeat(model.qpos0[None], 6, axis=0)
    with_text = list(frames(clip_of(model, qpos=still), Style(SMALL, 10)))
    without = list(frames(clip_of(model, qpos=still, caption=Caption("")), Style(SMALL, 10)))
    strip = max(10, round(captions.STRIP * 120))
    inside = slice(strip, -strip)
    assert (with_text[0][inside] == without[0][inside]).all()
    assert (with_text[0][:strip] != without[0][:strip]).any()
    assert (with_text[0][-strip:] != without[0][-strip:]).any()
    assert (with_text[0][-strip:] == with_text[5][-strip:]).all()
    assert (without[0][strip : strip + 20] != without[5][strip : strip + 20]).any(), "the clock runs"
    assert with_text[0].std() > 10


@needs_gl
def test_long_captions_are_cut_and_stay_on_their_lines(model):
    long = Caption("title " * 40, "name " * 40, "measure " * 40, "note " * 40)
    for picture in frames(clip_of(model, 0.1, caption=long), Style(SMALL, 10)):
        assert picture.shape == (120, 160, 3)
    font = captions._font(12, False)
    assert captions._fitted("much too long a text", font, 60).endswith("…")
    assert captions._fitted("two\nlines", font, 600) == "two lines"
    assert captions._lines("one two three", font, round(font.getlength("one two") + 1), 2) == [
        "one two",
        "three",
    ]
    assert captions._lines("one two three", font, 10_000, 2) == ["one two three"]


def test_a_text_of_any_length_is_cut_after_few_measurements():
    measured: list[int] = []

    class Font:
        def getlength(self, text: str) -> int:
            measured.append(len(text))
            return len(text)

    font: Any = Font()
    assert captions._fitted("x" * 20_000, font, 60) == "x" * 59 + "…"
    assert captions._fitted("x" * 20_000, font, 1) == captions._fitted("x" * 20_000, font, 0) == ""
    assert len(captions._lines("word " * 20_000, font, 60, 2)[1]) == 60
    assert sum(measured) < 20 * 100_000


@needs_gl
def font_with(characters: str, to: Path) -> str:
    """A font in which each of these characters is a full square."""
    pen = TTGlyphPen(None)
    for i, corner in enumerate([(0, 0), (0, 1000), (1000, 1000), (1000, 0)]):
        (pen.lineTo if i else pen.moveTo)(corner)
    pen.closePath()
    font = FontBuilder(1000)
    font.setupGlyphOrder([".notdef", "square"])
    font.setupCharacterMap({ord(c): "square" for c in characters})
    font.setupGlyf(dict.fromkeys((".notdef", "square"), pen.glyph()))
    font.setupHorizontalMetrics(dict.fromkeys((".notdef", "square"), (1000, 0)))
    font.setupHorizontalHeader(ascent=1000, descent=0)
    font.setupNameTable({"familyName": "squares", "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(to)
    return str(to)


def test_a_caption_in_another_script_is_written_in_a_font_of_the_system(tmp_path, monkeypatch):
    latin = font_with("abc", tmp_path / "latin.ttf")
    own = font_with("把瓶子", tmp_path / "han.ttf")
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr(captions, "_system_fonts", lambda: [latin, own, str(tmp_path / "broken.ttf")])
    assert captions._font(20, True, "把 it").path == own
    assert Path(str(captions._font(20, True, "pour it, 20°").path)).name == "DejaVuSans-Bold.ttf"
    assert Path(str(captions._font(20, True, "يد").path)).name == "DejaVuSans-Bold.ttf", (
        "nothing better is here"
    )
    top = captions.Strips(Caption("把瓶子"), 200, 30).around(np.zeros((0, 200, 3), np.uint8))[:30]
    assert 300 < (top > 200).all(2).sum() < 3 * 22**2, "three full squares"
    font = captions._font(20, True, "把瓶子")
    assert captions._lines("把瓶子把瓶子", font, 80, 2) == ["把瓶子把", "瓶子"], "no spaces between words"


def test_speed_and_distance_of_a_travelling_body_are_read_from_its_path(model):
    follows = (Camera((0.0, 0.0, 0.6), 2.0, 90.0, -10.0, track="ball"),)
    clip = clip_of(model, 3.0, cameras=follows)
    times = np.array([0.1, 1.6, 3.1])
    found = films._readings(model, mujoco.MjData(model), clip, None, times)
    assert [r.speed for r in found] == pytest.approx([0.5] * 3)
    assert [r.distance for r in found] == pytest.approx([0.0, 0.75, 1.5])
    assert found[1].parts() == ["1.60 s", "0.50 m/s", "0.75 m"]
    still = films._readings(model, mujoco.MjData(model), clip_of(model), 0.3, times)
    assert (still[0].speed, still[0].parts()) == (None, ["0.10 s"])
    assert still[2].parts() == ["diverged at 0.30 s"]


def labels(task: Any) -> list[str]:
    """The texts that are drawn at the start of a task."""
    scene, data = mujoco.MjvScene(task.model, 500), mujoco.MjData(task.model)
    place(task.model, data, task.start(np.random.default_rng(0), 1)[0][0])
    views.Marks.of(task).add_to(scene, data)
    kind = mujoco.mjtGeom.mjGEOM_LABEL
    return [geom.label for geom in scene.geoms[: scene.ngeom] if geom.type == kind]


def test_the_ground_of_a_walker_is_labelled_at_every_metre():
    assert labels(build_task("slope_walk", "myolegs", 1.0, {})) == [f"{m} m" for m in range(-2, 4)]
    assert labels(build_task("bottle_pour", "myoarm_r", 1.0, {})) == []


PLANE = '<geom type="plane" size="2 2 .1" {}/>'


@pytest.mark.parametrize(
    ("planes", "height"),
    [
        (f'<body pos="0 0 -.8">{PLANE.format("")}</body>', -0.8),
        (f'<body euler="20 0 0">{PLANE.format("")}</body>', None),
        (f'<body euler="20 0 0"><body euler="-20 0 0">{PLANE.format("")}</body></body>', 0.0),
        (PLANE.format('pos="0 0 .1" euler="0 0 90"') + PLANE.format('pos="0 0 -.1"'), 0.1),
        (PLANE.format("") + PLANE.format('pos="0 0 3" euler="180 0 0"'), 0.0),
        (PLANE.format("") + PLANE.format('pos="0 0 1" group="3"'), 0.0),
        (PLANE.format("") + f'<body mocap="true" pos="0 0 1">{PLANE.format("")}</body>', 0.0),
    ],
    ids=["lowered", "tilted", "tilted back", "turned and higher", "ceiling", "not shown", "moved by hand"],
)
def test_the_ground_is_the_highest_level_plane_that_is_shown_and_stands_still(planes, height):
    still = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{planes}</worldbody></mujoco>")
    task: Any = SimpleNamespace(model=still, ground_height=None)
    ground = views.ground_of(task)
    assert (None if ground is None else float(ground(np.zeros(2)))) == pytest.approx(height)


def test_a_place_to_reach_is_ringed_unless_the_scene_shows_its_outline(model):
    clip = clip_of(model, goals={"ball_pos": np.array([0.3, 0.0, 0.5])})
    scene = mujoco.MjvScene(model, 500)
    views.Marks.of(clip.task).add_to(scene, mujoco.MjData(model))
    ends = np.array([geom.pos for geom in scene.geoms[: scene.ngeom]])
    assert len(ends) == 3 * views._RING
    away = np.linalg.norm(ends - [0.3, 0.0, 0.5], axis=1)
    assert away == pytest.approx(views._RING_SIZE * FRONT.distance, rel=0.02)
    assert not views.Marks.of(build_task("bottle_pour", "myoarm_r", 1.0, {})).places


@needs_gl
def test_a_contact_sheet_shows_the_start_the_end_and_what_is_between(model):
    made = film(clip_of(model, 2.0), Style(SMALL, 10))
    page = np.asarray(Image.open(io.BytesIO(made.sheet)).convert("RGB")).astype(int)
    assert page.shape == (2 * 120 + 4, 4 * 160 + 3 * 4, 3)
    ball = [
        ((cell[..., 2] - cell[..., 0]) > 40).nonzero()[1].mean()
        for row in (page[:120], page[124:])
        for cell in np.split(
            np.delete(row, [160, 161, 162, 163, 324, 325, 326, 327, 488, 489, 490, 491], 1), 4, 1
        )
    ]
    assert (np.diff(ball) > 0).all()
    short = film(clip_of(model, 0.1), Style(SMALL, 10)).sheet
    assert Image.open(io.BytesIO(short)).size == (2 * 160 + 4, 120)


def test_merged_vertices_keep_the_shape_of_a_mesh_and_thin_parts_stay():
    turn, rise = np.meshgrid(
        np.linspace(0, 2 * np.pi, 80, endpoint=False), np.linspace(0.01, np.pi - 0.01, 60)
    )
    ball = np.stack([np.sin(rise) * np.cos(turn), np.sin(rise) * np.sin(turn), np.cos(rise)], -1).reshape(
        -1, 3
    )
    spec = mujoco.MjSpec()
    for name, points in (("ball", ball), ("sheet", ball * [1, 1, 0.002])):
        spec.add_mesh(name=name, uservert=points.ravel(), userface=grid_faces(60, 80).ravel())
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name)
    model = spec.compile()
    before = model.mesh_facenum.copy()
    meshes.simplify(model, 0.1)
    assert model.mesh_facenum[0] < 0.5 * before[0]
    faces = model.mesh_face[: model.mesh_facenum[0]]
    points = model.mesh_vert[faces.ravel()]
    assert np.linalg.norm(points, axis=1) == pytest.approx(1.0, abs=0.06)
    normals = model.mesh_normal[model.mesh_facenormal[: len(faces)].ravel()]
    inward = np.sum(normals * points, axis=1) < 0.9
    assert not inward.any()
    assert model.mesh_facenum[1] == before[1] or model.mesh_facenum[1] > 100


def grid_faces(rows: int, columns: int) -> np.ndarray:
    """Triangles [n, 3] of a grid of points that closes along its rows."""
    row, column = np.divmod(np.arange((rows - 1) * columns), columns)
    here, right = row * columns + column, row * columns + (column + 1) % columns
    below = columns
    return np.concatenate(
        [np.stack([here, here + below, right], -1), np.stack([right, here + below, right + below], -1)]
    )


@needs_gl
def test_only_groups_0_to_2_are_drawn_and_no_sites(model):
    picture = next(frames(clip_of(model), Style(SMALL))).astype(int)
    green = picture[..., 1] - np.maximum(picture[..., 0], picture[..., 2])
    assert green.max() < 60


@needs_gl
def test_active_muscles_are_brighter_and_the_model_of_the_task_is_left_alone(model):
    before = model.tendon_rgba.copy(), model.vis.quality.shadowsize, model.vis.global_.offwidth
    act = np.linspace(0, 1, 6)[:, None]
    first, *_, last = frames(clip_of(model, act=act), Style(SMALL))

    def red(picture: np.ndarray) -> float:
        body = picture[40:-10].astype(int)  # below the scale of colours
        return float((body[..., 0] - body[..., 1:].max(axis=-1)).max())

    assert red(last) > red(first) + 30
    after = model.tendon_rgba.copy(), model.vis.quality.shadowsize, model.vis.global_.offwidth
    assert (before[0] == after[0]).all()
    assert before[1:] == after[1:]


def test_colour_of_a_muscle_is_between_rest_and_active():
    model = mujoco.MjModel.from_xml_string(SCENE)
    colours = muscles.MuscleColours(model)
    colours.show(np.array([0.25]))
    assert model.tendon_rgba[0] == pytest.approx(0.75 * muscles.REST + 0.25 * muscles.ACTIVE)
    colours.show(np.array([7.0]))
    assert model.tendon_rgba[0] == pytest.approx(muscles.ACTIVE)


def test_a_weakened_muscle_is_yellow_and_thicker_whatever_its_activation():
    model = mujoco.MjModel.from_xml_string(SCENE)
    colours = muscles.MuscleColours(model, ["cord"])
    colours.show(np.array([1.0]))
    assert model.tendon_rgba[0] == pytest.approx(muscles.WEAKENED)
    assert model.tendon_width[0] == pytest.approx(1.5 * 0.03)
    task = build_task("injured_walk", "myolegs", 1.0, {"strength": 0.2})
    assert {"soleus_r", "gaslat_r"} & {*task.weakened} == {"gaslat_r"}
    assert {*task.weakened.values()} == {0.2}


@needs_gl
def test_a_diverged_simulation_holds_its_last_good_state_and_says_so(model):
    clip = clip_of(model)
    clip.qpos[3:, 2] = np.nan
    clip.qpos[4:, 2] = 1e30
    pictures = list(frames(clip, Style(SMALL, 10)))
    assert len(pictures) == 6
    assert (pictures[2][40:] == pictures[5][40:]).all()
    assert (pictures[1][40:] != pictures[2][40:]).any()

    def alarm(picture: np.ndarray) -> bool:
        text = picture[10:30].astype(int)
        return bool(((text[..., 0] - text[..., 2]) > 60).any())

    assert alarm(pictures[3])
    assert not alarm(pictures[2])


def test_a_state_lost_from_the_start_is_filmed_at_the_reference_posture(model):
    clip = clip_of(model)
    clip.qpos[:] = np.inf
    held, lost_s = films._until_lost(clip)
    assert (held.qpos == model.qpos0).all()
    assert lost_s == pytest.approx(0.1)


@needs_gl
def test_side_by_side_shows_both_and_holds_the_shorter(model, tmp_path):
    short, long = clip_of(model, 0.2), clip_of(model, 0.5)
    pictures = read(side_by_side([short, long], Style(SMALL, 10)).mp4, tmp_path)
    assert pictures.shape == (6, 120, 2 * 160 + films.GAP, 3)
    alone = list(frames(short, Style(SMALL, 10)))
    assert np.abs(pictures[5][:, :160].astype(int) - alone[-1]).mean() < 8  # but for what H.264 loses


@needs_gl
def test_a_tracking_camera_follows_over_the_ground_but_not_up(model):
    data = mujoco.MjData(model)
    cameras = views.Views(model, [Camera((1.0, 2.0, 3.0), 1.0, 0.0, 0.0, track="ball"), FRONT])
    place(model, data, model.qpos0)
    assert cameras.at(data)[0].lookat == pytest.approx([1, 2, 3])
    moved = model.qpos0.copy()
    moved[:3] += [0.5, -0.25, 0.7]
    place(model, data, moved)
    follower, fixed = cameras.at(data)
    assert follower.lookat == pytest.approx([1.5, 1.75, 3])
    assert fixed.lookat == pytest.approx(FRONT.lookat)


@needs_gl
def test_a_camera_that_follows_vertically_keeps_a_body_in_its_place(model):
    data = mujoco.MjData(model)
    cameras = views.Views(model, [Camera((1.0, 2.0, 3.0), 1.0, 0.0, 0.0, track="ball", vertical=True)])
    place(model, data, model.qpos0)
    assert cameras.at(data)[0].lookat == pytest.approx([1, 2, 3])  # at the start, where it was placed
    moved = model.qpos0.copy()
    moved[:3] += [0.5, -0.25, 0.7]
    place(model, data, moved)
    assert cameras.at(data)[0].lookat == pytest.approx([1.5, 1.75, 3.7])


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
    caption = Caption(task.description, "g00k02", "success no", "scripted proposer, metrics judge")
    clip = Clip(task, np.repeat(qpos, 3, 0), np.array([0.02, 0.04, 0.06]), caption, np.repeat(act, 3, 0))
    pictures = read(film(clip, Style((240, 180), 50)).mp4, tmp_path)
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
        pictures.append(next(frames(clip, Style((384, 384)), captions=False)).astype(int))
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


def resampled(times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    at = films._frame_times(times, 40.0)
    return at, *films._steps(times, at)


def test_resampling_gives_real_time_and_ends_at_the_last_state():
    times = np.array([0.05, 0.10, 0.15, 0.20])
    at, index, fraction = resampled(times)
    assert at == pytest.approx([0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2])
    assert index + fraction == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5, 3])
    at, index, fraction = resampled(np.array([0.05, 0.10, 0.11]))  # no whole number of pictures
    assert at == pytest.approx([0.05, 0.075, 0.1, 0.11])
    assert index + fraction == pytest.approx([0, 0.5, 1, 2])
    at, index, fraction = resampled(times[:1])
    assert (at, index, fraction) == (pytest.approx([0.05]), [0], [0])


def test_wrong_sizes_are_said(model):
    with pytest.raises(UserError, match="make both numbers even"):
        film(clip_of(model), Style((161, 120)))
    with pytest.raises(ValueError, match=r"expected \[T, 8\] and \[T\]"):
        next(frames(clip_of(model, qpos=np.zeros((6, 3)))))


def test_user_sees_why_nothing_draws_and_what_to_install(monkeypatch):
    monkeypatch.setattr(render, "_probe", lambda name: f"no lib for {name}")
    backend = render._choose.__wrapped__("")
    assert backend.name is None
    for part in (
        "egl failed: no lib for egl",
        "osmesa failed: no lib",
        "libegl1 libgl1-mesa-dri libopengl0",
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
        [sys.executable, "-m", "movlr_jax", command, *arguments, f"run_dir={tmp_path / 'run'}"],
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
        [sys.executable, "-m", "movlr_jax", "doctor"],
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


def test_what_bends_is_where_the_body_is():
    """Vertices of a flex, against a full forward pass of C MuJoCo."""
    bent = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body name="post" pos="0 0 1"><joint/><geom size="0.1"/></body>'
        '<flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 1" dim="2" pos="0 0 2"/></worldbody>'
        "</mujoco>"
    )
    placed, forward = mujoco.MjData(bent), mujoco.MjData(bent)
    place(bent, placed, bent.qpos0)
    mujoco.mj_forward(bent, forward)
    np.testing.assert_allclose(placed.flexvert_xpos, forward.flexvert_xpos, atol=1e-9)
    assert np.abs(placed.flexvert_xpos).max() > 1.0
