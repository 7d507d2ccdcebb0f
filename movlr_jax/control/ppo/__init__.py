"""PPO under K rewards at once: trainer, update, actions, observations, policy files."""
