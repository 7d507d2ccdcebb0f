"""Vetting of reward programs in confined child processes; the main process handles only their text.

A child, the tracer, runs the Python code and returns a document. The main process checks the document and rebuilds a
function. A second child, the prober, gets only the document and evaluates it on states. Neither child is trusted.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import secrets
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import astuple, dataclass
from typing import Any

import jax.numpy as jnp

from movlr_jax._util.keys import redact
from movlr_jax._util.machine import cores
from movlr_jax.errors import ProgramError, UserError
from movlr_jax.rewards.cost import Cost
from movlr_jax.rewards.program import RewardProgram, structure_hash
from movlr_jax.rewards.state import parts
from movlr_jax.sandbox import confine
from movlr_jax.sandbox.cost import measure, refusal, slower
from movlr_jax.sandbox.graph import MAX_DOCUMENT, Graph, read, run
from movlr_jax.sandbox.inputs import flat, inputs
from movlr_jax.sandbox.probe import Probe
from movlr_jax.sandbox.source import ParsedReward, Rejected, parse, unchecked
from movlr_jax.sandbox.warm import Lost, Warm, memory_file, registered
from movlr_jax.sandbox.zygote import CONFINED

PROGRAM_DEADLINE_S = 30.0
BATCH = 4096  # states of one candidate that are scored at once, as in training with PPO's defaults
_DOWN = "the program crashed its process; it may need too much memory"
_TOO_LATE = "the program was not ready after {:g} s: it runs or compiles for too long; make it smaller"


@dataclass(frozen=True)
class Verdict:
    """The result of vetting. `message` is None if and only if the program was accepted."""

    stage: str  # the last stage: parse, load, trace, check, probe, deadline or crash
    message: str | None
    seconds: float
    program: RewardProgram | None = None
    notes: Sequence[str] = ()  # warnings to the author of an accepted program

    @property
    def accepted(self) -> bool:
        return self.message is None


class Sandbox:
    """A pool of confined children, forked from one warm process. Safe to use from several threads.

    name: `confined` (the kernel confines the program) or `process` (a child with limits and a deadline, which a
    malicious program can escape). `batch`: the most states of one candidate that the run scores at once, which
    determines the cost that a program may have. Raises UserError if the kernel does not support `confined`.
    """

    def __init__(
        self,
        probe: Probe,
        *,
        name: str = "confined",
        deadline_s: float = PROGRAM_DEADLINE_S,
        batch: int = BATCH,
        check_text: bool = True,  # False in tests of the confinement alone
    ):
        self.name, self._check_text = name, check_text
        self._deadline_s, self.batch = deadline_s, batch
        if name == "confined" and (lacks := confine.missing()):
            raise UserError(
                f"this machine cannot confine generated programs, it lacks: {'; '.join(lacks)}. sandbox=process uses "
                "a child process with limits and a deadline, which a malicious program can escape; the run records "
                "this"
            )
        self.cpu_s = 0.0  # processor time of all children so far
        self._layout = probe.layout
        flags = os.environ.get("XLA_FLAGS", "")
        self._settings = pickle.dumps({"probe": probe, "confined": name == "confined", "xla_flags": flags})
        self._name = secrets.token_hex(8)  # in the warm process
        self.warm: Warm | None = None  # candidates are forked from it
        self._alone: set[Warm] = set()  # warm processes for retries of single programs
        self._closed = 0  # number of calls of `close`
        self._lock = threading.Lock()

    @property
    def description(self) -> str:
        """The sandbox in one line, for the run record and the report."""
        if self.name == "confined":
            return f"confined: {confine.describe()}"
        return "process: WEAKER, a child process with limits and a deadline, not confined by the kernel"

    def vet(self, source: str) -> Verdict:
        """Vet one program. Errors of the program never raise; raises UserError if the sandbox itself fails."""
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
                f"the sandbox cannot run a program: {error.strerror or error}; close other files or programs, or "
                "raise the limits of this machine (ulimit -n, ulimit -u)"
            ) from error
        return Verdict("probe", None, time.monotonic() - began, program, notes)

    def vet_all(self, sources: Sequence[str], done: Callable[[int, int], None] | None = None) -> list[Verdict]:
        """Vet programs in parallel on all cores. Returns verdicts in the order of the programs."""
        verdicts: dict[int, Verdict] = {}
        pool = ThreadPoolExecutor(max_workers=cores())
        try:
            work = {pool.submit(self.vet, source): i for i, source in enumerate(sources)}
            for future in as_completed(work):
                verdicts[work[future]] = future.result()
                if done:
                    done(len(verdicts), len(sources))
        except BaseException:  # including Ctrl-C: do not wait for running jobs
            pool.shutdown(wait=False, cancel_futures=True)
            self.close()
            raise
        finally:
            pool.shutdown()
        return [verdicts[i] for i in range(len(sources))]

    def _vet(self, parsed: ParsedReward) -> tuple[RewardProgram, list[str]]:
        """Vet a program; retry it alone if the warm process died, because another program may have caused that."""
        closed = self._closed
        try:
            return self._try(parsed, self.start())
        except (Lost, Rejected) as error:
            if self._closed > closed:
                raise Rejected("crash", "the sandbox was closed before the program was ready") from None
            if isinstance(error, Rejected):
                raise
        alone = Warm()
        self._alone.add(alone)
        try:
            alone.register(self._name, self._settings)
            return self._try(parsed, alone)
        except Lost as lost:
            if lost.during:
                raise Rejected("crash", _DOWN) from None
            raise UserError("the sandbox process ended twice before it ran a program") from None
        finally:
            self._alone.discard(alone)
            alone.stop()

    def _try(self, parsed: ParsedReward, warm: Warm) -> tuple[RewardProgram, list[str]]:
        terms, weights = list(parsed.weights), list(parsed.weights.values())
        left = self._deadline_s
        text, used = self._ask(warm, "trace", parsed.source.encode(), {"checked": self._check_text}, left)
        if not text.startswith(b'{"version"'):
            raise Rejected(*rejection(text))
        try:
            graph = read(text, terms, inputs(self._layout))
        except ProgramError as error:
            raise Rejected("check", str(error)) from None
        measured = measure(graph, inputs(self._layout))
        if too_much := refusal(measured, self.batch):
            raise Rejected("check", too_much)
        options = {"terms": terms, "weights": weights, "cost": astuple(measured.cost), "batch": self.batch}
        answer, _ = self._ask(warm, "probe", text, options, left - used)
        counts, states, cpu_s = counts_of(answer, terms)
        if too_slow := slower(measured, cpu_s, states, self.batch):
            raise Rejected("probe", too_slow)
        notes = [*parsed.notes, *judge(parsed, counts)]
        named = (parsed.source, parsed.description)
        return rebuild(graph, text, parsed.weights, measured.cost, *named), notes

    def start(self) -> Warm:
        """Return the warm process; start it if there is none or it has died. Raises UserError."""
        with self._lock:
            if not (self.warm and self.warm.serves):
                self.warm = registered(self._name, self._settings)
            return self.warm

    def close(self) -> None:
        """End all children of this sandbox; the next program starts new ones."""
        with self._lock:
            self._closed += 1
            if self.warm and self.warm.serves:
                self.warm.forget(self._name)
            self.warm = None
        for alone in list(self._alone):
            alone.stop()

    def _ask(self, warm: Warm, job: str, text: bytes, options: dict[str, Any], left: float) -> tuple[bytes, float]:
        """Return the answer of a new child of `warm` to `text`, and the time it took in s; `left` s are allowed.

        Raises Rejected if the child is late or dies, Lost if `warm` dies, UserError if no child can be started.
        """
        reading, writing = os.pipe()
        request = {"sandbox": self._name, "job": job, "cpu_s": int(self._deadline_s) + 2, **options}
        with os.fdopen(reading, "rb"), os.fdopen(writing, "wb") as theirs:
            with memory_file(text) as file:
                pid = warm.fork(request, [file.fileno(), writing])
            began = time.monotonic()  # the time to start processes does not count
            theirs.close()
            answer, late = _read(reading, began + left)
        used = time.monotonic() - began
        for end in (os.killpg, os.kill):  # it may not have created its process group yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(pid, signal.SIGKILL)
        status, cpu_s = warm.reap(pid)
        self.cpu_s += cpu_s
        if not answer:  # the child ended before it read the program
            raise Lost(during=False)
        if answer[:1] != CONFINED:
            raise UserError(f"the sandbox cannot confine its child: {answer[1:].decode(errors='replace')}")
        if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
            raise Rejected("deadline", _TOO_LATE.format(self._deadline_s))
        if len(answer) == 1 or len(answer) > MAX_DOCUMENT:
            raise Rejected("crash", _DOWN)
        return answer[1:], used


def _read(pipe: int, end: float) -> tuple[bytes, bool]:
    """Return the data from a pipe, and whether the time ran out; stops reading after MAX_DOCUMENT bytes."""
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


def rebuild(
    graph: Graph, text: bytes, weights: Mapping[str, float], cost: Cost, source: str = "", description: str = ""
) -> RewardProgram:
    """Return the reward program of a checked graph and its document `text`."""
    terms = tuple(weights)

    def reward(state: Any, action: Any) -> dict[str, Any]:
        step, initial, goals = parts(state)
        values = [jnp.asarray(v, jnp.float32) for v in flat(step, action, initial, goals)]
        return dict(zip(terms, run(graph, values), strict=True))

    return RewardProgram(
        source=source,
        description=description,
        weights=weights,
        reward=reward,
        structure=structure_hash(json.dumps(_without_lines(json.loads(text)), sort_keys=True)),
        cost=cost,
        document=text,
    )


def _without_lines(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_lines(v) for k, v in value.items() if k != "l"}
    return [_without_lines(v) for v in value] if isinstance(value, list) else value


def judge(parsed: ParsedReward, counts: dict[str, Any]) -> list[str]:
    """Return notes on the prober's counts. Raises Rejected for a term without finite values."""
    notes = []
    for name, count in counts.items():
        where = parsed.where(name)
        if count["bad"] == count["states"]:
            raise Rejected(
                "probe",
                f"{where}term {name!r} is not finite at any of {count['states']} states of this task; look for "
                "a division by zero, a log or square root of a negative number, or an exp that overflows",
            )
        if count["constant"]:
            notes.append(f"{where}term {name!r} has the same value at every state, so it has no effect")
        if count["bad"]:
            notes.append(
                f"{where}term {name!r} is not finite at {count['bad']} of {count['states']} states of this task; "
                "such values are replaced by the worst one seen"
            )
        elif count["far"]:
            notes.append(
                f"{where}term {name!r} is not finite at {count['far']} of {count['extremes']} extreme states; such "
                "values are replaced by the worst one seen"
            )
    return notes


