"""The run directory: writing and reading the records of a run."""
