"""A trained policy as a file: its networks and its statistics of observations.

The unit of its returns is left behind: another reward has another.
"""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import jax
import numpy as np

from movlr_jax.control.ppo.config import PpoConfig, check_shape
from movlr_jax.control.ppo.update import Learner
from movlr_jax.errors import UserError, shortened
from movlr_jax.resources import resource_dir
from movlr_jax.settings import typed
from movlr_jax.storage.archive import write_atomically
from movlr_jax.storage.arrays import read_arrays
from movlr_jax.types import Array

_CONSTANT = 2e-6  # a little above the least deviation that Brax keeps
_KEPT = ("params", "normalizer")
_SETTINGS = "settings"
_LONGEST = 2**16  # characters of those
_INIT = "optimizer.ppo.init"  # the setting that names a file, unless another is said
SHAPES = ("observe", "action", "joints", "hidden", "value_hidden", "clip_observation")


def save_policy(path: Path, learner: Learner, config: PpoConfig) -> None:
    """Writes what one candidate has learned (npz), and the settings without which nobody can use it."""
    buffer, held = io.BytesIO(), {name: np.asarray(value) for name, value in _leaves(learner)}
    held[_SETTINGS] = np.asarray(json.dumps({name: getattr(config, name) for name in SHAPES}))
    np.savez_compressed(buffer, **held)  # pyright: ignore[reportArgumentType]
    write_atomically(path, buffer.getvalue())


def load_policy(name: str, fresh: Learner, option: str = _INIT) -> Learner:
    """`fresh` with what a file holds in its place: a path, or the name of a policy of assets/policies.

    Raises UserError where it is no policy of this network.
    """
    path, held = _read(name, option)
    asked = dict(_leaves(fresh))
    for leaf, value in asked.items():
        if leaf not in held or held[leaf].shape != np.shape(value):
            found = f"{held[leaf].shape}" if leaf in held else "missing"
            raise UserError(
                f"{option}={path}: {leaf} is {found}, and {np.shape(value)} here; the policy is of "
                "another model, or of other optimizer.ppo.observe, action, hidden or value_hidden"
            )
        if not np.issubdtype(held[leaf].dtype, np.number):
            raise UserError(f"{option}={path}: {leaf} holds texts or truths, expected numbers")
        if not np.isfinite(held[leaf]).all():
            raise UserError(f"{option}={path}: {leaf} holds numbers that are not finite; train it anew")
    kept = {name: getattr(fresh, name) for name in _KEPT}
    tree = jax.tree.structure(kept)
    return fresh.replace(**tree.unflatten([held[leaf] for leaf in asked]))  # pyright: ignore[reportAttributeAccessIssue]


def policy_settings(name: str, config: PpoConfig, option: str = _INIT) -> PpoConfig:
    """`config` with what a trained policy sees, commands and consists of: a path, or a name of assets/policies.

    Files of earlier versions carry no settings and are assumed to match `config`, but not as a teacher. Raises
    UserError, also where a file sets anything else: how a training goes is not the policy's business.
    """
    path, held = _read(name, option)
    if _SETTINGS not in held:
        if option == _INIT:
            return config
        raise UserError(f"{option}={path}: the file does not say what its policy observes")
    try:
        text = str(held[_SETTINGS][()])
        said = json.loads(text) if len(text) < _LONGEST else text
        if not isinstance(said, dict):
            raise ValueError(f"{shortened(said)} is no mapping")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{option}={path}: its settings cannot be read: {error}") from None
    if strange := next((key for key in said if key not in SHAPES), None):
        raise UserError(
            f"{option}={path} sets {strange:.60}, and a policy decides only {', '.join(SHAPES)}; leave it out"
        )
    hints = get_type_hints(PpoConfig)
    try:
        own = replace(
            config, **{key: typed(hints[key], value, f"optimizer.ppo.{key}") for key, value in said.items()}
        )
        check_shape(own)
    except UserError as error:
        raise UserError(f"{option}={path}: {error}") from None
    numbers = sum(array.size for array in held.values())
    pairs = (pair for widths in (own.hidden, own.value_hidden) for pair in itertools.pairwise(widths))
    if max(sum(a * b for a, b in pairs), 0, *own.hidden, *own.value_hidden) > numbers:
        raise UserError(f"{option}={path} holds {numbers:,} numbers, fewer numbers than its layers have")
    return own


def _read(name: str, option: str) -> tuple[Path, dict[str, np.ndarray]]:
    own = resource_dir("assets") / "policies" / f"{name}.npz"
    path = own if "\0" not in name and own.is_file() else Path(name)
    try:
        if not path.is_file():
            raise ValueError("there is no such file")
        return path, read_arrays(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(
            f"{option}={path}: no trained policy can be read there ({error}); give a policy_k00.npz "
            "that a training has left"
        ) from None


def blind(normalizer: Any, here: Array) -> Any:
    """Statistics [K, no] under which what never varied in a policy's training, as another task's goals, is still 0.

    here [no]: what it is where the policy acts now.
    """
    never = np.asarray(normalizer.std) <= _CONSTANT
    return normalizer.replace(mean=np.where(never, np.asarray(here, np.float32), np.asarray(normalizer.mean)))


def _leaves(learner: Learner) -> list[tuple[str, Any]]:
    kept = {name: getattr(learner, name) for name in _KEPT}
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(kept)]
