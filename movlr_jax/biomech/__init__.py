"""Muscle models, static optimisation, and muscle lengths and moment arms."""
