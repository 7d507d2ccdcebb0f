"""DynSyn (He et al., ICML 2024): muscles that move together share one action.

Muscles are excited at random. k-medoids then groups muscles by the correlation of their length changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.control.ppo.actions import ActionSpace, controls
from movlr_jax.control.ranges import control_ranges
from movlr_jax.errors import UserError
from movlr_jax.physics.base import Physics
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Policy, Step

_HOLD_S = 0.2  # duration of each random excitation
_MIN_SIZE = 3  # smallest mean group size if the number of groups is not set


@dataclass(frozen=True)
class Groups:
    """of [nu]: group index of each muscle, in the order of the first muscle of each group; medoids: one per group."""

    of: np.ndarray
    medoids: np.ndarray
    correlation: np.ndarray  # [nu, nu] of length changes
    silhouette: float  # mean silhouette of the clustering, from -1 to 1


def find_groups(
    model: mujoco.MjModel,
    layout: Layout,
    physics: Physics,
    start: tuple[np.ndarray, np.ndarray, np.ndarray],
    *,
    seconds: float,
    count: int = 0,
    seed: int = 0,
) -> Groups:
    """Find the muscle groups of `model` from `seconds` of simulation from start states (qpos [S, nq], qvel, act).

    count: number of groups; 0: the number with the best silhouette. Raises UserError if an actuator is not a muscle.
    """
    if (model.actuator_actadr < 0).any() or model.nu < 2:
        raise UserError(
            f"muscle groups need a model with only muscles, but {int((model.actuator_actadr >= 0).sum())} of its "
            f"{model.nu} actuators have an activation; use optimizer=ppo"
        )
    rng, rows = np.random.default_rng(seed), len(start[0])
    steps = max(2, round(seconds / physics.ctrl_dt / rows))
    low, high = control_ranges(model)
    pieces = -(-steps // max(1, round(_HOLD_S / physics.ctrl_dt)))
    plan = rng.uniform(low, high, (rows, pieces, model.nu)).astype(np.float32)
    policy = _held(_HOLD_S)
    done = physics.rollout(physics.start(*start), policy, plan, steps=steps, key=jax.random.key(seed))
    valid = ~np.asarray(done.diverged)
    lengths = np.asarray(layout.lengths(np.asarray(done.steps.sensors)[valid]), float)
    correlation = correlate(np.diff(lengths, axis=1).reshape(-1, model.nu))
    return group(correlation, count)


def correlate(changes: np.ndarray) -> np.ndarray:
    """Return the correlation [nu, nu] of length changes [samples, nu]; 0 for muscles that do not move."""
    centred = changes - changes.mean(axis=0)
    size = np.sqrt(np.square(centred).sum(axis=0))
    unit = centred / np.where(size > 1e-12, size, np.inf)
    correlation = unit.T @ unit
    np.fill_diagonal(correlation, 1.0)
    return correlation


def group(correlation: np.ndarray, count: int = 0) -> Groups:
    """Apply k-medoids to the distance 1 - correlation, with `count` groups or the number with the best silhouette."""
    distance = np.clip(1.0 - correlation, 0.0, 2.0)
    n = len(distance)
    best: Groups | None = None
    for k in [min(count, n)] if count else range(2, max(2, n // _MIN_SIZE) + 1):
        medoids = k_medoids(distance, k)
        of = distance[:, medoids].argmin(axis=1)
        of[medoids] = np.arange(k)
        order = np.argsort([np.flatnonzero(of == g)[0] for g in range(k)])
        found = Groups(np.argsort(order)[of], medoids[order], correlation, silhouette(distance, of))
        if best is None or found.silhouette > best.silhouette:
            best = found
    assert best is not None
    return best


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


def grouped(
    model: mujoco.MjModel, rest: np.ndarray, of: np.ndarray, correction: float, notes: Mapping[str, Any] | None = None
) -> ActionSpace:
    """Return the action space of DynSyn: one action per group and a correction per muscle; size is groups + nu.

    a_i = clip(g_of(i) + rho c_i, -1, 1), with the group of[i] of muscle i.
    """
    plain, count = controls(model, rest), int(of.max()) + 1

    def command(a: jax.Array, *seen: Any) -> jax.Array:
        return plain.controls(jnp.clip(a[:count][of] + correction * a[count:], -1.0, 1.0), *seen)

    names = {model.actuator(i).name: int(group) for i, group in enumerate(of)}
    return ActionSpace(
        model, count + model.nu, command, {"action": "muscle groups", **(notes or {}), "groups": names}
    )


def _held(seconds: float) -> Policy:
    """Return a policy that plays excitations [pieces, nu], each held for `seconds`."""

    def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
        return params[jnp.minimum((view.time / seconds + 1e-4).astype(int), len(params) - 1)]

    return policy
