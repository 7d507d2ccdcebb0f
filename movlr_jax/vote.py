"""`python -m movlr_jax.vote RUN_DIR`: a page where people compare the motions of a run."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.vote")

if __name__ == "__main__":
    sys.exit(main())
