"""Searches in processes of their own without the seconds that imports take: each line read is the arguments of one.

Forked before JAX has started anything. Says `pid N`, then `N STATUS` when it has ended, negative for a signal.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import google.genai  # noqa: F401
import openai  # noqa: F401

from movlr_jax.cli.search import main
from movlr_jax.engine import parts  # noqa: F401
from movlr_jax.language import judge, proposer  # noqa: F401
from movlr_jax.language.clients import gemini, openai_compatible  # noqa: F401


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def wait(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    say(pid, os.waitstatus_to_exitcode(status))


def serve() -> None:
    say("ready")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            status = 1
            try:
                status = main(json.loads(line))
            finally:
                os._exit(status)
        say("pid", pid)
        threading.Thread(target=wait, args=(pid,), daemon=True).start()


if __name__ == "__main__":
    serve()
