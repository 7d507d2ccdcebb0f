"""Small parts that the whole package shares."""
