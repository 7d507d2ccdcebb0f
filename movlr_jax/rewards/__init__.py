"""Reward programs: the state that they read, shaping functions, and the scorer that runs K of them."""
