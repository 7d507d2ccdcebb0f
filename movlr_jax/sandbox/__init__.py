"""Vetting of reward programs written by a language model or a person."""
