"""Evolution of reward programs in JAX for musculoskeletal and humanoid control."""

__version__ = "0.1.0"
