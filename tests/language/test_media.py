"""What a vision model sees: the cameras of a task, and those that are added to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import Clip
from movlr_jax.language.media import MotionMedia, coloured, with_views, written
from movlr_jax.language.settings import ModelConfig
from movlr_jax.tasks import Task, build_task
from movlr_jax.tasks.base import Camera

OTHER = Camera((0.0, 0.0, 1.0), 0.5, 10.0, -20.0, shows="a close-up of the hand")


@pytest.fixture(scope="module")
def task() -> Task:
    return build_task("flat_walk", "myolegs", 3.0, {})


def test_one_view_is_the_first_of_the_film(task: Task):
    assert list(with_views(task, 1).cameras) == [task.cameras[0]]
    assert [camera.shows for camera in task.cameras] == [
        "the right side of the body",
        "the front of the body",
    ]


def test_more_views_are_the_tasks_own_before_turned_ones(task: Task):
    first = task.cameras[0]
    one, two, three = with_views(replace(task, cameras=(first,), more_cameras=(OTHER,)), 3).cameras
    assert (one, two) == (first, OTHER)
    assert three == replace(first, azimuth=first.azimuth + 90.0, shows="")
    bare = with_views(replace(task, cameras=(OTHER,), more_cameras=()), 3).cameras
    assert [camera.azimuth for camera in bare] == [10.0, 100.0, 190.0]
    assert [camera.shows for camera in bare] == [OTHER.shows, "", ""]


def test_what_is_written_into_pictures_is_told_in_words(task: Task):
    assert written(task) == "the time, the speed over the ground and the distance from the start"
    assert coloured(task)
    still = build_task("bottle_pour", "myoarm_r", 3.0, {})
    assert written(still) == "the time"


@pytest.mark.parametrize(
    ("hold_s", "expected"),
    [
        (0.0, [0.2, 0.7, 1.2, 1.7, 2.2]),  # evenly spaced
        (0.5, [0.2, 0.95, 1.7, 1.95, 2.2]),  # the beginning, the middle and the end of the last half second
        (1.0, [0.2, 0.7, 1.2, 1.7, 2.2]),  # half of the motion or more: evenly spaced
    ],
)
def test_pictures_show_the_time_in_which_a_success_must_last(
    task: Task, hold_s: float, expected: list[float]
):
    clip = Clip(
        replace(task, hold_s=hold_s), np.zeros((21, task.model.nq)), np.linspace(0.2, 2.2, 21), Caption("")
    )
    media = MotionMedia(ModelConfig("gemini", media="frames", frames=5), None, lambda candidate: clip)  # pyright: ignore[reportArgumentType]
    assert media.times(clip) == pytest.approx(expected)
