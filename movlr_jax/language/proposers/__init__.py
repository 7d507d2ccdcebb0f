"""Proposers of reward programs: the scripted proposer and language models."""
