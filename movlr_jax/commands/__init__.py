"""The bodies of the commands: settings from the command line, the environment, progress."""
