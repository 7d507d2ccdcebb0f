"""A body that stands keeps its weight over its feet, and shifts it to the others before one of them goes up."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from bodies import scene_of

from movlr_jax.tasks.words.reading import read


def terms_of(body: str, words: str) -> dict[str, str]:
    return {term.name: term.expression for term in read(words, scene_of(body)).terms()}


def test_quadruped_that_lifts_a_foot_stands_on_the_other_three():
    """By hand: their soles are at the lowest points of the balls at the ends of the calves."""
    scene = scene_of("quadruped")
    (stance,) = read(
        "lift the front left foot",
        replace(scene, touch={"FL_foot": ["FL_foot"], "FR_foot": ["FR_foot"], "base": ["base"]}),
    ).stances
    assert stance is not None
    balls = [
        scene.data.geom_xpos[g] for g in range(scene.model.ngeom) if _foot_of(scene.model, g) in ("FR", "RL", "RR")
    ]
    assert len(balls) == 3
    np.testing.assert_allclose(stance.on.now(scene.data)[:2], np.mean(balls, axis=0)[:2], atol=0.005)
    assert stance.lifted == ("FL_foot",)
    own = [b for b in range(1, scene.model.nbody) if scene.model.body_rootid[b] == scene.model.body("base").id]
    assert stance.newtons == pytest.approx(9.81 * scene.model.body_mass[own].sum(), rel=1e-3)


def _foot_of(model: mujoco.MjModel, geom: int) -> str:
    body = model.body(int(model.geom_bodyid[geom])).name
    ball = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_SPHERE
    return body.split("_")[0] if ball and body.endswith("_foot") else ""


@pytest.mark.parametrize(
    ("words", "feet"),
    [
        ("raise the right knee", {"left"}),
        ("stand on the left leg", {"left"}),
        ("raise the right leg forward", {"left"}),
        ("bend the right knee", {"left"}),
        ("raise the right arm", {"left", "right"}),
        ("turn right by 45 degrees", {"left", "right"}),
        ("squat", {"left", "right"}),
        ("lower the right knee", {"left", "right"}),
        ("keep the right foot on the ground", {"left", "right"}),
        ("walk forward and raise the right arm", set()),
        ("march in place", set()),
        ("jump", set()),
    ],
)
def test_person_stands_on_the_feet_that_are_not_up(words: str, feet: set[str]):
    found = terms_of("person", words)
    assert {side for side in ("left", "right") if f"{side}_" in found.get("carried", "")} == feet
    (stance,) = read(words, scene_of("person")).stances
    assert (stance.lifts if stance else None) == (len(feet) == 1 if feet else None)


def test_weight_is_shifted_only_while_the_leg_is_up():
    """So that a body that walks on afterwards is not kept there."""
    found = terms_of("person", "raise the right knee, then lower it")
    assert "state.time" in found["carried"]
    assert "right_" not in found["carried"]
    assert "right_" in found["second_carried"], "then it stands on both feet"
    (first, second) = read("stand on the left leg, then walk forward 1 m", scene_of("person")).stances
    assert first is not None
    assert second is None


def test_leg_counts_as_up_by_a_tenth_of_the_height_of_the_centre_of_mass():
    scene = scene_of("person")
    (up, _) = read("raise the right knee", scene).clauses
    assert up.measure.goal.low == pytest.approx(0.1 * scene.com_height, rel=0.05)


def test_foot_without_mass_is_where_its_body_is():
    """As of a Go2, whose file gives its feet a centre of mass 21 cm below them, and no mass."""
    scene = scene_of("quadruped")
    model = scene.model
    foot = model.body("FL_foot")
    foot.mass[:], foot.ipos[:] = 0.0, (0.0, 0.0, -0.2)
    (part,) = scene.known(["front", "left", "foot"])
    np.testing.assert_allclose(part.now(scene.data), scene.data.body("FL_foot").xpos)
