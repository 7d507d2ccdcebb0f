"""Searches whose programs are written, compared and criticised by models: two servers on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_servers import FakeServer

from movlr_jax.storage.archive import Archive

LLM_KEY, VLM_KEY = "sk-SECRET-writer-0123456789", "AIza-SECRET-watcher-0123456789"
TASK = [
    f"+task={Path(__file__).parent / 'tiny_task.py'}", "candidates=2", "generations=2", "episode_s=0.3",
    "optimizer=mppi",
    "optimizer.ctrl_dt=0.02", "optimizer.sim_dt=0.004", "optimizer.plan_dt=0.02", "optimizer.horizon_s=0.08",
    "optimizer.knots=2", "optimizer.mppi.samples=4", "preview=true", "trials=1", "confirm=0",
]  # fmt: skip
MODELS = [
    "llm=openai_compatible", "llm.model=Qwen2.5-Coder-32B-Instruct", "llm.price=[0.1,0.3]", "llm.timeout_s=8",
    "llm.attempts=8", "vlm=gemini", "vlm.timeout_s=8", "vlm.size=[64,64]",
    "vlm.attempts=8",
]  # fmt: skip


def set_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("OPENAI_API_KEY", LLM_KEY)
    patch.setenv("GEMINI_API_KEY", VLM_KEY)


def servers(**settings) -> tuple[FakeServer, FakeServer]:
    return FakeServer("openai", **settings), FakeServer("gemini", **settings)


def calls(run: Path) -> list[dict]:
    with Archive.open(run, write=False) as archive:
        return archive.calls()
