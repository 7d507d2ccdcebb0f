"""Kernel confinement of the calling process, through ctypes and without root.

Linux on x86_64 and aarch64: no_new_privs, Landlock, seccomp, resource limits, parent-death signal. None of it
can be undone. `missing` lists the features that a kernel lacks; a step that fails raises and is never skipped.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

GIB = 1 << 30
_SET_PDEATHSIG, _SET_DUMPABLE, _GET_SECCOMP, _SET_SECCOMP, _NO_NEW_PRIVS = 1, 4, 21, 22, 38
_SECCOMP_FILTER = 2
_NEW_USER_NAMESPACE, _CAPABILITIES = 0x10000000, 0x20080522
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS, _EFAULT = 1, 38, 14
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_LD, _AND, _JEQ, _JGE, _RET = 0x20, 0x54, 0x15, 0x35, 0x06  # BPF, 32-bit words
_X32 = 0x40000000


_ALL = 0xFFFFFFFF
_PROT_EXEC = 4
_CLONE_THREAD = 0x00010000 | 0x00000100 | 0x00000800  # with CLONE_VM and CLONE_SIGHAND


# linux/arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
_X86_64 = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8,
    "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14,
    "rt_sigreturn": 15, "pread64": 17, "readv": 19, "writev": 20, "access": 21, "sched_yield": 24,
    "mremap": 25, "madvise": 28, "nanosleep": 35, "getpid": 39, "clone": 56, "exit": 60, "uname": 63,
    "fcntl": 72, "getcwd": 79, "readlink": 89, "gettimeofday": 96, "getrlimit": 97, "getrusage": 98,
    "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110,
    "sigaltstack": 131, "prctl": 157, "gettid": 186, "futex": 202, "sched_getaffinity": 204,
    "getdents64": 217, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
    "clock_nanosleep": 230, "exit_group": 231, "tgkill": 234, "openat": 257, "newfstatat": 262,
    "readlinkat": 267, "set_robust_list": 273, "prlimit64": 302, "getcpu": 309, "getrandom": 318,
    "membarrier": 324, "statx": 332, "rseq": 334, "clone3": 435, "faccessat2": 439,
}  # fmt: skip
_AARCH64 = {
    "getcwd": 17, "fcntl": 25, "openat": 56, "close": 57, "getdents64": 61, "lseek": 62, "read": 63,
    "write": 64, "readv": 65, "writev": 66, "pread64": 67, "readlinkat": 78, "newfstatat": 79, "fstat": 80,
    "exit": 93, "exit_group": 94, "futex": 98, "set_robust_list": 99, "nanosleep": 101, "clock_gettime": 113,
    "clock_getres": 114, "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124,
    "restart_syscall": 128, "tgkill": 131, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135,
    "rt_sigreturn": 139, "times": 153, "uname": 160, "getrlimit": 163, "getrusage": 165, "prctl": 167,
    "getcpu": 168, "gettimeofday": 169, "getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175,
    "getgid": 176, "getegid": 177, "gettid": 178, "sysinfo": 179, "brk": 214, "munmap": 215, "mremap": 216,
    "clone": 220, "mmap": 222, "mprotect": 226, "madvise": 233, "prlimit64": 261, "getrandom": 278,
    "membarrier": 283, "statx": 291, "rseq": 293, "clone3": 435, "faccessat2": 439,
}  # fmt: skip
ARCHITECTURES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}  # AUDIT_ARCH_*, numbers
DENIED_AS_ABSENT = ("clone3",)

# allowed call -> conditions (argument, mask, value) on its arguments: argument & mask == value
Calls = Mapping[str, tuple[tuple[int, int, int | Literal["self"]], ...]]
_COMMON: Calls = dict.fromkeys((
    "read", "write", "writev", "close", "fstat", "lseek", "poll", "munmap", "brk", "mremap", "madvise", "futex",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "sched_yield", "nanosleep", "clock_nanosleep",
    "clock_gettime", "clock_getres", "gettimeofday", "times", "getrusage", "getrandom", "getpid", "gettid", "getppid",
    "getuid", "geteuid", "getgid", "getegid", "uname", "sysinfo", "getcpu", "sched_getaffinity", "restart_syscall",
    "set_robust_list", "rseq", "exit", "exit_group",
), ()) | {
    "fcntl": ((1, _ALL, 1),),  # F_GETFD
    "tgkill": ((0, _ALL, "self"),),  # abort()
    # only reads the limits of the process itself: no other pid, no new value
    "prlimit64": ((0, _ALL, 0), (2, _ALL, 0)),
}  # fmt: skip
TRACER: Calls = {**_COMMON, "mmap": ((2, _PROT_EXEC, 0),), "mprotect": ((2, _PROT_EXEC, 0),)}
WORKER: Calls = {**_COMMON, **dict.fromkeys((
    "mmap", "mprotect", "open", "openat", "stat", "lstat", "newfstatat", "statx", "readlink", "readlinkat",
    "getdents64", "access", "faccessat2", "getcwd", "pread64", "readv", "getrlimit", "membarrier",
), ()),
    "clone": ((0, _CLONE_THREAD, _CLONE_THREAD),),
    "prctl": ((0, _ALL, 15),),  # PR_SET_NAME, of threads
}  # fmt: skip


class ConfinementError(Exception):
    """A step of the confinement failed; the process must not continue."""


@dataclass(frozen=True)
class Limits:
    """Resource limits of one process."""

    cpu_s: int
    data: int  # bytes of private memory
    space: int = 6 * GIB  # bytes of address space: JAX aborts below 1.5 GiB
    files: int = 16
    processes: int | None = None  # None: no limit, for children that need threads


# The child that runs Python, and the child that compiles.
TRACING = Limits(cpu_s=30, data=GIB, files=8, processes=0)
PROBING = Limits(cpu_s=30, data=3 * GIB, files=64)
# Cores of the child that compiles. JAX starts four threads per core, each with 72 MiB of address space: with 16 cores
# it would need 6.8 GB.
CORES = 2
# Minimum limits of the sandbox processes, with a margin: on two cores JAX 0.10 needs 16, 2.5 GiB, 1 GiB.
_NEEDED = {
    "RLIMIT_NOFILE": ("open files (ulimit -n)", 20, 1),
    "RLIMIT_AS": ("address space in KiB (ulimit -v)", 4 << 20, 1 << 10),
    "RLIMIT_DATA": ("private memory in KiB (ulimit -d)", 3 << 19, 1 << 10),
}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """Return the version of Landlock that this kernel offers, 0 if it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _libc().syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def missing() -> list[str]:
    """Return descriptions of the features that this machine lacks for the confinement; empty if it has all."""
    if not sys.platform.startswith("linux"):
        return [f"Linux (this is {platform.system()})"]
    lacks = []
    if platform.machine() not in ARCHITECTURES:
        lacks.append(f"a table of system calls for {platform.machine()} (there are {', '.join(ARCHITECTURES)})")
    if landlock_abi() < 1:
        lacks.append(f"Landlock (Linux 5.13 or later with lsm=landlock; this is {platform.release()})")
    libc = _libc()
    # Setting the filter mode without a filter gives EFAULT if filters are supported, EINVAL if not.
    libc.prctl(_SET_SECCOMP, _SECCOMP_FILTER, None, 0, 0)
    if ctypes.get_errno() != _EFAULT:
        lacks.append("seccomp filters (CONFIG_SECCOMP_FILTER, and a container that allows them)")
    return lacks


