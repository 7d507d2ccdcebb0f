"""What a file or folder is that is given as a policy and is none of this package."""

from __future__ import annotations

import zipfile
from pathlib import Path

_ORBAX = ("_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt", "checkpoint", "ppo_network_config.json")
_BRAX = "a checkpoint of Brax or another program that uses Orbax"
_ENDINGS = {
    ".onnx": "an ONNX graph",
    ".safetensors": "a file of weights",
    ".msgpack": "a checkpoint of Flax",
    ".orbax": _BRAX,
    ".h5": "a model of Keras",
    ".keras": "a model of Keras",
    ".pkl": "a pickle, as earlier versions of Brax write it",
    ".pickle": "a pickle, as earlier versions of Brax write it",
    ".pt": "a checkpoint of PyTorch",
    ".pth": "a checkpoint of PyTorch",
}
_OTHERS = (
    "weights of other programs do not fit, since their observations and actions differ; train a policy here "
    "(optimizer=ppo, for environments of MuJoCo Playground with +task=playground env=NAME), or record its motion "
    "and follow it with reference=FILE.mot"
)


def not_a_policy(path: Path) -> str | None:
    """Return what is at `path` and what to do, if it is a checkpoint of another program or a folder; else None.

    Nothing of it is loaded: a pickle may run code.
    """
    if path.is_dir():
        own = sorted(path.glob("policy*.npz"))
        if own:
            return f"it is a folder with policies; give one of them, as {own[0]}"
        found = {entry.name for place in (path, *_folders(path)) for entry in place.iterdir()}
        return f"it is {_BRAX}: {_OTHERS}" if found & set(_ORBAX) else "it is a folder"
    kind = _kind(path) if path.is_file() else None
    return f"it is {kind}: {_OTHERS}" if kind else None


def _folders(path: Path) -> list[Path]:
    return [entry for entry in sorted(path.iterdir())[:100] if entry.is_dir()]


def _members(path: Path) -> list[str]:
    """Return the names in a zip file, empty for other files."""
    try:
        with zipfile.ZipFile(path) as members:
            return members.namelist()
    except zipfile.BadZipFile:
        return []


def _kind(path: Path) -> str | None:
    names = _members(path)
    if names:
        if any(name.endswith("policy.pth") for name in names):
            return "a model of Stable-Baselines3"
        if any(name.endswith("data.pkl") for name in names):
            return "a checkpoint of PyTorch"
        return None if any(name.endswith(".npy") for name in names) else _ENDINGS.get(path.suffix.lower())
    with path.open("rb") as file:
        start = file.read(2)
    if start[:1] == b"\x80" and start[1:] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return _ENDINGS[".pkl"] if path.suffix not in (".pt", ".pth") else _ENDINGS[".pt"]
    return _ENDINGS.get(path.suffix.lower())
