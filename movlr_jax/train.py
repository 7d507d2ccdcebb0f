"""`python -m movlr_jax.train +recipe=NAME`: train a policy from nothing, in the stages of a recipe."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.train")

if __name__ == "__main__":
    sys.exit(main())
