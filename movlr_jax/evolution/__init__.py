"""The search: the loop, the evaluation of candidates, ranking and selection."""
