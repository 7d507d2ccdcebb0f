"""Policies as ONNX graphs, which run without JAX and without this package."""
