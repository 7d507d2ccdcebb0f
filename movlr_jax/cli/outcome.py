"""How a command ends: its exit status, and user errors as one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from movlr_jax.errors import UserError, path_errors

# Exit statuses besides 0, 1 and 2.
UNJUDGED = 3  # the judge answered no comparison of the search
INTERRUPTED = 130  # the same as a shell reports after Ctrl-C
CLOSED_PIPE = 141  # the same as a shell reports of a program whose output nobody reads any more
# of how a search ended
STATUS = {"finished": 0, "budget spent": 0, "unjudged": UNJUDGED, "refused": 2, "interrupted": INTERRUPTED}


def end_at_once(*_: object) -> NoReturn:
    """End this process without waiting for anything, as after Ctrl-C."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def run_one(command: Callable[[Any], int], given: Any, on_error: Callable[[str], object] = lambda text: None) -> int:
    """Run `command(given)`. Print a user error and pass its text to `on_error`. Return the exit status."""
    from movlr_jax._util.progress import interruptible

    try:
        with interruptible(end_at_once), path_errors():
            return command(given)
    except UserError as error:
        print(error, file=sys.stderr)
        on_error(str(error))
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
