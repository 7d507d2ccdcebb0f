"""Files of trained policies: whatever is wrong with one is a sentence, and it decides nothing but what it is."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from cli_cases import LEG

from movlr_jax._util.settings import changed
from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.export import main as export
from movlr_jax.control.optimizers import Ppo
from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.control.ppo.policy_file import acting_settings, load_policy, policy_settings, save_policy
from movlr_jax.errors import UserError

CONFIG = changed(PpoConfig(), hidden=(8, 4), value_hidden=(8,), observe=("qpos", "qvel"))


def fresh(config: PpoConfig = CONFIG):
    return learning.init(config, learning.networks(config, 5, 2), 5, jax.random.key(0))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("policy") / "policy_k00.npz"
    one = jax.tree.map(lambda x: x, fresh())
    save_policy(path, one, CONFIG)
    return path.read_bytes()


def members(whole: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(whole)) as file:
        return dict(file)


def packed(arrays: dict[str, Any], **settings: Any) -> bytes:
    buffer = io.BytesIO()
    if settings:
        said = {**json.loads(str(arrays["settings"])), **settings}
        arrays = {**arrays, "settings": np.asarray(json.dumps(said))}
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def said_as(text: str) -> Callable[[bytes], bytes]:
    return lambda whole: packed({**members(whole), "settings": np.asarray(text)})


def with_settings(**settings: Any) -> Callable[[bytes], bytes]:
    return lambda whole: packed(members(whole), **settings)


def altered(change: Callable[[np.ndarray], Any]) -> Callable[[bytes], bytes]:
    """The first array of the networks, made another."""

    def make(whole: bytes) -> bytes:
        arrays = members(whole)
        name = next(n for n, a in arrays.items() if n != "settings" and a.ndim == 2)
        return packed({**arrays, name: change(arrays[name])})

    return make


def bomb(whole: bytes) -> bytes:
    """A short file of a huge array."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("big.npy", "w", force_zip64=True) as file,
    ):
        for _ in range(300):
            file.write(bytes(2**20))
    return buffer.getvalue()


def middle(whole: bytes) -> bytes:
    half = len(whole) // 2
    return whole[:half] + bytes(200) + whole[half + 200 :]


FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda whole: b"", "cannot read a trained policy from this file"),
    "corrupt": (middle, "cannot read a trained policy from this file"),
    "text": (lambda whole: b"a policy", "cannot read a trained policy from this file"),
    "objects": (altered(lambda a: a.astype(object)), "cannot read a trained policy from this file"),
    "no arrays": (lambda whole: packed({}), "does not contain the observations of its policy"),
    "large": (bomb, "cannot read a trained policy from this file"),
    "a list": (said_as("[]"), "its settings cannot be read"),
    "deep": (said_as("[" * 100_000), "its settings cannot be read"),
    "a training's": (with_settings(learning_rate=1.0), "sets learning_rate, but a policy may only set"),
    "another policy": (with_settings(init="/etc/passwd"), "sets init, but a policy may only set"),
    "a name": (with_settings(observe=["qpos", "everything"]), "there is no optimizer.ppo.observe 'everything'"),
    "a text": (with_settings(observe="qpos"), "optimizer.ppo.observe='qpos' is not a list"),
    "long": (with_settings(observe=["qpos"] * 10**5), "its settings cannot be read"),
    "no layer": (with_settings(hidden=[0]), "hidden layers must have 1 or more units"),
    "a wide layer": (with_settings(hidden=[10**6, 10**6]), "fewer than its layers"),
    "a bound": (with_settings(clip_observation=-1.0), "clip_observation=-1: it must be 0 or more"),
    "texts": (altered(lambda a: a.astype(str)), "expected numbers"),
    "not finite": (altered(lambda a: a * np.nan), "contains non-finite numbers"),
    "another shape": (altered(lambda a: a[:, :-1]), "the policy is for another model"),
}  # fmt: skip


