"""Evaluation of K candidates in this process, or split over workers that keep their compiled physics."""
