"""Critics of the best motion."""
