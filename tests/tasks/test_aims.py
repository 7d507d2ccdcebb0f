"""What words ask of parts of a body: parts, terms, measures against C MuJoCo, and a search that balances a pole."""

from __future__ import annotations

import re
from pathlib import Path

import mujoco
import numpy as np
import pytest
from moving import HOPPER, episode_of

import movlr_jax as mj
from movlr_jax._util.quantities import summary
from movlr_jax.evolution.scripted.terms import library, reading
from movlr_jax.sandbox.source import parse
from movlr_jax.tasks import Task, simple_task
from movlr_jax.tasks.aims import Pointed
from movlr_jax.tasks.motion_measures import motion_metrics
from movlr_jax.tasks.readout import Readout


def _limb(side: str, y: float) -> str:
    return f"""
  <body name="{side}_upper_arm" pos="0 {y} .4"><joint name="{side}_shoulder_x" axis="1 0 0" range="-3 3"/>
    <joint name="{side}_shoulder_y" axis="0 1 0" range="-3 3"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".04"/>
    <body name="{side}_lower_arm" pos="0 0 -.3"><joint name="{side}_elbow" axis="0 1 0" range="-3 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.24" size=".03"/></body></body>
  <body name="{side}_thigh" pos="0 {y / 2} -.1"><joint name="{side}_hip" axis="0 1 0" range="-2 2"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".05"/>
    <body name="{side}_shin" pos="0 0 -.4"><joint name="{side}_knee" axis="0 1 0" range="0 2"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".04"/>
      <body name="{side}_foot" pos="0 0 -.4"><geom type="box" size=".1 .04 .03" pos=".05 0 -.02"/></body>
    </body></body>"""


_JOINTS = [
    f"{side}_{j}" for side in ("left", "right") for j in ("shoulder_x", "shoulder_y", "elbow", "hip", "knee")
]
PERSON = f"""<mujoco><worldbody><geom type="plane" size="5 5 .1"/>
<body name="torso" pos="0 0 .96"><freejoint/><geom type="capsule" fromto="0 0 -.1 0 0 .4" size=".1"/>
  <body name="head" pos="0 0 .55"><geom size=".1"/></body>{_limb("left", 0.2)}{_limb("right", -0.2)}
</body>
<body name="red_ball" pos=".6 0 .1"><freejoint/><geom size=".1"/><site name="top" pos="0 0 .1"/></body>
</worldbody><actuator>{"".join(f'<motor joint="{j}" gear="40" ctrlrange="-1 1"/>' for j in _JOINTS)}</actuator>
</mujoco>"""
CART = (Path(__file__).parents[2] / "benchmarks" / "cartpole.xml").read_text(encoding="utf-8")


def made(words: str, xml: str = PERSON, **more: object) -> Task:
    return simple_task(name="parts", model=mujoco.MjSpec.from_string(xml), description=words, **more)  # pyright: ignore


