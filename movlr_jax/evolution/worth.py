"""What trials and the answers of judges say about the worth of programs.

A trial is one start state and one stream of noise, the same for all programs of the trial. The value of program p in
trial t is

    value[p, t] = worth[p] + shift[t] + e,    e ~ N(0, s^2), shift[t] ~ N(0, (q s)^2), worth[p] ~ N(mu, (r s)^2).

The worths are known up to a t distribution if r and q are: s and mu are integrated out with flat priors. r and q are
integrated over a grid, so few trials give wide beliefs. A judge's answers give the same model without the values: an
answer says which of two values of a trial is the larger one, and is a guess in some share of the cases.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.special import gammaincinv, ndtr, stdtr

REPLACE = 0.9  # probability of being better at which a challenger replaces the champion
_DIVERGED = 3  # of `gates.fault`
_DRAWS = 4096
_UNLIKELY = 1e-4  # parts of a mixture that are left out, relative to the likeliest
# Ratios to the noise of a trial: the spread of worths, and the spread of what all programs of a trial share.
_SPREADS = np.geomspace(0.1, 10, 9)
_SHIFTS = np.array([0.1, 0.3, 1.0, 3.0, 30.0, 1000.0])
_SPREAD_PRIOR = np.exp(-0.5 * (np.log(_SPREADS / 0.7) / 1.2) ** 2)  # measured: 0.3 to 3

# Of a judge, in units of the noise of a trial: the spread of worths, and the blur of what it sees.
_ANSWER_SPREADS = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
_ANSWER_SPREAD_PRIOR = np.exp(-0.5 * (np.log(_ANSWER_SPREADS / 0.65) / 1.1) ** 2)
_BLUR = 0.3
_GUESSES = [(0.04, 0.5), *((share, first) for share in (0.2, 0.4, 0.65) for first in (0.5, 0.95, 0.05))]
_JUDGE_PRIOR = np.array([0.2, *np.outer((0.2, 0.25, 0.35), (0.6, 0.3, 0.1)).ravel()])
_GRID = 1.5 * np.sinh(np.linspace(-3.2, 3.2, 81))  # differences
_CELLS = np.gradient(_GRID)
_TURNS, _STEP = 10, 0.7  # of expectation propagation

Answer = tuple[int, int, Hashable, str]  # shown first, shown second, trial, and `first`, `second` or `tie`


@dataclass(frozen=True)
class Posterior:
    """Belief about the worth of n programs: a mixture of t distributions. Only differences have a meaning."""

    means: np.ndarray  # [G, n]
    scales: np.ndarray  # [G, n, n]
    weight: np.ndarray  # [G] sums to 1
    freedom: float  # degrees of freedom; infinite: normal distributions
    noise: float  # standard deviation of the difference of two equal programs in one trial
    spread: float  # standard deviation of worths between programs

    @cached_property
    def mean(self) -> np.ndarray:
        """The mean worths [n]."""
        return self.weight @ self.means

    @cached_property
    def covariance(self) -> np.ndarray:
        """The covariance [n, n] of the worths; that of a t distribution counts as its scale, which always exists."""
        away = self.means - self.mean
        return np.einsum("g,gij->ij", self.weight, self.scales + away[:, :, None] * away[:, None, :])

    @cached_property
    def better(self) -> np.ndarray:
        """The probability [n, n] that program i is better than program j; 0.5 for i = j."""
        variance = np.diagonal(self.scales, axis1=1, axis2=2)
        apart = variance[:, :, None] + variance[:, None, :] - 2 * self.scales
        ratio = (self.means[:, :, None] - self.means[:, None, :]) / np.sqrt(np.maximum(apart, 1e-300))
        chance = ndtr(ratio) if np.isinf(self.freedom) else stdtr(self.freedom, ratio)
        better = np.einsum("g,gij->ij", self.weight, chance)
        np.fill_diagonal(better, 0.5)
        return better

    @cached_property
    def p_best(self) -> np.ndarray:
        """The probability [n] that each is the best, from fixed draws."""
        n = self.means.shape[1]
        steps = (np.arange(_DRAWS) + 0.5) / _DRAWS
        part = np.searchsorted(np.cumsum(self.weight), steps).clip(max=len(self.weight) - 1)
        size = np.trace(self.scales, axis1=1, axis2=2)[:, None, None]
        root = np.linalg.cholesky(self.scales + 1e-12 * np.maximum(size, 1e-12) * np.eye(n))
        away = np.einsum("dij,dj->di", root[part], normal(n)) * _widths(self.freedom)
        return np.bincount((self.means[part] + away).argmax(axis=1), minlength=n) / _DRAWS

    def p_better(self, i: int, j: int) -> float:
        """Return the probability that program `i` is worth more than program `j`."""
        return float(self.better[i, j])


@dataclass(frozen=True)
class TrialScore:
    """What is known of one trial of one program."""

    fault: int  # how severe its fault is, see `gates.fault`: 0 none, 3 diverged
    success: bool | None  # None: the task has none
    score: float  # may be infinite or NaN


def from_scores(
    n: int, programs: Sequence[int], trials: Sequence[Hashable], values: Sequence[float] | np.ndarray
) -> Posterior:
    """Return what the values of trials say about the worth of n programs.

    Args:
        n: Number of programs. Those without a trial have the mean worth of the others.
        programs: [m] index of the program of each value.
        trials: [m] names of the trials.
        values: [m] finite, as of `trial_values`.
    """
    if not len(values) or np.ptp(values) == 0:
        return _nothing_known(n, 0.0)
    names = {trial: i for i, trial in enumerate(dict.fromkeys(trials))}
    y = np.asarray(values, float)
    level = y.mean()
    scale = np.abs(y - level).max()
    y = (y - level) / scale
    x = np.eye(n)[np.asarray(programs, int)]  # [m, n]
    z = np.eye(len(names))[[names[trial] for trial in trials]]  # [m, T]
    per_trial = z.sum(axis=0)
    q2, r2 = (g.ravel()[:, None] ** 2 for g in np.meshgrid(_SHIFTS, _SPREADS, indexing="ij"))
    # the inverse of I + q^2 z z', which takes most of the mean of a trial from its values
    shared = q2 / (1 + q2 * per_trial)  # [G, T]
    xz, yz = x.T @ z, y @ z
    centring = np.eye(n) - 1 / n  # mu is flat
    precision = np.diag(x.sum(axis=0)) - (shared[:, None, :] * xz) @ xz.T + centring / r2[:, :, None]
    pull = x.T @ y - (shared * yz) @ xz.T  # [G, n]
    covariance = np.linalg.inv(precision)
    mean = np.einsum("gij,gj->gi", covariance, pull)
    freedom = max(len(y) - 1, 1)
    left = y @ y - shared @ yz**2 - np.einsum("gi,gi->g", pull, mean)
    left = np.maximum(left, 1e-9)  # a difference that never varies is clear, not certain
    log_weight = (
        np.tile(np.log(_SPREAD_PRIOR), len(_SHIFTS))
        - 0.5 * np.log1p(q2 * per_trial).sum(axis=1)
        - 0.5 * (n - 1) * np.log(r2[:, 0])
        - 0.5 * np.linalg.slogdet(precision)[1]
        - 0.5 * freedom * np.log(left)
    )
    variance = left / freedom
    return _mixture(
        level + scale * mean,
        scale**2 * covariance * variance[:, None, None],
        log_weight,
        freedom,
        scale * np.sqrt(variance)[:, None] * np.sqrt(np.hstack([np.full_like(r2, 2.0), r2])),
    )


def from_answers(n: int, answers: Iterable[Answer]) -> Posterior:
    """Return what a judge's answers say about the worth of n programs, in units of the noise of a trial.

    A judge sees the difference d of two values of a trial and prefers the larger one with probability
    Phi(d / `_BLUR`); in a share of the cases it guesses, perhaps in favour of one place. A tie is half an answer
    for each. Answers about the same pair in the same trial are about the same d, so many of them say no more
    than what d is. The spread of worths, the share of guesses and their bias are integrated over a grid, and d
    by expectation propagation (Minka, 2001).
    """
    seen: dict[tuple[int, int, Hashable], np.ndarray] = {}
    for a, b, trial, winner in answers:
        swapped = int(a > b)
        count = seen.setdefault((min(a, b), max(a, b), trial), np.zeros((2, 2)))
        count[swapped] += {"first": (1.0, 0.0), "second": (0.0, 1.0), "tie": (0.5, 0.5)}[winner]
    if not seen:
        return _nothing_known(n, np.sqrt(2))
    shown = np.zeros((len(seen), n))
    for row, (a, b, _) in enumerate(seen):
        shown[row, [a, b]] = 1.0, -1.0
    names = {trial: i for i, trial in enumerate(dict.fromkeys(t for *_, t in seen))}
    at = np.array([names[t] for *_, t in seen])
    worths = shown @ shown.T  # of the differences, if programs vary and trials do not
    prior = np.square(_ANSWER_SPREADS)[:, None, None] * worths + worths * (at[:, None] == at)  # [R, G, G]
    likelihood = np.einsum("gsw,jdsw->jgd", np.array(list(seen.values())), _judges())  # [J, G, D] log
    judges, spreads = len(likelihood), len(prior)
    evidence, pull, spare = _propagated(np.tile(prior, (judges, 1, 1)), np.repeat(likelihood, spreads, axis=0))
    log_weight = evidence + np.log(np.outer(_JUDGE_PRIOR, _ANSWER_SPREAD_PRIOR).ravel())
    r2 = np.tile(_ANSWER_SPREADS, judges)[:, None] ** 2
    means = r2 * (pull @ shown)
    scales = r2[:, :, None] * np.eye(n) - r2[:, :, None] ** 2 * (shown.T @ spare @ shown)
    return _mixture(means, scales, log_weight, np.inf, np.sqrt(np.hstack([np.full_like(r2, 2.0), r2])))


@cache
def _judges() -> np.ndarray:
    """Return [J, D, 2, 2] log probability of each judge's answers, (first, second), at the differences `_GRID`.

    The third axis says whether the program with the larger index was shown first.
    """
    log_p = np.empty((len(_GUESSES), len(_GRID), 2, 2))
    for judge, (share, first) in enumerate(_GUESSES):
        for swapped, sign in enumerate((1, -1)):
            p = share * first + (1 - share) * ndtr(sign * _GRID / _BLUR)
            log_p[judge, :, swapped] = np.log(np.stack([p, 1 - p], axis=-1))
    return log_p


def _propagated(prior: np.ndarray, likelihood: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log evidence [H], and what determines the posterior of anything jointly normal with the differences.

    With c the covariances of such a number w with the differences, its mean is c @ pull [H, G] and its
    covariance loses c @ spare [H, G, G] @ c.

    Args:
        prior: [H, G, G] covariance of the differences, whose mean is 0.
        likelihood: [H, G, D] log likelihood of each difference at `_GRID`.
    """
    h, g, _ = likelihood.shape
    likely = np.exp(likelihood) * _CELLS
    site = np.zeros((2, h, g))  # what each answer adds to the precision, and to precision times mean
    for _ in range(_TURNS):
        joint = _joint(prior, site)
        _, *tilted = _tilted(likely, joint)
        site += _STEP * (np.array(tilted) - site)
    joint = _joint(prior, site)
    total, *_ = _tilted(likely, joint)
    precision, push = site
    sites = (
        np.log(total)
        + 0.5 * np.log1p(precision * joint.left)
        + 0.5 * joint.centre**2 / joint.left
        - 0.5 * (joint.centre / joint.left + push) ** 2 / (1 / joint.left + precision)
    )
    evidence = sites.sum(axis=1) - 0.5 * joint.log_determinant + 0.5 * np.einsum("hi,hi->h", push, joint.mean)
    return evidence, joint.pull, joint.spare


