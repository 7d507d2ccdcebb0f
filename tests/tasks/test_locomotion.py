"""Walkers: ground, start states, falls, distances and pushes, against C MuJoCo and hand-worked numbers."""

from __future__ import annotations

import jax
import mujoco
import numpy as np
import pytest
from moving import ANY_MOTION, episode_of

from movlr_jax.errors import UserError
from movlr_jax.evolution.scripted.terms import library
from movlr_jax.rewards.program import Scorer
from movlr_jax.sandbox.genome import Genome
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.tasks import build_task
from movlr_jax.tasks.walking.locomotion import fallen
from movlr_jax.tasks.walking.terrain import GROUND, doorway, flat, rough, slope, stairs
from movlr_jax.types import SimState, Step

CTRL_DT = 0.016


def built(name: str, model: str = "myolegs", **settings):
    return build_task(name, model, 10.0, settings)


@pytest.fixture(scope="module")
def walk():
    return built("flat_walk", start_noise=0.0, walk=ANY_MOTION)


def base_move(task, qpos, *, ahead=0.0, left=0.0, up=0.0, yaw=0.0):
    """qpos of myolegs with its free joint moved in the world and turned about the vertical."""
    moved = np.array(qpos)
    moved[:3] += [ahead, left, up]
    turn = np.array([np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)])
    mujoco.mju_mulQuat(moved[3:7], turn, np.array(qpos[3:7]))
    return moved


@pytest.mark.parametrize(
    "ground",
    [slope(-8.0), rough(0.03, 1), stairs(0.02, 3), doorway((2.0, 1.2), 1.0)],
    ids=["slope", "rough", "stairs", "doorway"],
)
def test_the_ground_is_as_high_as_a_ray_finds_it(ground):
    spec = mujoco.MjSpec()
    ground.add(spec)
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    rng = np.random.default_rng(0)
    for xy in rng.uniform([-1, -2], [12, 1.1], (50, 2)):
        geom = np.zeros(1, np.int32)
        fallen_by = mujoco.mj_ray(model, data, [*xy, 3.0], [0, 0, -1.0], None, 1, -1, geom)
        # rough ground is triangles to MuJoCo and bilinear to us
        assert 3.0 - fallen_by == pytest.approx(float(ground.height(xy)), abs=3e-3)


def test_rough_ground_is_seeded_level_at_the_start_and_as_high_as_asked():
    xy = np.stack(np.meshgrid(np.arange(-2.9, 16, 0.1), np.arange(-4.9, 5, 0.1)), -1)
    a, same, other = (rough(0.05, seed).height(xy) for seed in (3, 3, 4))
    np.testing.assert_array_equal(a, same)
    assert np.abs(a - other).max() > 0.01
    assert a.max() == pytest.approx(0.05, abs=0.005)
    assert a.min() >= 0
    near = np.hypot(xy[..., 0], xy[..., 1]) < 0.5
    assert np.abs(a[near]).max() < 1e-9


@pytest.mark.parametrize("task", ["stand", "slope_walk", "rough_walk"])
def test_a_walker_starts_on_its_feet_with_its_mass_over_them(task):
    task = built(task)
    qpos, qvel, act = task.start(np.random.default_rng(0), 3)
    data, model = mujoco.MjData(task.model), task.model
    assert not qvel.any()
    for q in qpos:
        data.qpos[:] = q
        mujoco.mj_forward(model, data)
        deepest = min(c.dist for c in data.contact)
        assert deepest == pytest.approx(-1e-3, abs=2e-4)
        assert all(model.geom(GROUND).id in c.geom for c in data.contact)
        heels = np.mean([data.body(b).xpos[0] for b in ("calcn_l", "calcn_r")])
        toes = np.mean([data.body(b).xpos[0] for b in ("toes_l", "toes_r")])
        com = data.subtree_com[model.body("Full Body").id]
        assert heels + 0.03 < com[0] < toes + 0.03
    assert ((act >= 0) & (act <= 1)).all()
    assert len(np.unique(qpos, axis=0)) == 3


