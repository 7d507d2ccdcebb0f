"""What helps a body that falls at once to learn to walk. The trainer knows none of it."""
