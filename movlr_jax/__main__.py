"""`movlr-jax COMMAND ...` and `python -m movlr_jax COMMAND ...`: the same as `python -m movlr_jax.COMMAND ...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from movlr_jax.errors import unknown_name

COMMANDS = {
    "search": "search a reward program for a task, or for a motion in words",
    "evaluate": "run one reward program in trials, film it and print its measures",
    "train": "train a policy as a recipe says, in stages",
    "check": "vet reward programs without running them",
    "read": "show how a sentence is read and measured",
    "report": "write the page of a run, or one page of several runs",
    "gait": "analyse the gait of recorded episodes",
    "compare": "compare methods under one budget",
    "transfer": "try a reward or a policy on other tasks, models and optimisers",
    "tune": "tune settings of an optimiser",
    "export": "export episodes and policies: OpenSim, CSV, ONNX",
    "vote": "vote on the films of a run in a browser",
    "view": "play recorded episodes in MuJoCo's viewer",
    "doctor": "list what works on this machine, or what is chosen for a model",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns its exit status; 2 without a command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] in ([], ["-h"], ["--help"]):
        lines = [f"  {name:<10}{about}" for name, about in COMMANDS.items()]
        head = "name a command, as in movlr-jax search +task=bottle_pour; each takes --help:"
        print("\n".join([head, *lines]), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name, *rest = arguments
    if name in ("-sc", "--shell-completion"):
        return _complete(rest)
    if name not in COMMANDS:
        print(unknown_name("command", name, COMMANDS), file=sys.stderr)
        return 2
    from movlr_jax.cli.common import ends_at_once, entry_point

    with ends_at_once(process=argv is None):
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
