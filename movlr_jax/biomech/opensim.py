"""OpenSim's files (.mot, .sto) and its conventions: names, signs and axes of coordinates.

Coordinates follow Rajagopal et al. (2016): flexion, adduction and internal rotation of the hip, flexion of the knee,
dorsiflexion, inversion, and flexion of the toes are positive. In gait2392, knees and toes have the other sign.
OpenSim's ground has x forward, y up and z to the right; MuJoCo's world has x forward, y to the left and z up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from movlr_jax.errors import UserError, unknown_name

FILE_BYTES = 2**28  # larger than an hour of states of a whole body
TO_OPENSIM = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])  # of a vector in MuJoCo's world
# about z, x and y, in this order, each about the axes that the others turned
TURNS = ("tilt", "list", "rotation")
MOVES = ("tx", "ty", "tz")
_JOINTS = {f"pelvis_{part}": "ground_pelvis" for part in (*TURNS, *MOVES)} | {
    f"{coordinate}_{side}": f"{joint}_{side}"
    for joint, coordinates in {
        "hip": ("hip_flexion", "hip_adduction", "hip_rotation"),
        "walker_knee": ("knee_angle",),
        "ankle": ("ankle_angle",),
        "subtalar": ("subtalar_angle",),
        "mtp": ("mtp_angle",),
        "elbow": ("elbow_flex",),
    }.items()
    for coordinate in coordinates
    for side in "rl"
}  # coordinate -> joint of Rajagopal's model
COORDINATES = frozenset(_JOINTS)
_VALUE = re.compile(r"(?:/jointset)?/?(?:[^/]+/)*([^/]+)/value$")
_OTHER_STATE = re.compile(r"^/|\||/(?:value|speed|activation|fiber_length|fiber_velocity|tendon_force)$")
_SIMM = re.compile(r"(datacolumns|datarows|range|otherdata)\b")  # keys of SIMM's headers, which have no =
_VERSION = re.compile(r"^version\s*=", re.IGNORECASE | re.MULTILINE)
_WRITTEN = {character: f"%{ord(character):02X}" for character in "\t\n\r"}  # in names of columns
_DEGREES = re.compile(r"angles are in (degrees|radians)", re.IGNORECASE)


@dataclass(frozen=True)
class Coordinate:
    """The coordinate `name` is `sign` * the joint's position + `offset`, in rad or m."""

    name: str
    joint: str
    sign: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Table:
    """Columns over time, as in a .mot or .sto file.

    Attributes:
        time: [T] s.
        columns: Name -> [T]. Angles are in degrees if `in_degrees`, else in rad.
        in_degrees: The unit of angles.
        name: The first line of the file.
        unit_said: Whether the header says the unit of angles.
    """

    time: np.ndarray
    columns: Mapping[str, np.ndarray]
    in_degrees: bool = False
    name: str = "movlr-jax"
    unit_said: bool = True

    def coordinate(self, name: str) -> np.ndarray:
        """Return the column [T] of a coordinate, by its name or as `/jointset/JOINT/NAME/value`. Raises UserError."""
        found = coordinates_in(self.columns, [name])
        if name not in found:
            raise UserError(unknown_name("coordinate", name, found))
        return self.columns[found[name]]


def coordinates_in(columns: Collection[str], known: Iterable[str] = ()) -> dict[str, str]:
    """Return coordinate -> column, for plain columns and those of states as `/jointset/hip_r/hip_flexion_r/value`.

    known: Names of coordinates, which may contain a `/` as those of models that are attached to others.
    """
    of_known = {column: name for name in known for column in (state_path(name), name)}
    found = {}
    for column in columns:
        match = _VALUE.fullmatch(column)
        if column in of_known:
            found[of_known[column]] = column
        elif match:
            found.setdefault(match[1], column)
        elif not _OTHER_STATE.search(column):
            found[column] = column
    return found


def state_path(coordinate: str, quantity: str = "value") -> str:
    """Return the name of a coordinate among the states of OpenSim, as `/jointset/hip_r/hip_flexion_r/value`.

    A coordinate that Rajagopal's model lacks gets a joint of its own name.
    """
    return f"/jointset/{_JOINTS.get(coordinate, coordinate)}/{coordinate}/{quantity}"


def muscle_path(muscle: str, quantity: str = "") -> str:
    """Return the name of a muscle's state, as `/forceset/soleus_r/activation`; of its control without `quantity`."""
    return f"/forceset/{muscle}" + (f"/{quantity}" if quantity else "")


