"""The groups of a task's fields, and joints at their limits."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import movlr_jax as mj
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import Rewards, View, joints_at_limit


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


def test_joint_limits_worked_by_hand():
    """Joints limited to [0, 1] and [-1, 1] with 2 % margins, an unlimited one, one that follows, a free body."""
    model = mujoco.MjModel.from_xml_string("""
        <mujoco><compiler angle="radian"/><worldbody>
          <body><freejoint/><geom size="0.1"/></body>
          <body><joint name="a" limited="true" range="0 1"/><geom size="0.1"/>
            <body><joint name="b" limited="true" range="-1 1"/><geom size="0.1"/>
              <body><joint name="c" limited="false"/><joint name="follows" limited="true" range="0 1"/>
                <geom size="0.1"/></body></body></body>
        </worldbody><equality><joint joint1="follows" joint2="b"/></equality></mujoco>""")
    qpos = np.zeros((4, model.nq))
    a, b, c = (model.joint(name).qposadr[0] for name in "abc")
    qpos[:, a] = [0.019, 0.021, 0.5, 1.2]  # at, off, off, beyond
    qpos[:, b] = [0.0, 0.97, -0.95, 0.959]  # off, at, off, off: margins are 4 cm of a range of 2
    qpos[:, c] = 100.0
    assert joints_at_limit(model, qpos).tolist() == [0.5, 0.5, 0.0, 0.5]
