"""Who writes reward programs: the scripted proposer and language models."""
