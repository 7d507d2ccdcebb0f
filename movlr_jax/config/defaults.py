"""Defaults of all settings as Hydra nodes.

Every default comes from a dataclass or a signature. The files in conf/ extend these nodes and hold only the values
that differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.config_store import ConfigStore

from movlr_jax._util.parts import settings_of
from movlr_jax._util.resources import resource_dir
from movlr_jax._util.settings import default_settings, plain
from movlr_jax.config.methods import METHODS, Method
from movlr_jax.config.schema import WORKERS, Config, WorkersConfig
from movlr_jax.control.mpc.rules import RULES
from movlr_jax.control.muscle_controllers import LAWS
from movlr_jax.control.settings import OPTIMIZERS
from movlr_jax.language import settings as language
from movlr_jax.language.registry import CRITICS, JUDGES, PROPOSERS
from movlr_jax.language.settings import ModelConfig
from movlr_jax.tasks.registry import TASKS
from movlr_jax.tracking.base import TRACKERS, TrackerConfig

# fields of Config that are groups of their own, or that users do not set
ROLES = {"proposer": PROPOSERS, "judge": JUDGES, "critic": CRITICS}
ELSEWHERE = (
    *("task", "model", "episode_s", "optimizer", "llm", "vlm", "workers", "tracker", "tuned_settings"),
    *ROLES,
)
CHOICES = {  # groups whose options differ in their name alone
    "workers": (WorkersConfig, WORKERS),
    "tracker": (TrackerConfig, TRACKERS),
}

_stored: list[tuple[str, Any]] = []  # the registries' entries when the nodes were last stored


def store_defaults() -> None:
    """Store a node for the root and one for each option of each group in Hydra's config store."""
    registries = (OPTIMIZERS, METHODS, TASKS, RULES, LAWS, *ROLES.values())
    entries = [entry for registry in registries for entry in registry.items()]
    if entries == _stored:
        return
    _stored[:] = entries
    store = ConfigStore.instance().store
    root = {name: value for name, value in _defaults(Config).items() if name not in ELSEWHERE}
    store(name="schema", node=root | {"method": _plain(Method())})
    for group, registry in {"optimizer": OPTIMIZERS, **ROLES}.items():
        for name, kind in registry.items():
            node = {"name": name, **(_defaults(kind) if settings_of(kind) else {})}
            store(group=group, name=_option(group, name), node=node)
    for role, backends in language.SETTINGS.items():
        for name, settings in backends.items():
            node = {"name": name, **_only(_plain(plain(ModelConfig(name))), settings)}
            store(group=role, name=f"{name}_schema", node=node)
    for group, (kind, names) in CHOICES.items():
        for name in names:
            store(group=group, name=name, node=_plain(kind(name)))
    for name, recipe in METHODS.items():
        node = {"method": _plain(recipe.method), **recipe.settings}
        store(group="method", name=name, node=node, package="_global_")
    for name, entry in TASKS.items():
        task = {"name": name, "settings": _plain(default_settings(entry.build, without=["episode_s"]))}
        node = {"task": task, "model": entry.models[0], "episode_s": entry.episode_s}
        store(group="task", name=_option("task", name), node=node, package="_global_")


def _option(group: str, name: str) -> str:
    """Return the name of a node: the option, with _schema appended if a file in conf/ extends the node."""
    return f"{name}_schema" if (resource_dir("conf") / group / f"{name}.yaml").is_file() else name


def _defaults(kind: type) -> dict[str, Any]:
    """Return the fields of a dataclass that have a default, with the defaults."""
    found = {}
    for field in settings_of(kind):
        if field.metadata.get("flat"):
            found |= _defaults(field.default_factory)  # pyright: ignore[reportArgumentType]
        elif "parts" in field.metadata:
            make = field.default_factory
            default = field.default if make is dataclasses.MISSING else make()
            found[field.name] = field.metadata["parts"].node(default)
        elif field.default is not dataclasses.MISSING:
            found[field.name] = _plain(field.default)
        elif dataclasses.is_dataclass(field.default_factory):
            found[field.name] = _defaults(field.default_factory)  # pyright: ignore[reportArgumentType]
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = _plain(field.default_factory())
    return found


def _plain(value: Any) -> Any:
    """Convert dataclasses, mappings and tuples to the dictionaries and lists that Hydra supports."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {name: _plain(v) for name, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value


def _only(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}
