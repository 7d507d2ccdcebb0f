"""`python -m movlr_jax.evaluate +task=T reward=FILE|human|initial|RUN_DIR`: the motion under one reward."""

import sys

from movlr_jax.cli.common import entry_point

main = entry_point("movlr_jax.cli.evaluate")

if __name__ == "__main__":
    sys.exit(main())
