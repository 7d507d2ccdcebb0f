"""`python -m movlr_jax.transfer reward=FILE from=T1 to=T2`: a reward found with one task, unchanged on others."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.transfer")

if __name__ == "__main__":
    sys.exit(main())
