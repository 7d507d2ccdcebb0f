"""System calls: their numbers on x86_64 and aarch64, and the calls that a confined process may make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_ALL = 0xFFFFFFFF
_PROT_EXEC = 4
_CLONE_THREAD = 0x00010000 | 0x00000100 | 0x00000800  # with CLONE_VM and CLONE_SIGHAND


@dataclass(frozen=True)
class Condition:
    """A call that is allowed if argument & mask == value for every (argument, mask, value)."""

    call: str
    tests: tuple[tuple[int, int, int | Literal["self"]], ...]


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

_COMMON: tuple[str | Condition, ...] = (
    "read", "write", "writev", "close", "fstat", "lseek", "poll", "munmap", "brk", "mremap", "madvise", "futex",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "sched_yield", "nanosleep", "clock_nanosleep",
    "clock_gettime", "clock_getres", "gettimeofday", "times", "getrusage", "getrandom", "getpid", "gettid", "getppid",
    "getuid", "geteuid", "getgid", "getegid", "uname", "sysinfo", "getcpu", "sched_getaffinity", "restart_syscall",
    "set_robust_list", "rseq", "exit", "exit_group",
    Condition("fcntl", ((1, _ALL, 1),)),  # F_GETFD
    Condition("tgkill", ((0, _ALL, "self"),)),  # abort()
    # only reads the limits of the process itself: no other pid, no new value
    Condition("prlimit64", ((0, _ALL, 0), (2, _ALL, 0))),
)  # fmt: skip
TRACER: tuple[str | Condition, ...] = (
    *_COMMON,
    Condition("mmap", ((2, _PROT_EXEC, 0),)),
    Condition("mprotect", ((2, _PROT_EXEC, 0),)),
)
WORKER: tuple[str | Condition, ...] = (
    *_COMMON,
    "mmap", "mprotect", "open", "openat", "stat", "lstat", "newfstatat", "statx", "readlink", "readlinkat",
    "getdents64", "access", "faccessat2", "getcwd", "pread64", "readv", "getrlimit", "membarrier",
    Condition("clone", ((0, _CLONE_THREAD, _CLONE_THREAD),)),
    Condition("prctl", ((0, _ALL, 15),)),  # PR_SET_NAME, of threads
)  # fmt: skip