def low_limits() -> list[str]:
    """Return descriptions of the limits of this process that are too low for its children, which inherit them."""
    lacks = []
    for name, (what, needed, unit) in _NEEDED.items():
        allowed = resource.getrlimit(getattr(resource, name))[0] if hasattr(resource, name) else -1
        if allowed != resource.RLIM_INFINITY and allowed < needed * unit:
            lacks.append(f"this machine's limit of {what} is {allowed // unit:,}, at least {needed:,} are needed")
    return lacks


def describe() -> str:
    """Describe the confinement in one line, for a machine that supports it."""
    return f"no_new_privs, Landlock ABI {landlock_abi()}, seccomp, resource limits"


def trial() -> list[str]:
    """Confine a small child process and return the errors; empty if it works."""
    import subprocess

    code = "import os; from movlr_jax.sandbox import confine as c; c.weak(c.Limits(5, c.GIB), os.getppid());"
    code += "c.confine_tracer(); os._exit(0)"
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=60, check=False)
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return [] if done.returncode == 0 else lines[-1:] or [f"exit status {done.returncode}"]


def few_cores(cores: int = CORES) -> None:
    """Keep this process to `cores` of the cores that it may use; processes with other ids get other cores."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        chosen = (allowed[(cores * os.getpid() + i) % len(allowed)] for i in range(cores))
        os.sched_setaffinity(0, set(chosen))


def weak(limits: Limits, parent: int) -> None:
    """Set the restrictions that every child gets on any system: resource limits, and death with its parent."""
    for name, value in (
        ("RLIMIT_CORE", (0, 0)),
        ("RLIMIT_FSIZE", (0, 0)),
        ("RLIMIT_DATA", (limits.data, limits.data)),
        ("RLIMIT_AS", (limits.space, limits.space)),
        ("RLIMIT_CPU", (limits.cpu_s, limits.cpu_s + 2)),  # if equal, SIGKILL would look like a lack of memory
        ("RLIMIT_NOFILE", (limits.files, limits.files)),
        ("RLIMIT_NPROC", None if limits.processes is None else (limits.processes, limits.processes)),
    ):
        if value is not None and hasattr(resource, name):
            _limit(getattr(resource, name), value)
    if sys.platform.startswith("linux"):
        libc = _libc()
        _must(libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "the parent-death signal")
        if os.getppid() != parent:  # the parent died before the signal was set
            os._exit(1)
        _must(libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0), "not dumpable")
        _must(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def hide_processes() -> None:
    """Deny access to the environment and memory of other processes, where this system can; call it before `weak`.

    A process can read neither outside its user namespace. Where a container forbids new namespaces, its processes
    usually run as root with capabilities, which a process without them cannot read either.
    """
    if sys.platform.startswith("linux"):
        libc = _libc()
        libc.unshare(_NEW_USER_NAMESPACE)
        libc.capset(struct.pack("Ii", _CAPABILITIES, 0), bytes(24))


def confine_tracer() -> None:
    """Forbid files, threads and new machine code: the process can only run Python code that is already loaded."""
    _landlock(())
    _seccomp(TRACER)


def confine_worker(readable: Iterable[str]) -> None:
    """Confine like `confine_tracer`, but allow what XLA needs: threads, machine code, reading below `readable`."""
    _landlock(readable)
    _seccomp(WORKER)


def worker_paths() -> list[str]:
    """Return the paths that a compiling process must read: Python, its packages, the list of cores, randomness."""
    import sysconfig

    found = {sysconfig.get_paths()[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {  # packages may also come from PYTHONPATH or a user's folder
        str(Path(file).parents[1])
        for name in ("jax", "jaxlib", "numpy", "flax")
        if (file := getattr(sys.modules.get(name), "__file__", None))
    }
    found |= {"/sys/devices/system/cpu", "/proc/cpuinfo", "/dev/urandom", str(Path(__file__).resolve().parents[1])}
    return sorted(str(Path(p).resolve()) for p in found if Path(p).exists())


def _limit(kind: int, value: tuple[int, int]) -> None:
    """Lower a limit; a limit that is already lower is kept."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = (min(value[0], hard), min(value[1], hard))
    try:
        resource.setrlimit(kind, value)
    except (ValueError, OSError):  # macOS does not support memory limits
        if sys.platform.startswith("linux"):
            raise


