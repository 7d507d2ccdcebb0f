"""`movlr-jax COMMAND ...` and `python -m movlr_jax COMMAND ...`: the same as `python -m movlr_jax.COMMAND ...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from movlr_jax.errors import unknown_name

COMMANDS = (
    "search",
    "evaluate",
    "train",
    "check",
    "read",
    "report",
    "gait",
    "compare",
    "transfer",
    "tune",
    "export",
    "vote",
    "view",
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
    if name in ("-sc", "--shell-completion"):
        return _complete(rest)
    if name not in COMMANDS:
        print(unknown_name("command", name, COMMANDS), file=sys.stderr)
        return 2
    from movlr_jax.cli.common import entry_point

    return entry_point(f"movlr_jax.cli.{name}")(rest)


def _complete(arguments: Sequence[str]) -> int:
    """Complete a command line as Hydra does: `eval "$(movlr-jax -sc install=bash)"`. Returns the exit status."""
    from movlr_jax.cli.common import entry_point

    words = os.environ.get("COMP_LINE", "").split(" ")
    if arguments[:1] and arguments[0].startswith("query="):
        if len(words) < 3:  # the command itself
            print(" ".join(c for c in COMMANDS if c.startswith("".join(words[1:]))))
            return 0
        *given, last = [words[0], *words[2:]]  # Hydra knows no commands
        os.environ["COMP_LINE"] = " ".join([*(w.replace("+task=", "task=") for w in given), last])
    return entry_point("movlr_jax.cli.search")(["--shell-completion", *arguments])


if __name__ == "__main__":
    sys.exit(main())
