"""The groups of a task's fields."""

from __future__ import annotations

import pytest

import movlr_jax as mj
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import Rewards, View


@pytest.fixture(scope="module")
def leg() -> Task:
    return mj.load_task(model="tiny_muscle", instruction="bend the knee")


def test_fields_of_any_group_are_replaced_at_once(leg: Task):
    changed = leg.replace(episode_s=1.0, tie=0.5, cameras=(), initial="other")
    assert (changed.episode_s, changed.scoring.tie, changed.view.cameras) == (1.0, 0.5, ())
    assert changed.rewards == Rewards("other", leg.rewards.human, controls=leg.rewards.controls)
    assert changed.scoring.measure is leg.scoring.measure
    assert changed.course is leg.course
    assert leg.replace(view=View(())).view.weakened == {}


def test_an_unknown_field_is_refused_with_its_nearest_name(leg: Task):
    with pytest.raises(mj.UserError, match="there is no field of a task 'camera'; did you mean 'cameras'"):
        leg.replace(camera=())


def test_a_task_is_named_until_a_field_of_it_or_of_a_group_changes(leg: Task):
    assert leg.named
    assert leg.replace(tie=leg.scoring.tie).named, "nothing changed"
    assert not leg.replace(description="other").named
    assert not leg.replace(success="other").named
    assert not leg.replace(warnings=("other",)).named


def test_every_field_has_a_name_of_its_own(leg: Task):
    groups = (leg.scoring, leg.rewards, leg.view, leg.course, leg.origin)
    assert len(leg.leaves()) == len(vars(leg)) - len(groups) + sum(len(vars(group)) for group in groups)
