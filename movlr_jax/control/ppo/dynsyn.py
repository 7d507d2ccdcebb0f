"""DynSyn (He et al., ICML 2024): muscles that move together share one action.

Muscles are excited at random. k-medoids then groups muscles by the correlation of their length changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.control.mpc.knots import control_ranges
from movlr_jax.control.ppo.config import GroupsConfig
from movlr_jax.errors import UserError
from movlr_jax.physics.native import NativePhysics
from movlr_jax.types import Step

_HOLD_S = 0.2  # duration of each random excitation
_MIN_SIZE = 3  # smallest mean group size if the number of groups is not set


def find_groups(
    physics: NativePhysics, starts: tuple[np.ndarray, np.ndarray, np.ndarray], config: GroupsConfig
) -> tuple[np.ndarray, float]:
    """Find the muscle groups of a model by simulation from start states (qpos [S, nq], qvel, act).

    Returns the group of each muscle [nu], and the mean silhouette of the clustering, from -1 to 1. Raises UserError
    if an actuator is not a muscle.
    """
    model = physics.model
    if (model.actuator_actadr < 0).any() or model.nu < 2:
        raise UserError(
            f"muscle groups need a model with only muscles, but {int((model.actuator_actadr >= 0).sum())} of its "
            f"{model.nu} actuators have an activation; use optimizer=ppo"
        )
    rng, rows = np.random.default_rng(0), len(starts[0])
    steps = max(2, round(config.seconds / physics.ctrl_dt / rows))
    low, high = control_ranges(model)
    pieces = -(-steps // max(1, round(_HOLD_S / physics.ctrl_dt)))
    plan = rng.uniform(low, high, (rows, pieces, model.nu)).astype(np.float32)

    def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
        return params[jnp.minimum((view.time / _HOLD_S + 1e-4).astype(int), len(params) - 1)]

    done = physics.rollout(physics.start(*starts), policy, plan, steps=steps, key=jax.random.key(0))
    valid = ~np.asarray(done.diverged)
    lengths = np.asarray(physics.layout.lengths(np.asarray(done.steps.sensors)[valid]), float)
    return group(correlate(np.diff(lengths, axis=1).reshape(-1, model.nu)), config.count)


def correlate(changes: np.ndarray) -> np.ndarray:
    """Return the correlation [nu, nu] of length changes [samples, nu]; 0 for muscles that do not move."""
    centred = changes - changes.mean(axis=0)
    size = np.sqrt(np.square(centred).sum(axis=0))
    unit = centred / np.where(size > 1e-12, size, np.inf)
    correlation = unit.T @ unit
    np.fill_diagonal(correlation, 1.0)
    return correlation


def group(correlation: np.ndarray, count: int = 0) -> tuple[np.ndarray, float]:
    """Apply k-medoids to the distance 1 - correlation, with `count` groups or the number with the best silhouette.

    Groups are in the order of their first muscles.
    """
    distance = np.clip(1.0 - correlation, 0.0, 2.0)
    n, found = len(distance), []
    for k in [min(count, n)] if count else range(2, max(2, n // _MIN_SIZE) + 1):
        medoids = k_medoids(distance, k)
        of = distance[:, medoids].argmin(axis=1)
        of[medoids] = np.arange(k)
        order = np.argsort([np.flatnonzero(of == g)[0] for g in range(k)])
        of = np.argsort(order)[of]
        found.append((of, silhouette(distance, of)))
    return max(found, key=lambda grouping: grouping[1])


def k_medoids(distance: np.ndarray, k: int) -> np.ndarray:
    """Return k indices that minimise the sum of distances [n, n] to the nearest medoid.

    PAM (Kaufman and Rousseeuw, 1990): BUILD, then the best SWAP until none improves.
    """
    medoids = [int(distance.sum(axis=0).argmin())]
    while len(medoids) < k:
        near = distance[:, medoids].min(axis=1)
        gain = np.maximum(near[:, None] - distance, 0.0).sum(axis=0)
        gain[medoids] = -1.0
        medoids.append(int(gain.argmax()))
    while True:
        cost, swap = distance[:, medoids].min(axis=1).sum(), None
        for i in range(k):
            rest = medoids[:i] + medoids[i + 1 :]
            near = distance[:, rest].min(axis=1) if rest else np.full(len(distance), np.inf)
            totals = np.minimum(near[:, None], distance).sum(axis=0)
            new = int(totals.argmin())
            if totals[new] < cost - 1e-12:
                cost, swap = totals[new], (i, new)
        if swap is None:
            return np.array(medoids)
        medoids[swap[0]] = swap[1]


def silhouette(distance: np.ndarray, of: np.ndarray) -> float:
    """Return the mean of (b - a) / max(a, b) (Rousseeuw, 1987); 0 for members of groups of one.

    a: mean distance to the other members of the own group; b: the smallest mean distance to another group.
    """
    member = of[:, None] == np.arange(of.max() + 1)
    sums, sizes = distance @ member, member.sum(axis=0)
    own, size = sums[np.arange(len(of)), of], sizes[of]
    a = own / np.maximum(size - 1, 1)
    b = np.where(member, np.inf, sums / sizes).min(axis=1)
    scores = np.where(size > 1, (b - a) / np.maximum(np.maximum(a, b), 1e-12), 0.0)
    return float(scores.mean()) if member.shape[1] > 1 else 0.0


def checked_groups(of: Sequence[int], muscles: int) -> np.ndarray:
    """Return the groups [nu] that a setting or the file of a policy gives. Raises UserError."""
    count = max(of) + 1
    if len(of) != muscles or count > muscles or set(of) != set(range(count)):
        raise UserError(
            f"optimizer.ppo.muscle_groups has {len(of)} numbers, from {min(of)} to {max(of)}, but the model has "
            f"{muscles} muscles; give each the number of its group, 0, 1, ... without gaps, or leave it empty"
        )
    return np.array(of)
