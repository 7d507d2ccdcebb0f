"""A search in a cell of a real Jupyter kernel: an interrupt ends it with a sentence and leaves nothing running."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager, start_new_kernel

pytestmark = pytest.mark.slow
SETTINGS = (
    "candidates=2, generations=2, episode_s=0.16, run_dir='run', films=False, "
    "**{'optimizer.mppi.samples': 4, 'optimizer.horizon_s': 0.16}"
)
REMAINS = """
import gc, os, signal, subprocess, threading, time
gc.disable()  # nothing may need it
deadline = time.monotonic() + 5
while (left := {t.name for t in threading.enumerate()} - known) and time.monotonic() < deadline: time.sleep(0.1)
def below(pid):
    listed = ["ps", "-ww", "--ppid", str(pid), "-o", "pid,args", "--no-headers"]
    lines = subprocess.run(listed, capture_output=True, text=True).stdout.splitlines()
    return [line.split(None, 1) for line in lines if " ps -ww" not in line]
children = below(os.getpid())
sources = [pid for pid, args in children if "sandbox.zygote" in args]  # later sandboxes are forked from it
running = [args for pid, args in children if pid not in sources] + [c for pid in sources for c in below(pid)]
print(left, running, len(sources) <= 1, signal.getsignal(signal.SIGINT))
"""


class Kernel:
    def __init__(self, manager: KernelManager, client):
        self.manager, self.client = manager, client

    def run(self, code: str, interrupt_after: str = "", timeout_s: float = 120.0) -> str:
        """Run a cell and return what it shows. `interrupt_after`: a text that has to be shown first."""
        sent, shown, interrupted = self.client.execute(code), "", False
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != sent:
                continue
            shown += content.get("text", "") + content.get("data", {}).get("text/plain", "")
            shown += "\n".join(content.get("traceback", []))
            if interrupt_after and not interrupted and interrupt_after in shown:
                self.manager.interrupt_kernel()
                interrupted = True
            if kind == "status" and content["execution_state"] == "idle":
                return shown
        raise TimeoutError(shown)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    yield Kernel(manager, client)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("stage", ["generation 0", "  vet: done", "  optimise: done"])
def test_an_interrupted_cell_ends_with_a_sentence_and_leaves_nothing_running(kernel: Kernel, stage: str):
    kernel.run("import threading, movlr_jax as mj\ntask = mj.load_task('bottle_pour')")
    kernel.run("known = {t.name for t in threading.enumerate()}")
    shown = kernel.run(f"run = mj.run_search(task, {SETTINGS})\nprint('finished:', run.finished)", stage)
    assert "interrupted; finished work is saved. Continue with resume=run" in shown
    assert "finished: False" in shown
    assert "Traceback" not in shown
    remains = kernel.run(REMAINS)
    assert remains.strip() == "set() [] True <built-in function default_int_handler>"
    shown = kernel.run("run = mj.run_search(resume=run.root)\nprint('finished:', run.finished, len(run.candidates))")
    assert "finished: True 4" in shown
    assert kernel.run(REMAINS) == remains
