"""Files of trained policies: networks and observation statistics.

Return statistics are not saved, since they depend on the reward.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import jax
import numpy as np

from movlr_jax._util.parts import check_ranges
from movlr_jax._util.settings import typed
from movlr_jax.control.muscle_controllers import LAWS
from movlr_jax.control.ppo.config import PolicyConfig, PpoConfig, policy_path
from movlr_jax.control.ppo.update import Learner
from movlr_jax.control.settings import PpoSettings
from movlr_jax.errors import UserError, shortened
from movlr_jax.storage.inside import read_array_file
from movlr_jax.storage.writing import write_atomically

_KEPT = ("params", "normalizer")
_SETTINGS = "settings"
_ACTIONS = "actions"  # beside the settings, since earlier versions refuse unknown ones there
_LONGEST = 2**16  # characters of the settings
_INIT = "optimizer.ppo.init"  # default of the setting that names the file, for error messages
SHAPES = tuple(f.name for f in fields(PolicyConfig))


def acting_settings(config: PpoSettings) -> dict[str, Any]:
    """Return the settings, by their names, that decide with SHAPES what an action of this kind does."""
    pd = {f"pd.{name}": value for name, value in asdict(config.pd).items()}
    # muscle.held is that of joints without an action
    muscle = {f"muscle.{name}": value for name, value in LAWS.record(config.muscle).items() if name != "held"}
    decide = {
        "pd": pd,
        "groups": {"groups.correction": config.groups.correction},
        "posture": {"pd.beta": config.pd.beta, **muscle},
    }
    values = {"ctrl_dt": config.ctrl_dt, **decide.get(config.action, {})}
    return {f"optimizer.{name}": value for name, value in values.items()}


def save_policy(path: Path, learner: Learner, config: PpoConfig, acting: Mapping[str, Any] | None = None) -> None:
    """Write the policy of one candidate (npz), with the settings that are needed to use it.

    acting: The settings of its actions, as `acting_settings` returns them; None: not recorded.
    """
    buffer, held = io.BytesIO(), {name: np.asarray(value) for name, value in _leaves(learner)}
    held[_SETTINGS] = np.asarray(json.dumps(asdict(config.policy)))
    if acting is not None:
        held[_ACTIONS] = np.asarray(json.dumps(dict(acting)))
    np.savez_compressed(buffer, **held)  # pyright: ignore[reportArgumentType]
    write_atomically(path, buffer.getvalue())


def load_policy(name: str, fresh: Learner, option: str = _INIT) -> Learner:
    """Return `fresh` with the contents of a policy file: a path, or the name of a policy in assets/policies.

    Raises UserError if the file does not fit the network.
    """
    path, held = _read(name, option)
    expected = dict(_leaves(fresh))
    for leaf, value in expected.items():
        if leaf not in held or held[leaf].shape != np.shape(value):
            found = f"has shape {held[leaf].shape}" if leaf in held else "is missing"
            raise UserError(
                f"{option}={path}: {leaf} {found}, expected shape {np.shape(value)}; the policy is for "
                "another model, or for other optimizer.ppo.observe, action, hidden or value_hidden"
            )
        if not np.issubdtype(held[leaf].dtype, np.number):
            raise UserError(f"{option}={path}: {leaf} has type {held[leaf].dtype}, expected numbers")
        if not np.isfinite(held[leaf]).all():
            raise UserError(f"{option}={path}: {leaf} contains non-finite numbers; train the policy again")
    kept = {name: getattr(fresh, name) for name in _KEPT}
    tree = jax.tree.structure(kept)
    return fresh.replace(**tree.unflatten([held[leaf] for leaf in expected]))


def policy_settings(name: str, config: PpoConfig, option: str = _INIT) -> PpoConfig:
    """Return `config` with the observations, actions and network sizes of a policy file (a path or a built-in name).

    Raises UserError, also if the file contains other settings: a policy file must not change the training.
    """
    path, held = _read(name, option)
    if _SETTINGS not in held:
        raise UserError(f"{option}={path}: the file does not contain the observations of its policy; train it again")
    values = _mapping(held[_SETTINGS], f"{option}={path}")
    if strange := next((key for key in values if key not in SHAPES), None):
        raise UserError(
            f"{option}={path} sets {strange:.60}, but a policy may only set {', '.join(SHAPES)}; remove this setting"
        )
    hints = get_type_hints(PolicyConfig)
    try:
        given = {key: typed(hints[key], value, f"optimizer.ppo.{key}") for key, value in values.items()}
        settings = replace(config.policy, **given)
        check_ranges(settings, "optimizer.ppo")
    except UserError as error:
        raise UserError(f"{option}={path}: {error}") from None
    numbers = sum(array.size for array in held.values())
    pairs = (pair for widths in (settings.hidden, settings.value_hidden) for pair in itertools.pairwise(widths))
    if max(sum(a * b for a, b in pairs), 0, *settings.hidden, *settings.value_hidden) > numbers:
        raise UserError(f"{option}={path} contains {numbers:,} numbers, fewer than its layers have weights")
    return replace(config, policy=settings)


def other_actions(name: str, acting: Mapping[str, Any], option: str = _INIT) -> str | None:
    """Return a sentence about the settings in `acting` that differ from those of a policy file, or None.

    Files of earlier versions do not contain them. Raises UserError if they cannot be read.
    """
    path, held = _read(name, option)
    then = _mapping(held[_ACTIONS], f"{option}={path}") if _ACTIONS in held else {}
    changed = [
        f"{key} was {shortened(then[key])}, is {shortened(value)}"
        for key, value in acting.items()
        if key in then and then[key] != value
    ]
    if not changed:
        return None
    return f"the policy {path} was trained with other settings of its actions: {', '.join(changed)}"


def _mapping(array: np.ndarray, where: str) -> dict[str, Any]:
    """Return the settings in an array of a policy file. Raises UserError."""
    try:
        text = str(array[()])
        values = json.loads(text) if len(text) < _LONGEST else text
        if not isinstance(values, dict):
            raise ValueError(f"{shortened(values)} is not a mapping")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: its settings cannot be read: {error}") from None
    return values


def _read(name: str, option: str) -> tuple[Path, dict[str, np.ndarray]]:
    path = policy_path(name)
    try:
        if not path.is_file():
            raise ValueError("it is a folder" if path.is_dir() else "there is no such file")
        return path, read_array_file(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{option}={path}: cannot read a trained policy from this file ({error}); give the policy_k00.npz of a "
            "training here, or a name of assets/policies; checkpoints of other programs do not fit"
        ) from None


def _leaves(learner: Learner) -> list[tuple[str, Any]]:
    kept = {name: getattr(learner, name) for name in _KEPT}
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(kept)]
