"""The same body with another axis up, on ground that is elsewhere, under another gravity: what is said, measured and
rewarded is the same as in the upright twin at z = 0.

The twin is independent: each episode is the one in the upright world, moved with the world by C MuJoCo.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from moving import episode_of

import movlr_jax as mj
from movlr_jax.evolution.scripted.terms import library
from movlr_jax.rewards import shaping
from movlr_jax.rewards.state import State
from movlr_jax.rewards.term import Term
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import measured
from movlr_jax.tasks.words.clauses import travel
from movlr_jax.types import Trajectory

_SIDE = """<body name="{s}_thigh" pos="0 {y} -.1"><joint name="{s}_hip" axis="0 1 0" range="-80 80"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".04"/>
  <body name="{s}_shank" pos="0 0 -.2"><joint name="{s}_knee" axis="0 1 0" range="-10 140"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".035"/>
    <body name="{s}_foot" pos="0 0 -.24"><joint name="{s}_ankle" axis="0 1 0" range="-40 40"/>
      <geom type="box" size=".12 .06 .02" pos=".04 0 -.02"/></body></body></body>
<body name="{s}_upper_arm" pos="0 {arm} .1"><joint name="{s}_shoulder" axis="0 1 0" range="-170 90"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.15" size=".03"/>
  <body name="{s}_forearm" pos="0 0 -.17"><joint name="{s}_elbow" axis="0 1 0" range="-150 5"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.15" size=".025"/></body></body>"""
BODY = f"""<body name="torso" pos="0 0 .6"><freejoint name="base"/><geom type="box" size=".1 .12 .12" mass="6"/>
  <body name="head" pos="0 0 .2"><geom size=".07" pos="0 0 .05"/></body>
  {"".join(_SIDE.format(s=s, y=y, arm=2 * y) for s, y in (("left", 0.1), ("right", -0.1)))}</body>"""
POST = '<body name="post" pos="2 1 0.3"><geom size=".02" contype="0" conaffinity="0"/></body>'
_JOINTS = ("hip", "knee", "ankle", "shoulder", "elbow")
_MOTORS = "".join(f'<position joint="{s}_{j}" kp="50" inheritrange="1"/>' for s in ("left", "right") for j in _JOINTS)
FLOORS = {
    "plane": '<geom name="floor" type="plane" size="9 9 .1"/>',
    "box": '<geom name="floor" type="box" size="9 9 .5" pos="0 0 -.5"/>',
    "field": '<geom name="floor" type="hfield" hfield="level"/>',
    "cylinder": '<geom name="floor" type="cylinder" size="9 .5" pos="0 0 -.5"/>',
}
GRAVITY = np.array([0.0, 0.0, -9.81])


def xml(floor: str = "plane", frame: str = "", gravity: np.ndarray = GRAVITY) -> str:
    """The body on a floor, in a frame of the world; gravity as the user of that world writes it."""
    return f"""<mujoco><option gravity="{" ".join(f"{g:.9g}" for g in gravity)}"/>
    <asset><hfield name="level" nrow="5" ncol="7" size="9 9 1 1" elevation="{"0 " * 35}"/></asset>
    <worldbody><frame {frame}>{FLOORS[floor]}{POST}{BODY}</frame></worldbody>
    <actuator>{_MOTORS}</actuator></mujoco>"""


class World:
    """Where the world of the upright twin is: turned by `degrees` about an axis, then moved."""

    def __init__(self, axis=(1, 0, 0), degrees: float = 0.0, move=(0, 0, 0), floor: str = "plane"):
        self.move, self.floor, self.quat, turn = np.array(move, float), floor, np.zeros(4), np.zeros(9)
        mujoco.mju_axisAngle2Quat(self.quat, np.array(axis) / np.linalg.norm(axis), np.deg2rad(degrees))
        mujoco.mju_quat2Mat(turn, self.quat)
        self.turn = turn.reshape(3, 3)

    def task(self, words: str, **more) -> Task:
        pos, quat = (" ".join(f"{v:.12g}" for v in values) for values in (self.move, self.quat))
        text = xml(self.floor, f'pos="{pos}" quat="{quat}"', self.turn @ GRAVITY)
        return mj.simple_task(name="t", model=mujoco.MjSpec.from_string(text), description=words, **more)

    def of(self, qpos: np.ndarray) -> np.ndarray:
        """Return postures [T, nq] of the upright twin in this world."""
        moved = qpos.copy()
        moved[:, :3] = qpos[:, :3] @ self.turn.T + self.move
        for row, before in zip(moved, qpos, strict=True):
            mujoco.mju_mulQuat(row[3:7], self.quat, before[3:7])
        return moved


