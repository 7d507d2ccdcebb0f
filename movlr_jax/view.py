"""`python -m movlr_jax.view RUN_DIR [CANDIDATE]`: replay a motion in MuJoCo's viewer, or in the browser."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.view")

if __name__ == "__main__":
    sys.exit(main())
