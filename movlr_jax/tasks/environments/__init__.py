"""Environments of Gymnasium and MyoSuite as tasks, which they reset and measure themselves."""