WORLDS = {
    "y up": World(degrees=-90),
    "z down": World((0, 1, 0), 180),
    "tilted": World((0, 1, 0), 20),
    "askew, at a distance": World((1, 2, 0), 70, (3, -2, 5)),
    "platform": World(move=(0, 0, 2), floor="box"),
    "pit": World(move=(0, 0, -0.6)),
    "field in a valley": World(move=(0, 0, -0.6), floor="field"),
    "field, y up": World(degrees=-90, move=(0, 2, 0), floor="field"),
    "cylinder, y up": World(degrees=-90, move=(0, 2, 0), floor="cylinder"),
}
WORDS = (
    "walk forward",
    "walk to the post",
    "jump high",
    "turn left by 90 degrees",
    "stand still",
    "stand on the right foot",
    "squat and stand up again",
    "fly up",
    "raise the right arm sideways and keep the head upright",
    "lift the left hand",
    "wave with the right hand",
    "touch the head with the left hand",
    "keep the torso level, stretch the left arm forward",
    "bend the knees",
    "play",  # every term for any direction
)


def motions() -> np.ndarray:
    """Return [T, nq] postures of the upright twin that travel, rise, sink, turn, lean and move all joints."""
    t = np.linspace(0.0, 1.0, 24)[:, None]
    rng = np.random.default_rng(0)
    place = np.hstack([0.8 * t, -0.3 * t**2, 0.6 + 0.2 * np.sin(6 * t) - 0.1 * t])
    angles = np.deg2rad([70.0, 8.0, -15.0]) * t  # about z, y, x
    turns = []
    for row in angles:
        quat, one = np.array([1.0, 0, 0, 0]), np.zeros(4)
        for axis, angle in zip(np.eye(3)[::-1], row, strict=True):
            mujoco.mju_axisAngle2Quat(one, axis, angle)
            mujoco.mju_mulQuat(quat, quat.copy(), one)
        turns.append(quat)
    joints = 0.5 * np.sin(t * rng.uniform(3, 9, 10) + rng.uniform(0, 3, 10)) * np.minimum(5 * t, 1)
    return np.hstack([place, np.array(turns), joints])


def fall() -> np.ndarray:
    """Return [T, nq] postures of a body that sinks to 0.1 m, upright."""
    qpos = np.repeat(motions()[:1], 24, axis=0)
    qpos[:, 2] = np.linspace(0.6, 0.1, 24)
    return qpos


def term_values(task: Task, terms: dict[str, Term], episode: Trajectory) -> dict[str, np.ndarray]:
    """Return the values [T] of each term in an episode."""
    step = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), episode.steps)
    goals, first = jax.tree.map(jnp.asarray, dict(task.goals)), jax.tree.map(lambda x: x[0], step)

    def values(now, action):
        scope = {"jnp": jnp, "jax": jax, "shaping": shaping, "action": action}
        scope["state"] = State(task.layout, now, goals, first)
        return {name: eval(term.expression, scope) for name, term in terms.items()}

    found = jax.vmap(values)(step, jnp.asarray(episode.actions))
    return {name: np.asarray(value) for name, value in found.items()}


COMPARED: set[tuple[str, ...]] = set()  # terms of a world that other words have had, too


