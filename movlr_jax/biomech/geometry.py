"""Muscle lengths and moment arms as polynomials in the planned joints, which is faster than kinematics at every step.

A standard fit in biomechanics (Menegaldo et al., 2004; Rankin and Neptune, 2012): each muscle's length is a
polynomial in the joints that it crosses, and its moment arms are the derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.types import Array

_DEGREE = 4
# Up to this number of terms, monomials are unrolled. Both ways round differently, so another limit would change the
# motions of the package's trained policies.
_UNROLLED = 300
_POSTURES = 3000  # postures of the fit
_CROSSES = 1e-5  # m/rad, smaller moment arms are rounding errors


@dataclass(frozen=True)
class Geometry:
    """Lengths [nu] m and moment arms [nu, nz] m at postures [nz] rad of the planned joints."""

    middle: np.ndarray  # [nz] rad, centre of the polynomials
    terms: Sequence[tuple[int, ...]]  # joints of each monomial, ascending; the first is ()
    length: np.ndarray  # [nu, F] coefficients
    arm: np.ndarray  # [P, F] coefficients of the P nonzero moment arms
    place: np.ndarray  # [nu, nz] row in `arm`, P if the muscle does not cross the joint

    def lengths(self, posture: Array) -> jax.Array:
        return jnp.asarray(self.length, jnp.float32) @ self._monomials(posture)

    def moments(self, posture: Array) -> jax.Array:
        arms = jnp.asarray(self.arm, jnp.float32) @ self._monomials(posture)
        return jnp.append(arms, 0.0)[self.place]

    def _monomials(self, posture: Array) -> jax.Array:
        """Return the monomials [F] at a posture [nz]."""
        if len(self.terms) <= _UNROLLED:
            return jnp.stack(monomials(self.terms, jnp.asarray(posture, jnp.float32) - self.middle))
        # for many terms XLA generates slow code unless the terms of one degree are one array
        x = jnp.asarray(posture, jnp.float32) - jnp.asarray(self.middle, jnp.float32)
        found: list[jax.Array] = [jnp.ones(1)]
        last: dict[tuple[int, ...], int] = {(): 0}
        while (begun := sum(map(len, found))) < len(self.terms):
            degree = [term for term in self.terms[begun:] if len(term) == len(self.terms[begun])]
            shorter, joint = (np.array(c) for c in zip(*((last[t[:-1]], t[-1]) for t in degree), strict=True))
            found.append(found[-1][shorter] * x[joint])
            last = {term: i for i, term in enumerate(degree)}
        return jnp.concatenate(found)


def monomials(terms: Sequence[tuple[int, ...]], x: Array) -> list[Array]:
    """Evaluate each of `terms` at x [..., nz], in order; every prefix of a term must come before it."""
    known: dict[tuple[int, ...], Array] = {(): 1.0 + 0.0 * x[..., 0]}
    for term in terms:
        if term:
            known[term] = known[term[:-1]] * x[..., term[-1]]
    return [known[term] for term in terms]


def fit_geometry(
    lengths_at: Callable[[np.ndarray], np.ndarray], lower: np.ndarray, upper: np.ndarray, seed: int = 0
) -> Geometry:
    """Fit `lengths_at` (postures [S, nz] rad -> lengths [S, nu] m) over the box from `lower` to `upper` [nz] rad."""
    rng, nz = np.random.default_rng(seed), len(lower)
    middle = 0.5 * (lower + upper)
    postures = rng.uniform(lower, upper, (_POSTURES, nz))
    lengths = lengths_at(postures)
    crossed = _crossed(lengths_at, postures[:8], 1e-4)
    sets = {tuple(np.flatnonzero(row).tolist()) for row in crossed}
    found = {t for s in sets for d in range(_DEGREE + 1) for t in combinations_with_replacement(s, d)}
    terms = [term for _, term in sorted((len(term), term) for term in found)]  # ordered by degree
    index = {term: f for f, term in enumerate(terms)}
    features = np.stack(monomials(terms, postures - middle), axis=-1)
    length = np.zeros((lengths.shape[1], len(terms)))
    for members in sets:
        muscles = [i for i, row in enumerate(crossed) if tuple(np.flatnonzero(row).tolist()) == members]
        columns = [f for f, term in enumerate(terms) if set(term) <= set(members)]
        fit = np.linalg.lstsq(features[:, columns], lengths[:, muscles], rcond=None)[0]
        length[np.ix_(muscles, columns)] = fit.T
    arms = np.zeros((*crossed.shape, len(terms)))  # d/dx_j of the polynomials
    for f, term in enumerate(terms):
        for j in set(term):
            rest = list(term)
            rest.remove(j)
            arms[:, j, index[tuple(rest)]] += term.count(j) * length[:, f]
    place = np.full(crossed.shape, int(crossed.sum()))
    place[crossed] = np.arange(crossed.sum())
    return Geometry(middle, terms, length, arms[crossed], place)


def _crossed(lengths_at: Callable[[np.ndarray], np.ndarray], postures: np.ndarray, by: float) -> np.ndarray:
    """Return [nu, nz], whether moving a joint by `by` rad at any of `postures` [S, nz] changes a muscle's length."""
    columns = []
    for j in range(postures.shape[1]):
        moved = postures.copy()
        moved[:, j] += by
        columns.append(np.abs(lengths_at(moved) - lengths_at(postures)).max(axis=0) > _CROSSES * by)
    return np.stack(columns, axis=1)
