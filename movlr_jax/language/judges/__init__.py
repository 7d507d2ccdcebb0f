"""Judges that compare motions: the metrics judge and vision-language models."""