def texts(words: str, xml: str = PERSON) -> list[str]:
    motion = made(words, xml).motion
    assert motion
    return [aim.text() for aim in motion.aims]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("raise the right arm", ["right arm up"]),
        ("raise both arms", ["left arm up", "right arm up"]),
        ("lift your left foot off the ground", ["left foot up"]),
        ("put the hands up", ["left hand up", "right hand up"]),
        ("lower the head", ["head down"]),
        ("raise the right arm sideways", ["right arm sideways"]),
        ("stretch the left arm forward, then raise the right knee", ["left arm forward", "right knee up"]),
        ("raise the left arm and the right arm", ["left arm up", "right arm up"]),
        ("wave", ["right hand up", "right hand waves"]),
        ("walk forward while waving the left arm", ["left arm up", "left arm waves"]),
        ("do not wave", []),
        ("wave with the left hand, slowly", ["left hand up", "left hand waves"]),
        (
            "wave with the left hand and the right hand",
            ["left hand up", "left hand waves", "right hand up", "right hand waves"],
        ),
        ("wave while standing on the left leg", ["right hand up", "right hand waves", "right foot up"]),
        ("raise the left foot, then wave", ["left foot up", "right hand up", "right hand waves"]),
        ("keep the head level", ["head level"]),
        ("touch the left knee with the right hand", ["right hand at left knee"]),
        ("raise the hand to the forehead", ["left hand at forehead"]),
        ("reach the big red ball with the right foot and hold it there", ["right foot at red ball"]),
        ("put the right hand on the top", ["right hand at top"]),
        ("push red ball to head", ["red ball at head"]),
        ("scratch the head near the red ball", ["red ball at head"]),
        ("stand on the left leg", ["right foot up"]),
        ("stand with the arms raised", ["left arm up", "right arm up"]),
        ("bend the right knee", ["right knee bent"]),
        ("flex both elbows by 90 degrees", ["left elbow bent", "right elbow bent"]),
        ("raise the left arm and bend the elbow", ["left arm up", "left elbow bent"]),
        ("bend your legs", ["left knee bent", "right knee bent"]),
        ("straighten the left arm", ["left elbow straight"]),
        ("stand with the right elbow bent", ["right elbow bent"]),
        ("lift the right knee bent", ["right knee up"]),
        ("raise the right arm with the elbow bent", ["right arm up", "right elbow bent"]),
        ("raise the right arm with a bent elbow", ["right arm up", "right elbow bent"]),
        ("raise the right arm, then bend the elbow", ["right arm up", "right elbow bent"]),
        ("raise both arms sideways with straight elbows", ["left arm sideways", "right arm sideways"]),
        ("raise the hand to the head with the right arm down", ["left hand at head", "right arm down"]),
        (
            "stand on one leg with the arms forward",
            ["left arm forward", "right arm forward", "right foot up"],
        ),
        ("stand with bent knees", ["left knee bent", "right knee bent"]),
        ("touch the raised left knee with the right hand", ["right hand at left knee"]),
        ("touch the left knee with the raised hand", ["left hand at left knee"]),
        ("bend the head", []),
        ("walk forward and keep the right arm up", ["right arm up"]),
        ("march in place, lifting the knees high", []),
        ("do not raise the arms", []),
        ("move the red ball away from the head", []),
        ("keep the torso upright", []),
        ("raise the left tail", []),
    ],
)
def test_words_name_parts_and_what_they_should_do(words: str, said: list[str]):
    assert texts(words) == said


def test_sideways_is_away_from_the_body():
    """Also where no word says on which side the only arm is."""
    task = mj.load_task("bottle_pour", instruction="raise the arm sideways")
    assert task.motion
    (aim,) = task.motion.aims
    data = mujoco.MjData(task.model)
    data.qpos[:] = task.start(np.random.default_rng(0), 1)[0][0]
    mujoco.mj_forward(task.model, data)
    away = data.body("humerus_r").xpos - data.body("torso").xpos
    assert isinstance(aim, Pointed)
    assert np.dot(away, aim.way) > 0.1


def test_a_pole_on_a_cart_is_what_stands_upright():
    for words in ("balance the pole", "keep the pole upright on the cart", "hold the pole vertical"):
        motion = made(words, CART).motion
        assert motion
        assert (motion.text(), motion.still) == ("pole upright", False), "the cart may move"
    assert texts("swing up the pole and keep it upright", CART) == ["pole up", "pole upright"]


def test_films_show_a_raised_arm():
    """By hand: the shoulders are at 1.36 m, and the arms are 0.54 m long to the ends of their capsules."""

    def seen(words: str) -> float:
        (camera,) = made(words).cameras
        return camera.lookat[2] + camera.distance * np.tan(np.deg2rad(45) / 2)

    assert seen("raise both arms") > 1.36 + 0.54
    assert seen("raise both arms") > seen("stand still") + 0.05


