"""What a vision model sees: the cameras of a task, and those that are added to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from movlr_jax.language.media import coloured, with_views, written
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
