"""Walking and standing tasks."""