def test_a_body_moved_a_known_way_has_those_measures(walk):
    qpos, *_ = walk.start(np.random.default_rng(0), 1)
    path = [base_move(walk, qpos[0], ahead=a, left=0.1 * a, yaw=0.2 * a) for a in np.linspace(0, 2, 21)]
    metrics = walk.scoring.measure(episode_of(walk, path), walk)
    # the free joint lies on the pelvis' axis, so turning does not move it
    assert metrics["distance_m"] == pytest.approx(2.0, abs=1e-4)
    assert metrics["lateral_drift_m"] == pytest.approx(0.2, abs=1e-4)
    assert metrics["heading_change_rad"] == pytest.approx(0.4, abs=1e-4)
    assert metrics["mean_speed_m_s"] == pytest.approx(1.0, abs=1e-3)
    assert metrics["fell"] == 0
    assert metrics["success"] == 1
    assert "time_to_fall_s" not in metrics


def test_a_body_that_slides_goes_the_way_and_does_not_walk():
    task = built("flat_walk", start_noise=0.0)
    qpos, *_ = task.start(np.random.default_rng(0), 1)
    path = [base_move(task, qpos[0], ahead=a) for a in np.linspace(0, 4, 41)]
    episode = episode_of(task, path)
    metrics = task.scoring.measure(episode, task)
    assert metrics["distance_m"] == pytest.approx(4.0, abs=1e-3)
    assert metrics["success"] == 0
    assert any("too few complete strides" in need.problem for need in task.scoring.diagnose(metrics))
    assert task.scoring.faults is not None
    assert "shuffle" in task.scoring.faults(episode, task)


def test_success_asks_for_the_speed_that_was_asked_for(walk):
    """At 1 m/s within a tenth, whether too slow or too fast; the search is told which."""
    qpos, *_ = walk.start(np.random.default_rng(0), 1)
    for speed, success in ((0.89, 0), (0.91, 1), (1.11, 0)):
        path = [base_move(walk, qpos[0], ahead=a) for a in np.linspace(0, 2 * speed, 21)]
        metrics = walk.scoring.measure(episode_of(walk, path), walk)
        assert metrics["mean_speed_m_s"] == pytest.approx(speed, abs=1e-3)
        assert metrics["success"] == success
        told = [need for need in walk.scoring.diagnose(metrics) if "m/s, the target is" in need.problem]
        assert [need.kind for need in told] == ([] if success else ["forward"])
    fast = [metrics | {"distance_m": v * walk.episode_s, "mean_speed_m_s": v} for v in (2.0, 1.5, 1.11)]
    assert np.diff([walk.scoring.score(m) for m in fast]).min() > walk.scoring.tie, (
        "of those too fast, the nearest leads"
    )
    with pytest.raises(UserError, match=r"task\.settings\.speed_tolerance=0: it must be more than 0"):
        build_task("flat_walk", "myolegs", 2.0, {"speed_tolerance": 0.0})


def test_a_body_that_lies_has_fallen_and_progress_ends_where_it_toppled(walk):
    qpos, *_ = walk.start(np.random.default_rng(0), 1)
    ahead = np.linspace(0, 1, 11)
    drop = np.array([0, 0, 0, 0, 0, 0, 0.1, 0.25, 0.3, 0.35, 0.5])
    path = [base_move(walk, qpos[0], ahead=a, up=-d) for a, d in zip(ahead, drop, strict=True)]
    metrics = walk.scoring.measure(episode_of(walk, path), walk)
    assert metrics["fell"] == 1
    assert metrics["success"] == 0
    assert metrics["time_to_fall_s"] == pytest.approx(1.0)
    # 0.8 of the pelvis' height is lost after that
    assert metrics["distance_m"] == pytest.approx(0.6, abs=1e-4)


def test_each_kind_of_fall_is_seen(walk):
    qpos, *_ = walk.start(np.random.default_rng(0), 1)
    up = episode_of(walk, [qpos[0]]).steps
    first = Step(**{name: np.asarray(value)[0] for name, value in vars(up).items()})

    def down(q):
        steps = episode_of(walk, [q]).steps
        return bool(fallen(steps, first, walk.layout, walk.adapter, flat())[0])

    assert not down(qpos[0])
    assert not down(base_move(walk, qpos[0], up=0.3))
    assert down(base_move(walk, qpos[0], up=-0.5))
    for part, expected in (("left_foot", False), ("pelvis", True)):
        sensors = np.array(up.sensors)
        sensors[:, walk.layout.touch[part][0]] = 50.0
        assert fallen(up.replace(sensors=sensors), first, walk.layout, walk.adapter, flat())[0] == expected
    bowed = qpos[0].copy()  # head over heels about the pelvis, which keeps its height
    mujoco.mju_mulQuat(bowed[3:7], np.array([np.cos(1.3), 0.0, np.sin(1.3), 0.0]), qpos[0][3:7].copy())
    assert down(bowed)


