"""Humanoid robot tasks."""
