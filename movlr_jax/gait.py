"""`python -m movlr_jax.gait RUN_DIR_OR_TRAJECTORY`: how a body walks, next to people."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.gait")

if __name__ == "__main__":
    sys.exit(main())
