"""Physics backends. They are independent of rewards."""
