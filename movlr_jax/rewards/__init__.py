"""Reward programs: what they may read, how they are shaped, and K of them compiled into one function."""
