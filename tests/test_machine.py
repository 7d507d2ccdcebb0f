"""What a process may use of its machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from movlr_jax._util.machine import cpu_quota


def files(root: Path, **texts: str) -> Path:
    """Write files: path -> text, into `root`."""
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("texts", "cores"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (  # the group above is tighter
            {
                "proc/self/cgroup": "0::/a.slice/job\n",
                "sys/fs/cgroup/a.slice/cpu.max": "200000 100000",
                "sys/fs/cgroup/a.slice/job/cpu.max": "400000 100000",
            },
            2.0,
        ),
        (  # a container of version 1 sees its files at the top, and the path of the host
            {
                "proc/self/cgroup": "4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            3.0,
        ),
        ({"proc/self/cgroup": "nonsense\n", "sys/fs/cgroup/cpu.max": "0 0"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_a_container_is_read(tmp_path: Path, texts: dict[str, str], cores: float | None):
    assert cpu_quota(files(tmp_path, **texts)) == cores
