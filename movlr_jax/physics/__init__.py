"""Physics backends. None of them knows what a reward is."""
