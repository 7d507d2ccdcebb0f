"""The gate on stored motions of several models: policies, guided walks, falls and distortions of them."""

from __future__ import annotations

from collections import Counter

from gait_corpus import faults_of, motions


def test_degenerate_motions_are_named_and_walks_pass():
    caught, named, walks = Counter(), Counter(), Counter()
    for motion in motions():
        found = faults_of(motion)
        if motion.label == "walk":
            walks[bool(found)] += 1
        else:
            caught[bool(found)] += 1
            named[motion.label in found] += 1
    assert sum(walks.values()) >= 10
    assert sum(caught.values()) >= 40
    assert caught[True] >= 0.95 * sum(caught.values())
    assert named[True] >= 0.95 * sum(named.values())
    assert walks[True] <= 0.02 * sum(walks.values())
