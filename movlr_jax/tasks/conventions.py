"""The unit and the signs of a recorded motion: what its header says, as far as the ranges of the joints agree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from movlr_jax.biomech.coordinates import Coordinates
from movlr_jax.biomech.opensim import COORDINATES, Table, coordinates_in
from movlr_jax.errors import UserError

BEYOND = 0.2  # rad outside of the range of a joint
_RADIANS = 4 * np.pi  # larger angles are not in rad
_DEGREES = 2 * np.pi  # a motion in degrees has an angle above this
_STILL = 0.05  # a column with smaller numbers says nothing about its unit
_TURNED = ("knee_angle_", "mtp_angle_")  # of which gait2392 has the other sign than Rajagopal's model
_SOMETIMES, _NEVER = 0.05, 0.01  # of the samples

Values = Mapping[str, np.ndarray]


def in_si(table: Table, coordinates: Coordinates, path: Path) -> tuple[Table, list[str]]:
    """Return the table with only coordinates of the model, in rad and m, and notes. Raises UserError."""
    found, columns = coordinates_in(table.columns, coordinates.angular), {}
    for name in coordinates.angular:
        if name not in found:
            continue
        columns[name] = table.columns[found[name]]
        if not np.isfinite(columns[name]).all():
            raise UserError(f"{path}: the column {found[name]!r} has values that are not finite numbers")
    angles = {name: column for name, column in columns.items() if coordinates.angular[name]}
    in_degrees, note = _unit(table, angles, coordinates.ranges)
    scaled = {name: np.deg2rad(c) if in_degrees and name in angles else c for name, c in columns.items()}
    return Table(table.time, scaled), [note] if note else []


def _unit(table: Table, angles: Values, ranges: Mapping[str, tuple[float, float]]) -> tuple[bool, str]:
    """Return whether angles are in degrees, and a note if the header does not say so or the values contradict it."""
    highest = max((float(np.abs(column).max()) for column in angles.values()), default=0.0)
    said = (
        f"says inDegrees={'yes' if table.in_degrees else 'no'}"
        if table.unit_said
        else "does not say the unit of angles"
    )
    if highest < _STILL:
        return table.in_degrees, ""
    radians = highest <= _RADIANS and _possible(angles, ranges)
    degrees = _possible({name: np.deg2rad(column) for name, column in angles.items()}, ranges)
    numbers = f"its header {said}, but its angles reach {highest:.3g}"
    if table.in_degrees and not degrees and radians:
        return (False, f"{numbers}, which only radians can be in the ranges of the joints: they are taken as radians")
    if table.in_degrees and radians and highest < _DEGREES:
        return (
            True,
            f"{numbers}, as angles in radians do: they are taken as degrees; if they are not, write inDegrees=no",
        )
    if not table.in_degrees and degrees and not radians:
        return True, f"{numbers}, which radians cannot be: they are taken as degrees"
    if not table.in_degrees and highest > _RADIANS:
        return True, f"{numbers}: they are taken as degrees"
    if table.unit_said:
        return table.in_degrees, ""
    taken, other = ("degrees", "no") if table.in_degrees else ("radians", "yes")
    return (
        table.in_degrees,
        f"its header {said}: they are taken as {taken}; if they are not, write inDegrees={other}",
    )


def _possible(angles: Values, ranges: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether all angles [T] rad are in the ranges of their joints most of the time, with either sign."""
    return all(
        min(_outside(column, ranges[name]), _outside(-column, ranges[name])) <= 0.5
        for name, column in angles.items()
        if name in ranges
    )


def _outside(values: np.ndarray, range_: tuple[float, float]) -> float:
    return float(np.mean((values < range_[0] - BEYOND) | (values > range_[1] + BEYOND)))


def with_signs(table: Table, coordinates: Coordinates, foreign: bool) -> tuple[Table, list[str]]:
    """Return the table in rad with the signs of the model's coordinates, and notes.

    In gait2392 knees flex with negative angles, which no knee reaches in Rajagopal's model. A model of this package
    has Rajagopal's signs. A `foreign` one may have either: what has the name of a coordinate of OpenSim is turned
    round where the range of its joint says so.
    """
    knees = {n: v for n, v in table.columns.items() if n.startswith("knee_angle_")}
    notes: list[str] = []
    if foreign:
        named = [name for name in table.columns if name in COORDINATES]
        turned = [name for name in named if _wrong_sign(table, name, coordinates)]
        rest = {name: knee for name, knee in knees.items() if name not in turned}
        open_ = [name for name, knee in rest.items() if _either_sign(knee, coordinates.ranges.get(name))]
        if turned:
            notes.append(f"turned round, since the ranges of the joints have the other sign: {', '.join(turned)}")
        if open_:
            notes.append(
                f"the signs of {', '.join(open_)} are taken as they are, since the ranges of the joints allow both; "
                "if the knees bend the wrong way, change the sign in the file or give the joints a range"
            )
    else:
        bent = bool(knees) and min(map(np.min, knees.values())) <= -BEYOND
        other = bent and max(map(np.max, knees.values())) <= BEYOND
        turned = [name for name in table.columns if name.startswith(_TURNED)] if other else []
        if turned:
            notes.append("knees and toes have the signs of gait2392 in it and are turned round")
    columns = {name: -column if name in turned else column for name, column in table.columns.items()}
    return Table(table.time, columns), notes


def _wrong_sign(table: Table, name: str, coordinates: Coordinates) -> bool:
    """Return whether a coordinate leaves the range of its joint, but does not with the other sign."""
    range_ = coordinates.ranges.get(name)
    column = table.columns[name]
    return bool(range_ and _outside(column, range_) > _SOMETIMES and _outside(-column, range_) <= _NEVER)


def _either_sign(values: np.ndarray, range_: tuple[float, float] | None) -> bool:
    """Return whether a knee clearly bends to one side, and may do so to both."""
    one_way = np.abs(values).max() > BEYOND and (values.min() > -BEYOND or values.max() < BEYOND)
    return bool(one_way and (range_ is None or _outside(-values, range_) <= _NEVER))
