"""Environments of MuJoCo Playground as tasks."""
