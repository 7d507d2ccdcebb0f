"""Optimisers of control: planners, PPO, and the muscle controllers that they use."""
