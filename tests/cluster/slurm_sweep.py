"""Four short searches by Slurm, each killed with kill -9 once: Slurm requeues them, and they end as if never killed.

    tests/cluster/slurm.sh start && python tests/cluster/slurm_sweep.py && tests/cluster/slurm.sh stop

Needs the extra `sweep`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from movlr_jax.storage.archive import Archive

TASK = Path(__file__).resolve().parent.parent / "support" / "tiny_task.py"
SEARCH = [f"+task={TASK}", "optimizer=mppi", "candidates=4", "generations=4", "episode_s=0.3",
          "optimizer.mppi.samples=4", "optimizer.horizon_s=0.08", "films=false", "seed=range(0,4)"]  # fmt: skip
SLURM = ["hydra/launcher=submitit_slurm", "hydra.launcher.partition=test", "hydra.launcher.timeout_min=30",
         "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=2",
         "hydra.launcher.array_parallelism=2"]  # fmt: skip


def sweep(folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "movlr_jax.search", "-m", *SEARCH, f"run_dir={folder}", *more]


def process_of(run: Path) -> int | None:
    """The process that holds the lock of a run, if any."""
    about = (run / ".lock").stat() if (run / ".lock").exists() else None
    for line in Path("/proc/locks").read_text().splitlines() if about else ():
        fields = line.split()
        if about and fields[5].rpartition(":")[2] == str(about.st_ino):
            return int(fields[4])
    return None


def evaluated(run: Path) -> list[dict]:
    try:
        with Archive.open(run, write=False) as archive:
            return [{**e.data, "timing": None} for e in archive.events("evaluated")]
    except Exception:  # it is just being created
        return []


def main() -> int:
    root = Path(tempfile.mkdtemp(prefix="movlr-slurm-"))
    print("$", *sweep(Path("sweep"), *SLURM), flush=True)
    child = subprocess.Popen(sweep(root / "sweep", *SLURM))
    runs = [root / "sweep" / str(i) for i in range(4)]
    killed, shown, started = set[int](), "", time.monotonic()
    while child.poll() is None and time.monotonic() - started < 3600:
        time.sleep(0.2)
        queue = subprocess.run(["squeue", "-h", "-o", "%i %T %r"], capture_output=True, text=True).stdout
        at = f"[{time.monotonic() - started:5.0f} s]"
        for i, run in enumerate(runs):
            if i not in killed and evaluated(run) and (pid := process_of(run)):
                done = len(evaluated(run))
                os.kill(pid, signal.SIGKILL)
                killed.add(i)
                print(f"{at} kill -9 {pid}: job {i}, {done} programs recorded", flush=True)
        if queue != shown:
            shown = queue
            print(f"{at} squeue: {'; '.join(queue.splitlines()) or 'empty'}", flush=True)
    print("$", *sweep(Path("alone")), flush=True)
    subprocess.run(sweep(root / "alone"), stderr=subprocess.DEVNULL, check=True)
    alone = [root / "alone" / str(i) for i in range(4)]
    same = [evaluated(a) == evaluated(b) != [] for a, b in zip(runs, alone, strict=True)]
    best = [(a / "best.py").read_bytes() == (b / "best.py").read_bytes() for a, b in zip(runs, alone, strict=True)]
    print(f"killed: {len(killed)} of 4; status of the sweep: {child.returncode}")
    print(f"as without Slurm and without kills: programs and measures {same}, best.py {best}")
    shutil.rmtree(root)
    return 0 if all(same) and all(best) and len(killed) == 4 and child.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
