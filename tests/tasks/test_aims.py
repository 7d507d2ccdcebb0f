"""What words ask of parts of a body: parts, terms, measures against C MuJoCo."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from bodies import CART, PERSON
from moving import HOPPER, episode_of

import movlr_jax as mj
from movlr_jax._util.quantities import summary
from movlr_jax.evolution.scripted.terms import library
from movlr_jax.sandbox.source import parse
from movlr_jax.tasks import Task, simple_task
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.words.clauses import Clause, squat


def made(words: str, xml: str = PERSON, **more: object) -> Task:
    return simple_task(name="parts", model=mujoco.MjSpec.from_string(xml), description=words, **more)  # pyright: ignore


def _squat(task: Task) -> Clause:
    assert task.scoring.motion
    return next(clause for clause in task.scoring.motion.clauses if clause.row is squat)


def posed(task: Task, **joints: float) -> mujoco.MjData:
    data = mujoco.MjData(task.model)
    data.qpos[:] = task.start(np.random.default_rng(0), 1)[0][0]
    for joint, value in joints.items():
        data.joint(joint).qpos[0] = value
    mujoco.mj_forward(task.model, data)
    return data


def measured(task: Task, *states: mujoco.MjData) -> dict[str, float]:
    """Measures of an episode of 1 s in which the body is in these states, for 0.6 s in the last one."""
    postures = [state.qpos for state in states[:-1] for _ in range(20)]
    postures += [states[-1].qpos] * max(30 * len(states[:-1]), 20)
    episode = episode_of(task, postures, 1.0 / len(postures))
    assert task.scoring.motion
    return dict(task.scoring.motion.measure(Readout(task.layout, episode.steps)))


def test_measures_are_what_mujoco_says():
    """Points of a body are its centre of mass; a hand without a body of its own is at the end of the forearm."""
    task = made("raise the right foot")
    start, end = posed(task), posed(task, right_hip=-1.0, right_knee=0.7)
    rise = end.body("right_foot").xipos[2] - start.body("right_foot").xipos[2]
    assert measured(task, start, end)["right_foot_raised_m"] == pytest.approx(rise, abs=1e-4)
    assert measured(task, end, start)["right_foot_raised_m"] == pytest.approx(-rise, abs=1e-4), "held at the end"

    task = made("touch the head with the right hand")
    end = posed(task, right_shoulder_y=-2.0, right_elbow=-1.5)
    arm = end.body("right_lower_arm")
    apart = np.linalg.norm(2 * arm.xipos - arm.xpos - end.body("head").xipos)
    assert measured(task, posed(task), end)["right_hand_to_head_error_m"] == pytest.approx(apart, abs=1e-4)


def test_a_knee_bends_by_its_joint_angle():
    task = made("bend the right knee")
    end = posed(task, right_knee=0.8, right_hip=-0.3)
    assert summary(measured(task, posed(task), end)).startswith("right knee bent 46°: ")
    assert measured(task, posed(task), end, posed(task))["right_knee_bent_rad"] == pytest.approx(0.0, abs=1e-4)

    task = made("straighten the left elbow by 40 degrees", start={"left_elbow": -1.2})
    begin, end = posed(task, left_elbow=-1.2), posed(task, left_elbow=-0.5)
    assert measured(task, begin, end)["left_elbow_straightened_rad"] == pytest.approx(0.7, abs=1e-4)
    assert measured(made("straighten the left elbow"), begin, end)["left_elbow_angle_rad"] == pytest.approx(
        0.5, abs=1e-4
    )


def test_waves_are_counted():
    """By hand: an arm of 0.54 m that is up and swings by 0.4 rad to either side, at 1.5 Hz, for 2 s; then by 0.05."""
    task = made("wave goodbye with the left hand")
    assert task.scoring.motion
    times = np.linspace(0.0, 2.0, 201)

    def waving(angle: float) -> Readout:
        postures = np.repeat(posed(task).qpos[None], 201, axis=0)
        at = task.model.joint("left_shoulder_x").qposadr[0]
        postures[:, at] = np.pi + angle * np.sin(3 * np.pi * times)
        return Readout(task.layout, episode_of(task, list(postures), 0.01).steps)

    wide = waving(0.4)
    waves, none = (dict(task.scoring.motion.measure(read)) for read in (wide, waving(0.05)))
    # three times there and back, which the middle at the beginning and end cuts into seven swings, 0.21 m or wider
    assert waves["left_hand_waves_hz"] == pytest.approx(7 / 2 / 2.0)
    assert none["left_hand_waves_hz"] == task.scoring.motion.measure(wide, True)["left_hand_waves_hz"] == 0.0
    assert summary(waves).endswith(": left hand waves 1.75 Hz")
    assert task.scoring.score(waves) > task.scoring.score(none) + 5
    assert not [need for need in task.scoring.diagnose(waves) if "waves" in need.problem]
    assert "left hand waves: 0 Hz, not at least 0.5 Hz" in str(task.scoring.diagnose(none))


def test_doing_nothing_scores_less_than_what_the_words_ask_for():
    for words, joints in (
        ("raise the right arm", {"right_shoulder_y": -3.0}),
        ("raise the right arm sideways", {"right_shoulder_x": -1.5}),
        ("stand on the left leg", {"right_hip": -0.9, "right_knee": 0.9}),
        ("bend the left elbow", {"left_elbow": -1.5}),
    ):
        task = made(words)
        idle, done = measured(task, posed(task)), measured(task, posed(task), posed(task, **joints))
        assert task.scoring.score(done) > task.scoring.score(idle) + task.scoring.tie
        assert [need.kind for need in task.scoring.diagnose(idle)] == ["part"]
        assert not task.scoring.diagnose(done)
    cart = made("keep the pole upright", CART)
    fallen, upright = measured(cart, posed(cart, hinge=np.pi)), measured(cart, posed(cart))
    assert cart.scoring.score(upright) > cart.scoring.score(fallen) + cart.scoring.tie


def test_a_fall_that_ended_the_episode_is_no_way_to_an_aim():
    """A task with an `over` of its own stops in the middle of a fall."""
    for words, joints, idle in (
        ("raise the left foot", {"left_hip": -1.5}, 0.0),
        ("raise the left arm sideways", {"left_shoulder_x": 1.5}, np.pi / 2),
        ("squat", {}, 0.0),
    ):
        task = made(words, start_noise=0.0)
        assert task.scoring.motion
        falling = posed(task, **joints)
        falling.qpos[2] -= 0.2
        episode = episode_of(task, [posed(task).qpos] * 5 + [falling.qpos] * 40, 0.02)
        read = Readout(task.layout, episode.steps)
        own, told = task.scoring.motion.measure(read), task.scoring.motion.measure(read, fell=True)
        metric = next(name for name in told if name.endswith(("raised_m", "direction_error_rad", "down_m")))
        assert told[metric] == pytest.approx(idle, abs=1e-6)
        assert abs(own[metric] - idle) > 0.1


@pytest.mark.parametrize(
    ("words", "joint", "values"),
    [
        ("raise the right arm sideways", "right_shoulder_x", [0.0, -0.5, -1.0, -1.5]),
        ("lower the left hand", "left_elbow", [-2.0, -1.0, 0.0]),
        ("touch the head with the right hand", "right_elbow", [0.0, -0.8, -1.5]),
        ("bend the left elbow", "left_elbow", [0.0, -0.8, -1.5]),
    ],
)
def test_the_terms_grow_towards_what_the_words_ask_for(words: str, joint: str, values: list[float]):
    task = made(words)
    assert task.scoring.motion
    (name, *_) = [term.name for clause in task.scoring.motion.clauses[:1] for term in clause.measure.terms]
    assert name in parse(task.rewards.initial).weights
    assert name in library(task)
    reward, first = mj.load_reward(task.rewards.initial, task), posed(task)
    found = []
    for value in values:
        data = posed(task, **{joint: value, **({"right_shoulder_y": -2.0} if "touch" in words else {})})
        found.append(float(reward(data, data.ctrl, first)[1][name]))
    assert np.all(np.diff(found) > 0.01), found


def test_a_squat_goes_down_and_comes_up():
    for words, key in (("squat", "down_m"), ("squat down and stand up again", "down_and_up_m")):
        task = made(words, HOPPER)
        assert task.scoring.motion
        assert _squat(task)["depth"] == pytest.approx(0.3 * posed(task).body("trunk").xpos[2], abs=0.01)
        states = {z: posed(task) for z in (0.0, -0.2)}
        states[-0.2].qpos[1] -= 0.2
        mujoco.mj_forward(task.model, states[-0.2])
        up, down = states[0.0], states[-0.2]
        down_up, stays, idle = measured(task, up, down, up), measured(task, up, down), measured(task, up)
        wanted, other = (stays, down_up) if key == "down_m" else (down_up, stays)
        assert wanted[key] == pytest.approx(0.2, abs=1e-5)
        assert max(other[key], idle[key]) == pytest.approx(0.0, abs=1e-5)
        assert (
            task.scoring.score(wanted) > max(task.scoring.score(other), task.scoring.score(idle)) + task.scoring.tie
        )
        assert [need.kind for need in task.scoring.diagnose(idle)] == ["down"]
        assert "height" not in parse(task.rewards.initial).weights, "a body that squats does not keep its height"
        assert "depth" in parse(task.rewards.initial).weights


def test_the_squat_term_follows_the_time():
    task = made("squat and stand up again", HOPPER)
    assert task.scoring.motion
    reward, first = mj.load_reward(task.rewards.initial, task), posed(task)
    for time, share in ((0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (5.0, 0.0)):
        data = posed(task)
        data.time, data.qpos[1] = time, data.qpos[1] - share * _squat(task)["depth"]
        mujoco.mj_forward(task.model, data)
        assert float(reward(data, data.ctrl, first)[1]["depth"]) == pytest.approx(0.0, abs=1e-5)


def test_a_knee_that_never_gets_straight_is_straight_near_the_end_of_its_range(tmp_path: Path):
    """As Go2's, which stops at 51 degrees: within 20 degrees of that end, where the reward leads, too."""
    file = tmp_path / "leg.xml"
    file.write_text(
        """<mujoco><worldbody><geom type="plane" size="5 5 .1"/>
        <body name="thigh" pos="0 0 1"><joint name="hip" axis="0 1 0" range="-60 60"/>
          <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".04"/>
          <body name="left_shin" pos="0 0 -.4"><joint name="left_knee" axis="0 1 0" range="50 150" ref="0"/>
            <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".03"/></body></body>
        </worldbody><actuator><motor joint="hip"/><motor joint="left_knee"/></actuator>
        <keyframe><key qpos="0 1.6"/></keyframe></mujoco>"""
    )
    task = simple_task(name="leg", model=file, description="straighten the left knee")
    motion = task.scoring.motion
    assert motion is not None
    assert not motion.problem
    (row,) = (row for row in motion.table() if "knee" in row[2])
    assert row[2:] == ("left_knee_angle_rad", "at most 70°")
    assert "- 0.873" in task.rewards.initial
