"""Where a gripper holds a thing, and that jaws which close elsewhere earn nothing."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from bodies import scene_of

from movlr_jax.rewards import shaping
from movlr_jax.tasks.words.reading import read


def test_a_gripper_holds_things_between_its_jaws():
    """The middle of the shapes of both fingers, from their positions in C MuJoCo."""
    scene = scene_of("panda")
    jaws = [scene.model.body(name).id for name in ("left_finger", "right_finger")]
    shapes = np.isin(scene.model.geom_bodyid, jaws)
    np.testing.assert_allclose(
        scene.grip(scene.hands[0]).now(scene.data), scene.data.geom_xpos[shapes].mean(axis=0), atol=1e-4
    )


def test_jaws_that_close_on_each_other_hold_nothing():
    """By hand: both fingers feel 50 N, with the cube between them or 20 cm away."""
    scene = scene_of("panda")
    terms = {term.name: term for term in read("lift the cube by 10 cm", scene).first_terms()}

    class State:
        def __init__(self, far):
            self.far = np.array([far, 0.0, 0.0])

        def pos(self, name):
            return (
                scene.data.body(name).xpos
                if name != "cube"
                else scene.grip(scene.hands[0]).now(scene.data) + self.far
            )

        def rot(self, name):
            return scene.data.body(name).xmat.reshape(3, 3)

        def touch(self, name):
            return 50.0

    def grip(far):
        return float(eval(terms["grip"].expression, {"state": State(far), "jnp": jnp, "shaping": shaping}))

    assert grip(0.0) > 0.99
    assert grip(0.2) < 0.01