@dataclass(frozen=True)
class _Joint:
    """Normal posterior of the differences, and of each (`centre`, `left`) without the answers about itself."""

    mean: np.ndarray  # [H, G]
    pull: np.ndarray  # [H, G]
    spare: np.ndarray  # [H, G, G]
    log_determinant: np.ndarray  # [H]
    centre: np.ndarray  # [H, G] mean
    left: np.ndarray  # [H, G] variance


def _joint(prior: np.ndarray, site: np.ndarray) -> _Joint:
    """Return the posterior for the prior covariance [H, G, G] and what the answers add [2, H, G]."""
    precision, push = site
    root = np.sqrt(precision)
    inner = np.eye(prior.shape[1]) + root[:, :, None] * prior * root[:, None, :]
    spare = root[:, :, None] * np.linalg.inv(inner) * root[:, None, :]
    pull = push - np.einsum("hij,hj->hi", spare, np.einsum("hij,hj->hi", prior, push))
    mean = np.einsum("hij,hj->hi", prior, pull)
    variance = np.einsum("hii->hi", prior) - np.einsum("hij,hij->hi", prior @ spare, prior)
    left = 1 / (1 / variance - precision)
    centre = left * (mean / variance - push)
    return _Joint(mean, pull, spare, np.linalg.slogdet(inner)[1], centre, left)


