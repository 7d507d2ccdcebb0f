"""Tasks of the hand."""
