"""Up, gravity and ground of a model, against rays of C MuJoCo."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from movlr_jax.biomech.world import EARTH, World, world_of
from movlr_jax.sandbox.graph import MAX_ELEMENTS
from movlr_jax.tasks.walking.terrain import rough

BODY = '<body name="body" pos="0 0 3"><freejoint/><geom name="body" type="capsule" size=".1 .3"/></body>'
_RANDOM = " ".join(f"{v:.4f}" for v in np.random.default_rng(0).uniform(0, 1, 30))
HFIELD = f'<hfield name="hills" nrow="5" ncol="6" size="2 1 .6 .1" elevation="{_RANDOM}"/>'
MESH = '<mesh name="roof" vertex="-2 -1 0 2 -1 0 -2 1 0 2 1 0 -2 0 1 2 0 1"/>'


def model_of(ground: str, option: str = "", more: str = "") -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(
        f"<mujoco><option {option}/><asset>{HFIELD}{MESH}</asset><worldbody>{ground}{BODY}</worldbody>{more}</mujoco>"
    )


GROUNDS = {
    "plane": '<geom type="plane" size="1 1 1" pos="0 0 .4"/>',
    "slope": '<geom type="plane" size="1 1 1" pos="0 0 .4" euler="10 -20 0"/>',
    "the higher of two planes": '<geom type="plane" size="1 1 1"/><geom type="plane" size="1 1 1" pos="0 0 .2"/>',
    "tilted box": '<geom type="box" size="3 3 .2" pos="0 0 .4" euler="10 -20 30"/>',
    "hills": '<geom type="hfield" hfield="hills" pos="0 0 .3" euler="0 0 30"/>',
    "a hill that leans": '<geom type="hfield" hfield="hills" euler="5 0 30"/><geom type="plane" size="1 1 1"/>',
    "a roof": '<geom type="mesh" mesh="roof" pos="0 0 .2"/><geom type="plane" size="1 1 1"/>',
    "a planet": '<geom size="30" pos="0 0 -30"/>',
}


@pytest.mark.parametrize("case", GROUNDS)
def test_heights_are_those_that_a_ray_measures(case: str):
    model = model_of(GROUNDS[case])
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    world, rng = world_of(model, 1), np.random.default_rng(1)
    at = np.append(rng.uniform([-0.9, -0.6], [0.9, 0.6], (60, 2)), np.full((60, 1), 2.0), axis=1)
    own, hit = model.body("body").id, np.zeros(1, np.int32)
    rays = [mujoco.mj_ray(model, data, p, np.array([0, 0, -1.0]), None, 1, own, hit) for p in at]
    near = 0.05 if case in ("a roof", "a hill that leans", "a planet") else 1e-5  # sampled
    np.testing.assert_allclose(world.height(at), rays, atol=near)
    programs = jax.vmap(world.height)(jnp.asarray(at, jnp.float32))
    np.testing.assert_allclose(programs, world.height(at), atol=1e-4)


def test_up_is_against_gravity_and_without_gravity_where_the_floor_faces():
    plane = '<geom type="plane" size="1 1 1" euler="-90 0 0"/>'
    for option, up, gravity in (
        ("", [0, 0, 1], EARTH),
        ('gravity="0 -1.62 0"', [0, 1, 0], 1.62),
        ('gravity="0 0 5"', [0, 0, -1], 5.0),
        ('gravity="3 0 -4"', [-0.6, 0, 0.8], 5.0),
        ('gravity="0 0 0"', [0, 1, 0], 0.0),
    ):
        world = world_of(model_of(plane, option))
        np.testing.assert_allclose(world.up, up, atol=1e-9)
        assert world.gravity == pytest.approx(gravity)
        np.testing.assert_allclose(world.frame @ world.up, [0, 0, 1], atol=1e-9)
        np.testing.assert_allclose(world.frame @ world.frame.T, np.eye(3), atol=1e-9)
        assert np.linalg.det(world.frame) == pytest.approx(1.0)
    np.testing.assert_array_equal(World().frame, np.eye(3))


def test_what_is_excluded_or_paired_decides():
    box = '<geom name="g" type="box" size="1 1 .1" {}/>'
    apart = '<contact><exclude body1="world" body2="body"/></contact>'
    pair = '<contact><pair geom1="g" geom2="body"/></contact>'
    assert not world_of(model_of(box.format(""), more=apart), 1).others
    assert len(world_of(model_of(box.format('contype="0" conaffinity="0"'), more=pair), 1).others) == 1


def test_what_is_above_a_body_is_not_under_it():
    """A table of 0.7 to 0.8 m: a body under it is above the floor, one on it or in it is above the table."""
    table = '<geom type="plane" size="1 1 1"/><geom type="box" size="1 1 .05" pos="0 0 .75"/>'
    world = world_of(model_of(table), 1)
    heights = world.height(np.array([[0, 0, 0.5], [0, 0, 1.0], [0, 0, 0.75], [2, 0, 1.0]]))
    np.testing.assert_allclose(heights, [0.5, 0.2, -0.05, 1.0], atol=1e-9)


def test_beside_a_platform_the_height_is_still_above_it():
    world = world_of(model_of('<geom type="box" size="1 1 .5" pos="0 0 1.5"/>'), 1)
    assert world.height(np.array([5.0, 0, 0])) == pytest.approx(-2.0)
    assert world.over_ground(np.array([[0.0, 0, 3]]))
    assert not world.over_ground(np.array([[5.0, 0, 3]]))


def test_a_large_height_field_fits_into_a_reward_program():
    """201 x 101 heights of bumps of 3 cm: programs read as many as the sandbox allows, and are 1 cm off at most."""
    spec = mujoco.MjSpec.from_string(f"<mujoco><worldbody>{BODY}</worldbody></mujoco>")
    rough(0.03, 0).add(spec)
    world = world_of(spec.compile(), 1)
    at = np.random.default_rng(0).uniform((-2, -4, 3), (16, 4, 3), (500, 3))
    constants = jax.make_jaxpr(world.height)(jnp.asarray(at)).consts
    assert 0 < max(np.size(constant) for constant in constants) <= MAX_ELEMENTS
    np.testing.assert_allclose(world.height(jnp.asarray(at)), world.height(at), atol=0.01)
