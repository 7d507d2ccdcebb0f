"""Muscles and their geometry: excitations from torques, static optimisation, moment arms."""
