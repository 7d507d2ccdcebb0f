"""The search: its loop, evaluation of candidates, ranking and selection."""