@pytest.mark.parametrize(
    ("words", "world"),
    [*((words, "askew, at a distance") for words in WORDS), *(("walk to the post", world) for world in WORLDS)],
)  # fmt: skip
def test_words_measures_and_terms_are_those_of_the_upright_twin(words: str, world: str):
    here, there = World(floor=WORLDS[world].floor).task(words), WORLDS[world].task(words)
    assert there.origin.warnings == here.origin.warnings
    (one, other), turn = (here.scoring.motion, there.scoring.motion), WORLDS[world].turn
    assert one
    assert other
    assert [clause.row for clause in other.clauses] == [clause.row for clause in one.clauses]
    assert [name for _, name, _ in other.named()] == [name for _, name, _ in one.named()]
    assert other.balance == one.balance
    for there_goes, here_goes in zip(other.clauses, one.clauses, strict=True):
        if here_goes.row is travel:
            np.testing.assert_allclose(there_goes["way"], turn @ here_goes["way"], atol=1e-5)
            assert there_goes["speed"] == pytest.approx(here_goes["speed"], abs=0.011)
    for qpos in (motions(), fall()):
        episodes = episode_of(here, qpos), episode_of(there, WORLDS[world].of(qpos))
        metrics = [measured(e, task, 0.1) for e, task in zip(episodes, (here, there), strict=True)]
        assert metrics[1] == pytest.approx(metrics[0], abs=2e-3, rel=2e-3)
    terms = library(here), library(there)
    shared = [name for name in terms[0] if not name.startswith("along_") and name in terms[1]]
    assert "level" in shared or not one.balance
    pairs = {name: (world, *(known[name].expression for known in terms)) for name in shared}
    new = [name for name, pair in pairs.items() if pair not in COMPARED or "goal" in pair[1]]
    COMPARED.update(pairs.values())
    values = [
        term_values(task, {name: known[name] for name in new}, episode)
        for task, known, episode in zip((here, there), terms, episodes, strict=True)
    ]
    for name in new:
        np.testing.assert_allclose(values[1][name], values[0][name], atol=2e-3, rtol=2e-3, err_msg=name)


@pytest.mark.parametrize(("gravity", "speed"), [(9.81, 1.2), (1.62, 0.49), (3.71, 0.75), (0.0, 1.2)])
def test_the_speed_of_a_walk_follows_from_gravity(gravity: float, speed: float):
    """Froude number 0.25: 0.5 sqrt(g 0.6 m). In weightlessness it is that on Earth."""
    text = xml(gravity=np.array([0.0, 0.0, -gravity]))
    task = mj.simple_task(name="t", model=mujoco.MjSpec.from_string(text), description="walk forward")
    assert task.scoring.motion
    assert task.scoring.motion.travel
    assert task.scoring.motion.travel["speed"] == speed


@pytest.mark.parametrize("gravity", [9.81, 1.62, 0.0])
def test_the_capture_point_is_that_of_the_inverted_pendulum(gravity: float):
    """com + v sqrt(h / g), with 2 m/s along y-up's horizontal axes x and -z; without gravity there is no fall."""
    spec = mujoco.MjSpec.from_string(xml(frame='euler="-90 0 0" pos="0 1 0"', gravity=np.array([0.0, -gravity, 0.0])))
    task = mj.simple_task(name="t", model=spec, description="stand still")
    data = mujoco.MjData(task.model)
    data.qvel[0], data.qvel[2] = 1.0, -2.0
    mujoco.mj_forward(task.model, data)
    task_steps = episode_of(task, data.qpos[None]).steps
    steps = jax.tree.map(lambda x: jnp.asarray(x[0], jnp.float32), task_steps)
    steps = steps.replace(sensors=jnp.asarray(data.sensordata, jnp.float32))
    state = State(task.layout, steps, {}, steps)
    com = data.subtree_com[task.model.body("torso").id]
    fall_s = np.sqrt((com[1] - 1.0) / gravity) if gravity else 0.0
    np.testing.assert_allclose(state.capture_point, [com[0] + fall_s, -com[2] + 2 * fall_s], atol=1e-5)
    np.testing.assert_allclose(state.up, [0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(state.height("torso"), 0.6, atol=1e-6)


def test_a_camera_and_its_film_have_up_upwards():
    """The posture that a film shows is that of the upright twin."""
    from movlr_jax.film.renderer import place

    here, there = World().task("walk forward"), WORLDS["askew, at a distance"].task("walk forward")
    data = [mujoco.MjData(task.model) for task in (here, there)]
    for d, task, qpos in zip(
        data, (here, there), (motions(), WORLDS["askew, at a distance"].of(motions())), strict=True
    ):
        place(task.model, d, qpos[7])
    shift = there.layout.world.frame @ WORLDS["askew, at a distance"].move
    np.testing.assert_allclose(data[1].xpos[1:], data[0].xpos[1:] + shift, atol=1e-6)
    np.testing.assert_allclose(data[1].geom_xmat, data[0].geom_xmat, atol=1e-6)
    (one,), (other,) = here.view.cameras, there.view.cameras
    np.testing.assert_allclose(other.lookat, one.lookat + shift, atol=1e-4)
    assert (other.azimuth, other.elevation, other.distance) == pytest.approx(
        (one.azimuth, one.elevation, one.distance)
    )
