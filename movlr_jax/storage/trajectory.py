"""A recorded episode, as every evaluation leaves it in an npz file, and its export for other programs."""

from __future__ import annotations

import copy
import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from movlr_jax.biomech.opensim import Table, muscle_path, state_path, storage_text
from movlr_jax.errors import UserError, needed, unknown_name
from movlr_jax.models import ModelAdapter, coordinates_of
from movlr_jax.rewards.state import Layout
from movlr_jax.storage.inside import read_array_file, read_arrays
from movlr_jax.storage.writing import write_atomically
from movlr_jax.types import SimState, Step, Trajectory

if TYPE_CHECKING:
    import pandas

_FREE, _BALL = mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_BALL
_QUAT = ("qw", "qx", "qy", "qz")
# endings of columns of joints of more than one number
_POSITIONS = {_FREE: ("x", "y", "z", *_QUAT), _BALL: _QUAT}
_VELOCITIES = {_FREE: ("vx", "vy", "vz", "wx", "wy", "wz"), _BALL: ("wx", "wy", "wz")}
FORMATS = ("mot", "sto", "csv", "parquet")
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
        adapter: What maps its joints to the coordinates of OpenSim; None if they keep their names.
        force: [T, nu] N or N m, forces of the actuators as the simulation measured them. None in older records: they
            are computed from the states, with the actuators of `model`.
    """

    time: np.ndarray
    qpos: np.ndarray
    qvel: np.ndarray
    act: np.ndarray
    ctrl: np.ndarray
    touch: np.ndarray
    touch_names: tuple[str, ...]
    model: mujoco.MjModel
    adapter: ModelAdapter | None = None
    force: np.ndarray | None = None

    @classmethod
    def read(cls, states: bytes | Path, model: mujoco.MjModel, adapter: ModelAdapter | None = None) -> EpisodeRecord:
        """Read an npz file, or its bytes. Raises UserError if it is not the record of an episode of `model`."""
        try:
            arrays = read_array_file(states) if isinstance(states, Path) else read_arrays(states)
            values = {name: np.asarray(arrays[name]) for name in FIELDS}
            names = tuple(str(name) for name in arrays["touch_names"])
            force = np.asarray(arrays["force"]) if "force" in arrays else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            where = states if isinstance(states, Path) else "the trajectory"
            raise UserError(f"{where} cannot be read: {error}; evaluate the reward again") from None
        _check(values | ({} if force is None else {"force": force}), model, len(names))
        return cls(**values, touch_names=names, model=model, adapter=adapter, force=force)

    def put(self, step: int, data: mujoco.MjData) -> None:
        """Put the time and the recorded state of a control step into `data`, without computing anything from them."""
        data.time, data.qpos[:], data.qvel[:] = self.time[step], self.qpos[step], self.qvel[step]
        data.act[:], data.ctrl[:] = self.act[step], self.ctrl[step]

    def replayed(self, layout: Layout) -> Trajectory:
        """Return the episode with the sensor values of `layout`, computed from the recorded states.

        Forces of contacts and actuators are the recorded ones. Sensors of accelerations do not include the effect of
        contacts.
        """
        model = copy.copy(self.model)
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
        data = mujoco.MjData(model)
        sensors = np.zeros((len(self.time), self.model.nsensordata), np.float32)
        for t in range(len(self.time)):
            self.put(t, data)
            mujoco.mj_forward(model, data)
            sensors[t] = data.sensordata
        for i, part in enumerate(self.touch_names):
            if part in layout.touch:
                addresses = list(layout.touch[part])
                sensors[:, addresses] = 0.0
                sensors[:, addresses[0]] = self.touch[:, i]
        if self.force is not None and "force" in layout.blocks:
            sensors[:, layout.blocks["force"] :][:, : self.force.shape[1]] = self.force
        previous = np.concatenate([np.zeros_like(self.ctrl[:1]), self.ctrl[:-1]])
        steps = Step(self.time, self.qpos, self.qvel, self.act, sensors, previous)
        now = {name: value[-1] for name, value in vars(steps).items()} | {"prev_action": self.ctrl[-1]}
        last = SimState(**now, diverged=np.zeros((), bool))
        return Trajectory(steps=steps, actions=self.ctrl, valid=np.asarray(len(self.ctrl)), final=last)

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
        for i, name in enumerate(self._actuators):
            if model.actuator_actnum[i]:
                columns[f"act.{name}"] = self.act[:, model.actuator_actadr[i]]
            columns[f"ctrl.{name}"] = self.ctrl[:, i]
        columns |= {f"touch.{name}": self.touch[:, i] for i, name in enumerate(self.touch_names)}
        return pandas.DataFrame(columns, index=pandas.Index(self.time, name="time"))

    def export(self, path: str | Path) -> list[Path]:
        """Write the episode for other programs, in the format that the ending of `path` names.

        `.mot` has the coordinates of OpenSim, angles in degrees. `.sto` has the states of OpenSim (values, speeds,
        activations) in rad and m, and a second file, NAME_forces.sto, the forces. `.csv` and `.parquet` (extra
        `parquet`) have states, controls and forces in one table, in SI units.

        Returns:
            The files.

        Raises:
            UserError: For other endings, if a package is missing, and if a file cannot be written.
        """
        path = Path(path)
        kind = path.suffix.lower().removeprefix(".")
        if kind not in FORMATS:
            raise UserError(unknown_name("format", kind, FORMATS))
        if kind == "mot":
            return [write_atomically(path, storage_text(self.motion()).encode())]
        if kind == "sto":
            files = {path: self.states(), path.with_name(f"{path.stem}_forces.sto"): self.forces()}
            return [write_atomically(file, storage_text(table).encode()) for file, table in files.items()]
        columns = {**self.states().columns, **self.controls(), **self.forces().columns}
        table = Table(self._seconds, columns)
        return [write_atomically(path, _csv(table) if kind == "csv" else _parquet(table))]

    def motion(self) -> Table:
        """Return the coordinates of OpenSim, angles in degrees."""
        coordinates = coordinates_of(self.model, self.adapter)
        angular = coordinates.angular
        values = coordinates.values(self.qpos)
        columns = {name: np.rad2deg(v) if angular[name] else v for name, v in values.items()}
        return Table(self._seconds, columns, in_degrees=True, name="Coordinates")

    def states(self) -> Table:
        """Return values and speeds of the coordinates and activations, named as states of OpenSim, in SI units."""
        coordinates, columns = coordinates_of(self.model, self.adapter), {}
        for quantity, values in (
            ("value", coordinates.values(self.qpos)),
            ("speed", coordinates.speeds(self.qpos, self.qvel)),
        ):
            columns |= {state_path(name, quantity): column for name, column in values.items()}
        for i, name in enumerate(self._actuators):
            if self.model.actuator_actnum[i]:
                activation = self.act[:, self.model.actuator_actadr[i]]
                columns[muscle_path(name, "activation")] = activation.astype(float)
        return Table(self._seconds, columns, name="states")

    def controls(self) -> dict[str, np.ndarray]:
        """Return actuator -> control [T], named as a control of OpenSim, as `/forceset/soleus_r`."""
        return {muscle_path(name): self.ctrl[:, i].astype(float) for i, name in enumerate(self._actuators)}

    def forces(self) -> Table:
        """Return tensions of muscles, as `/forceset/soleus_r|tendon_force`, and contact forces on parts, in N.

        Forces of other actuators are `/forceset/NAME|actuation`.
        """
        model, columns = self.model, {}
        found = self._computed_force() if self.force is None else self.force.astype(float)
        for i, name in enumerate(self._actuators):
            muscle = model.actuator_gaintype[i] == mujoco.mjtGain.mjGAIN_MUSCLE
            kind, sign = ("tendon_force", -1) if muscle else ("actuation", 1)
            columns[f"{muscle_path(name)}|{kind}"] = sign * found[:, i]
        for i, name in enumerate(self.touch_names):
            columns[f"/contact/{name}|normal_force"] = self.touch[:, i].astype(float)
        return Table(self._seconds, columns, name="forces")

    def _computed_force(self) -> np.ndarray:
        """Return the forces [T, nu] that C MuJoCo computes from the states."""
        model, data = self.model, mujoco.MjData(self.model)
        found = np.zeros((len(self.time), model.nu))
        for t, row in enumerate(found):
            self.put(t, data)
            mujoco.mj_fwdPosition(model, data)
            mujoco.mj_fwdVelocity(model, data)
            mujoco.mj_fwdActuation(model, data)
            row[:] = data.actuator_force
        return found

    @property
    def _actuators(self) -> list[str]:
        return [self.model.actuator(i).name or str(i) for i in range(self.model.nu)]

    @property
    def _seconds(self) -> np.ndarray:
        return self.time.astype(float)


def _csv(table: Table) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", *table.columns])
    rows = np.column_stack([table.time, *table.columns.values()])
    writer.writerows([f"{value:.12g}" for value in row] for row in rows.tolist())
    return text.getvalue().encode()


def _parquet(table: Table) -> bytes:
    with needed("format=parquet", "parquet"):
        import pyarrow
        import pyarrow.parquet
    values = {"time": table.time, **table.columns}
    buffer = io.BytesIO()
    arrays = {name: pyarrow.array(np.asarray(column, float)) for name, column in values.items()}
    pyarrow.parquet.write_table(pyarrow.table(arrays), buffer)
    return buffer.getvalue()


def _check(values: Mapping[str, np.ndarray], model: mujoco.MjModel, parts: int) -> None:
    """Raise UserError unless all arrays of an episode are numbers and fit the model, and its times increase."""
    width = {"qpos": model.nq, "qvel": model.nv, "act": model.na, "ctrl": model.nu, "force": model.nu, "touch": parts}
    steps = values["time"].shape[:1]
    for name, found in values.items():
        expected = (*steps, width[name]) if name in width else steps
        if steps < (1,) or found.shape != expected or found.dtype.kind not in "fiu":
            raise UserError(
                f"the trajectory has {name} {found.shape} {found.dtype}, expected {expected} numbers; it is broken, "
                "or it is of another model"
            )
    time = values["time"].astype(float)
    # most steps, not all: files of earlier versions have one time that MuJoCo reset where the simulation diverged
    if not np.isfinite(time).all() or (len(time) > 1 and np.median(np.diff(time)) <= 0):
        raise UserError(
            "the trajectory has times that are not finite or do not increase; it is broken, evaluate the reward again"
        )