def storage_text(table: Table) -> str:
    """Return the text of a .mot or .sto file, with 12 digits."""
    rows = np.column_stack([table.time, *table.columns.values()])
    header = (
        " ".join(table.name.split()),
        "version=1",
        f"nRows={rows.shape[0]}",
        f"nColumns={rows.shape[1]}",
        f"inDegrees={'yes' if table.in_degrees else 'no'}",
        "",
        "Units are S.I. units (second, meters, Newtons, ...)",
        f"Angles are in {'degrees' if table.in_degrees else 'radians'}.",
        "",
        "endheader",
        "\t".join(["time", *map(_written, table.columns)]),
    )
    lines = ("\t".join(f"{value:.12g}" for value in row) for row in rows.tolist())
    return "\n".join((*header, *lines, ""))


def read_storage(path: Path) -> Table:
    """Read a .mot or .sto file, of OpenSim 2 to 4 or of SIMM. Raises UserError."""
    try:
        if path.stat().st_size > FILE_BYTES:
            raise UserError(f"{path} has more than {FILE_BYTES:,} bytes; give a file of one motion")
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; expected a .mot or .sto file of OpenSim") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        table = parse_storage(text)
    except ValueError as error:
        raise UserError(f"{path} is not a .mot or .sto file of OpenSim: {error}") from None
    old = path.suffix.lower() == ".mot" and not _VERSION.search(text)  # OpenSim takes these for degrees
    return table if table.unit_said or not old else replace(table, in_degrees=True)


def parse_storage(text: str) -> Table:
    """Return the table in the text of a .mot or .sto file. Raises ValueError with one sentence.

    Columns are separated by tabs or spaces. Angles are in degrees if the header says so, or if it is one of SIMM,
    which has no other unit. Of rows with the same time the last one counts, and the numbers of rows and columns in
    the header are ignored: files of OpenSim itself repeat times and have wrong numbers.
    """
    lines = [line.strip(" \t") for line in re.split(r"\r\n|\r|\n", text.lstrip("\ufeff"))]
    end = next((i for i, line in enumerate(lines) if line.lower() == "endheader"), None)
    if end is None:
        raise ValueError("it has no line endheader")
    header, body = lines[:end], [line for line in lines[end + 1 :] if line]
    if not body:
        raise ValueError("it has no columns after endheader")
    names = body[0].split("\t") if "\t" in body[0] else body[0].split()
    names = [_read(name.strip(" ")) for name in names if name.strip(" ")]
    if names[0].lower() != "time":
        raise ValueError(f"its first column is {names[0]!r:.60}, expected time")
    values = _numbers(body[1:], names)
    time = values[:, 0]
    if (np.diff(time) < 0).any():
        raise ValueError("its time decreases from one row to the next")
    last = np.append(np.diff(time) > 0, True)  # OpenSim repeats times where an integration step began again
    title = header[0].removeprefix("name ").strip() if header else ""
    columns = {}
    for i, name in enumerate(names[1:], 1):
        again = names[1:i].count(name)  # real files repeat names of forces
        columns[f"{name}#{again + 1}" if again else name] = values[last, i]
    in_degrees = _in_degrees(header)
    return Table(time[last], columns, bool(in_degrees), title, unit_said=in_degrees is not None)


def _written(name: str) -> str:
    """Return the name of a column without tabs, line ends and outer blanks, which `_read` puts back."""
    escaped = re.sub("%(?=09|0A|0D|20|25)", "%25", name)
    escaped = "".join(_WRITTEN.get(character, character) for character in escaped)
    return re.sub("^ +| +$", lambda blanks: "%20" * len(blanks[0]), escaped)


def _read(name: str) -> str:
    return re.sub("%(09|0A|0D|20|25)", lambda code: chr(int(code[1], 16)), name)


def _numbers(rows: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Return the values [T, columns] of the rows. Raises ValueError that names the row."""
    if not rows:
        raise ValueError("it has no rows")
    values = np.empty((len(rows), len(names)))
    for i, row in enumerate(rows):
        cells = row.split()
        if len(cells) != len(names):
            raise ValueError(f"row {i + 1} has {len(cells)} values, expected {len(names)}")
        try:
            values[i] = [float(cell) for cell in cells]
        except ValueError as error:
            raise ValueError(f"row {i + 1}: {error}") from None
    return values


def _in_degrees(header: Sequence[str]) -> bool | None:
    """Return whether the header says degrees; None if it says no unit."""
    for line in header:
        key, _, value = line.partition("=")
        if key.strip().lower() == "indegrees":
            return value.strip(" \t\"'").lower() in ("yes", "true", "1")
    for line in header:
        if match := _DEGREES.search(line):
            return match[1].lower() == "degrees"
    return True if any(_SIMM.match(line.lower()) for line in header) else None
