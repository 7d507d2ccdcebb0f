"""Films of motions: the renderer, clips and pictures."""
