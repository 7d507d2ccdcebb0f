"""DynSyn (He et al., ICML 2024): muscles that move together share one action.

Muscles are excited at random, the changes of their lengths are correlated, and k-medoids makes groups of those that
shorten and lengthen alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.control.ppo.actions import ActionSpace, control_ranges, controls
from movlr_jax.errors import UserError
from movlr_jax.physics.base import Physics
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Policy, Step

_LAST = 0.2  # s that a random excitation is held
_SHARE = 3  # muscles a group is to have at least on average, where the number of groups is not given


@dataclass(frozen=True)
class Groups:
    """of [nu]: the group of each muscle, 0, 1, ... in the order of their first muscle; medoids: one of each."""

    of: np.ndarray
    medoids: np.ndarray
    correlation: np.ndarray  # [nu, nu] of length changes
    silhouette: float  # from -1 to 1: how much nearer muscles are to their own group than to the next


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
    """Groups of the actuators of `model`, watched from the start states qpos [S, nq], qvel, act for `seconds` in all.

    count: how many groups; 0: the number with the best silhouette. Raises UserError where there are no muscles.
    """
    if (model.actuator_actadr < 0).any() or model.nu < 2:
        raise UserError(
            f"muscle groups need a model that muscles move, and of the {model.nu} actuators here "
            f"{int((model.actuator_actadr >= 0).sum())} have an activation; use optimizer=ppo"
        )
    rng, rows = np.random.default_rng(seed), len(start[0])
    steps = max(2, round(seconds / physics.ctrl_dt / rows))
    low, high = control_ranges(model)
    pieces = -(-steps // max(1, round(_LAST / physics.ctrl_dt)))
    plan = rng.uniform(low, high, (rows, pieces, model.nu)).astype(np.float32)
    policy = _held(_LAST)
    done = physics.rollout(physics.start(*start), policy, plan, steps=steps, key=jax.random.key(seed))
    sound = ~np.asarray(done.diverged)
    lengths = np.asarray(layout.lengths(np.asarray(done.steps.sensors)[sound]), float)
    correlation = correlate(np.diff(lengths, axis=1).reshape(-1, model.nu))
    return group(correlation, count)


def correlate(changes: np.ndarray) -> np.ndarray:
    """[nu, nu] correlation of length changes [samples, nu]; 0 for a muscle that does not move."""
    centred = changes - changes.mean(axis=0)
    size = np.sqrt(np.square(centred).sum(axis=0))
    unit = centred / np.where(size > 1e-12, size, np.inf)
    correlation = unit.T @ unit
    np.fill_diagonal(correlation, 1.0)
    return correlation


def group(correlation: np.ndarray, count: int = 0) -> Groups:
    """k-medoids on the distance 1 - correlation; `count` groups, or as many as have the best silhouette."""
    distance = np.clip(1.0 - correlation, 0.0, 2.0)
    n = len(distance)
    best: Groups | None = None
    for k in [min(count, n)] if count else range(2, max(2, n // _SHARE) + 1):
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
    """k indices, whose sum of distances to all others nearest to them is least: BUILD, then the best SWAP each time.

    PAM (Kaufman and Rousseeuw, 1990). distance [n, n].
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
    """Mean of (b - a) / max(a, b): a to one's own group, b to the nearest other (Rousseeuw, 1987). Alone counts 0."""
    member = of[:, None] == np.arange(of.max() + 1)
    sums, sizes = distance @ member, member.sum(axis=0)
    own, size = sums[np.arange(len(of)), of], sizes[of]
    a = own / np.maximum(size - 1, 1)
    b = np.where(member, np.inf, sums / sizes).min(axis=1)
    scores = np.where(size > 1, (b - a) / np.maximum(np.maximum(a, b), 1e-12), 0.0)
    return float(scores.mean()) if member.shape[1] > 1 else 0.0


def grouped(model: mujoco.MjModel, rest: np.ndarray, groups: Groups, correction: float) -> ActionSpace:
    """One number a group of muscles and a correction for each: a_i = clip(g_group(i) + rho c_i, -1, 1) (DynSyn).

    size is the number of groups plus nu.
    """
    of, plain = groups.of, controls(model, rest)
    count = int(of.max()) + 1

    def command(a: jax.Array, *seen: Any) -> jax.Array:
        return plain.controls(jnp.clip(a[:count][of] + correction * a[count:], -1.0, 1.0), *seen)

    names = {model.actuator(i).name: int(group) for i, group in enumerate(of)}
    notes = {"action": "muscle groups", "silhouette": groups.silhouette, "groups": names}
    return ActionSpace(model, count + model.nu, command, notes)


def _held(seconds: float) -> Policy:
    """Plays excitations [pieces, nu], each held for `seconds`."""

    def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
        return params[jnp.minimum((view.time / seconds + 1e-4).astype(int), len(params) - 1)]

    return policy
