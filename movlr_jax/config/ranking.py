"""Schemes of ranking by name, and how many comparisons each takes (`evolution.pairwise` runs them)."""

from __future__ import annotations

RANKINGS = ("active", "round_robin", "knockout", "paper")


def calls_needed(scheme: str, m: int, orders: int = 2) -> int:
    """Return the minimum number of judge calls to rank m items, each pair shown `orders` times when it meets."""
    return {
        "active": orders * (m - 1),
        "round_robin": orders * m * (m - 1) // 2,
        "knockout": orders * (m - 1),
        "paper": m - 1,
    }[scheme]
