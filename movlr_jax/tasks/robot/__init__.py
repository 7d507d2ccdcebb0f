"""Tasks of humanoid robots."""