def _must(result: int, what: str) -> int:
    if result < 0:
        raise ConfinementError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _landlock(readable: Iterable[str]) -> None:
    """Deny all files except reading below `readable`, TCP, and signals to other processes."""
    libc, abi = _libc(), landlock_abi()
    if abi < 1:
        raise ConfinementError("Landlock: not supported by this kernel")
    files = (1 << 13) - 1  # all rights of the first version; later versions added refer, truncate, ioctl
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        files |= (abi >= since) << bit
    attributes = struct.pack("QQQ", files, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _must(libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0), "Landlock")
    for path in readable:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = _READ_FILE | (_READ_DIR if Path(path).is_dir() else 0)
        rule = struct.pack("=Qi", rights, fd)
        _must(libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0), f"Landlock, {path}")
        os.close(fd)
    _must(libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "Landlock")
    os.close(ruleset)


def _seccomp(allowed: Calls) -> None:
    program = filter_program(allowed, platform.machine(), os.getpid())
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    prog = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    _must(_libc().prctl(_SET_SECCOMP, _SECCOMP_FILTER, prog, 0, 0), "seccomp")


def filter_program(allowed: Calls, machine: str, pid: int) -> list[tuple[int, int, int, int]]:
    """Return the BPF program (code, jt, jf, k) that allows these calls and returns EPERM for all others.

    A call through another ABI (32 bit, x32) kills the process.
    """
    if machine not in ARCHITECTURES:
        raise ConfinementError(f"no table of system calls for {machine}")
    audit, table = ARCHITECTURES[machine]
    steps = [(_LD, 0, 0, 4), (_JEQ, 1, 0, audit), (_RET, 0, 0, _KILL), (_LD, 0, 0, 0)]
    if machine == "x86_64":
        steps += [(_JGE, 0, 1, _X32), (_RET, 0, 0, _KILL)]
    for name in DENIED_AS_ABSENT:  # libc then uses the older call, whose arguments a filter can check
        steps += [(_JEQ, 0, 1, table[name]), (_RET, 0, 0, _ERRNO | _ENOSYS)]
    for name, conditions in allowed.items():
        if name not in table:  # older calls do not exist on aarch64
            continue
        if not conditions:
            steps += [(_JEQ, 0, 1, table[name]), (_RET, 0, 0, _ALLOW)]
            continue
        tests = []  # (offset, mask, value) of each 32-bit word of the arguments that is checked
        for argument, mask, expected in conditions:
            low = 16 + 8 * argument
            tests.append((low, mask, pid if expected == "self" else expected))
            if mask == _ALL and expected != "self":
                tests.append((low + 4, mask, 0))
        body: list[tuple[int, int, int, int]] = []
        for i, (offset, mask, expected) in enumerate(tests):
            left = 3 * (len(tests) - i - 1) + 1  # instructions to the refusal
            body += [(_LD, 0, 0, offset), (_AND, 0, 0, mask), (_JEQ, 0, left, expected)]
        body += [(_RET, 0, 0, _ALLOW), (_RET, 0, 0, _ERRNO | _EPERM)]
        steps += [(_JEQ, 0, len(body), table[name]), *body]
    return [*steps, (_RET, 0, 0, _ERRNO | _EPERM)]
