"""`python -m movlr_jax.doctor`: what works here. Every look is guarded: what is broken is a row, not an end."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.doctor")

if __name__ == "__main__":
    sys.exit(main())