def test_what_is_not_read_is_said():
    assert reading(made("raise the right arm, then whistle")).endswith(
        "right arm up, upright; it has no term for 'whistle'; give a program that has one (reward=...)"
    )
    assert reading(made("lift the left foot and hold it there")).endswith("left foot up, upright")


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
    assert task.motion
    return dict(motion_metrics(task.motion, Readout(task.layout, episode.steps)))


def test_measures_are_what_mujoco_says():
    """Points of a body are its centre of mass; a hand without a body of its own is at the end of the forearm."""
    task = made("raise the right foot")
    start, end = posed(task), posed(task, right_hip=-1.0, right_knee=0.7)
    rise = end.body("right_foot").xipos[2] - start.body("right_foot").xipos[2]
    assert measured(task, start, end)["right_foot_raised_m"] == pytest.approx(rise, abs=1e-4)
    assert measured(task, end, start)["right_foot_raised_m"] == pytest.approx(-rise, abs=1e-4), (
        "held at the end"
    )

    task = made("raise the left arm sideways")
    end = posed(task, left_shoulder_x=np.deg2rad(60))
    assert measured(task, posed(task), end)["left_arm_direction_error_rad"] == pytest.approx(
        np.deg2rad(30), abs=1e-4
    )

    task = made("touch the head with the right hand")
    end = posed(task, right_shoulder_y=-2.0, right_elbow=-1.5)
    arm = end.body("right_lower_arm")
    apart = np.linalg.norm(2 * arm.xipos - arm.xpos - end.body("head").xipos)
    assert measured(task, posed(task), end)["right_hand_to_head_error_m"] == pytest.approx(apart, abs=1e-4)

    task = made("keep the pole upright", CART)
    end = posed(task, hinge=0.4)
    assert measured(task, posed(task), end)["pole_tilt_error_rad"] == pytest.approx(0.4, abs=1e-5)


def test_a_knee_bends_by_its_joint_angle():
    task, deep = made("bend the right knee"), made("bend the right knee by 30 degrees")
    end = posed(task, right_knee=0.8, right_hip=-0.3)
    bent = measured(task, posed(task), end)
    assert bent["right_knee_bent_rad"] == pytest.approx(0.8, abs=1e-4)
    assert summary(bent).startswith("right knee bent 46°: ")
    assert measured(task, posed(task), end, posed(task))["right_knee_bent_rad"] == pytest.approx(
        0.0, abs=1e-4
    )
    assert measured(deep, posed(deep), end)["right_knee_bent_rad"] == pytest.approx(np.deg2rad(30), abs=1e-4)

    task = made("straighten the left elbow")
    begin, end = posed(task, left_elbow=-1.2), posed(task, left_elbow=-0.5)
    assert measured(task, begin, end)["left_elbow_straightened_rad"] == pytest.approx(0.7, abs=1e-4)


def test_the_upper_arm_keeps_still_unless_the_words_move_it():
    def terms(words: str, **joints: float) -> float:
        task = made(words)
        reward, data = mj.load_reward(task.initial_reward, task), posed(task, **joints)
        return float(reward(data, data.ctrl, posed(task))[1]["left_elbow_bent"])

    bent = {"left_elbow": -1.0}
    for words, lost in (("bend the left elbow", 0.5 * 0.4), ("raise the left arm and bend the elbow", 0.0)):
        moved = terms(words, **bent, left_shoulder_y=-0.4)
        assert terms(words, **bent) - moved == pytest.approx(lost, abs=0.05)
    assert terms("bend the left elbow by 30 degrees", **bent) == pytest.approx(np.deg2rad(30), abs=1e-4)