def test_a_climber_keeps_its_height():
    """Heights count from the ground beneath: 3 m up a slope nobody has fallen, and nobody is too tall."""
    task = built("slope_walk", slope_deg=10.0, start_noise=0.0)
    qpos, *_ = task.start(np.random.default_rng(0), 1)
    rise = np.tan(np.deg2rad(10.0))
    path = [base_move(task, qpos[0], ahead=a, up=rise * a) for a in (0.0, 1.5, 3.0)]
    assert task.scoring.measure(episode_of(task, path), task)["fell"] == 0
    # at its starting height, half a metre below the ground
    sunk = [*path, base_move(task, qpos[0], ahead=3.0)]
    assert task.scoring.measure(episode_of(task, sunk), task)["fell"] == 1


def test_a_turn_is_measured_along_the_new_heading():
    task = built("left_turn", start_noise=0.0, turn_s=1.0, walk=ANY_MOTION)
    qpos, *_ = task.start(np.random.default_rng(0), 1)
    ahead = [base_move(task, qpos[0], ahead=0.1 * i) for i in range(10)]
    turn = [base_move(task, qpos[0], ahead=0.9, yaw=np.pi / 2, left=0.15 * i) for i in range(11)]
    metrics = task.scoring.measure(episode_of(task, [*ahead, *turn]), task)
    assert metrics["distance_m"] == pytest.approx(1.5, abs=1e-3)
    assert metrics["heading_change_rad"] == pytest.approx(np.pi / 2, abs=1e-3)
    assert metrics["success"] == 1
    straight = [base_move(task, qpos[0], ahead=0.1 * i) for i in range(21)]
    assert task.scoring.measure(episode_of(task, straight), task)["success"] == 0


@pytest.fixture(scope="module")
def stand():
    return built("stand", start_noise=0.0)


@pytest.mark.parametrize(("tilt", "stands"), [(0.3, True), (0.4, False)])
def test_a_body_that_bends_over_does_not_stand(stand, tilt: float, stands: bool):
    """0.3 rad are 17 degrees, and 0.4 are 23; 20 are allowed, at any time."""
    task = stand
    qpos, *_ = task.start(np.random.default_rng(0), 1)
    bent = base_move(task, qpos[0])
    mujoco.mju_mulQuat(bent[3:7], np.array([np.cos(tilt / 2), 0, np.sin(tilt / 2), 0]), qpos[0, 3:7])
    metrics = task.scoring.measure(episode_of(task, [qpos[0]] * 8 + [bent] + [qpos[0]] * 8), task)
    assert metrics["trunk_tilt_max_deg"] == pytest.approx(np.degrees(tilt), abs=0.1)
    assert metrics["trunk_tilt_deg"] == pytest.approx(np.degrees(tilt) / 17, abs=0.1)
    assert metrics["fell"] == 0
    assert metrics["success"] == stands
    assert [need.kind for need in task.scoring.diagnose(metrics)].count("upright") == 1 - stands
    farther = task.scoring.score(metrics | {"trunk_tilt_max_deg": np.degrees(tilt) + 12.0, "success": 0.0})
    lost = 1.53 if stands else 2.0  # a point for 6 degrees beyond 20
    assert task.scoring.score(metrics | {"success": 0.0}) - farther == pytest.approx(lost, abs=0.02)


