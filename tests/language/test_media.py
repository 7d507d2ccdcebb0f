"""What a vision model sees: the cameras of a task, and those that are added to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from movlr_jax.film import clips
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import Clip
from movlr_jax.language.base import Evaluation
from movlr_jax.language.media import MotionMedia, with_views
from movlr_jax.language.prompts import shown
from movlr_jax.language.settings import ShownConfig
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import candidate_path
from movlr_jax.tasks import Task, build_task
from movlr_jax.tasks.base import Camera

OTHER = Camera((0.0, 0.0, 1.0), 0.5, 10.0, -20.0, shows="a close-up of the hand")


@pytest.fixture(scope="module")
def task() -> Task:
    return build_task("flat_walk", "myolegs", 3.0, {})


def test_one_view_is_the_first_of_the_film(task: Task):
    assert list(with_views(task, 1).view.cameras) == [task.view.cameras[0]]
    assert [camera.shows for camera in task.view.cameras] == ["the right side of the body", "the front of the body"]


def test_views_are_those_of_the_task_before_turned_ones(task: Task):
    first = task.view.cameras[0]
    one, two, three = with_views(task.replace(cameras=(first,), more_cameras=(OTHER,)), 3).view.cameras
    assert (one, two) == (first, OTHER)
    assert three == replace(first, azimuth=first.azimuth + 90.0, shows="")
    bare = with_views(task.replace(cameras=(OTHER,), more_cameras=()), 3).view.cameras
    assert [camera.azimuth for camera in bare] == [10.0, 100.0, 190.0]
    assert [camera.shows for camera in bare] == [OTHER.shows, "", ""]


@pytest.mark.parametrize(
    ("hold_s", "expected"),
    [
        (0.0, [0.2, 0.7, 1.2, 1.7, 2.2]),  # evenly spaced
        (0.5, [0.2, 0.95, 1.7, 1.95, 2.2]),  # the beginning, the middle and the end of the last half second
        (1.0, [0.2, 0.7, 1.2, 1.7, 2.2]),  # half of the motion or more: evenly spaced
    ],
)
def test_pictures_cover_the_time_in_which_a_success_must_last(task: Task, hold_s: float, expected: list[float]):
    clip = Clip(task.replace(hold_s=hold_s), np.zeros((21, task.model.nq)), np.linspace(0.2, 2.2, 21), Caption(""))
    media = MotionMedia(ShownConfig(media="frames", frames=5), None, lambda candidate: clip)  # pyright: ignore[reportArgumentType]
    assert media.times(clip) == pytest.approx(expected)


def test_message_gives_the_times_written_into_the_pictures(task: Task, tmp_path: Path):
    """Both count from the start of the episode, whose first control step of 16 ms is shown at 14 ms."""
    steps = 0.014 + 0.016 * np.arange(188)
    clip = Clip(task, np.repeat(task.model.qpos0[None], 188, axis=0), steps, Caption(""))
    model = task.model
    with Archive.create(tmp_path / "run", "") as archive:
        media = MotionMedia(ShownConfig(media="frames", frames=5), archive, lambda candidate: clip)
        for i in range(5):  # rendered before
            archive.put(candidate_path(0, 0, f"_seen_{i:02d}of05.jpg"), b"")
        said = shown(media, task, media.see(Evaluation(0, 0, "")))
    labels = [r.parts()[0] for r in clips._readings(model, mujoco.MjData(model), clip, None, media.times(clip))]
    assert labels == ["0.01 s", "0.76 s", "1.51 s", "2.26 s", "3.01 s"]
    assert "lasts 3.01 s; its 5 pictures show it at 0.01, 0.76, 1.51, 2.26 and 3.01 s." in said
