"""Vets reward programs in confined children, before the main process touches more of them than their text.

A tracer runs the Python and hands back a document; the main process checks it and rebuilds a function; a prober,
another child that gets the document alone, runs that on states. Neither child is ever believed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

from movlr_jax.errors import ProgramError, UserError
from movlr_jax.machine import cores
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox import confine
from movlr_jax.sandbox.answers import DOWN, Rejected, counts_of, judge, rebuild, told
from movlr_jax.sandbox.cost import measure, refusal
from movlr_jax.sandbox.graph import MAX_DOCUMENT, read
from movlr_jax.sandbox.inputs import inputs
from movlr_jax.sandbox.probe import Probe
from movlr_jax.sandbox.source import ParsedReward, parse, unchecked
from movlr_jax.sandbox.warm import Lost, Warm
from movlr_jax.sandbox.zygote import CONFINED

PROGRAM_DEADLINE_S = 30.0
BATCH = 4096  # states of one candidate that are scored at once, as those of a training with PPO's defaults
_TOO_LATE = "the program was not ready after {:g} s: it loops or compiles for too long; make it smaller"


@dataclass(frozen=True)
class Verdict:
    """What vetting found. `message` is None exactly when the program was accepted."""

    stage: str  # parse, load, trace, check, probe, deadline or crash: where it ended
    message: str | None
    seconds: float
    program: RewardProgram | None = None
    notes: Sequence[str] = ()  # of an accepted program: what its writer should know

    @property
    def accepted(self) -> bool:
        return self.message is None


class Sandbox:
    """A pool of confined children, forked from one warm process. Safe to use from several threads.

    name: `confined` (the kernel holds the program) or `process` (a child with limits and a deadline, which an
    ill-meaning program can leave). `batch` is how many states of one candidate the run scores at once, at most:
    what a program may cost depends on it. Raises UserError where the kernel cannot do what `confined` needs.
    """

    def __init__(
        self,
        probe: Probe,
        *,
        name: str = "confined",
        gradients: bool = False,
        deadline_s: float = PROGRAM_DEADLINE_S,
        batch: int = BATCH,
        check_text: bool = True,  # False in tests of the confinement alone
    ):
        self.name, self._gradients, self._check_text = name, gradients, check_text
        self._deadline_s, self._batch = deadline_s, batch
        if name == "confined":
            require_confinement()
        self.cpu_s = 0.0  # processor time of all children so far
        self._layout = probe.layout
        flags = os.environ.get("XLA_FLAGS", "")
        self._settings = pickle.dumps({"probe": probe, "confined": name == "confined", "xla_flags": flags})
        self.warm: Warm | None = None  # what candidates are forked from
        self._alone: set[Warm] = set()  # and those of programs that are tried again
        self._closed = 0  # times
        self._lock = threading.Lock()

    @property
    def description(self) -> str:
        return describe(self.name)

    def vet(self, source: str) -> Verdict:
        """Tries one program. Never raises for what the program does; UserError where it cannot be tried."""
        began = time.monotonic()
        try:
            parsed = parse(source) if self._check_text else unchecked(source)
            program, notes = self._vet(parsed)
        except ProgramError as error:
            return Verdict("parse", str(error), time.monotonic() - began)
        except Rejected as rejected:
            stage, message = rejected.args
            return Verdict(stage, message, time.monotonic() - began)
        except OSError as error:
            raise UserError(
                f"the sandbox cannot try a program: {error.strerror or error}; close other files or programs, or "
                "raise the limits of this machine (ulimit -n, ulimit -u)"
            ) from error
        return Verdict("probe", None, time.monotonic() - began, program, notes)

    def vet_all(
        self, sources: Sequence[str], done: Callable[[int, int], None] | None = None
    ) -> list[Verdict]:
        """Verdicts in the order of the programs, as many at a time as there are cores."""
        verdicts: dict[int, Verdict] = {}
        pool = ThreadPoolExecutor(max_workers=cores())
        try:
            work = {pool.submit(self.vet, source): i for i, source in enumerate(sources)}
            for future in as_completed(work):
                verdicts[work[future]] = future.result()
                if done:
                    done(len(verdicts), len(sources))
        except BaseException:  # Ctrl-C among them: nobody waits for what is under way
            pool.shutdown(wait=False, cancel_futures=True)
            self.close()
            raise
        finally:
            pool.shutdown()
        return [verdicts[i] for i in range(len(sources))]

    def _vet(self, parsed: ParsedReward) -> tuple[RewardProgram, list[str]]:
        """Tries a program, once more by itself where the warm process went down: any other may be to blame."""
        closed = self._closed
        try:
            return self._try(parsed, self._shared())
        except Lost:
            if self._closed > closed:  # nobody waits for it any more
                raise Rejected("crash", "the sandbox was closed before the program was ready") from None
        alone = Warm(self._settings)
        self._alone.add(alone)
        try:
            return self._try(parsed, alone)
        except Lost as lost:
            if lost.during:
                raise Rejected("crash", DOWN) from None
            raise UserError("the sandbox process ends at once, twice, before it runs a program") from None
        finally:
            self._alone.discard(alone)
            alone.stop()

    def _try(self, parsed: ParsedReward, warm: Warm) -> tuple[RewardProgram, list[str]]:
        terms, weights = list(parsed.weights), list(parsed.weights.values())
        left = self._deadline_s
        text, used = self._ask(warm, "trace", parsed.source.encode(), {"checked": self._check_text}, left)
        if not text.startswith(b'{"version"'):
            raise Rejected(*told(text))
        try:
            graph = read(text, terms, inputs(self._layout))
        except ProgramError as error:
            raise Rejected("check", str(error)) from None
        measured = measure(graph, inputs(self._layout))
        if too_much := refusal(measured, self._batch):
            raise Rejected("check", too_much)
        options = {"terms": terms, "weights": weights, "gradients": self._gradients}
        answer, _ = self._ask(warm, "probe", text, options, left - used)
        notes = judge(parsed, counts_of(answer, terms))
        return replace(rebuild(parsed, graph, text, self._layout), cost=measured.cost), notes

    def start(self) -> None:
        """Starts the warm process, which the first program would else wait for. Raises UserError."""
        self._shared()

    def close(self) -> None:
        """Ends all children; the next program gets new ones."""
        with self._lock:
            self._closed += 1
            if self.warm:
                self.warm.stop()
            self.warm = None
        for alone in list(self._alone):
            alone.stop()

    def _shared(self) -> Warm:
        """The warm process, started anew where it has died. Raises UserError."""
        with self._lock:
            if self.warm and not self.warm.alive:
                self.warm.stop()
                self.warm = None
            self.warm = self.warm or Warm(self._settings)
            return self.warm

    def _ask(
        self, warm: Warm, job: str, text: bytes, options: dict[str, Any], left: float
    ) -> tuple[bytes, float]:
        """What a new child of `warm` answers to `text` within `left` s, and how long that took.

        Raises Rejected when it is late or dies, Lost when all of `warm` does, UserError where it cannot be asked.
        """
        reading, writing = os.pipe()
        request = {"job": job, "cpu_s": int(self._deadline_s) + 2, **options}
        try:
            with tempfile.TemporaryFile() as file:
                file.write(text)
                file.flush()
                file.seek(0)
                # the descriptor of the child's shares this offset; nobody else reads it
                pid = warm.fork(request, [file.fileno(), writing])
            began = time.monotonic()  # what it takes to start processes is not the program's
            os.close(writing)
            writing = -1
            answer, late = _read(reading, began + left)
        finally:
            os.close(reading)
            if writing >= 0:
                os.close(writing)
        used = time.monotonic() - began
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)  # before it made a group of its own
        status, cpu_s = warm.reap(pid)
        self.cpu_s += cpu_s
        if not answer:  # it ended before it read the program
            raise Lost(during=False)
        if answer[:1] != CONFINED:
            raise UserError(f"the sandbox cannot confine its child: {answer[1:].decode(errors='replace')}")
        if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
            raise Rejected("deadline", _TOO_LATE.format(self._deadline_s))
        if len(answer) == 1 or len(answer) > MAX_DOCUMENT:
            raise Rejected("crash", DOWN)
        return answer[1:], used


def require_confinement() -> None:
    """Raises UserError where this machine cannot confine a process, with what is missing and what accepts less."""
    lacks = confine.missing()
    if lacks:
        raise UserError(
            f"this machine cannot confine generated programs, it lacks: {'; '.join(lacks)}. sandbox=process accepts "
            "a child process with limits and a deadline, which an ill-meaning program can leave; the run will say so"
        )


def describe(name: str) -> str:
    """What a sandbox of this name is, for the record, the report and doctor."""
    if name == "confined":
        return f"confined: {confine.describe()}"
    return "process: WEAKER, a child process with limits and a deadline, not held by the kernel"


def _read(pipe: int, end: float) -> tuple[bytes, bool]:
    """All that comes through a pipe, and whether time ran out first; too much is cut off."""
    data = b""
    while len(data) <= MAX_DOCUMENT:
        left = end - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return data, True
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            break
        data += chunk
    return data, False