def test_a_push_gives_the_whole_body_its_speed_once():
    task = built("stand", push_m_s=0.3, push_s=1.0)
    assert task.course.perturb is not None
    qpos, _, act = task.start(np.random.default_rng(0), 2)
    rows = {"qpos": qpos, "act": act, "qvel": np.zeros((2, task.model.nv))}
    state = SimState(
        time=np.array([1.0, 0.5]),
        sensors=np.zeros((2, 1)),
        prev_action=np.zeros((2, 1)),
        diverged=np.zeros(2, bool),
        **rows,
    )
    pushed = np.asarray(task.course.perturb(state, 2 * CTRL_DT).qvel)
    assert not pushed[1].any()
    interval = 2 * CTRL_DT  # asked every so often, whatever the rhythm, it is given once
    times = [task.course.perturb(state.replace(time=np.full(2, i * interval)), interval).qvel for i in range(80)]
    assert sum(bool(np.asarray(v).any()) for v in times) == 1
    data = mujoco.MjData(task.model)
    data.qpos[:], data.qvel[:] = qpos[0], pushed[0]
    mujoco.mj_forward(task.model, data)
    mujoco.mj_subtreeVel(task.model, data)
    np.testing.assert_allclose(data.subtree_linvel[task.model.body("Full Body").id], [0.3, 0, 0], atol=1e-9)


def test_an_injured_leg_has_no_force_in_the_named_muscles_alone(walk):
    whole, injured = walk.model, built("injured_walk", strength=0.25).model
    share = injured.actuator_gainprm[:, 2] / whole.actuator_gainprm[:, 2]
    weak = {whole.actuator(i).name for i in np.flatnonzero(share < 1)}
    assert weak == {"bflh_r", "bfsh_r", "gaslat_r", "gasmed_r", "semimem_r", "semiten_r"}
    np.testing.assert_allclose(share[share < 1], 0.25)


def test_legs_touch_each_other_and_the_ground_and_nothing_else(walk):
    model = walk.model
    left, right = ({f"{b}_{side}" for b in ("femur", "tibia", "calcn", "toes")} for side in "lr")

    def collide(a, b):
        return bool(
            model.geom_contype[a] & model.geom_conaffinity[b] or model.geom_contype[b] & model.geom_conaffinity[a]
        )

    solid = np.flatnonzero(model.geom_contype | model.geom_conaffinity)
    assert model.npair == 0
    for a in solid:
        for b in solid[solid > a]:
            owners = [model.body(model.geom_bodyid[g]).name for g in (a, b)]
            ground = "world" in owners
            legs = any(o in left for o in owners) and any(o in right for o in owners)
            assert collide(a, b) == (ground or legs), owners


def test_terms_that_are_worth_staying_up_for_worked_by_hand(walk):
    """At the start and a quarter of the left stride later: head 0.2 m lower, 0.5 and 3 m/s, the right foot loaded."""
    terms = {name: library(walk)[name] for name in ("standing", "progress", "stance")}
    program = load(parse(Genome({t.name: (t.weight, t.expression) for t in terms.values()}).source()))
    qpos = walk.start(np.random.default_rng(0), 1)[0]
    steps = episode_of(walk, np.repeat(qpos, 3, axis=0)).steps
    layout, sensors = walk.layout, np.array(steps.sensors)
    head = layout.blocks["pos"] + 3 * layout.bodies[walk.adapter.role("head")] + 2
    sensors[1:, head] -= 0.2
    sensors[1:, layout.blocks["com_vel"]] = 0.5, 3.0
    for side, force in (("left", 0.0), ("right", 400.0)):
        sensors[1:, list(layout.touch[f"{side}_foot"])] = 0.0
        sensors[1:, layout.touch[f"{side}_foot"][0]] = force
    # at the last, the right foot is to swing
    time = 0.25 / float(walk.goals["stride_frequency"]) * np.array([0.0, 1.0, 3.0])
    steps = steps.replace(sensors=sensors, time=time)
    first = jax.tree.map(lambda x: np.asarray(x)[:1], steps)
    told, initial = (jax.tree.map(lambda x: np.asarray(x)[None, None], x) for x in (steps, first))
    initial = jax.tree.map(lambda x: x[:, :, 0], initial)
    controls = np.zeros((1, 1, 3, walk.model.nu), np.float32)
    found = Scorer(layout, walk.goals)([program], told, controls, initial).terms[0]
    stood = np.exp(-0.5)
    np.testing.assert_allclose(found["standing"][0], [1.0, stood, stood], atol=1e-4)
    np.testing.assert_allclose(found["progress"][0, 1:], [0.5, 1.0], atol=1e-5)
    np.testing.assert_allclose(found["stance"][0, 1:], [1.0, 0.0], atol=1e-3)
