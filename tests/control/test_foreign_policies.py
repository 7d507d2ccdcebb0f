"""Checkpoints of other programs in place of a policy: a sentence says what they are, and nothing is loaded."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from movlr_jax.cli.export import main as export
from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.control.ppo.policy_file import policy_settings
from movlr_jax.errors import UserError


class Trap:
    """A pickle that makes a folder where it is loaded."""

    def __reduce__(self):
        return os.mkdir, ("loaded",)


def folder(*names: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        for name in names:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(b"x")

    return make


def zipped(*names: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for name in names:
                file.writestr(name, pickle.dumps(Trap()))

    return make


BRAX = "it is a checkpoint of Brax or another program that uses Orbax: weights of other programs do not fit"
CHECKPOINTS = {
    "000151552000": (folder("_METADATA", "manifest.ocdbt", "d/0", "ppo_network_config.json"), BRAX),
    "checkpoints": (folder("000015/_METADATA", "000030/_METADATA"), BRAX),
    "old_orbax": (folder("checkpoint"), BRAX),
    "training": (folder("policy_k00.npz"), "it is a folder with policies; give one of them, as"),
    "nothing": (folder("notes.txt"), "it is a folder"),
    "walk.zip": (zipped("data", "policy.pth", "pytorch_variables.pth"), "it is a model of Stable-Baselines3"),
    "model_1500.pt": (zipped("archive/data.pkl", "archive/version"), "it is a checkpoint of PyTorch"),
    "old.pth": (lambda path: path.write_bytes(pickle.dumps(Trap(), 2)), "it is a checkpoint of PyTorch"),
    "params": (lambda path: path.write_bytes(pickle.dumps(Trap())), "it is a pickle, as earlier versions of Brax"),
    "walk.onnx": (lambda path: path.write_bytes(b"\x08\x07\x12\x07pytorch"), "it is an ONNX graph"),
    "walk.safetensors": (lambda path: path.write_bytes(bytes(9)), "it is a file of weights"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_of_another_program_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    make, what = CHECKPOINTS[name]
    monkeypatch.chdir(tmp_path)
    make(tmp_path / name)
    with pytest.raises(UserError) as told:
        policy_settings(str(tmp_path / name), PpoConfig())
    assert what in str(told.value)
    assert "\n" not in str(told.value)
    assert export([f"policy={tmp_path / name}", "out=walk.onnx"]) == 2
    assert what in capsys.readouterr().err
    assert not (tmp_path / "loaded").exists()
