"""Hand tasks."""
