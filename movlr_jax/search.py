"""`python -m movlr_jax.search +task=NAME`: evolves a reward program for a task."""

import sys

from movlr_jax.cli.common import entry_point

main = entry_point("movlr_jax.cli.search")

if __name__ == "__main__":
    sys.exit(main())
