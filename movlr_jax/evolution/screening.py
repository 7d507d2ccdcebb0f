"""Screening: of M proposed programs, K are chosen for the physics by their rewards of the states of the rollout bank.

Before anything was simulated, `represent` chooses the K programs that stand for all M. Then `screen` chooses: a
program is worth simulating if programs that reward the same led to good motions, if it agrees with what the
comparisons say, does not prefer motions that a gate caught, and differs from those chosen already. That choice is the
greedy maximum of a determinantal point process (Chen et al., 2018): quality times the part of a program's rewards
that those chosen do not explain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from movlr_jax.evolution.preferences import Pairs, agreeing, log_likelihood, standardised

_QUALITY = 4.0  # weight of a nat of the mean log likelihood against a nat of difference
_WORTH = 2.0  # weight of a standard deviation of expected worth
_NOISE = 1.0  # variance of the strength of one motion about what its program is worth, beside that between programs
_RIDGE = 0.05  # part of a profile that counts as different even from its copy
_ALIKE = 0.1  # a program of which less than this is new is rejected as alike
_NOTHING = "its reward is the same at all states"
OTHER = "{other}"


@dataclass(frozen=True)
class Choice:
    """Programs in the order of their choice, and a sentence for every program.

    Where it speaks of another program, it has `OTHER` in place of the name of the chosen program `beside[i]`.
    """

    chosen: list[int]
    reasons: list[str]  # [P]
    beside: Mapping[int, int] = field(default_factory=dict)


def represent(rewards: np.ndarray, k: int, kept: Sequence[int] = ()) -> Choice:
    """Choose the k of P programs that the others resemble most: the greedy maximum of facility location.

    Each program counts with its likeness to the chosen one that is nearest to it (Nemhauser et al., 1978). So the
    programs chosen differ, but none is chosen because it is odd.

    Args:
        rewards: [P, S] reward of each state under each program.
        k: Number of programs to choose.
        kept: Programs that are chosen in any case. They count towards k.

    Returns:
        The k programs, with the reason why each was chosen or rejected.
    """
    profiles = directions(rewards)
    varying = np.asarray(profiles.any(axis=1))  # a reward that is the same at all states stands for nothing
    alike = np.zeros((len(rewards), len(rewards)))
    alike[np.ix_(varying, varying)] = likeness(profiles[varying])
    chosen, nearest = list(kept), alike[list(kept)].max(axis=0, initial=0.0)
    while len(chosen) < min(k, len(rewards)):
        gain = np.where(varying, np.maximum(alike, nearest).sum(axis=1), -1.0)
        gain[chosen] = -np.inf
        chosen.append(int(np.argmax(np.round(gain, 9))))  # among equals the first, whatever the rounding
        nearest = np.maximum(nearest, alike[chosen[-1]])
    if not chosen:
        return Choice([], [])
    found = np.array(chosen)[alike[chosen].argmax(axis=0)].tolist()
    reasons, beside = [], {}
    for i, other in enumerate(found):
        if not varying[i]:
            reasons.append(_NOTHING)
        elif i in chosen:
            stands = sum(bool(v) and other == i for v, other in zip(varying, found, strict=True))
            always = "it is always evaluated; " if i in kept else ""
            reasons.append(f"{always}it stands for {stands} of {len(rewards)} proposals")
        else:
            correlation, beside[i] = float(profiles[i] @ profiles[other]), other
            reasons.append(f"{OTHER} stands for it: their rewards correlate at {correlation:.2f}")
    return Choice(chosen, reasons, beside)


def screen(
    rewards: np.ndarray,
    returns: np.ndarray,
    k: int,
    pairs: Pairs,
    caught: np.ndarray,
    worth: np.ndarray | None = None,
    kept: Sequence[int] = (),
) -> Choice:
    """Choose k of P programs by their rewards of the states and motions of the bank.

    Args:
        rewards: [P, S] reward of each state under each program.
        returns: [P, E] mean reward of each motion under each program.
        k: Number of programs to choose.
        pairs: Comparisons of the motions.
        caught: [E] how grave the fault of each motion is; a program should prefer the lesser fault.
        worth: [P] see `expected_worth`; None if no program was simulated.
        kept: Programs that are chosen in any case. They count towards k.

    Returns:
        The k programs, with the reason why each was chosen or rejected.
    """
    gates = gate_pairs(caught)
    quality = _QUALITY * sum(log_likelihood(returns, p) - np.log(0.5) for p in (pairs, gates) if len(p))
    quality = np.broadcast_to(quality, len(returns))
    if worth is not None:
        quality = quality + _WORTH * worth
    profiles = directions(rewards)
    right, safe = agreeing(returns, pairs), agreeing(returns, gates)
    residual, left = profiles.copy(), np.square(profiles).sum(axis=1)
    chosen, reasons, beside = list(kept), [""] * len(returns), {}

    def said(i: int) -> str:
        parts = []
        if worth is not None:
            parts.append(
                f"its motion is expected to be worth {worth[i]:.1f} "
                "(0 is the mean so far, 1 a standard deviation more)"
            )
        if n := int((pairs.share != 0.5).sum()):
            parts.append(f"its returns agree with {right[i]} of {n} comparisons")
        if len(gates):
            parts.append(f"put {safe[i]} of {len(gates)} pairs of a sound and a faulty motion in order")
        return ", ".join(parts) + ("; " if parts else "")

    for i in kept:
        residual, left = _without(residual, residual[i])
        reasons[i] = "it is always evaluated"
    while len(chosen) < min(k, len(returns)):
        gain = quality + np.log(left + _RIDGE)
        gain[chosen] = -np.inf
        i = int(np.argmax(np.round(gain, 9)))  # among equals the first, whatever the rounding
        share = f"{100 * left[i]:.0f} % of what it rewards is new"
        reasons[i] = f"{said(i)}{share}"
        chosen.append(i)
        residual, left = _without(residual, residual[i])
    for i in set(range(len(returns))) - set(chosen):
        alike = left[i] < _ALIKE
        beside[i] = max(chosen, key=lambda j, i=i: abs(float(profiles[i] @ profiles[j])))
        reasons[i] = said(i) + (
            _NOTHING
            if not profiles[i].any()
            else f"only {100 * left[i]:.0f} % of what it rewards is new beside {OTHER}"
            if alike
            else "others promise more or differ more"
        )
    return Choice(chosen, reasons, beside)


def expected_worth(rewards: np.ndarray, simulated: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """Return [P] what the motion that each program leads to is expected to be worth, before it is simulated.

    The mean of a Gaussian process over programs: those that reward the same lead to similar motions. Its covariance
    is their `likeness`.

    Args:
        rewards: [P, S] reward of each state of the bank under each program.
        simulated: [Q, S] the same for the programs that were simulated.
        worth: [Q] strengths of their motions in the ranking.

    Returns:
        Worth in standard deviations of `worth`; 0 is their mean.
    """
    spread = worth.std()
    if spread < 1e-9:
        return np.zeros(len(rewards))
    covariance = likeness(directions(np.concatenate([simulated, rewards])))
    q = len(simulated)
    known = covariance[:q, :q] + _NOISE * np.eye(q)
    return covariance[q:, :q] @ np.linalg.solve(known, (worth - worth.mean()) / spread)


def likeness(profiles: np.ndarray) -> np.ndarray:
    """Return [P, P]: 1 for programs of the same profile [P, S], falling with the distance of their rewards.

    That is their Pearson distance over the states of the bank (Gleave et al., 2021), in units of the median distance,
    because programs for one task are all alike: correlations of 0.96 to 0.99 are common.
    """
    distance = np.sqrt(np.maximum(1.0 - profiles @ profiles.T, 0.0) / 2.0)
    apart = distance[np.triu_indices(len(distance), 1)]
    return np.exp(-distance / max(np.median(apart) if len(apart) else 0.0, 1e-6))


def directions(rewards: np.ndarray) -> np.ndarray:
    """Return rewards [P, S] with mean 0 and length 1 in each row, so that products are correlations."""
    rows = standardised(rewards)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def _without(residual: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Remove from the residual profiles [P, S] the part that a chosen one explains. Return them, and what is left."""
    length = np.linalg.norm(direction)
    if length > 1e-6:
        unit = direction / length
        residual = residual - np.outer(residual @ unit, unit)
    return residual, np.square(residual).sum(axis=1)


def gate_pairs(caught: np.ndarray) -> Pairs:
    """Return all pairs of motions [E] of which the first has the lesser fault."""
    first, second = np.nonzero(np.less.outer(caught, caught))
    return Pairs(first, second, np.ones(len(first)))
