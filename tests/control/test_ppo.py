"""PPO under K rewards in one batch: against Brax's own loss, against each alone, and when something goes wrong."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from brax.training import types as brax_types
from brax.training.agents.ppo import losses
from programs import program

from movlr_jax._util.progress import interruptible
from movlr_jax._util.settings import changed
from movlr_jax.control.optimizers import Ppo
from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.build import build_ppo
from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.control.ppo.trainer import PpoTrainer
from movlr_jax.control.ppo.training import CurveRecorder
from movlr_jax.control.ppo.update import Batch
from movlr_jax.tasks.simple import simple_task

CART = """<mujoco><option timestep="0.01"/><worldbody>
<geom type="plane" size="9 9 1" pos="0 0 -1"/>
<body name="cart"><joint name="x" type="slide" axis="1 0 0" limited="true" range="-1 1" damping="1"/>
<geom type="sphere" size="0.1" mass="10" contype="0"/>
<body name="pole"><joint name="lean" axis="0 1 0" damping="1"/>
<geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.05" mass="5"/></body></body></worldbody>
<actuator><motor name="push" joint="x" gear="100" ctrllimited="true" ctrlrange="-3 3"/></actuator></mujoco>"""
SMALL = changed(
    PpoConfig(),
    env_steps=4 * 8 * 6 * 2,
    envs=8,
    unroll=6,
    unrolls=2,
    minibatches=2,
    epochs=2,
    hidden=(16,),
    value_hidden=(16,),
    checkpoint_every=2,
    starts=8,
)
KEY = jax.random.key(3)


UPRIGHT = program("1.0 - state.q('lean') ** 2")
STILL = program("jnp.exp(-state.qd('x') ** 2)", "0.01 * state.time")
LAZY = program("-action[0] ** 2")


def cart_task():
    """A pole on a cart; an episode is over when it leans by 0.2 rad, after 0.4 s at the latest."""
    made = simple_task(
        name="cart",
        model=mujoco.MjSpec.from_string(CART),
        description="keep the pole up",
        start=lambda rng, n: (rng.uniform(-0.05, 0.05, (n, 2)), np.zeros((n, 2)), np.zeros((n, 0))),
        episode_s=0.4,
    )
    return made.replace(over=lambda steps, first: np.abs(np.asarray(steps.qpos)[..., 1]) > 0.2)


def build(config: PpoConfig = SMALL, physics: str = "native") -> PpoTrainer:
    return build_ppo(Ppo(sim_dt=0.01, ctrl_dt=0.02, ppo=config), cart_task(), physics)


@pytest.fixture(scope="module")
def ppo() -> PpoTrainer:
    return build()


def same(a, b) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


def of_candidate(tree, k: int):
    return jax.tree.map(lambda x: np.asarray(x)[k], tree)


def data(seed: int, rows: int = 6, steps: int = 5) -> tuple[PpoConfig, learning.PPONetworks, learning.Learner, Batch]:
    """A network, a learner whose statistics have seen something, and data that a policy nearby might have made."""
    config = changed(SMALL, clip_observation=0.0)
    network = learning.networks(config, 3, 2)
    learner = learning.init(config, network, 3, jax.random.key(seed))
    rng = np.random.default_rng(seed)
    seen = jnp.asarray(rng.normal(1.0, 2.0, (rows, steps, 3)), jnp.float32)
    learner = learner.replace(normalizer=learning.seen(learner.normalizer, seen, jnp.ones((rows, steps), bool)))
    logits = network.policy_network.apply(learner.normalizer, learner.params.policy, seen)
    raw = jnp.asarray(rng.normal(size=(rows, steps, 2)), jnp.float32)
    log_prob = network.parametric_action_distribution.log_prob(logits, raw)
    return config, network, learner, Batch(
        observation=seen,
        last=jnp.asarray(rng.normal(size=(rows, 3)), jnp.float32),
        raw_action=raw,
        log_prob=log_prob + 0.1 * jnp.asarray(rng.normal(size=(rows, steps)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=(rows, steps)), jnp.float32),
        terminated=jnp.zeros((rows, steps), bool).at[1, 2].set(True),
        valid=jnp.ones((rows, steps), bool),
        ended=jnp.zeros(rows, bool),
    )  # fmt: skip


def test_the_loss_is_that_of_brax():
    """Where every step counts: the same number from `brax.training.agents.ppo.losses.compute_ppo_loss`."""
    config, network, learner, batch = data(0)
    ours, measures = learning.loss(config, network, learner.params, learner.normalizer, batch, KEY)
    following = jnp.concatenate([batch.observation[:, 1:], batch.last[:, None]], axis=1)
    transition = brax_types.Transition(
        observation=batch.observation,
        action=jnp.tanh(batch.raw_action),
        reward=batch.reward,
        discount=1.0 - batch.terminated,
        next_observation=following,
        extras={
            "policy_extras": {
                "raw_action": batch.raw_action,
                "log_prob": batch.log_prob,
                "distribution_params": network.policy_network.apply(
                    learner.normalizer, learner.params.policy, batch.observation
                ),
            },
            "state_extras": {"truncation": jnp.zeros_like(batch.reward)},
        },
    )
    theirs, parts = losses.compute_ppo_loss(
        learner.params,
        learner.normalizer,
        transition,
        KEY,
        network,
        entropy_cost=config.update.entropy,
        discounting=config.update.discount,
        gae_lambda=config.update.gae_lambda,
        clipping_epsilon=config.update.clip,
        vf_coefficient=config.update.value_loss,
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(measures["policy_loss"], parts["policy_loss"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(measures["value_loss"], parts["v_loss"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "factor"), [(1e-9, 1 / 1.5), (10.0, 1.5)])
def test_the_learning_rate_follows_the_divergence(target: float, factor: float):
    """Updates that change the policy by more than twice the target make the next ones smaller, and the reverse."""
    _, network, _, batch = data(0)
    passes = {"epochs": 2, "minibatches": 2, "envs": 6}
    config = changed(SMALL, clip_observation=0.0, target_kl=target, learning_rate=1e-3, **passes)
    learner = learning.init(config, network, 3, jax.random.key(0))
    logits = network.policy_network.apply(learner.normalizer, learner.params.policy, batch.observation)
    actions = network.parametric_action_distribution
    raw = actions.sample_no_postprocessing(logits, KEY)
    batch = batch.replace(raw_action=raw, log_prob=actions.log_prob(logits, raw))
    update = learning.updater(config, network)
    for i in (1, 2):
        learner, measures = update(learner, batch, KEY)
        assert float(optax.tree.get(learner.optimizer, "learning_rate")) == pytest.approx(1e-3 * factor**i)
    assert float(measures["kl"]) > 2e-9


def test_advantages_of_an_episode_that_time_cut_short_worked_by_hand():
    """gamma 0.5, lambda 0.5, rewards 1, values 2, 4, 6: cut off after two steps, the third is what was seen then.

    delta_1 = 1 + 0.5 * 6 - 4 = 0, delta_0 = 1 + 0.5 * 4 - 2 = 1: targets 2 + 1 + 0.25 * 0 = 3 and 4, advantages
    1 + 0.5 * 4 - 2 = 1 and 1 + 0.5 * 6 - 4 = 0. Had the task ended it: delta_1 = 1 - 4 = -3, and
    delta_0 + 0.25 * -3 = 0.25: targets 2.25 and 1, advantages 1 + 0.5 * 1 - 2 = -0.5 and -3.
    """
    config = changed(SMALL, discount=0.5, gae_lambda=0.5)
    _, _, _, batch = data(1, rows=1, steps=3)
    batch = batch.replace(
        reward=jnp.array([[1.0, 1.0, 99.0]]),
        valid=jnp.array([[True, True, False]]),
        terminated=jnp.zeros((1, 3), bool),
    )
    values, last = jnp.array([[2.0, 4.0, 6.0]]), jnp.array([-99.0])
    targets, advantages = learning.estimates(config, batch, values, last)
    np.testing.assert_allclose(targets[0, :2], [3.0, 4.0])
    np.testing.assert_allclose(advantages[0], [1.0, 0.0, 0.0])
    ended = batch.replace(terminated=jnp.array([[False, True, False]]))
    targets, advantages = learning.estimates(config, ended, values, last)
    np.testing.assert_allclose(targets[0, :2], [2.25, 1.0])
    np.testing.assert_allclose(advantages[0], [-0.5, -3.0, 0.0])


def test_what_follows_the_end_of_an_episode_changes_nothing():
    config, network, learner, batch = data(2)
    batch = batch.replace(valid=batch.valid.at[1, 3:].set(False))  # row 1 terminated at step 2
    other = batch.replace(
        observation=batch.observation.at[1, 3:].set(7.0),
        raw_action=batch.raw_action.at[1, 3:].set(-5.0),
        log_prob=batch.log_prob.at[1, 3:].set(40.0),
        reward=batch.reward.at[1, 3:].set(1e6),
        last=batch.last.at[1].set(3.0),
    )
    update = jax.jit(learning.updater(replace(config, envs=3), network))
    learner = learner.replace(returns=jnp.zeros(3))
    one, two = (update(learner, b, KEY)[0] for b in (batch, other))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), one, two)
    counted = update(learner, other.replace(valid=jnp.ones_like(batch.valid)), KEY)[0]
    assert not np.allclose(counted.params.policy["params"]["hidden_0"]["kernel"],
                           one.params.policy["params"]["hidden_0"]["kernel"], atol=1e-6)  # fmt: skip


def test_returns_are_measured_over_pieces_and_start_anew_at_the_end_of_an_episode():
    """Two pieces of two steps of one simulation, gamma 0.5, rewards 1: G = 1, 1.5, 1.75, 1.875; ended in between,
    1, 1.5, 1, 1.5."""
    _, _, learner, batch = data(3, rows=2, steps=2)
    config = changed(SMALL, discount=0.5, envs=1)
    learner = learner.replace(returns=jnp.zeros(1))
    batch = batch.replace(reward=jnp.ones((2, 2)), valid=jnp.ones((2, 2), bool))
    on, scaled = learning.scaled(config, learner, batch)
    unit = np.sqrt(np.mean(np.square([1.0, 1.5, 1.75, 1.875])))
    np.testing.assert_allclose(scaled.reward, np.full((2, 2), 1 / unit), rtol=1e-6)
    np.testing.assert_allclose(on.returns, [1.875])
    on, _ = learning.scaled(config, learner, batch.replace(ended=jnp.array([True, False])))
    np.testing.assert_allclose(on.return_square, 2 * (1 + 1.5**2), rtol=1e-6)


def test_k_trainings_in_one_batch_are_k_trainings(ppo):
    """Bit by bit, whatever they are trained with; two generations of rewards, and nothing is compiled anew."""
    programs = [UPRIGHT, STILL, LAZY]
    together = ppo.optimise(programs, KEY)
    assert ppo.traces == {"update": 1}
    assert ppo.physics.traces == {"policy[24]": 1}
    curve = together.learning[0]
    assert curve["env_steps"] == [96, 192, 288, 384]
    assert {len(values) for name, values in curve.items() if name != "terms"} == {4}
    assert any(value is not None for value in curve["return"])
    assert set(together.learning[1]["terms"]) == {"t0", "t1"}
    later = ppo.optimise([LAZY, program("state.time"), STILL], KEY)
    assert ppo.traces == {"update": 1}
    assert ppo.physics.traces == {"policy[24]": 1}
    for k, at in ((0, 2), (2, 1)):
        same(of_candidate(later.learners, k), of_candidate(together.learners, at))
    for k in (0, 2):
        alone = ppo.optimise([programs[k]], KEY)
        same(of_candidate(alone.learners, 0), of_candidate(together.learners, k))
        assert alone.learning[0] == together.learning[k]
    first, second = (together.learners.params.policy["params"]["hidden_0"]["kernel"][k] for k in (0, 1))
    assert not np.array_equal(first, second), "different rewards were learned alike"


def test_trainings_from_several_seeds_in_one_batch_are_those_of_each_seed_alone(ppo):
    """Bit by bit: K programs x R seeds; those of program k are k*R:(k+1)*R."""
    programs, keys = [UPRIGHT, STILL], jax.random.split(KEY, 2)
    together = ppo.optimise(programs, keys)
    assert len(together.learning) == 4
    for k, r in ((0, 1), (1, 0)):
        alone = ppo.optimise([programs[k]], keys[r])
        same(of_candidate(alone.learners, 0), of_candidate(together.learners, 2 * k + r))
        assert alone.learning[0] == together.learning[2 * k + r]
    start = ppo.sim_physics.start(*(np.tile(x, (4, 1)) for x in ppo.task.start(np.random.default_rng(0), 1)))
    episodes = together.rollout(start, steps=4, key=keys)
    assert not np.array_equal(episodes.actions[0], episodes.actions[1]), "both seeds were trained alike"


def test_a_yardstick_is_recorded_and_nothing_is_trained_on_it(ppo):
    plain = ppo.optimise([STILL, UPRIGHT], KEY)
    ppo.yardstick = UPRIGHT
    try:
        compared = ppo.optimise([STILL, UPRIGHT], KEY)
    finally:
        ppo.yardstick = None
    still, upright = compared.learning
    assert upright["human_reward"] == upright["reward"]
    assert still["human_reward"] != still["reward"]
    for k, curve in enumerate(plain.learning):
        assert curve == {n: v for n, v in compared.learning[k].items() if n != "human_reward"}
        same(of_candidate(plain.learners, k), of_candidate(compared.learners, k))


@pytest.mark.parametrize("harm", ["a policy's nan", "a lost simulation", "a reward that explodes"])
def test_what_goes_wrong_in_one_candidate_stays_there(ppo, harm: str):
    programs = [UPRIGHT, STILL, LAZY]
    learners, fleet = ppo.begin(3, KEY)
    ill, broken = (learners, fleet), list(programs)
    if harm == "a policy's nan":
        params = jax.tree.map(np.array, learners.params)
        params.policy["params"]["hidden_0"]["kernel"][1] = np.nan
        ill = (learners.replace(params=params), fleet)
    elif harm == "a lost simulation":
        qvel = np.array(fleet.state.qvel)
        qvel[8:12] = 1e12  # of the second candidate's eight
        ill = (learners, fleet.replace(state=fleet.state.replace(qvel=qvel)))
    else:
        broken[1] = program("jnp.exp(1e6 * (1.0 + state.time))", "jnp.float32(jnp.inf) * action[0]")
    ends = []
    for state, these in (((learners, fleet), programs), (ill, broken)):
        recorder = CurveRecorder(these, SMALL.batch, 0.02)
        for batch in range(2):
            state = ppo.step(these, state, jax.random.fold_in(KEY, batch), recorder)
        ends.append((state, recorder.curves))
    (healthy, told), (harmed, told_of_harm) = ends
    for k in (0, 2):
        same(of_candidate(harmed[0], k), of_candidate(healthy[0], k))
        assert told_of_harm[k] == told[k]
    assert (sum(told_of_harm[1]["nonfinite"]) > 0) == (harm == "a reward that explodes")
    if harm != "a policy's nan":  # that one is beyond help, and known: nothing of it was learned
        jax.tree.map(lambda x: np.testing.assert_array_equal(np.isfinite(x), True), of_candidate(harmed[0], 1))
    else:
        assert told_of_harm[1]["skipped"] == [4.0, 4.0]
        assert told[1]["skipped"] == [0.0, 0.0]


def test_a_training_that_was_cut_short_goes_on(ppo, tmp_path: Path):
    """Ends as the uninterrupted one, bit by bit; events are there for TensorBoard."""
    programs = [UPRIGHT, STILL]
    whole = ppo.optimise(programs, KEY)

    def stop(done: int, total: int) -> None:
        if done == 3:  # the checkpoint is of the batch before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ppo.optimise(programs, KEY, stop, tmp_path)
    seen: list[int] = []
    resumed = ppo.optimise(programs, KEY, lambda done, total: seen.append(done), tmp_path)
    assert seen == [2, 3, 4]  # from the checkpoint on
    same(resumed.learners, whole.learners)
    assert list(resumed.learning) == list(whole.learning)
    again = ppo.optimise(programs, KEY, lambda done, total: seen.append(done), tmp_path)
    assert seen[3:] == [4], "a finished training was made again"
    same(again.learners, whole.learners)
    other = ppo.optimise([STILL, UPRIGHT], KEY, None, tmp_path)  # keeps to itself
    same(of_candidate(other.learners, 1), of_candidate(whole.learners, 0))
    events = b"".join(path.read_bytes() for path in tmp_path.glob("tensorboard/k01/*"))
    assert b"terms/t1" in events
    assert b"training/return" in events


def test_an_interruption_waits_until_a_checkpoint_is_written(ppo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save = ocp.CheckpointManager.save

    def interrupted(manager: ocp.CheckpointManager, *given, **more) -> bool:
        signal.raise_signal(signal.SIGINT)
        return save(manager, *given, **more)

    monkeypatch.setattr(ocp.CheckpointManager, "save", interrupted)
    with interruptible(), pytest.raises(KeyboardInterrupt):
        ppo.optimise([UPRIGHT], KEY, None, tmp_path)
    seen: list[int] = []
    monkeypatch.undo()
    ppo.optimise([UPRIGHT], KEY, lambda done, total: seen.append(done), tmp_path)
    assert seen[0] > 0, "it goes on from the checkpoint"


def test_pieces_end_where_episodes_do(ppo):
    """After 20 control steps at the latest, which six does not divide, and where the task says so."""
    learners, fleet = ppo.begin(1, KEY)
    params = (learners.normalizer, learners.params.policy)
    counted, begun = np.zeros(8, int), fleet.initial
    for t in range(4):
        piece, fleet = ppo.collect(params, fleet, jax.random.fold_in(KEY, t), 1)
        counted += piece.valid.sum(axis=1)
        over = np.abs(piece.trajectory.steps.qpos[..., 1]) > 0.2
        for row in range(8):
            steps = int(piece.valid[row].sum())
            assert piece.valid[row, :steps].all()
            assert not over[row, : steps - 1].any(), "a step after the end was counted"
            fell = bool(over[row, steps - 1])
            assert piece.terminated[row].any() == fell
            assert piece.ended[row] == (fell or counted[row] == 20)
            if piece.ended[row]:
                assert fleet.age[row] == 0
                assert abs(fleet.state.qpos[row]).max() <= 0.05
                assert fleet.state.time[row] == 0
            counted[row] = 0 if piece.ended[row] else counted[row]
    assert fleet.episode.min() >= 1
    assert len(np.unique(begun.qpos[:, 0])) > 1


@pytest.mark.parametrize("physics", ["native", pytest.param("mjx", marks=pytest.mark.slow)])
def test_a_second_batch_compiles_nothing(ppo, physics: str):
    trainer, compiled = ppo if physics == "native" else build(physics=physics), list[str]()

    def listen(event: str, seconds: float, **_: object) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    state, recorder = trainer.begin(2, KEY), CurveRecorder([UPRIGHT, STILL], 96, 0.02)
    state = trainer.step([UPRIGHT, STILL], state, jax.random.fold_in(KEY, 0), recorder)
    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.jit(lambda x: 3.0 * x)(1.0)
    assert compiled, "what is compiled is heard of"
    compiled.clear()
    for batch in (1, 2):
        state = trainer.step([UPRIGHT, STILL], state, jax.random.fold_in(KEY, batch), recorder)
    assert not compiled


@pytest.mark.slow
def test_the_same_over_mjx(ppo):
    """What it collects is what native physics does."""
    theirs = build(physics="mjx")
    learners, fleet = ppo.begin(2, KEY)
    params = (learners.normalizer, learners.params.policy)
    ours, _ = ppo.collect(params, fleet, KEY, 2)
    piece, _ = theirs.collect(params, theirs.begin(2, KEY)[1], KEY, 2)
    for name in ("observation", "raw_action", "log_prob"):
        np.testing.assert_allclose(
            piece.trajectory.extras[name], ours.trajectory.extras[name], atol=2e-3, err_msg=name
        )
    np.testing.assert_allclose(piece.trajectory.steps.sensors, ours.trajectory.steps.sensors, atol=5e-3)
    np.testing.assert_array_equal(piece.valid, ours.valid)
    done = theirs.optimise([UPRIGHT, STILL], KEY)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.device_get(done.learners)))


def test_it_learns():
    """From falling within 0.3 s to standing for two seconds, of two."""
    config = changed(SMALL, env_steps=25_000, envs=32, unroll=10, unrolls=4, minibatches=4, epochs=4,
                     learning_rate=2e-3, hidden=(32, 32), value_hidden=(32, 32), discount=0.97)  # fmt: skip
    task = replace(cart_task(), episode_s=2.0)
    trainer = build_ppo(Ppo(sim_dt=0.01, ctrl_dt=0.02, ppo=config), task)
    done = trainer.optimise([UPRIGHT], KEY)
    curve = done.learning[0]
    assert curve["return"][0] < 40  # control steps, of 100
    start = trainer.sim_physics.start(*task.start(np.random.default_rng(9), 4))
    episode = done.rollout(start, steps=100, key=KEY)
    assert episode.actions.shape[1] == 100
    stood = (np.abs(np.asarray(episode.steps.qpos)[..., 1]) < 0.2).all(axis=1)
    assert stood.mean() >= 0.75, stood


def test_a_training_begins_in_the_middle_of_recorded_episodes_too(tmp_path: Path):
    """Two episodes whose states tell where they are from: every further start is one of these states."""
    for seed in (1, 2):
        steps = np.arange(5.0)
        np.savez(
            tmp_path / f"human_seed{seed}.npz", time=0.02 * steps, qpos=np.stack([seed + 0 * steps, steps / 100], -1),
            qvel=np.stack([steps, seed + steps], -1), act=np.zeros((5, 0)), ctrl=np.zeros((5, 1)),
            touch=np.zeros((5, 0)), touch_names=np.zeros(0, str),
        )  # fmt: skip
    ppo = changed(SMALL, motions=(str(tmp_path),), motion_starts=2.5)
    made = build_ppo(Ppo(ppo=ppo, sim_dt=0.01, ctrl_dt=0.02), cart_task())
    pool = made.pool
    assert len(pool.time) == 8 + 20
    assert (pool.time[:8] == 0).all()
    step = np.round(np.asarray(pool.time[8:]) / 0.02)
    assert len(set(step)) > 2
    np.testing.assert_allclose(pool.qpos[8:, 1], step / 100, atol=1e-6)
    np.testing.assert_allclose(pool.qvel[8:, 0], step, atol=1e-6)
    np.testing.assert_allclose(pool.qvel[8:, 1], pool.qpos[8:, 0] + step, atol=1e-6)
    assert set(np.asarray(pool.qpos[8:, 0])) == {1.0, 2.0}
