"""The run directory: what a run records, and how it is read again."""
