"""Settings that suit a body: chosen from facts about its model, never from its name."""

from __future__ import annotations

import mujoco
import pytest
from bodies import CART, MOTOR_DOG

from movlr_jax.control.build import build_optimizer
from movlr_jax.control.mpc.planner import Planner
from movlr_jax.control.mpc.rules.mppi import Mppi as Rule
from movlr_jax.control.optimizers import Mppi
from movlr_jax.control.suited import BodyFacts, facts_of, suited
from movlr_jax.models.motors import supporting
from movlr_jax.tasks import Task, simple_task


@pytest.mark.parametrize(
    ("facts", "horizon", "knots", "every"),
    [
        (BodyFacts(12, "free", 12, 0.2725), 0.432, 4, 2),  # 2.6 sqrt(0.2725 / 9.81) = 0.433 s
        (BodyFacts(23, "free", 23, 5.0), 0.704, 6, 2),  # at most 0.7 s, in control steps of 16 ms
        (BodyFacts(23, "free", 23, 0.1, lies=True), 0.64, 6, 2),  # that should get up
        (BodyFacts(7, "fixed", 7, 0.5), 0.64, 6, 2),  # an arm
        (BodyFacts(1, "fixed", 0, 0.5, 1.2), 1.2, 10, 1),  # a cart with a pole
    ],
)
def test_horizon_knots_and_replans_follow_from_facts(facts: BodyFacts, horizon: float, knots: int, every: int):
    found = suited(Mppi(), facts)
    assert (round(found.horizon_s, 6), found.knots, found.replan_every) == (horizon, knots, every)
    given = suited(Mppi(horizon_s=0.2, knots=3, replan_every=5), facts)
    assert (given.horizon_s, given.knots, given.replan_every) == (0.2, 3, 5)


@pytest.mark.parametrize(
    ("facts", "density", "smooth"),
    [
        (BodyFacts(23, "free", 23, 0.6), 0.15, 0.9),  # 3.5 of 23 joints
        (BodyFacts(23, "free", 23, 0.1, lies=True), 1.0, 0.0),
        (BodyFacts(19, "free", 19, 0.9), 1.0, 0.0),  # H1, which turns with noise in all joints only
        (BodyFacts(24, "fixed", 24, 0.2), 0.15, 0.9),  # a hand
        (BodyFacts(8, "fixed", 8, 0.8), 1.0, 0.0),  # an arm with a gripper
        (BodyFacts(23, "free", 0, 0.6), 1.0, 0.0),  # motors, as with space=controls
    ],
)
def test_samples_of_a_body_with_many_joints_move_few_of_them(facts: BodyFacts, density: float, smooth: float):
    found = suited(Mppi(), facts).mppi
    assert (found.density, found.smooth) == (density, smooth)
    given = suited(Mppi(mppi=Rule(density=0.5)), facts).mppi
    assert (given.density, given.smooth) == (0.5, 0.0)
    given = suited(Mppi(mppi=Rule(smooth=0.3)), facts).mppi
    assert (given.density, given.smooth) == (density, 0.3)


def test_facts_are_those_of_the_model():
    dog, cart = (
        simple_task(name="own", model=mujoco.MjSpec.from_string(text), description="hold the posture")
        for text in (MOTOR_DOG, CART)
    )
    found = facts_of(dog)
    assert (found.actuators, found.base, found.targets) == (8, "free", 8)
    # trunk of 4 kg at 0.62 m, four thighs of 0.5 kg at 0.47 m, shins of 0.3 kg at 0.185 m, whose ends are at 0.02 m
    assert found.height_m == pytest.approx((4 * 0.62 + 2 * 0.47 + 1.2 * 0.185) / 7.2 - 0.02, abs=1e-3)
    assert facts_of(cart).targets == 0
    planner = build_optimizer(Mppi(), dog)
    assert isinstance(planner, Planner)
    assert planner.config == suited(planner.config, found)


def test_feet_that_meet_only_the_floor_carry_the_body():
    """As in models for MJX: feet have a conaffinity but no contype."""
    text = MOTOR_DOG.replace("<worldbody>", '<default><geom contype="0"/></default><worldbody>').replace(
        'type="plane"', 'type="plane" contype="1"'
    )
    task = _dog(text)
    assert supporting(task.model, task.model.qpos0).all()
    assert facts_of(task).height_m == pytest.approx(facts_of(_dog(MOTOR_DOG)).height_m)


def test_the_lowest_point_is_that_of_shapes_not_of_balls_around_them():
    """A trunk so long that the ball around it reaches below the feet does not stand on its trunk."""
    long = _dog(MOTOR_DOG.replace('size=".15 .1 .05"', 'size="1.5 .1 .05"'))
    assert facts_of(long).height_m == pytest.approx(facts_of(_dog(MOTOR_DOG)).height_m)
    assert supporting(long.model, long.model.qpos0).all()


def _dog(text: str) -> Task:
    return simple_task(name="own", model=mujoco.MjSpec.from_string(text), description="hold the posture")


@pytest.mark.parametrize(("inertia", "step"), [(0.1, 0.008), (0.0009, 0.004), (0.0003, 0.002)])
def test_plans_take_steps_in_which_servos_do_not_shake(inertia: float, step: float):
    """By hand: a spring of 100 N m/rad with an inertia I shakes if dt > 2 sqrt(I / 100)."""
    text = f"""<mujoco><option gravity="0 0 0"/><worldbody><body><joint name="j" axis="0 0 1"/>
      <inertial pos="0 0 0" mass="1" diaginertia="{inertia} {inertia} {inertia}"/><geom size=".1"/></body></worldbody>
      <actuator><position joint="j" kp="100" ctrlrange="-1 1"/></actuator></mujoco>"""
    found = suited(Mppi(), facts_of(_dog(text)))
    assert found.plan_dt == step
    assert suited(Mppi(plan_dt=0.001), facts_of(_dog(text))).plan_dt == 0.001
