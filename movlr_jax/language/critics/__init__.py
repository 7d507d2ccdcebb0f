"""Who criticises the best motion."""