def used(path: Path) -> None:
    """As a training does that begins from it, and as one that is taught by it."""
    for option in ("optimizer.ppo.init", "optimizer.ppo.teacher"):
        config = policy_settings(str(path), CONFIG, option)
        load_policy(str(path), fresh(config), option)


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_wrong_is_told(tmp_path: Path, whole: bytes, kind: str):
    make, sentence = FILES[kind]
    path = tmp_path / "policy.npz"
    path.write_bytes(make(whole))
    with pytest.raises(UserError) as told:
        used(path)
    assert sentence in str(told.value)
    assert str(path) in str(told.value)
    assert len(str(told.value)) < 600
    assert "\n" not in str(told.value)


def test_a_policy_decides_what_it_is_and_nothing_else(tmp_path: Path, whole: bytes):
    path = tmp_path / "policy.npz"
    path.write_bytes(whole)
    other = changed(CONFIG, observe=("qpos",), hidden=(3,), action="pd", learning_rate=0.5, acts="sample", envs=7)
    got = policy_settings(str(path), other)
    assert got == replace(other, policy=CONFIG.policy)
    loaded = load_policy(str(path), fresh(got))
    for ours, theirs in zip(jax.tree.leaves(loaded.params), jax.tree.leaves(fresh(CONFIG).params), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("action", "decide", "not_so"),
    [
        ("auto", ["ctrl_dt"], ["pd.beta", "groups.correction", "muscle.kp"]),
        ("pd", ["pd.beta", "pd.kp", "pd.kd"], ["muscle.kp", "sim_dt"]),
        ("groups", ["groups.correction"], ["groups.seconds", "pd.beta"]),
        ("posture", ["pd.beta", "muscle.law", "muscle.hold"], ["pd.kp", "groups.correction"]),
    ],
)
def test_a_file_records_what_decides_its_kind_of_action(action: str, decide: list[str], not_so: list[str]):
    acting = acting_settings(Ppo(ppo=changed(CONFIG, action=action)))
    assert {f"optimizer.{name}" for name in decide} <= set(acting)
    assert not {f"optimizer.{name}" for name in not_so} & set(acting)


@pytest.mark.slow
def test_a_trained_policy_that_acts_otherwise_is_told_by_the_command(elsewhere: Path, capsys):
    given = [a for a in LEG if "mppi" not in a and "horizon" not in a and not a.startswith(("cand", "gener"))]
    given += ["optimizer=ppo", "reward=human"]
    trained = [*given, "optimizer.ppo.action=groups", "optimizer.ppo.muscle_groups=[0,0,1,1,1,0,1]",
               "optimizer.ppo.env_steps=16", "optimizer.ppo.envs=4", "optimizer.ppo.unroll=4",
               "optimizer.ppo.unrolls=1", "optimizer.ppo.minibatches=1", "optimizer.ppo.hidden=[8]",
               "optimizer.ppo.value_hidden=[8]", "optimizer.ppo.starts=2"]  # fmt: skip
    assert evaluate([*trained, "optimizer.groups.correction=0.3", "run_dir=first"]) == 0
    (policy,) = Path("first").rglob("policy_k00.npz")
    assert f"policy: {policy}\n" in capsys.readouterr().err
    assert export([f"policy={policy}", "out=leg.onnx"]) == 0, "with the settings next to it"
    shown = [*given, f"optimizer.ppo.init={policy}", "optimizer.ppo.env_steps=0", "optimizer.pd.beta=0.1"]
    for correction, told in (("0.3", False), ("0.2", True)):
        capsys.readouterr()
        assert evaluate([*shown, f"optimizer.groups.correction={correction}", "run_dir=then"]) == 0
        sentence = f"the policy {policy} was trained with other settings of its actions: "
        sentence += "optimizer.groups.correction was 0.3, is 0.2\n"
        assert (sentence in capsys.readouterr().err) is told
