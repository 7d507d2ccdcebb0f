"""Who compares motions: the metrics judge and vision-language models."""
