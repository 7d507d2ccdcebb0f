"""`python -m movlr_jax.check +task=T reward=FILE_OR_DIR_OR_JSONL`: vets reward programs, and does nothing else."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.check")

if __name__ == "__main__":
    sys.exit(main())
