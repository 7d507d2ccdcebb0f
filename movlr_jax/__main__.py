"""`python -m movlr_jax` alone: which commands there are."""

from __future__ import annotations

import sys

COMMANDS = ("search", "evaluate", "check", "report", "compare", "transfer", "tune", "doctor")


def main() -> int:
    print(
        f"name a command, as in python -m movlr_jax.search; there are: {', '.join(COMMANDS)} (each takes --help)",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
