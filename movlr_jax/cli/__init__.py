"""The commands: words of the command line to calls of the engine, progress, exit statuses."""
