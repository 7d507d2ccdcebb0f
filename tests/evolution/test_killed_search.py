"""A search that asks models and is killed ends as if nothing had happened; what was answered is not asked again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from fake_servers import FakeServer
from model_search import MODELS, TASK, calls, servers, set_keys
from outcomes import outcome

from movlr_jax.cli.search import main
from movlr_jax.errors import UserError
from movlr_jax.storage.archive import Archive


def at_moment(moment: str, run: Path, llm: FakeServer, vlm: FakeServer) -> bool:
    """Whether a search is just doing that."""
    if moment == "call":
        return llm.under_way + vlm.under_way > 0
    if moment == "write":
        return any(run.rglob(".*.part"))
    with contextlib.suppress(UserError), Archive.open(run, write=False) as archive:
        kinds = [(e.kind, e.generation) for e in archive.events()]
        return any(("proposed", g) in kinds and ("evaluated", g) not in kinds for g in (0, 1))
    return False


def sent(*fakes: FakeServer) -> Counter[str]:
    """How often each call, by its key, reached the servers."""
    return Counter(r["asked"].seed for fake in fakes for r in fake.requests)


@pytest.mark.slow
def test_killed_in_a_call_a_rollout_and_a_write_it_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    set_keys(monkeypatch)
    run, whole, kills = tmp_path / "killed", tmp_path / "whole", 0
    llm, vlm = servers(delay_s=0.15)
    with llm, vlm:
        args = [*TASK, *MODELS, f"llm.base_url={llm.url}", f"vlm.base_url={vlm.url}"]
        assert main([*args, f"run_dir={whole}"]) == 0
        llm.requests.clear()
        vlm.requests.clear()
        for moment in ("call", "optimise", "write"):
            begun = [f"resume={run}"] if (run / "config.yaml").exists() else [*args, f"run_dir={run}"]
            child = subprocess.Popen([sys.executable, "-m", "movlr_jax.search", *begun], stderr=subprocess.DEVNULL)
            while child.poll() is None and not at_moment(moment, run, llm, vlm):
                time.sleep(0.001)
            kills += child.poll() is None
            child.kill()
            child.wait()
        with Archive.open(run, write=False) as archive:
            ended = {c["key"] for c in archive.calls() if c["state"] in ("answered", "refused")}
        known = {key: n for key, n in sent(llm, vlm).items() if key in ended}
        assert main([f"resume={run}"]) == 0
    assert kills >= 2
    assert outcome(run) == outcome(whole)
    made, reached = calls(run), sent(llm, vlm)
    assert {key: reached[key] for key in known} == known, "what the record knows is never asked again"
    assert reached <= Counter(c["key"] for c in made if c["sent"]), "whatever is sent is in the record"
    assert sum(reached.values()) - len(reached) <= sum(c["state"] == "lost" for c in made)
