"""Tasks of walking and standing."""
