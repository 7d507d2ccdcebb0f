"""Policies as ONNX graphs act as ours do, without JAX."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_cases import SUPPORT

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

import jax
import jax.numpy as jnp
import onnxruntime as ort

from movlr_jax.cli.export import main as export
from movlr_jax.config.compose import compose
from movlr_jax.control.onnx_export.graph import onnx_model
from movlr_jax.control.ppo.build import build_ppo
from movlr_jax.control.ppo.policy_file import save_policy
from movlr_jax.engine.tasks import task_of

RUNNER = Path(__file__).parents[2] / "examples" / "run_policy.py"
LEG = [f"+task={SUPPORT / 'tiny_task.py'}", "optimizer=ppo", "optimizer.ppo.hidden=[16]", "optimizer.ppo.starts=2"]
M, Z = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), np.linspace(0.1, 0.9, 3, dtype=np.float32)
FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "products": lambda x: M.T @ (M @ x) + jnp.einsum("ij,ik->jk", M, M @ jnp.diag(x)).sum(0),
    "lookups": lambda x: jnp.append(x, 0.0)[np.array([[0, 3], [2, 1]])] + jnp.asarray(M)[(2 * x[0]).astype(int), :2],
    "changes": lambda x: jnp.zeros(5).at[np.array([1, 3, 1])].add(x).at[np.array([0, 4])].set(x[:2]),
    "choices": lambda x: jnp.where(x > 0.4, jnp.clip(x, 0.2, 0.6), x**3) * jnp.isfinite(x),
    "loops": lambda x: jax.lax.fori_loop(0, 5, lambda i, y: y + jnp.sin(y) / (i + 1), x),
    "scans": lambda x: jax.lax.scan(lambda c, y: (c + y, c * y), x.sum(), x, reverse=True)[1],
    "curves": lambda x: jnp.log1p(jnp.expm1(x)) + jax.nn.sigmoid(x) ** -2 + jnp.cumsum(x)[::-1] + jnp.round(x * 5),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_a_translated_function_is_the_function(name: str):
    function = FUNCTIONS[name]
    model = onnx_model(function, {"x": (3,)}, "y", {})
    session = ort.InferenceSession(model.SerializeToString())
    for x in (Z, -Z, 3 * Z[::-1].copy()):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], function(jnp.asarray(x)), rtol=1e-5, atol=1e-6)


def checked(words: list[str], folder: Path, steps: int) -> float:
    """Export an untrained policy, run it in plain MuJoCo, and return the largest difference of actions along it."""
    config = compose(words)
    ppo = build_ppo(config.optimizer, task_of(config))
    learners, _ = ppo.begin(1, jax.random.key(3))
    one = jax.tree.map(lambda x: np.asarray(x)[0], learners)
    save_policy(folder / "p.npz", one, ppo.config)
    assert export([f"policy={folder / 'p.npz'}", *words, f"out={folder / 'leg.onnx'}"]) == 0
    params = jax.tree.map(lambda x: np.asarray(x)[None], (one.normalizer, one.params.policy))
    start = jax.tree.map(lambda x: x[:1], ppo.pool)
    ours = ppo.sim_physics.rollout(start, ppo.exploit, params, steps=steps, key=jax.random.key(0))
    session, worst = ort.InferenceSession(str(folder / "leg.onnx")), 0.0
    act = jax.jit(lambda view: ppo.exploit((one.normalizer, one.params.policy), view, jax.random.key(0)))
    for t in range(0, steps, 7):
        view = jax.tree.map(lambda x, t=t: np.asarray(x[0, t], np.float32), ours.steps)
        names = {"sensordata": "sensors", "ctrl": "prev_action"}
        seen = {x.name: getattr(view, names.get(x.name, x.name)) for x in session.get_inputs()}
        worst = max(worst, float(np.abs(session.run(None, seen)[0] - act(view)).max()))
    final = runpy.run_path(str(RUNNER))["run"](str(folder / "leg.onnx"), (steps - 0.5) * ppo.sim_physics.ctrl_dt)
    np.testing.assert_allclose(final.qpos, ours.final.qpos[0], atol=1e-3)
    assert np.abs(final.qpos - start.qpos[0]).max() > 1e-3
    return worst


def test_a_policy_with_a_muscle_controller_acts_in_plain_mujoco_as_ours(tmp_path: Path):
    words = [*LEG, "optimizer.ppo.action=posture", "optimizer.muscle.law=torque", "optimizer.muscle.kp=2"]
    assert checked(words, tmp_path, 25) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        [*LEG, "optimizer.ppo.action=controls"],
        [*LEG, "optimizer.ppo.action=posture", "optimizer.muscle.law=product"],
        [LEG[0], "optimizer=dynsyn", *LEG[2:], "optimizer.groups.seconds=4"],
        ["+task=humanoid_walk", "optimizer=ppo"],
    ],
)
def test_so_do_the_other_actions(words: list[str], tmp_path: Path):
    assert checked(words, tmp_path, 15) < 1e-5


@pytest.mark.slow
def test_the_walk_of_the_package_walks_in_plain_mujoco(tmp_path: Path):
    out = tmp_path / "walk.onnx"
    assert export(["policy=flat_walk_ms_human_700_legs", f"out={out}"]) == 0
    assert runpy.run_path(str(RUNNER))["run"](str(out), 5.0).xpos[1][0] > 3.0  # m
