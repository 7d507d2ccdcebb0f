"""A recorded motion for rewards, from a .mot or .sto file of OpenSim: `state.reference(joint)`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import mujoco
import numpy as np

from movlr_jax.biomech.coordinates import Coordinates
from movlr_jax.biomech.gait.reference import ANGLES, PERCENT, HumanGait, class_of_speed, human_gait
from movlr_jax.biomech.opensim import COORDINATES, Coordinate, Table, coordinates_in, read_storage
from movlr_jax.biomech.world import EARTH
from movlr_jax.errors import UserError, near_matches, unknown_name
from movlr_jax.models import coordinates_of
from movlr_jax.rewards.state import REFERENCE_RATE, reference_name
from movlr_jax.tasks.base import Task
from movlr_jax.tasks.walking.biomechanics import leg_coordinates, leg_length
from movlr_jax.tasks.walking.strides import steps

BY = ("time", "phase")
PEOPLE, STEPS = "people", "steps"  # instead of a file
_APART = -4.0  # deg, adduction of the hips: legs of models are wider than bones and would touch
# deg forward of the pelvis, to which people's hip angles are relative; a walker starts with a level pelvis. People's
# mean is 11. With 14 and toes that bend, both feet of the 100-muscle legs are on the ground when people's are, to
# within 1 cm; with 11 and straight toes the leading foot is 4 cm above the ground when it should touch.
_PELVIS_TILT = 14.0
_TOES_BEND = 25.0  # deg at most
_TOE_OFF = (60.0, 75.0)  # percent of the stride between which the toes straighten again
_SAMPLES = 4000  # at most; a reward reads single samples, so more would only cost memory
_UNEVEN = 1e-3  # of the interval between rows
_NAMED = 6  # columns in a message
_BEYOND = 0.2  # rad outside of the range of a joint
_RADIANS = 4 * np.pi  # larger angles are not in rad
_DEGREES = 2 * np.pi  # a motion in degrees has an angle above this
_STILL = 0.05  # a column with smaller numbers says nothing about its unit
_TURNED = ("knee_angle_", "mtp_angle_")  # of which gait2392 has the other sign than Rajagopal's model
_SOMETIMES, _NEVER = 0.05, 0.01  # of the samples

Values = Mapping[str, np.ndarray]


def with_reference(task: Task, file: str | Path, by: str = "time") -> Task:
    """Return `task` with a recorded motion that its rewards read as `state.reference(joint)`.

    Args:
        task: Any task.
        file: A .mot or .sto file. Its coordinates are mapped to the joints of the model as in an export. Or `people`:
            hips, knees and ankles of people who walk at the task's goal speed (`biomech.gait.reference`), by phase,
            and toes that stay on the ground while the heel lifts. Or `steps`: a stride from paths of the feet, by
            inverse kinematics, by phase (`tasks.walking.strides`).
        by: With `time`, the first row of the file is the start of an episode, and the last row holds after the end.
            With `phase`, the file is one stride, from contact of the right foot to its next, which repeats at the
            goal `stride_frequency` of the task.

    Raises:
        UserError: If the file cannot be read or no column is a coordinate of the model, with near matches.
    """
    if str(file) == PEOPLE:
        return _with_people(task)
    if str(file) == STEPS:
        return _by_phase(task, steps(task), "steps, by inverse kinematics")
    _check_by(by, task)
    path, coordinates = Path(file), coordinates_of(task.model, task.adapter)
    table = read_storage(path)
    found = coordinates_in(table.columns, coordinates.angular)
    unknown = [name for name in found if name not in coordinates.angular]
    if len(unknown) == len(found):
        raise UserError(
            f"{path} has no coordinate of the model {task.adapter.name}: {_with_near(unknown, coordinates)}"
        )
    table, of_units = _in_si(table, coordinates, path)
    table, of_signs = _with_signs(table, coordinates, foreign=not task.adapter.info.source)
    values, rate = _resampled(table, task.episode_s if by == "time" else np.inf)
    qpos = coordinates.qpos(values).astype(np.float32)
    motion = {}
    for joint, names in coordinates.of_joints.items():
        if joint in task.layout.joints and set(names) <= set(values):
            samples = qpos[:, task.layout.joints[joint][0]]
            motion[joint] = samples[:, 0] if samples.shape[1] == 1 else _continuous(samples)
            _check_range(task.model, joint, motion[joint], path)
    notes, warnings = [f"recorded motion {path.name}, by {by}: {', '.join(motion)}", *of_units, *of_signs], []
    if unknown:
        known = len(found) - len(unknown)
        few = 2 * known < len(found)
        share = f"{'only ' if few else ''}{known} of its {len(found)} coordinates are in the model"
        notes.append(f"{share}; left out: {_with_near(unknown, coordinates)}")
        warnings += [notes[-1]] if few else []
    warnings = [f"recorded motion {path.name}: {sentence}" for sentence in (*of_units, *of_signs, *warnings)]
    return task.replace(
        layout=dataclasses.replace(
            task.layout, references={joint: x.shape for joint, x in motion.items()}, reference_by=by
        ),
        reference={REFERENCE_RATE: np.asarray(rate, np.float32)}
        | {reference_name(joint): samples for joint, samples in motion.items()},
        notes=(*task.origin.notes, "; ".join(notes)),
        warnings=(*task.origin.warnings, *warnings),
    )


def _check_by(by: str, task: Task) -> None:
    """Raise UserError for a motion that the task cannot follow by `by`."""
    if by not in BY:
        raise UserError(unknown_name("reference_by", by, BY))
    if by == "phase" and "stride_frequency" not in task.goals:
        raise UserError(
            f"reference_by=phase needs a task with the goal 'stride_frequency', which {task.name} lacks; "
            "use reference_by=time"
        )


def _with_people(task: Task) -> Task:
    """Return `task` with the mean joint angles of people at its goal speed, by phase. Raises UserError."""
    coordinates = leg_coordinates(task.adapter, task.layout.joints, task.model)
    length = leg_length(task)
    if "stride_frequency" not in task.goals or not coordinates or length is None:
        raise UserError(
            f"reference={PEOPLE} needs a walking task and a model with a person's legs; {task.name} with "
            f"{task.adapter.name} is not one"
        )
    speed = float(np.linalg.norm(task.goals["velocity"]))
    people = human_gait(class_of_speed(speed, length, task.layout.world.gravity or EARTH))
    curves = {angle: people.mean(angle)[:-1] for angle in coordinates}
    curves["hip_flexion"] = curves["hip_flexion"] - _PELVIS_TILT
    curves = _along(curves, float(task.goals.get("slope", 0.0)))
    stride = {}
    for angle, pair in coordinates.items():
        curve = curves[angle]
        # the left leg is half a stride after the right
        for coordinate, late in zip(pair, (len(curve) // 2, 0), strict=True):
            q = coordinate.sign * (np.deg2rad(np.roll(curve, -late)) - coordinate.offset)
            stride[coordinate.joint] = np.append(q, q[0])
    known = {c.name: c for c in task.adapter.opensim}
    toes = _toes(people)
    others = {"hip_adduction_l": np.full(2, _APART), "hip_adduction_r": np.full(2, _APART)}
    others |= {"mtp_angle_l": np.roll(toes, len(toes) // 2), "mtp_angle_r": toes}
    for name, degrees in others.items():
        coordinate = known.get(name, Coordinate(name, name))
        if coordinate.joint in task.layout.joints:
            q = np.deg2rad(np.append(degrees, degrees[0])) - coordinate.offset
            stride[coordinate.joint] = coordinate.sign * q
    return _by_phase(task, stride, f"people who walk at {people.speed_class} speed")


def _along(curves: dict[str, np.ndarray], slope: float) -> dict[str, np.ndarray]:
    """Return the angles [S] deg of a leg whose ankle and foot move along a slope as they move along level ground.

    Thigh and shank are taken as equally long, with half their sum as the unit. The ankle rises as the ground below it
    does, as far as a straight leg reaches, and the foot turns with the ground.
    """
    hip, knee, ankle = (np.deg2rad(curves[angle]) for angle in ANGLES)
    reach, lean = 2 * np.cos(knee / 2), hip - knee / 2  # length and lean of the line from hip to ankle
    ahead = reach * np.sin(lean)
    below = reach * np.cos(lean) - slope * ahead
    bent = 2 * np.arccos(np.minimum(np.hypot(ahead, below) / 2, 1.0))
    flexed = np.arctan2(ahead, below) + bent / 2
    turned = ankle + np.arctan(slope) + (hip - knee) - (flexed - bent)
    return {angle: np.rad2deg(x) for angle, x in zip(ANGLES, (flexed, bent, turned), strict=True)}


def _by_phase(task: Task, stride: dict[str, np.ndarray], what: str) -> Task:
    """Return `task` with the angles [S] rad of joints over a `stride`, whose last sample is the first one."""
    samples = {joint: angles.astype(np.float32) for joint, angles in stride.items()}
    reference = {reference_name(joint): angles for joint, angles in samples.items()}
    shapes = {joint: angles.shape for joint, angles in samples.items()}
    return task.replace(
        layout=dataclasses.replace(task.layout, references=shapes, reference_by="phase"),
        reference={REFERENCE_RATE: np.asarray(1.0, np.float32), **reference},
        notes=(*task.origin.notes, f"{what}, by phase: {', '.join(shapes)}"),
    )


def _toes(people: HumanGait) -> np.ndarray:
    """Return the angle [50] deg of the toes over the stride, negative when they bend up.

    While the foot stands, the toes stay on the ground when the heel lifts.
    """
    hip, knee, ankle = (people.mean(angle) for angle in ANGLES)
    down = knee - (hip - _PELVIS_TILT) - ankle  # pitch of the foot
    return -(np.clip(down, 0.0, _TOES_BEND) * np.interp(PERCENT, _TOE_OFF, (1.0, 0.0)))[:-1]


def _check_range(model: mujoco.MjModel, joint: str, samples: np.ndarray, path: Path) -> None:
    """Raise UserError if a hinge is outside of its range most of the time, as if it had another sign or zero."""
    info = model.joint(joint)
    if info.type[0] != mujoco.mjtJoint.mjJNT_HINGE or not model.jnt_limited[info.id]:
        return
    low, high = info.range
    if _outside(samples, (low, high)) > 0.5:
        found, range_ = (
            " to ".join(f"{np.rad2deg(v):.0f}" for v in ends) for ends in ((min(samples), max(samples)), (low, high))
        )
        raise UserError(
            f"{path}: {joint} is outside of its range most of the time: {found} degrees, expected {range_}; change "
            "its sign or zero, or leave the column out"
        )


def _resampled(table: Table, longest_s: float) -> tuple[dict[str, np.ndarray], float]:
    """Return the columns at even intervals from the first row on, at most `longest_s`, and the samples per s.

    The rows are kept as they are if they are at even intervals already, so that nothing is interpolated twice.
    """
    time = table.time - table.time[0]
    if len(time) == 1:  # a posture
        return {name: np.repeat(column, 2) for name, column in table.columns.items()}, 1.0
    steps = np.diff(time)
    step, even = float(np.median(steps)), np.ptp(steps) < _UNEVEN * np.median(steps)
    if even and len(time) <= _SAMPLES:
        return dict(table.columns), (len(time) - 1) / float(time[-1])
    end = min(float(time[-1]), longest_s)
    count = int(np.clip(np.ceil(end / (step if even else steps.min())) + 1, 2, _SAMPLES))
    grid = np.linspace(0.0, end, count)
    return {n: np.interp(grid, time, column) for n, column in table.columns.items()}, (count - 1) / end


def _continuous(poses: np.ndarray) -> np.ndarray:
    """Return poses [S, 7] or quaternions [S, 4] whose quaternions do not change their sign, to be interpolated."""
    quats = poses[:, -4:]
    turned = np.cumprod(np.append(1.0, np.where((quats[1:] * quats[:-1]).sum(axis=1) < 0, -1.0, 1.0)))
    return np.concatenate([poses[:, :-4], quats * turned[:, None]], axis=1).astype(np.float32)


def _with_near(names: list[str], coordinates: Coordinates) -> str:
    """Return the names as text, each with the coordinates of the model that are most similar to it."""
    shown = []
    for name in names[:_NAMED]:
        near = near_matches(name, coordinates.names, limit=2)
        shown.append(f"{name!r}" + (f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(shown) + more


# The unit and the signs: what the header says, as far as the ranges of the joints agree.


def _in_si(table: Table, coordinates: Coordinates, path: Path) -> tuple[Table, list[str]]:
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
    said = "does not say the unit of angles"
    if table.unit_said:
        said = f"says inDegrees={'yes' if table.in_degrees else 'no'}"
    if highest < _STILL:
        return table.in_degrees, ""
    radians = highest <= _RADIANS and _possible(angles, ranges)
    degrees = _possible({name: np.deg2rad(column) for name, column in angles.items()}, ranges)
    numbers = f"its header {said}, but its angles reach {highest:.3g}"
    if table.in_degrees and not degrees and radians:
        return False, f"{numbers}, which only radians can be in the ranges of the joints: they are taken as radians"
    if table.in_degrees and radians and highest < _DEGREES:
        note = f"{numbers}, as angles in radians do: they are taken as degrees; if they are not, write inDegrees=no"
        return True, note
    if not table.in_degrees and not radians and (degrees or highest > _RADIANS):
        return True, f"{numbers}, which radians cannot be: they are taken as degrees"
    if table.unit_said:
        return table.in_degrees, ""
    taken, other = ("degrees", "no") if table.in_degrees else ("radians", "yes")
    return table.in_degrees, f"its header {said}: they are taken as {taken}; if they are not, write inDegrees={other}"


def _possible(angles: Values, ranges: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether all angles [T] rad are in the ranges of their joints most of the time, with either sign."""
    return all(
        min(_outside(column, ranges[name]), _outside(-column, ranges[name])) <= 0.5
        for name, column in angles.items()
        if name in ranges
    )


def _outside(values: np.ndarray, range_: tuple[float, float]) -> float:
    return float(np.mean((values < range_[0] - _BEYOND) | (values > range_[1] + _BEYOND)))


def _with_signs(table: Table, coordinates: Coordinates, foreign: bool) -> tuple[Table, list[str]]:
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
        bent = bool(knees) and min(map(np.min, knees.values())) <= -_BEYOND
        other = bent and max(map(np.max, knees.values())) <= _BEYOND
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
    one_way = np.abs(values).max() > _BEYOND and (values.min() > -_BEYOND or values.max() < _BEYOND)
    return bool(one_way and (range_ is None or _outside(-values, range_) <= _NEVER))
