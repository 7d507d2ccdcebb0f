"""Experiment trackers: the course of a search in TensorBoard, Weights & Biases or MLflow."""
