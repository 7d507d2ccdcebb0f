"""Optimisers of control: planners, and the muscle and joint controllers beneath them."""
