"""Films: what is drawn, what is written around it, and what is said where nothing can be drawn."""

from __future__ import annotations

import io
import re
import subprocess
from types import SimpleNamespace
from typing import Any

import imageio_ffmpeg
import mujoco
import numpy as np
import pytest
from PIL import Image

from movlr_jax.film import captions, meshes, muscles, views
from movlr_jax.film import clips as films
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import Clip, Style, film, frames, side_by_side
from movlr_jax.film.encoding import read_frames
from movlr_jax.film.renderer import place, renderer
from movlr_jax.tasks import build_task, simple_task
from movlr_jax.tasks.base import Camera, Course, View

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
FOLLOWS = (Camera((0.0, 0.0, 0.6), 2.0, 90.0, -10.0, track="ball"),)
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
    parts: Any = {"goals": {}, "roles": {}, "course": Course(), "scoring": SimpleNamespace(motion=None)}
    task = SimpleNamespace(model=model, view=View(cameras), **parts)
    parts = {"qpos": qpos, "times": times, "caption": Caption("an instruction", "a name", "a measure", "a note")}
    return Clip(task, **{**parts, **changes})  # pyright: ignore[reportArgumentType]


def read(data: bytes, folder: Any) -> np.ndarray:
    """The pictures of an mp4, [frames, height, width, 3] uint8."""
    path = folder / "film.mp4"
    path.write_bytes(data)
    return np.array(read_frames(path, 1000))


@needs_gl
def test_film_has_the_size_length_and_codec_that_were_asked_for(model, tmp_path):
    told = []
    clip = clip_of(model, cameras=(FRONT, Camera((0, 0, 0.6), 2.0, 0.0, -10.0)))
    data = film(clip, Style(SMALL, 20), progress=lambda done, total: told.append((done, total))).mp4
    pictures = read(data, tmp_path)
    assert pictures.shape == (11, 120, 320, 3)  # 0.5 s at 20 frames/s with both ends, two cameras
    assert told == [(i, 11) for i in range(1, 12)]

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(tmp_path / "film.mp4")]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    assert {"h264", "yuv420p"} <= {*re.findall(r"\w+", said)}
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


TWO = (
    "turn right by 90°: 82° (asked 80° to 100°); move forward 1 m at about 0.84 m/s: 0.897 m (asked 0.9 m to 1.1 m); "
)
FOUR = "".join(f"the {side} arm of the body up: {n}5.7 cm (asked at least 5.0 cm); " for n, side in enumerate("abcd"))


@pytest.mark.parametrize(("height", "width"), [(560, 480), (280, 240)], ids=["full", "preview"])
@pytest.mark.parametrize(
    ("measure", "verdict", "values"),
    [
        (f"{TWO}not achieved", "not achieved", ["82°", "0.897 m"]),
        (f"{FOUR}achieved", "achieved", ["05.7 cm", "15.7 cm", "25.7 cm", "35.7 cm"]),
        ("moved 5.61 m: no success", "no success", ["5.61 m"]),
    ],
)
def test_the_verdict_is_first_and_each_value_is_shown(monkeypatch, height, width, measure, verdict, values):
    strip, written = round(captions.STRIP * height), []
    kept = captions.ImageDraw.ImageDraw.text

    def text(draw: Any, at: Any, shown: str, **more: Any) -> None:
        x = at[0] - (more["font"].getlength(shown) if more["anchor"] == "rm" else 0)
        written.append((at[1], x, x + more["font"].getlength(shown), shown))
        kept(draw, at, shown, **more)

    monkeypatch.setattr(captions.ImageDraw.ImageDraw, "text", text)
    captions.Strips(Caption("", "human reward, seed 778", measure, "a proposer, a judge"), width, strip)
    written = sorted(line for line in written if line[3])
    assert written[0][3] == verdict
    assert max(end for _, _, end, _ in written) <= width
    below = " ".join(shown for y, *_, shown in written if y > written[0][0])
    assert [below.find(value) >= 0 for value in values] == [True] * len(values), below


def test_speed_and_distance_of_a_travelling_body_are_read_from_its_path(model):
    clip = clip_of(model, 3.0, cameras=FOLLOWS)
    times = np.array([0.1, 1.6, 3.1])
    found = films._readings(model, mujoco.MjData(model), clip, None, times)
    assert [r.speed for r in found] == pytest.approx([0.5] * 3)
    assert [r.distance for r in found] == pytest.approx([0.0, 0.75, 1.5])
    assert found[1].parts() == ["1.60 s", "0.50 m/s", "0.75 m"]
    still = films._readings(model, mujoco.MjData(model), clip_of(model), 0.3, times)
    assert (still[0].speed, still[0].parts()) == (None, ["0.10 s"])
    assert still[2].parts() == ["diverged at 0.30 s"]


def test_the_speed_of_a_body_that_starts_at_rest_is_zero_in_the_first_picture(model):
    """By hand: with 2 m/s^2 it has 2 m/s after 1 s, which is the mean speed of the second around that."""
    times = 0.01 + np.arange(201) * 0.01
    qpos = np.repeat(model.qpos0[None], len(times), axis=0)
    qpos[:, 0] = (times - times[0]) ** 2
    clip = clip_of(model, qpos=qpos, times=times, cameras=FOLLOWS)
    first, quarter, middle = films._readings(model, mujoco.MjData(model), clip, None, np.array([0.01, 0.26, 1.01]))
    assert (first.speed, quarter.speed, middle.speed) == pytest.approx((0.01, 0.5, 2.0))


PLANE = '<geom type="plane" size="2 2 .1" {}/>'


