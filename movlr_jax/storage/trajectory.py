"""A recorded episode, as every evaluation leaves it in an npz file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from movlr_jax.errors import UserError, needed
from movlr_jax.storage.arrays import read_arrays

if TYPE_CHECKING:
    import pandas

_FREE, _BALL = mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_BALL
_QUAT = ("qw", "qx", "qy", "qz")
_POSITIONS = {
    _FREE: ("x", "y", "z", *_QUAT),
    _BALL: _QUAT,
}  # endings of columns of joints of more than one number
_VELOCITIES = {_FREE: ("vx", "vy", "vz", "wx", "wy", "wz"), _BALL: ("wx", "wy", "wz")}
FIELDS = ("time", "qpos", "qvel", "act", "ctrl", "touch")


@dataclass(frozen=True)
class EpisodeRecord:
    """One episode of T control steps.

    Attributes:
        time: [T] s.
        qpos: [T, nq] m, rad.
        qvel: [T, nv] m/s, rad/s.
        act: [T, na] muscle activations, 1.
        ctrl: [T, nu] controls.
        touch: [T, parts] N, normal force on each of `touch_names`.
        touch_names: Names of the parts whose contacts are measured.
        model: The model that moved, which names the columns of `to_dataframe`.
    """

    time: np.ndarray
    qpos: np.ndarray
    qvel: np.ndarray
    act: np.ndarray
    ctrl: np.ndarray
    touch: np.ndarray
    touch_names: tuple[str, ...]
    model: mujoco.MjModel

    @classmethod
    def read(cls, states: bytes | Path, model: mujoco.MjModel) -> EpisodeRecord:
        """Read an npz file, or its bytes. Raises UserError if it is not the record of an episode of `model`."""
        try:
            arrays = read_arrays(states.read_bytes() if isinstance(states, Path) else states)
            values = {name: np.asarray(arrays[name]) for name in FIELDS}
            names = tuple(str(name) for name in arrays["touch_names"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            where = states if isinstance(states, Path) else "the trajectory"
            raise UserError(f"{where} cannot be read: {error}; evaluate the reward again") from None
        if values["qpos"].ndim != 2 or values["qpos"].shape[1] != model.nq:
            raise UserError(
                f"the trajectory has qpos {values['qpos'].shape}, expected [T, {model.nq}]: it is of another model"
            )
        return cls(**values, touch_names=names, model=model)

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a DataFrame of T rows, indexed by time in s. Needs pandas.

        Columns: `q.JOINT` (rad or m), `qd.JOINT` (rad/s or m/s), `act.MUSCLE`, `ctrl.ACTUATOR` and `touch.PART` (N).
        Free and ball joints have one column for each number, as `q.root_x`, `q.root_qw`, `qd.root_vx`, `qd.root_wx`.
        """
        with needed("to_dataframe", "notebook"):
            import pandas

        model, columns = self.model, {}
        for j in range(model.njnt):
            joint = model.joint(j)
            kind = mujoco.mjtJoint(int(model.jnt_type[j]))
            for prefix, values, start, suffixes in (
                ("q", self.qpos, model.jnt_qposadr[j], _POSITIONS.get(kind)),
                ("qd", self.qvel, model.jnt_dofadr[j], _VELOCITIES.get(kind)),
            ):
                names = [f"_{suffix}" for suffix in suffixes] if suffixes else [""]
                for i, suffix in enumerate(names):
                    columns[f"{prefix}.{joint.name or j}{suffix}"] = values[:, start + i]
        for i in range(model.nu):
            actuator = model.actuator(i)
            if model.actuator_actnum[i]:
                columns[f"act.{actuator.name or i}"] = self.act[:, model.actuator_actadr[i]]
            columns[f"ctrl.{actuator.name or i}"] = self.ctrl[:, i]
        columns |= {f"touch.{name}": self.touch[:, i] for i, name in enumerate(self.touch_names)}
        return pandas.DataFrame(columns, index=pandas.Index(self.time, name="time"))