def counts_of(answer: bytes, terms: list[str]) -> tuple[dict[str, Any], int, float]:
    """Return (term -> counts, states, processor time in s) of the prober. Raises Rejected."""
    try:
        found = json.loads(answer)
        if isinstance(found.get("error"), str):
            raise Rejected("probe", f"the program cannot be compiled or run: {_one_line(found['error'])}")
        counts, states, cpu_s = found["terms"], int(found["states"]), float(found["cpu_s"])
        for term in terms:
            for name in ("states", "bad", "extremes", "far", "constant"):
                counts[term][name] = int(counts[term][name])
        return {term: counts[term] for term in terms}, states, cpu_s
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Rejected("crash", _DOWN) from None


def rejection(answer: bytes) -> tuple[str, str]:
    """Return (stage, message) of a tracer's answer, cleaned for a log."""
    try:
        fields = json.loads(answer)
        stage, message = fields["stage"], fields["message"]
        if stage in ("parse", "load", "trace") and isinstance(message, str) and message:
            return stage, _one_line(message)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return "crash", "the program's process returned a malformed answer"


def _one_line(text: str) -> str:
    """Return a child's text on one printable line without API keys, for a log, a terminal and the next prompt."""
    return "".join(c if c.isprintable() else "?" for c in redact(" ".join(text.split()))[:1000])
