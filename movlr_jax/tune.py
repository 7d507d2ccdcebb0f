"""`python -m movlr_jax.tune +task=T space=planner trials=40 seeds=0,1,2`: settings and weights that succeed."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.tune")

if __name__ == "__main__":
    sys.exit(main())
