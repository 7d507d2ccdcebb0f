"""The rollout bank: the evaluation episodes of a run, on which any program is scored in one call.

Physics never sees the reward, so an episode that was simulated for one program has a return under every other. Each
generation writes one file, `gen_00/bank.npz`, before its evaluations are recorded; so a recorded generation always
has its episodes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.evolution.gates import fault
from movlr_jax.language.base import Evaluation
from movlr_jax.rewards.program import RewardProgram, Scorer
from movlr_jax.rewards.state import Layout
from movlr_jax.sandbox.probe import Probe
from movlr_jax.storage.archive import BANK_BYTES, Archive
from movlr_jax.storage.arrays import read_arrays
from movlr_jax.storage.layout import bank_path
from movlr_jax.types import Step, Trajectory

STATES = 256  # most states of one episode that are kept, evenly spaced: a return is their mean
OTHERS = 64  # the same for episodes from start states by which a program is not judged
_CHUNK = 1024  # states scored at once: every bank has the same shape, so a program compiles once
_FIELDS = ("time", "qpos", "qvel", "act", "sensors", "prev_action")
# the sizes of these fields in `Layout.sizes`; time has none
_SIZES = {"qpos": "nq", "qvel": "nv", "act": "na", "sensors": "nsensordata", "prev_action": "nu"}


@dataclass(frozen=True)
class Bank:
    """E episodes with S states in all. A state belongs to the episode `owner[s]`."""

    # [E] the candidate of each episode; `g01k02.3`: of its third variant; `g01k02@2`: from its second other start
    names: tuple[str, ...]
    graves: np.ndarray  # [E] how grave the fault of each motion is, see `gates.fault`
    owner: np.ndarray  # [S] index of an episode
    steps: Step  # [S, ...]
    actions: np.ndarray  # [S, nu]
    initial: Step  # [E, ...] the first state of each episode

    def __len__(self) -> int:
        return len(self.names)

    def term_values(self, scorer: Scorer, programs: Sequence[RewardProgram]) -> list[dict[str, np.ndarray]]:
        """Return, for each program, term -> [S] its unweighted value at every state."""
        if not programs:
            return []
        values = [{name: np.zeros(len(self.owner)) for name in p.terms} for p in programs]
        for begin in range(0, len(self.owner), _CHUNK):
            end = min(begin + _CHUNK, len(self.owner))
            # the last chunk is padded with its last state
            at = np.minimum(np.arange(begin, begin + _CHUNK), end - 1)
            owner = self.owner[at]
            states = (
                jax.tree.map(lambda x, at=at: x[at, None], self.steps),
                self.actions[at, None],
                jax.tree.map(lambda x, owner=owner: x[owner], self.initial),
            )
            same = jax.tree.map(lambda x: np.broadcast_to(x, (len(programs), *x.shape)), states)
            scores = scorer(programs, *same)
            for found, terms in zip(values, scores.terms, strict=True):
                for name, new in terms.items():
                    found[name][begin:end] = new[: end - begin, 0]
        return values

    def values(self, scorer: Scorer, programs: Sequence[RewardProgram]) -> np.ndarray:
        """Return [P, S]: the reward of every state under each program."""
        scored = self.term_values(scorer, programs)
        found = [weighted(terms, p.weights) for terms, p in zip(scored, programs, strict=True)]
        return np.array(found).reshape(len(programs), len(self.owner))

    def returns(self, values: np.ndarray) -> np.ndarray:
        """Return [..., E]: the mean of values [..., S] over the states of each episode."""
        counts = np.bincount(self.owner, minlength=len(self))
        return np.add.reduceat(values, np.cumsum(counts) - counts, axis=-1) / counts


def weighted(terms: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """Return r = w . r of the values of terms at states [S]."""
    return np.sum([weights[name] * values for name, values in terms.items()], axis=0)


def thinned(episode: Trajectory, other: bool = False) -> Trajectory:
    """Return an episode [T, ...] with at most STATES of its states, evenly spaced, and their actions.

    other: It is from a start state by which the program is not judged, so at most OTHERS are kept.
    """
    most = OTHERS if other else STATES
    kept = np.linspace(0, len(episode.actions) - 1, min(most, len(episode.actions))).round().astype(int)
    return episode.replace(  # pyright: ignore[reportAttributeAccessIssue]
        steps=jax.tree.map(lambda x: np.asarray(x)[kept], episode.steps),
        valid=np.searchsorted(kept, episode.valid),
        actions=np.asarray(episode.actions)[kept],
        extras=None,
    )


@dataclass
class Recorder:
    """Collects the episodes of one generation. `keep` is called with each one that ran."""

    # row -> its episodes, the one by which the program is judged first: states, first state, gravity of the fault
    episodes: dict[int, list[tuple[Trajectory, Step, int]]] = field(default_factory=dict)

    def keep(self, row: int, episode: Trajectory, first: Step, evaluation: Evaluation) -> None:
        """Keep an episode [T, ...] of a program; the first one is that by which it is judged."""
        kept = self.episodes.setdefault(row, [])
        kept.append((thinned(episode, other=bool(kept)), first, fault(evaluation)[0]))

    def data(self, names: Sequence[str]) -> bytes:
        """Return the file of the bank; `names` are those of all rows.

        An episode with values that are not finite is left out: it has no returns.
        """
        found = [
            (names[row] if n == 0 else f"{names[row]}@{n}", episode, first, grave)
            for row in sorted(self.episodes)
            for n, (episode, first, grave) in enumerate(self.episodes[row])
            if all(np.isfinite(x).all() for x in jax.tree.leaves((episode.steps, episode.actions)))
        ]
        arrays: dict[str, Any] = {
            "names": np.array([name for name, *_ in found], dtype=str),
            "graves": np.array([grave for *_, grave in found], np.int32),
            "lengths": np.array([len(episode.actions) for _, episode, *_ in found], np.int32),
        }
        if found:
            _, episodes, firsts, _ = zip(*found, strict=True)
            for name in _FIELDS:
                arrays[name] = np.concatenate(
                    [np.asarray(getattr(episode.steps, name), np.float32) for episode in episodes]
                )
                arrays[f"initial_{name}"] = np.stack(
                    [np.asarray(getattr(s, name), np.float32) for s in firsts]
                )
            arrays["action"] = np.concatenate(
                [np.asarray(episode.actions, np.float32) for episode in episodes]
            )
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()


def read_bank(archive: Archive, layout: Layout, before: int | None = None) -> Bank:
    """Return the episodes of the generations before `before`, or of all. Raises UserError if a file is broken.

    The bank is empty if no generation has one.
    """
    parts, g, left = [], 0, _most()
    while (before is None or g < before) and archive.wrote(bank_path(g)):
        try:
            arrays = read_arrays(archive.read(bank_path(g), BANK_BYTES), min(left, BANK_BYTES))
            left -= sum(array.nbytes for array in arrays.values())
            if len(arrays["names"]):
                parts.append(_checked(arrays, layout))
        except (ValueError, LookupError) as error:
            raise UserError(f"{archive.root / bank_path(g)} cannot be read: {error}") from None
        g += 1
    if not parts:
        empty = Step(**{name: np.zeros((0, 0), np.float32) for name in _FIELDS})
        return Bank((), np.zeros(0, int), np.zeros(0, int), empty, np.zeros((0, 0), np.float32), empty)
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Bank(
        names=tuple(map(str, arrays["names"])),
        graves=arrays["graves"],
        owner=np.repeat(np.arange(len(arrays["names"])), arrays["lengths"]),
        steps=Step(**{name: arrays[name] for name in _FIELDS}),
        actions=arrays["action"],
        initial=Step(**{name: arrays[f"initial_{name}"] for name in _FIELDS}),
    )


def _most() -> int:
    """Return how many bytes all files may have together: half of the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _checked(arrays: dict[str, np.ndarray], layout: Layout) -> dict[str, np.ndarray]:
    """Return the arrays of a file. Raises ValueError or LookupError if they do not fit the model."""
    episodes, states = len(arrays["names"]), int(arrays["lengths"].sum())
    expected: dict[str, tuple[int, ...]] = {"graves": (episodes,), "lengths": (episodes,)}
    for name in _FIELDS:
        size = (layout.sizes[_SIZES[name]],) if name in _SIZES else ()
        expected |= {name: (states, *size), f"initial_{name}": (episodes, *size)}
    expected["action"] = (states, layout.sizes["nu"])
    for name, shape in expected.items():
        if arrays[name].shape != shape or arrays[name].dtype.kind not in "fiu":
            raise ValueError(f"{name} is {arrays[name].shape} {arrays[name].dtype}, expected {shape} numbers")
    if (arrays["lengths"] < 1).any():
        raise ValueError("an episode has no states")
    return arrays


def bank_of(probe: Probe) -> Bank:
    """Return the states of a probe as a bank in which each state is an episode: what a first generation has."""
    n, t = np.shape(probe.actions)[:2]
    flat = lambda x: np.asarray(x).reshape(n * t, *np.shape(x)[2:])  # noqa: E731
    return Bank(
        names=tuple(f"probe{i}" for i in range(n * t)),
        graves=np.zeros(n * t, int),
        owner=np.arange(n * t),
        steps=jax.tree.map(flat, probe.steps),
        actions=flat(probe.actions),
        initial=jax.tree.map(lambda x: np.repeat(np.asarray(x), t, axis=0), probe.initial),
    )
