"""Searches that ask models and are killed end as if nothing had happened; what was answered is not asked again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from cli_cases import SUPPORT
from fake_servers import FakeServer
from model_search import MODELS, TASK, calls, servers, set_keys
from outcomes import outcome

from movlr_jax.errors import UserError
from movlr_jax.storage.archive import Archive, Event


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch):
    set_keys(monkeypatch)


class Searches:
    """Searches in processes of their own, forked from one that has everything imported."""

    def __init__(self, log: Path):
        command = [sys.executable, str(SUPPORT / "forking_search.py")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("wb"), text=True
        )
        assert self._line() == ["ready"]

    def begin(self, *args: str) -> int:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(args) + "\n")
        self._process.stdin.flush()
        word, pid = self._line()
        assert word == "pid"
        self.ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()
        return int(pid)

    def status(self) -> int:
        """Of the one that was begun last, once it has ended; negative for a signal."""
        assert self.ended.wait(120)
        return self._status

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _line(self) -> list[str]:
        assert self._process.stdout
        return self._process.stdout.readline().split()

    def _watch(self) -> None:
        self._status = int(self._line()[1])
        self.ended.set()


def at_moment(moment: str, run: Path, llm: FakeServer, vlm: FakeServer) -> bool:
    """Whether a search is just doing that; `any` moment will do."""
    if moment == "call":
        return llm.under_way + vlm.under_way > 0
    if moment == "write":
        return any(run.rglob(".*.part"))
    if moment == "optimise":
        record = run / "run.db"
        kinds = [(e.kind, e.generation) for e in events(run)] if record.exists() else []
        return any(("proposed", g) in kinds and ("evaluated", g) not in kinds for g in (0, 1))
    return True


def events(run: Path) -> list[Event]:
    with contextlib.suppress(UserError), Archive.open(run, write=False) as archive:
        return archive.events()
    return []


def kill_at_random(searches: Searches, pid: int, wait_s: float, ready: Callable[[], bool]) -> bool:
    """Kills a process at the first fitting moment after a while; whether it was still there."""
    until = time.monotonic() + wait_s
    while not searches.ended.is_set():
        if time.monotonic() > until and ready():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return searches.status() == -signal.SIGKILL
        time.sleep(0.001)
    return False


def killed_search(
    kills: int, moments: Sequence[str], shares: tuple[float, float], seed: int, tmp_path: Path
) -> Counter[str]:
    """Kills searches `kills` times, resumes each until it ends, and holds them against one that was let be.

    Each kill is at the first of its `moments` after between `shares` of the time that a search takes.
    """
    chance, done, said = random.Random(seed), 0, Counter()
    llm, vlm = servers(delay_s=0.15)
    searches = Searches(tmp_path / "said.txt")
    with llm, vlm, contextlib.closing(searches):
        args = [*TASK, *MODELS, f"llm.base_url={llm.url}", f"vlm.base_url={vlm.url}"]
        whole, begun = tmp_path / "whole", time.monotonic()
        searches.begin(*args, f"run_dir={whole}")
        assert searches.status() == 0
        took = time.monotonic() - begun
        while done < kills:
            said["searches"] += 1
            llm.requests.clear()
            vlm.requests.clear()
            run, known, status = tmp_path / f"killed{said['searches']}", Counter(), -signal.SIGKILL
            while status:
                resume = (run / "config.yaml").exists()
                pid = searches.begin(*([f"resume={run}"] if resume else [*args, f"run_dir={run}"]))
                if done < kills:
                    moment, wait_s = moments[done % len(moments)], chance.uniform(*shares) * took
                    if kill_at_random(searches, pid, wait_s, partial(at_moment, moment, run, llm, vlm)):
                        done += 1
                        said[moment] += 1
                        known = {c["key"]: sent(llm, vlm)[c["key"]] for c in ended_calls(run)} | known
                    else:  # it was quicker than the first
                        took *= 0.8
                status = searches.status()
                assert status in (0, -signal.SIGKILL)
            assert outcome(run) == outcome(whole)
            made = calls(run)
            # what the record knows is never asked again, whatever is sent is in the record
            reached = sent(llm, vlm)
            assert {key: reached[key] for key in known} == known
            assert reached <= Counter(c["key"] for c in made if c["sent"])
            lost = sum(c["state"] == "lost" for c in made)
            again = sum(reached.values()) - len(reached)
            assert again <= lost
            said["calls"] += len(made)
            said["lost"] += lost
            said["asked again"] += again
    return said


def sent(*fakes: FakeServer) -> Counter[str]:
    """How often each call, by its key, reached the servers."""
    return Counter(r["asked"].seed for fake in fakes for r in fake.requests)


def ended_calls(run: Path) -> list[dict]:
    with contextlib.suppress(UserError):
        return [c for c in calls(run) if c["state"] in ("answered", "refused")]
    return []


@pytest.mark.slow
def test_killed_in_a_call_a_rollout_and_a_write_it_ends_as_if_nothing_had_happened(tmp_path: Path):
    moments = ("call", "optimise", "write")
    said = killed_search(3, moments, (0.0, 0.5), 0, tmp_path)
    assert all(said[moment] == 1 for moment in moments)


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_as_if_nothing_had_happened(tmp_path: Path):
    """MOVLR_KILLS kills (20 unless set), over as many searches as that takes."""
    kills, seed = int(os.environ.get("MOVLR_KILLS", "20")), int(os.environ.get("MOVLR_SEED", "1"))
    print(dict(killed_search(kills, ("any", "call", "optimise", "write"), (0.1, 0.95), seed, tmp_path)))
