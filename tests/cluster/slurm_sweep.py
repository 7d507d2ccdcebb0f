"""Four short searches by Slurm, each killed with kill -9 once: Slurm requeues them, and they end as if never killed.

    tests/cluster/slurm.sh start && python tests/cluster/slurm_sweep.py [OUT.md] && tests/cluster/slurm.sh stop

Needs the extra `sweep`. Writes what Slurm and the sweep printed to OUT.md.
"""

from __future__ import annotations

import os
import re
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


def once(text: str) -> str:
    """Leave out lines that differ from an earlier one in numbers only."""
    kept: dict[str, str] = {}
    for line in text.splitlines():
        kept.setdefault(re.sub(r"\d+", "", line), line)
    return "\n".join(kept.values())


def main() -> int:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    said = ["# Four searches by Slurm, each killed once", "", "```"]

    def note(text: str) -> None:
        text = text.replace(f"{TASK.parents[2]}/", "")
        print(text, flush=True)
        said.append(text)

    def ran(*command: str) -> None:
        note(f"$ {' '.join(command)}")
        note(subprocess.run(command, capture_output=True, text=True).stdout.rstrip())

    root = Path(tempfile.mkdtemp(prefix="movlr-slurm-"))
    ran("sinfo", "--version")
    ran("sinfo")
    note("$ " + " ".join(["movlr-jax search", "-m", *sweep(Path("sweep"), *SLURM)[4:]]))
    log = (root / "said.txt").open("w")
    child = subprocess.Popen(sweep(root / "sweep", *SLURM), stderr=log, stdout=log)
    runs = [root / "sweep" / str(i) for i in range(4)]
    killed: dict[int, float] = {}
    shown, started = "", time.monotonic()
    while child.poll() is None and time.monotonic() - started < 3600:
        time.sleep(0.2)
        queue = subprocess.run(["squeue", "-h", "-o", "%i %T %r"], capture_output=True, text=True).stdout
        for i, run in enumerate(runs):
            if i not in killed and evaluated(run) and (pid := process_of(run)):
                done = len(evaluated(run))
                os.kill(pid, signal.SIGKILL)
                killed[i] = time.monotonic() - started
                note(f"[{killed[i]:5.0f} s] kill -9 {pid}: job {i}, {done} programs recorded")
        if queue != shown:
            shown = queue
            note(f"[{time.monotonic() - started:5.0f} s] squeue: {'; '.join(queue.splitlines()) or 'empty'}")
    note(once((root / "said.txt").read_text().replace(str(root), "").rstrip()))
    records = sorted((root / "sweep" / ".submitit").rglob("*_log.out"))
    for record in records[:1]:
        note(f"$ cat {record.relative_to(root)}")
        note(record.read_text().rstrip())
    for record in sorted((root / "sweep" / ".submitit").rglob("*_log.err"))[:1]:
        note(f"$ cat {record.relative_to(root)}")
        note(record.read_text().rstrip())
    ran("tail", "-n", "4", "/var/log/slurm/jobs.txt")
    note("$ " + " ".join(["movlr-jax search", "-m", *sweep(Path("alone"))[4:]]))
    subprocess.run(sweep(root / "alone"), stderr=subprocess.DEVNULL, check=True)
    alone = [root / "alone" / str(i) for i in range(4)]
    same = [evaluated(a) == evaluated(b) != [] for a, b in zip(runs, alone, strict=True)]
    best = [(a / "best.py").read_bytes() == (b / "best.py").read_bytes() for a, b in zip(runs, alone, strict=True)]
    note(f"killed: {len(killed)} of 4; status of the sweep: {child.returncode}")
    note(f"as without Slurm and without kills: programs and measures {same}, best.py {best}")
    said.append("```")
    if out:
        out.write_text("\n".join(said) + "\n")
    shutil.rmtree(root)
    return 0 if all(same) and all(best) and len(killed) == 4 and child.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
