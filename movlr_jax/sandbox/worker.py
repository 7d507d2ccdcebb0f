"""The child process that tries programs out: one request after another until its input ends.

`python -m movlr_jax.sandbox.worker SECONDS`: ends itself when a program takes longer than that.
Started by `sandbox.vet`. Requests and answers are lines of JSON; the probe comes first, pickled, from the
main process (never the other way round).
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import sys

_MEMORY = 4 << 30  # bytes of address space: enough for JAX, little enough to spare the machine


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints by accident does not end up among the answers
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = int(sys.argv[1])
    probe = pickle.load(sys.stdin.buffer)
    from movlr_jax.sandbox.trial import trial

    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin.buffer:
        source = json.loads(line)
        if source is None:  # is it there?
            print(json.dumps("ready"), file=answers, flush=True)
            continue
        signal.alarm(limit)  # when the main process is gone, nobody else ends a program that hangs
        stage, message = trial(source, probe)
        signal.alarm(0)
        print(json.dumps([stage, message]), file=answers, flush=True)


if __name__ == "__main__":
    main()