def _tilted(likely: np.ndarray, joint: _Joint) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return [H, G] the probability of the answers about each difference, and what they add to it.

    That is the precision and precision times mean of the normal distribution with the right moments.
    """
    centre, left = joint.centre, joint.left
    chance = likely * np.exp(-0.5 * (_GRID - centre[:, :, None]) ** 2 / left[:, :, None])
    total = chance.sum(axis=2)
    mean = chance @ _GRID / total
    variance = np.minimum(chance @ _GRID**2 / total - mean**2, 0.999 * left)
    return total / np.sqrt(2 * np.pi * left), 1 / variance - 1 / left, mean / variance - centre / left


def _mixture(
    means: np.ndarray, scales: np.ndarray, log_weight: np.ndarray, freedom: float, sizes: np.ndarray
) -> Posterior:
    """Return the mixture with these log weights [G] and sizes [G, 2], noise and spread, without unlikely parts."""
    weight = np.exp(log_weight - log_weight.max())
    kept = weight > _UNLIKELY
    weight = weight[kept] / weight[kept].sum()
    noise, spread = np.exp(weight @ np.log(sizes[kept]))  # in the middle: spreads have long tails
    return Posterior(means[kept], scales[kept], weight, freedom, float(noise), float(spread))


def _nothing_known(n: int, noise: float) -> Posterior:
    return Posterior(np.zeros((1, n)), np.eye(n)[None], np.ones(1), np.inf, noise, 0.0)


@cache
def normal(n: int) -> np.ndarray:
    """Return fixed samples [draws, n] of the standard normal distribution."""
    return np.random.default_rng(0).standard_normal((_DRAWS, n))


@cache
def _widths(freedom: float) -> np.ndarray:
    """Return fixed samples [draws, 1] of what makes normal samples those of a t distribution."""
    if np.isinf(freedom):
        return np.ones((_DRAWS, 1))
    uniform = np.random.default_rng(1).random((_DRAWS, 1))
    return np.sqrt(freedom / (2 * gammaincinv(freedom / 2, uniform)))  # quantiles of chi^2


def trial_values(trials: Sequence[TrialScore]) -> np.ndarray:
    """Return one finite number per trial [m], in the unit of the score: what `from_scores` takes.

    A sound trial has its score. Those with a fault keep their order and distances, but lie below all with a lesser
    fault. One that diverged or has no finite score has the lowest value of its kind. A success adds nothing to a
    score, which says more about the next successes than a few successes do; it counts if nothing has a score.
    """
    fault = np.array([t.fault for t in trials], int)
    score = np.array([t.score for t in trials], float)
    score[(fault >= _DIVERGED) | ~np.isfinite(score)] = np.nan
    if np.isnan(score).all():
        score = np.where(fault >= _DIVERGED, np.nan, [float(bool(t.success)) for t in trials])
    known = score[~np.isnan(score)]
    gap = 0.05 * np.ptp(known) if len(known) and np.ptp(known) > 0 else 1.0
    values, floor = np.zeros(len(trials)), np.inf
    for kind in np.unique(fault):
        of_kind = fault == kind
        these = score[of_kind]
        if np.isnan(these).all():
            these = np.full(len(these), floor - gap if np.isfinite(floor) else 0.0)
        these = np.where(np.isnan(these), np.nanmin(these), these)
        these -= max(0.0, these.max() - (floor - gap)) if np.isfinite(floor) else 0.0
        values[of_kind], floor = these, min(floor, these.min())
    return values


def halving(posterior: Posterior, entrants: Sequence[int], champion: int) -> list[int]:
    """Return who gets further trials: the champion, then the better half of the other entrants, the best first."""
    others = _ordered(posterior, [i for i in entrants if i != champion])
    return [champion, *others[: (len(others) + 1) // 2]]


def undecided(posterior: Posterior, programs: Sequence[int], champion: int, threshold: float = REPLACE) -> list[int]:
    """Return the champion and the best of the other programs if it is open which of both is better, else nobody."""
    others = _ordered(posterior, [i for i in programs if i != champion])
    if others and 1 - threshold < posterior.p_better(others[0], champion) < threshold:
        return [champion, others[0]]
    return []


def next_champion(posterior: Posterior, entrants: Sequence[int], champion: int, threshold: float = REPLACE) -> int:
    """Return the best of the entrants that replace the champion, or the champion if none does."""
    better = [i for i in entrants if i != champion and replaces(posterior, i, champion, threshold)]
    return _ordered(posterior, better)[0] if better else champion


def final_choice(
    posterior: Posterior, programs: Sequence[int], champion: int, first: int, threshold: float = REPLACE
) -> int:
    """Return the program to confirm: the best of the champion and those clearly better than the first program.

    At the end a choice between two good programs may be wrong; what may not be wrong is the promise that it is
    better than the first one.
    """
    good = [i for i in programs if replaces(posterior, i, first, threshold)]
    return _ordered(posterior, [champion, *good])[0]


def _ordered(posterior: Posterior, programs: Sequence[int]) -> list[int]:
    """Return programs from best to worst; of equal ones the earlier first."""
    return sorted(programs, key=lambda i: (-posterior.mean[i], i))


def replaces(posterior: Posterior, challenger: int, champion: int, threshold: float = REPLACE) -> bool:
    """Whether the challenger is better than the champion with probability `threshold`."""
    return posterior.p_better(challenger, champion) >= threshold
