"""The cube task: its numbers by hand, its start by MuJoCo, the rewards that come with it by the sandbox."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from grasping import MODELS, built, episode, held, sound_starts, still
from vetting import refusals

from movlr_jax.errors import UserError
from movlr_jax.tasks import Task, build_task
from movlr_jax.tasks.hand.cube import FACES
from movlr_jax.tasks.hand.grasp import body_frame

HALF = 0.025


@pytest.fixture(scope="module", params=MODELS)
def task(request: pytest.FixtureRequest) -> Task:
    return built("cube_rotate", request.param)


@pytest.fixture(scope="module")
def start(task: Task) -> mujoco.MjData:
    data = mujoco.MjData(task.model)
    data.qpos[:] = task.start(np.random.default_rng(0), 1)[0][0]
    mujoco.mj_forward(task.model, data)
    return data


def test_the_target_is_up_and_to_the_left_and_turned_as_a_pronating_forearm_turns(task, start):
    """8 cm each, and 60 degrees about the backward axis from how the cube stands."""
    frame, cube = body_frame(task.adapter), start.body("cube")
    ghost = task.model.body("target_cube")
    np.testing.assert_allclose(task.goals["object_pos"], ghost.pos, atol=1e-6)
    np.testing.assert_allclose(task.goals["object_quat"], ghost.quat, atol=1e-6)
    np.testing.assert_allclose(frame.T @ (ghost.pos - cube.xpos), [0.0, 0.08, 0.08], atol=1e-6)
    turn = task.goals["object_rot"] @ cube.xmat.reshape(3, 3).T
    sine, cosine = np.sin(np.pi / 3), 0.5
    # about -forward, seen as forward, left, up: left goes down, up goes left
    np.testing.assert_allclose(frame.T @ turn @ frame, [[1, 0, 0], [0, cosine, sine], [0, -sine, cosine]], atol=1e-5)


def test_the_cube_weighs_and_measures_what_was_asked(task):
    model = task.model
    np.testing.assert_allclose(model.geom("cube_grip").size, HALF)
    assert model.body("cube").mass[0] == pytest.approx(0.1)
    np.testing.assert_allclose(model.body("cube").inertia, 0.1 * 0.05**2 / 6)  # m a^2 / 6 of a solid cube
    ghost = np.flatnonzero(model.geom_bodyid == model.body("target_cube").id)
    assert len(ghost) == 2 * len(FACES) == 12  # a frame in the face's colour and one in that of the outline
    assert not model.geom_contype[ghost].any()
    assert not model.geom_conaffinity[ghost].any()
    assert model.body("target_cube").mass[0] < 1e-3  # a model may ask its compiler for a least mass


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("cube_kg", 0.0, "task.settings.cube_kg=0: it must be more than 0"),
        ("turn_axis", (0.0, 0.0, 0.0), "turn_axis"),
        ("cube_m", 0.3, "does not fit around a cube of 30 cm"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting: str, value: object, said: str):
    with pytest.raises(UserError, match=said):
        build_task("cube_rotate", "myoarm_r", 1.0, {setting: value})


def test_thumb_and_two_fingers_are_about_to_hold_it(task, start):
    """Measured by MuJoCo: their ends within 8 mm of the cube, on either side; nothing deeper inside than 1 mm."""
    model, cube = task.model, task.model.geom("cube_grip").id
    nearest = {}
    for part, bodies in task.adapter.touch.items():
        ids = {model.body(body).id for body in bodies}
        geoms = [g for g in range(model.ngeom) if model.geom_bodyid[g] in ids and model.geom_contype[g]]
        nearest[part] = min(mujoco.mj_geomDistance(model, start, g, cube, 0.2, None) for g in geoms)
    assert min(nearest.values()) > -0.001  # a start is drawn with noise
    assert max(nearest[part] for part in ("thumb", "index", "middle")) < 0.008
    centre = start.body("cube").xpos
    thumb, index, middle = (
        start.site(task.roles[f"{part}_site"]).xpos - centre for part in ("thumb", "index", "middle")
    )
    assert thumb @ (index + middle) < 0


def test_it_starts_clear_of_the_hand_and_on_its_stand(task):
    sound_starts(task, 30)


def test_held_by_its_muscles_nothing_moves_for_half_a_second(task):
    start, state = held(task, 2)
    assert all(np.isfinite(x).all() for x in (state.qpos, state.qvel, state.act, state.sensors))
    moved = np.asarray(state.sensors) - start.sensors
    cube = task.layout.blocks["pos"] + 3 * task.layout.bodies["cube"]
    palm = task.layout.sites[task.roles["palm_site"]]
    assert np.linalg.norm(moved[:, cube : cube + 3], axis=1).max() < 0.01
    assert np.linalg.norm(moved[:, palm : palm + 3], axis=1).max() < 0.02


@pytest.mark.parametrize(("centimetres", "degrees", "success"), [(2.9, 14.5, 1.0), (3.1, 0.0, 0.0), (0.0, 15.5, 0.0)])
def test_errors_worked_by_hand(task, centimetres: float, degrees: float, success: float):
    made = episode(task, *still(task, (0, centimetres / 100, 0), degrees, (0.2, 1.0, -0.4)))
    metrics = task.scoring.measure(made, task)
    assert metrics["object_position_error_m"] == pytest.approx(centimetres / 100, abs=1e-6)
    assert metrics["object_orientation_error_rad"] == pytest.approx(np.deg2rad(degrees), abs=1e-3)
    assert metrics["success"] == success


def test_what_is_wrong_is_said_in_words(task):
    def kinds(centimetres: float, degrees: float) -> list[str]:
        metrics = task.scoring.measure(episode(task, *still(task, (centimetres / 100, 0, 0), degrees)), task)
        return [need.kind for need in task.scoring.diagnose(metrics)]

    assert kinds(0, 0) == []
    assert kinds(20, 0) == ["hold", "place", "steady"]
    assert kinds(0, 40) == ["turn", "steady"]


def test_its_rewards_are_sound(task):
    rewards = task.rewards.initial, task.rewards.human
    assert not any("$" in source for source in rewards)
    assert refusals(task, *rewards) == []