def test_waves_are_counted():
    """By hand: an arm of 0.54 m that is up and swings by 0.4 rad to either side, at 1.5 Hz, for 2 s; then by 0.05."""
    task = made("wave goodbye with the left hand")
    assert task.motion
    times = np.linspace(0.0, 2.0, 201)

    def waves(angle: float, fell: bool = False) -> dict[str, float]:
        swing = np.pi + angle * np.sin(3 * np.pi * times)
        postures = [posed(task, left_shoulder_x=float(x)).qpos for x in swing]
        read = Readout(task.layout, episode_of(task, postures, 0.01).steps)
        return motion_metrics(task.motion, read, fell)  # pyright: ignore

    # three times there and back, which the middle at the beginning and end cuts into seven swings, 0.21 m or wider
    assert waves(0.4)["left_hand_waves_hz"] == pytest.approx(7 / 2 / 2.0)
    assert waves(0.05)["left_hand_waves_hz"] == 0.0
    assert waves(0.4, fell=True)["left_hand_waves_hz"] == 0.0
    assert summary(waves(0.4)).endswith(": left hand waves 1.75 Hz")
    assert task.score(waves(0.4)) > task.score(waves(0.05)) + 5
    assert not [need for need in task.diagnose(waves(0.4)) if "wave" in need.problem]
    assert "left hand does not wave" in str(task.diagnose(waves(0.05)))


def test_doing_nothing_scores_less_than_what_the_words_ask_for():
    for words, joints in (
        ("raise the right arm", {"right_shoulder_y": -3.0}),
        ("raise the right arm sideways", {"right_shoulder_x": -1.5}),
        ("stand on the left leg", {"right_hip": -0.9, "right_knee": 0.9}),
        ("bend the left elbow", {"left_elbow": -1.5}),
    ):
        task = made(words)
        idle, done = measured(task, posed(task)), measured(task, posed(task), posed(task, **joints))
        assert task.score(done) > task.score(idle) + task.tie
        assert [need.kind for need in task.diagnose(idle)] == ["part"]
        assert not task.diagnose(done)
    cart = made("keep the pole upright", CART)
    fallen, upright = measured(cart, posed(cart, hinge=np.pi)), measured(cart, posed(cart))
    assert cart.score(upright) > cart.score(fallen) + cart.tie


def test_a_first_program_keeps_its_place_if_the_words_ask_for_no_travel():
    assert {"sway", "height", "level"} <= set(parse(made("raise the right arm").initial_reward).weights)
    assert "sway" not in parse(made("walk forward and keep the right arm up").initial_reward).weights
    assert "sway" not in parse(made("balance the pole", CART).initial_reward).weights


def test_a_fall_raises_no_part():
    task = made("raise the left foot")
    lying = posed(task)
    lying.qpos[2:7] = 0.1, np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0
    metrics = measured(task, posed(task), lying)
    assert metrics["upright_fraction"] < 0.6
    assert metrics["left_foot_raised_m"] <= 0.0


def test_a_fall_that_ended_the_episode_is_no_way_to_an_aim():
    """A task with an `over` of its own stops in the middle of a fall."""
    for words, joints, idle in (
        ("raise the left foot", {"left_hip": -1.5}, 0.0),
        ("raise the left arm sideways", {"left_shoulder_x": 1.5}, np.pi / 2),
        ("squat", {}, 0.0),
    ):
        task = made(words, start_noise=0.0)
        assert task.motion
        falling = posed(task, **joints)
        falling.qpos[2] -= 0.2
        episode = episode_of(task, [posed(task).qpos] * 5 + [falling.qpos] * 40, 0.02)
        read = Readout(task.layout, episode.steps)
        own, told = motion_metrics(task.motion, read), motion_metrics(task.motion, read, fell=True)
        metric = next(name for name in told if name.endswith(("raised_m", "direction_error_rad", "down_m")))
        assert told[metric] == pytest.approx(idle, abs=1e-6)
        assert abs(own[metric] - idle) > 0.1


