"""`python -m movlr_jax.report RUN_DIR`: write the report.html of a run."""

import sys

from movlr_jax.commands.cli import entry_point

main = entry_point("movlr_jax.commands.report")

if __name__ == "__main__":
    sys.exit(main())
