"""`movlr-jax COMMAND ...` and `python -m movlr_jax COMMAND ...`: the same as `python -m movlr_jax.COMMAND ...`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from movlr_jax.errors import unknown_name

COMMANDS = (
    "search",
    "evaluate",
    "train",
    "check",
    "report",
    "gait",
    "compare",
    "transfer",
    "tune",
    "export",
    "doctor",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns its exit status; 2 without a command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] in ([], ["-h"], ["--help"]):
        print(
            f"name a command, as in movlr-jax search +task=bottle_pour; there are: {', '.join(COMMANDS)} (each takes "
            "--help)",
            file=sys.stderr,
        )
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in COMMANDS:
        print(unknown_name("command", name, COMMANDS), file=sys.stderr)
        return 2
    from movlr_jax.commands.cli import entry_point

    return entry_point(f"movlr_jax.commands.{name}")(rest)


if __name__ == "__main__":
    sys.exit(main())
