"""MjSpec without chatter: what a model's authors are warned of, its users need not read."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import mujoco


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences Python's and MuJoCo's warnings; MuJoCo would also write MUJOCO_LOG.TXT in the working folder."""
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        mujoco.set_mju_user_warning(handler)


def compile_spec(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """The compiled model of `spec`; what is wrong with it still raises."""
    with quiet():
        return spec.compile()
