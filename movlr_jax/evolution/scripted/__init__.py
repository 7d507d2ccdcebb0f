"""Proposer, judge and critics that use no language or vision model: deterministic, and named for what they are."""
