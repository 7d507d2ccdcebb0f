"""Implementations of the commands: settings from the command line, environment variables, progress."""
