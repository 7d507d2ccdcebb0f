"""`python -m movlr_jax.compare +task=T methods=[movlr,eureka,human]`: methods under one budget."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.compare")

if __name__ == "__main__":
    sys.exit(main())