@pytest.mark.parametrize(
    ("words", "joint", "values"),
    [
        ("raise the right arm", "right_shoulder_y", [0.0, -1.0, -2.0, -3.0]),
        ("raise the right arm sideways", "right_shoulder_x", [0.0, -0.5, -1.0, -1.5]),
        ("raise the left arm sideways", "left_shoulder_x", [0.0, 0.5, 1.0, 1.5]),
        ("point the left arm backward", "left_shoulder_y", [0.0, 0.5, 1.0, 1.5]),
        ("lower the left hand", "left_elbow", [-2.0, -1.0, 0.0]),
        ("touch the head with the right hand", "right_elbow", [0.0, -0.8, -1.5]),
        ("bend the left elbow", "left_elbow", [0.0, -0.8, -1.5]),
        ("straighten the left elbow", "left_elbow", [-1.5, -0.8, 0.0]),
    ],
)
def test_the_terms_grow_towards_what_the_words_ask_for(words: str, joint: str, values: list[float]):
    task = made(words)
    assert task.motion
    (name, *_) = [term.name for aim in task.motion.aims for term in aim.terms()]
    assert name in parse(task.initial_reward).weights
    assert name in library(task)
    reward, first = mj.load_reward(task.initial_reward, task), posed(task)
    found = []
    for value in values:
        data = posed(task, **{joint: value, **({"right_shoulder_y": -2.0} if "touch" in words else {})})
        found.append(float(reward(data, data.ctrl, first)[1][name]))
    assert np.all(np.diff(found) > 0.01), found


def test_a_squat_goes_down_and_comes_up():
    for words, key in (("squat", "down_m"), ("squat down and stand up again", "down_and_up_m")):
        task = made(words, HOPPER)
        assert task.motion
        assert task.motion.depth == pytest.approx(0.3 * posed(task).body("trunk").xpos[2], abs=0.01)
        states = {z: posed(task) for z in (0.0, -0.2)}
        states[-0.2].qpos[1] -= 0.2
        mujoco.mj_forward(task.model, states[-0.2])
        up, down = states[0.0], states[-0.2]
        down_up, stays, idle = measured(task, up, down, up), measured(task, up, down), measured(task, up)
        wanted, other = (stays, down_up) if key == "down_m" else (down_up, stays)
        assert wanted[key] == pytest.approx(0.2, abs=1e-5)
        assert max(other[key], idle[key]) == pytest.approx(0.0, abs=1e-5)
        assert task.score(wanted) > max(task.score(other), task.score(idle)) + task.tie
        assert [need.kind for need in task.diagnose(idle)] == ["down"]
        assert "height" not in parse(task.initial_reward).weights, (
            "a body that squats does not keep its height"
        )
        assert "depth" in parse(task.initial_reward).weights


def test_the_squat_term_follows_the_time():
    task = made("squat and stand up again", HOPPER)
    assert task.motion
    reward, first = mj.load_reward(task.initial_reward, task), posed(task)
    for time, share in ((0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (5.0, 0.0)):
        data = posed(task)
        data.time, data.qpos[1] = time, data.qpos[1] - share * task.motion.depth
        mujoco.mj_forward(task.model, data)
        assert float(reward(data, data.ctrl, first)[1]["depth"]) == pytest.approx(0.0, abs=1e-5)


def test_a_search_for_words_balances_a_pole(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Without a push, the pole falls over within the episode."""
    (tmp_path / "cart.xml").write_text(
        re.sub("<worldbody>", '<keyframe><key name="off" qpos="0 0.1"/></keyframe><worldbody>', CART),
        encoding="utf-8",
    )
    task = simple_task(
        name="pole",
        model=tmp_path / "cart.xml",
        description="balance the pole",
        start_noise=0.0,
        episode_s=1.5,
    )
    run = mj.run_search(task, run_dir=tmp_path / "run", candidates=1, generations=1, films=False)
    best = run.best
    assert best
    assert best.metrics["pole_tilt_error_rad"] < 0.2
    idle = mujoco.MjData(task.model)
    idle.qpos[:] = task.start(np.random.default_rng(0), 1)[0][0]
    while idle.time < 1.5:
        mujoco.mj_step(task.model, idle)
    assert abs(idle.joint("hinge").qpos[0]) > 1.0
    assert "pole tilt error" in capfd.readouterr().err
