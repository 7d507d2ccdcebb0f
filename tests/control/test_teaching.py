"""A policy taught by another: against a divergence by sampling, and a teacher that sees otherwise; strides."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_posture import SMALL, STILL, build

from movlr_jax._util.settings import changed
from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.policy_file import policy_settings, save_policy
from movlr_jax.control.ppo.walking.anticipation import PHASES, at_phase
from movlr_jax.control.ppo.walking.teaching import divergence

KEY = jax.random.key(2)


def test_angles_between_the_phases_of_a_table_are_interpolated_around_its_end():
    table = jnp.asarray(np.arange(PHASES)[:, None] * [1.0, 10.0])
    np.testing.assert_allclose(at_phase(table, 3.25 / PHASES), [3.25, 32.5], rtol=1e-5)
    np.testing.assert_allclose(at_phase(table, 2 + 3.25 / PHASES), [3.25, 32.5], rtol=1e-4)
    np.testing.assert_allclose(at_phase(table, 1 - 0.5 / PHASES), [24.5, 245.0], rtol=1e-4)


def test_divergence_is_what_samples_say():
    network = learning.networks(SMALL, 3, 2)
    dist = network.parametric_action_distribution
    one, two = jnp.array([0.3, -0.2, 0.1, 0.5]), jnp.array([0.1, 0.4, 0.6, -0.2])
    p, q = dist.create_dist(one), dist.create_dist(two)
    raw = p.loc + p.scale * jax.random.normal(KEY, (200_000, 2))
    sampled = (p.log_prob(raw) - q.log_prob(raw)).sum(axis=-1).mean()
    assert float(divergence(network, one, two)) == pytest.approx(float(sampled), rel=0.02)
    assert float(divergence(network, one, one)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_a_policy_that_sees_less_learns_to_act_like_its_teacher(tmp_path: Path):
    """The teacher acts in a way of its own from where all joints are; the pupil sees the planned ones."""
    teacher = build(changed(SMALL, observe=("qpos", "qvel")))
    old = jax.tree.map(lambda x: x[0], teacher.begin(1, KEY)[0])
    layers = old.params.policy["params"]
    stronger = layers["hidden_1"] | {"kernel": 50.0 * layers["hidden_1"]["kernel"]}
    old = old.replace(params=old.params.replace(policy={"params": layers | {"hidden_1": stronger}}))
    path = str(tmp_path / "teacher.npz")
    save_policy(Path(path), old, teacher.config)
    assert policy_settings(path, SMALL).observe == ("qpos", "qvel")
    said: list[str] = []
    pupil = build(changed(SMALL, observe=("joints",), teacher=path, teach_steps=6 * 800), say=said.append)
    assert pupil.observations == 4
    learner = jax.tree.map(lambda x: x[0], pupil.begin(1, KEY)[0])
    apart = [float(text.split()[-2]) for text in said]
    assert len(apart) == 6
    assert apart[-1] < apart[0], apart
    # where neither has been while it was taught: their own walks under other noise
    start = jax.tree.map(lambda x: x[:4], pupil.pool)
    held = jax.tree.map(lambda x: np.asarray(x)[None], (learner.normalizer, learner.params.policy))
    steps = pupil.sim_physics.rollout(start, pupil.exploit, held, steps=20, key=jax.random.key(9)).steps
    views = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), steps)
    untaught = learning.init(pupil.config, pupil.network, 4, KEY)
    asked, known, fresh = (
        jax.vmap(
            jax.vmap(lambda v, p=ppo, w=who: p.network.policy_network.apply(w.normalizer, w.params.policy, p.see(v)))
        )(views)
        for ppo, who in ((teacher, old), (pupil, learner), (pupil, untaught))
    )
    learned, before = (float(divergence(pupil.network, asked, x).mean()) for x in (known, fresh))
    assert learned < 0.2 * before, (learned, before)


@pytest.mark.slow
def test_a_training_that_goes_on_is_not_taught_again(tmp_path: Path):
    teacher = build(changed(SMALL, observe=("qpos", "qvel")))
    path, said = tmp_path / "teacher.npz", []
    save_policy(path, jax.tree.map(lambda x: x[0], teacher.begin(1, KEY)[0]), teacher.config)
    config = changed(SMALL, env_steps=80, observe=("joints",), teacher=str(path), teach_steps=240)
    first, again = (build(config, say=said.append).optimise([STILL], KEY, None, tmp_path) for _ in range(2))
    assert sum("KL divergence from the teacher" in text for text in said) == 6
    jax.tree.map(np.testing.assert_array_equal, first.learners.params, again.learners.params)
