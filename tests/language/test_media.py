"""What a vision model sees: the cameras of a task, and those that are added to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from movlr_jax.language.media import with_views
from movlr_jax.tasks import Task, build_task
from movlr_jax.tasks.base import Camera

OTHER = Camera((0.0, 0.0, 1.0), 0.5, 10.0, -20.0, shows="a close-up of the hand")


@pytest.fixture(scope="module")
def task() -> Task:
    return build_task("flat_walk", "myolegs", 3.0, {})


def test_one_view_is_that_of_the_film(task: Task):
    assert list(with_views(task, 1).cameras) == list(task.cameras)
    assert len(task.cameras) == 1, "films of walks show one view"


def test_more_views_are_the_tasks_own_before_turned_ones(task: Task):
    first = task.cameras[0]
    one, two, three = with_views(replace(task, more_cameras=(OTHER,)), 3).cameras
    assert (one, two) == (first, OTHER)
    assert three == replace(first, azimuth=first.azimuth + 90.0)
    bare = with_views(replace(task, cameras=(OTHER,), more_cameras=()), 3).cameras
    assert [camera.azimuth for camera in bare] == [10.0, 100.0, 190.0]
    assert [camera.shows for camera in bare] == [OTHER.shows, "", ""]
