"""The child process that tries programs out: one request after another until its input ends.

Started by `sandbox.vet`. Requests and answers are lines of JSON; the probe comes first, pickled, from the
main process (never the other way round).
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys

_MEMORY = 4 << 30  # bytes of address space: enough for JAX, little enough to spare the machine


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints by accident does not end up among the answers
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    probe = pickle.load(sys.stdin.buffer)
    from movlr_jax.sandbox.trial import trial

    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin.buffer:
        stage, message = trial(json.loads(line), probe)
        print(json.dumps([stage, message]), file=answers, flush=True)


if __name__ == "__main__":
    main()
