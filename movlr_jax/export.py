"""`python -m movlr_jax.export RUN_DIR_OR_TRAJECTORY format=mot`: episodes as files for other programs."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.export")

if __name__ == "__main__":
    sys.exit(main())
