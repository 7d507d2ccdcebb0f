"""Vetting of reward programs that a model or a person wrote."""
