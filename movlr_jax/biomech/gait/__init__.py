"""Gait analysis: strides, joint angles over the cycle, comparison with people, criteria of a walk."""
