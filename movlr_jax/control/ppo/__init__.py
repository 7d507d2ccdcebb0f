"""PPO under K rewards in one batch: trainer, update, actions, observations, policy files."""