@pytest.mark.parametrize(
    ("planes", "height"),
    [
        (f'<body euler="20 0 0">{PLANE.format("")}</body>', None),
        (f'<body euler="20 0 0"><body euler="-20 0 0">{PLANE.format("")}</body></body>', 0.0),
        (PLANE.format('pos="0 0 .1" euler="0 0 90"') + PLANE.format('pos="0 0 -.1"'), 0.1),
        (PLANE.format("") + PLANE.format('pos="0 0 3" euler="180 0 0"') + PLANE.format('pos="0 0 1" group="3"'), 0.0),
        (PLANE.format("") + f'<body mocap="true" pos="0 0 1">{PLANE.format("")}</body>', 0.0),
    ],
    ids=["tilted", "tilted back", "turned and higher", "ceiling or not shown", "moved by hand"],
)
def test_the_ground_is_the_highest_level_plane_that_is_shown_and_stands_still(planes, height):
    still = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{planes}</worldbody></mujoco>")
    task: Any = SimpleNamespace(model=still, course=Course())
    ground = views.ground_of(task)
    assert (None if ground is None else float(ground(np.zeros(2)))) == pytest.approx(height)


@needs_gl
def test_a_contact_sheet_shows_the_start_the_end_and_what_is_between(model):
    made = film(clip_of(model, 2.0), Style(SMALL, 10))
    page = np.asarray(Image.open(io.BytesIO(made.sheet)).convert("RGB")).astype(int)
    assert page.shape == (2 * 120 + 4, 4 * 160 + 3 * 4, 3)
    cells = [page[y : y + 120, x : x + 160] for y in (0, 124) for x in range(0, 4 * 164, 164)]
    ball = [((cell[..., 2] - cell[..., 0]) > 40).nonzero()[1].mean() for cell in cells]
    assert (np.diff(ball) > 0).all()
    short = film(clip_of(model, 0.1), Style(SMALL, 10)).sheet
    assert Image.open(io.BytesIO(short)).size == (2 * 160 + 4, 120)


def test_merged_vertices_keep_the_shape_of_a_mesh_and_thin_parts_stay():
    turn, rise = np.meshgrid(np.linspace(0, 2 * np.pi, 80, endpoint=False), np.linspace(0.01, np.pi - 0.01, 60))
    ball = np.stack([np.sin(rise) * np.cos(turn), np.sin(rise) * np.sin(turn), np.cos(rise)], -1).reshape(-1, 3)
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


def test_a_weakened_muscle_is_yellow_and_thicker_whatever_its_activation():
    model = mujoco.MjModel.from_xml_string(SCENE)
    colours = muscles.MuscleColours(model, ["cord"])
    colours.show(np.array([1.0]))
    assert model.tendon_rgba[0] == pytest.approx(muscles.WEAKENED)
    assert model.tendon_width[0] == pytest.approx(1.5 * 0.03)
    task = build_task("injured_walk", "myolegs", 1.0, {"strength": 0.2})
    assert {"soleus_r", "gaslat_r"} & {*task.view.weakened} == {"gaslat_r"}
    assert {*task.view.weakened.values()} == {0.2}


@needs_gl
def test_a_diverged_simulation_holds_its_last_good_state_and_says_so(model):
    clip = clip_of(model)
    clip.qpos[3:, 2] = np.nan
    clip.qpos[4:, 2] = 1e30
    pictures = list(frames(clip, Style(SMALL, 10)))
    assert len(pictures) == 6
    assert (pictures[2][40:] == pictures[5][40:]).all()
    assert (pictures[1][40:] != pictures[2][40:]).any()

    alarms = [bool(((text[..., 0] - text[..., 2]) > 60).any()) for text in (p[10:30].astype(int) for p in pictures)]
    assert alarms[2:4] == [False, True]


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


def _labels(task: Any, *states: np.ndarray) -> list[str]:
    """The distances that are drawn at the last of some states of an episode."""
    marks, data = views.Marks.of(task), mujoco.MjData(task.model)
    for qpos in states:
        place(task.model, data, qpos)
        scene = mujoco.MjvScene(task.model, maxgeom=200)
        marks.add_to(scene, data)
    kinds = [scene.geoms[i] for i in range(scene.ngeom)]
    return [geom.label for geom in kinds if geom.type == mujoco.mjtGeom.mjGEOM_LABEL]


def test_distances_are_shown_only_on_the_way_along_x(model):
    task, begin = clip_of(model, cameras=FOLLOWS).task, model.qpos0
    moved, aside, turned, rolled = (begin.copy() for _ in range(4))
    moved[:2], aside[:2] = (3.0, 0.5), (3.0, 1.5)
    half = np.deg2rad(30.0)
    turned[3:7] = np.cos(half), 0, 0, np.sin(half)
    rolled[3:7] = np.cos(half), 0, np.sin(half), 0
    assert _labels(task, begin, moved) == ["1 m", "2 m", "3 m", "4 m", "5 m", "6 m"]
    assert _labels(task, begin, rolled)
    assert not _labels(task, begin, aside)
    assert not _labels(task, begin, turned)
    assert _labels(task, turned), "it begins there"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("walk backward", True),
        ("stand still", True),
        ("walk along +y", False),
        ("walk forward, then turn left", False),
    ],
)
def test_distances_are_not_shown_where_the_words_ask_for_another_way(words, shown):
    cart = """<mujoco><worldbody><geom type="plane" size="9 9 .1"/>
      <body name="cart" pos="0 0 .2"><freejoint/><geom type="box" size=".2 .1 .1"/>
      <body name="wheel"><joint name="turn" axis="0 1 0"/><geom size=".1"/></body></body></worldbody>
      <actuator><motor joint="turn"/></actuator></mujoco>"""
    task = simple_task(name="seen", model=mujoco.MjSpec.from_string(cart), description=words)
    assert bool(_labels(task, task.start(np.random.default_rng(0), 1)[0][0])) == shown
