"""`simple_task`: build a task from a model and a description; the rest is derived from the model where possible."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, cast

import mujoco
import numpy as np

from movlr_jax.biomech.contacts import contact_bodies
from movlr_jax.biomech.muscles import enabled_actuators
from movlr_jax.biomech.static_optimisation import StaticOptimiser
from movlr_jax.errors import UserError, shortened, similar_files, unknown_name
from movlr_jax.models import ModelAdapter, ModelInfo, follow_couplings, model_adapter
from movlr_jax.models.actuators import (
    control_scale,
    has_muscles,
    muscles,
    require_one_control,
    servo_activations,
    servo_controls,
    servos,
)
from movlr_jax.models.derived import colliding, derive_adapter, free_sites, name_all, span_of, start_keyframe
from movlr_jax.models.from_path import forward_of, roles_of, with_feet, with_hand
from movlr_jax.models.load import weak_servos
from movlr_jax.models.motors import carrying
from movlr_jax.models.spec import compile_spec, place, quiet, read_spec
from movlr_jax.rewards.state import Layout, instrument, layout_of
from movlr_jax.rewards.term import array_of, identifier, quoted
from movlr_jax.sandbox.genome import Genome
from movlr_jax.tasks.base import TIE, Course, Measures, Metrics, Origin, Rewards, Scoring, StartFn, Task, View, trial
from movlr_jax.tasks.floor import INSIDE, add_floor, lifted, settled, stood
from movlr_jax.tasks.needs import HOLD_S, Need
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.stage import add_sky, add_stage
from movlr_jax.tasks.view import camera_for
from movlr_jax.tasks.walking import biomechanics
from movlr_jax.tasks.words.clauses import FAR, at_height, jump, risen, travel
from movlr_jax.tasks.words.measure import UP
from movlr_jax.tasks.words.reading import read
from movlr_jax.tasks.words.scene import Scene
from movlr_jax.tasks.words.sentence import Sentence, achieved
from movlr_jax.types import Array, Trajectory

_UNITS = {int(mujoco.mjtJoint.mjJNT_HINGE): "rad", int(mujoco.mjtJoint.mjJNT_SLIDE): "m"}
_ROUNDING = 1e-3  # rad or m that a start may lie outside the range of its joint, as -0.524 for -30 degrees
FOLDER: ContextVar[Path] = ContextVar("FOLDER", default=Path())  # of the task file that is being read


def simple_task(
    *,
    name: str,
    model: str | Path | mujoco.MjSpec,
    description: str,
    goals: Mapping[str, Any] | None = None,
    start: str | Mapping[str, float] | StartFn | None = None,
    start_noise: float = 0.01,
    measure: Callable[[Readout], Mapping[str, float]] | None = None,
    success: Callable[[Metrics], bool] | None = None,
    score: Callable[[Metrics], float] | None = None,
    tie: float | None = None,
    tolerance_m: float = 0.05,
    reward: str | None = None,
    human_reward: str | None = None,
    scene: Callable[[mujoco.MjSpec], None] | None = None,
    roles: Mapping[str, str] | None = None,
    floor: bool = True,
    episode_s: float = 3.0,
) -> Task:
    """Build a task for `model` and a motion given by `description` and `goals`. Raises UserError.

    model: path of an MJCF file (relative to the task file, or to the working directory
    outside of one), a name of `movlr_jax.models`, or an MjSpec.
    scene(spec) can add to the model.
    goals: name -> numbers, or the name of a body or site, whose position at the start is used. A goal named
    `<body or site>_pos` is a target position of that body or site, in m. It is measured (`object_position_error_m`),
    it decides `success` (within `tolerance_m` throughout the last half second), and the scripted proposer has terms
    for it. A `_pos` goal of another name is an error, unless `reward` or `human_reward` is there to read it. A goal
    named velocity, [3] m/s, sets direction and speed of travel; otherwise the description sets them.
    start: joint -> rad or m within its range, or the name of a keyframe, or a function (rng, n) -> qpos, qvel, act.
    Default: the keyframe `home` or `stand`, else the first one, else qpos0; a floating body that begins inside the
    floor is lifted. Of a keyframe, velocities, activations, mocap bodies and the controls of
    motors count, too; without controls, position servos hold the start posture.
    start_noise: standard deviation of driven hinges at the start, rad.
    measure(episode) reads positions and other quantities of the whole episode by name, each [T, ...], and returns
    numbers with units in their names. Success is its value `success`, or success(metrics). Those named `..._error_m`
    and `..._error_rad` are errors, which lower the default score.
    score(metrics) orders candidates, higher is better. Default: `default_score`.
    floor: whether a model without a floor gets one, if its body would fall.
    tie: differences of the score up to it say nothing. Default: 0 for a score of your own, else 0.25.
    reward, human_reward: texts or paths of the initial and the hand-written program. Without human_reward, the
    initial program is used in its place.
    Set the other fields of the task with task.replace(cameras=..., focus=..., diagnose=...).
    """
    _check(name, start_noise, tie)
    staged = _staged(name, model, start, scene, floor)
    bare, placed, adapter = staged.bare, staged.placed, staged.adapter
    targets = {goal: _target(goal, value, *placed) for goal, value in (goals or {}).items()}
    roles = {**adapter.roles, **(roles or {})}
    things = _placed_by(targets, bare, own_program=bool(reward or human_reward))
    motion, places = None, list[np.ndarray]()
    if not things:
        motion, places = _read(description, staged, roles, targets, decides=not (measure or success))
        targets = velocity_goals(motion, roles) | targets
    compiled = _instrumented(staged, things, motion)
    layout = layout_of(compiled, targets)
    reached = reached_by(layout, targets)
    at = placed[1]
    hovering = carrying(compiled, at.qpos)
    rest = at.ctrl.copy() if at.ctrl.any() and not has_muscles(compiled) else hovering
    begin = start if callable(start) else _starts(at, compiled, adapter, rest, start_noise)
    first, human = (_program(text, FOLDER.get()) for text in (reward, human_reward))
    shown = [*(targets[goal] for goal in reached.values()), *_shown(motion, bare, at, layout.world.up)]
    camera = camera_for(
        compiled, at.qpos, adapter.root, shown,
        places=places, rise=_rise(motion), flies=hovering is not None,
    )  # fmt: skip
    controls = controls_text(compiled, servo_controls(compiled, at.qpos) if rest is None else rest)
    written = first is None
    first = first or first_reward(description, layout, reached, motion, adapter.root, controls)
    task = Task(
        name=name,
        description=description.strip().rstrip("."),
        adapter=adapter,
        model=compiled,
        layout=layout,
        goals=targets,
        episode_s=episode_s,
        start=begin,
        scoring=Scoring(
            measure=_Measured(name, motion, reached, targets, tolerance_m, measure, success),
            score=score or partial(default_score, motion),
            diagnose=partial(default_diagnosis, tolerance_m, motion),
            focus="whether the motion does the task, and how calmly",
            success=_said_by(success) if success else "",
            tie=tie if tie is not None else 0.0 if score else TIE,
            motion=motion,
        ),
        rewards=Rewards(first, human or first, controls=controls if written else ""),
        view=View((camera,)),
        course=Course(rest=rest),
        roles=roles,
        origin=Origin(warnings=(*staged.warnings, *_notes(compiled, at))),
    )
    return task if success else task.replace(success=_success(task, measure, reached, tolerance_m))


def _check(name: str, start_noise: float, tie: float | None) -> None:
    """Raise UserError for a name that is no name of a folder, or a number below 0."""
    if not re.fullmatch(r"[\w.-]+", name):
        raise UserError(f"name={name!r}: a task name is also a folder name; use only letters, digits, _, - and .")
    for setting, value, expected in (
        ("start_noise", start_noise, "a standard deviation in rad"),
        ("tie", 0.0 if tie is None else tie, "a difference of the score"),
    ):
        if not isinstance(value, Real) or not 0 <= value < np.inf:
            raise UserError(f"{setting}={shortened(value)}: expected {expected}, 0 or more")


@dataclass(frozen=True)
class _Staged:
    """A model with its scene, at the start: the spec, its model before sensors are added, and (model, data) there."""

    spec: mujoco.MjSpec
    bare: mujoco.MjModel
    placed: tuple[mujoco.MjModel, mujoco.MjData]
    adapter: ModelAdapter
    known: bool  # whether the adapter is that of a model of the package
    warnings: tuple[str, ...]


def _staged(
    name: str,
    model: str | Path | mujoco.MjSpec,
    start: str | Mapping[str, float] | StartFn | None,
    scene: Callable[[mujoco.MjSpec], None] | None,
    floor: bool,
) -> _Staged:
    """Return the model with its scene, a floor and light, its body lifted out of the floor. Raises UserError."""
    folder = FOLDER.get()
    spec, known = _spec_of(model, folder)
    name_all(spec)
    if scene:
        scene(spec)
        name_all(spec)
    bare = compile_spec(spec)
    if not enabled_actuators(bare).any():
        which = "no actuators" if bare.nu == 0 else "only disabled actuators"
        raise UserError(
            f"the model of the task {name} has {which}, so it cannot be controlled; "
            f"{'add muscles or motors' if bare.nu == 0 else 'take actuatorgroupdisable or the flag out'}"
        )
    require_one_control(bare)
    file = (folder / Path(str(model)).expanduser()).absolute() if _is_path(model) else None
    derived = known or derive_adapter(file.stem if file else name, spec.copy, ModelInfo(files=lambda: file))
    adapter = known or replace(derived, roles=roles_of(bare))
    placed = _at_start(bare, start)
    _keep_mocap(spec, *placed)
    if added := add_floor(spec, placed[1], adapter.root) if floor else "":
        before, bare = bare, compile_spec(spec)
        placed = _at_start(bare, start)
        if not known and colliding(bare).sum() > colliding(before).sum() + 1:  # more than the floor
            adapter = replace(adapter, touch=derive_adapter(name, spec.copy).touch)
    lift = stood(placed[1], adapter.root, bool(bare.nkey)) if start is None else ""
    if not lift and (start is None or isinstance(start, str)):
        lift = lifted(placed[1], adapter.root)
    if start is None and not bare.nkey:
        lift = settled(placed[1], adapter.root) or lift
    if not known:
        adapter = replace(adapter, roles=with_hand(bare, with_feet(bare, placed[1].qpos, adapter.roles)))
    (add_sky if spec.lights else add_stage)(spec)  # without light, films would be black
    return _Staged(spec, bare, placed, adapter, known is not None, tuple(filter(None, (added, lift))))


def _read(
    description: str, staged: _Staged, roles: Mapping[str, str], targets: Mapping[str, np.ndarray], decides: bool
) -> tuple[Sentence, list[np.ndarray]]:
    """Return what the description asks for, and the places [3] m that it leads to."""
    adapter, (_, at) = staged.adapter, staged.placed
    ahead = adapter.forward if staged.known else forward_of(staged.bare, at.qpos, roles)
    sites = free_sites(staged.bare)
    around = Scene(staged.bare, at.qpos, adapter.root, ahead, roles, sites, adapter.touch)
    motion = read(description, around, partial=True)
    motion = motion.with_velocity(targets["velocity"].tolist()) if "velocity" in targets else motion
    return replace(motion, decides=decides), _destinations(motion, around)


def _instrumented(staged: _Staged, things: set[str], motion: Sentence | None) -> mujoco.MjModel:
    """Return the compiled model with the sensors that programs read."""
    spec, bare, adapter = staged.spec, staged.bare, staged.adapter
    read_sites = {part.place for part in (motion.parts if motion else ()) if part.offset is None}
    target_sites = things & {site.name for site in spec.sites} | read_sites
    sites = tuple(dict.fromkeys((*adapter.sites, *sorted(target_sites))))
    instrument(spec, root=adapter.root, touch=adapter.touch, sites=sites)
    compiled = compile_spec(spec)
    # the compiler took the offsets of welds from where mocap bodies are now
    if bare.nmocap and compiled.neq == bare.neq:
        compiled.eq_data[:] = bare.eq_data
    return compiled


def _shown(motion: Sentence | None, bare: mujoco.MjModel, at: mujoco.MjData, up: np.ndarray) -> list[np.ndarray]:
    """Return the places [3] m that a motion needs room for in its film."""
    if motion is None:
        return []
    rises = any(clause.row is risen for clause in motion.clauses)
    head = [at.body(motion.of.name).xpos + up * span_of(bare, at, bare.body(motion.of.name).id)] if rises else []
    return [*head, *(part.overhead(at, up) for part in motion.parts)]


@dataclass(frozen=True)
class _Measured:
    """Measures of an episode: those of the task, its success, and those that all tasks have."""

    name: str
    motion: Sentence | None
    reached: Mapping[str, str]
    targets: Mapping[str, np.ndarray]
    tolerance_m: float
    own: Callable[[Readout], Mapping[str, float]] | None
    success: Callable[[Metrics], bool] | None

    def __call__(self, episode: Trajectory, task: Task) -> Metrics:
        read, motion = Readout(task.layout, episode.steps, task.goals), self.motion
        own = {"object_position_error_m": _worst_error(read, self.reached, self.targets)} if self.reached else {}
        if self.own:
            own |= {
                key: _one_number(f"measure of the task {self.name} returns {key}", value)
                for key, value in self.own(read).items()
            }
        others = biomechanics.metrics(episode, task)
        said = motion.measure(read) if motion and motion.asks else {}
        done = {"success": own.pop("success")} if "success" in own else {}
        if self.success:
            done = {"success": float(self.success(Measures(others | said | own | done)))}
        elif self.reached and not done:
            done = {"success": float(own["object_position_error_m"] <= self.tolerance_m)}
        elif not done and not self.own and (value := achieved(motion, said)) is not None:
            done = {"success": value}
        if not (self.success or self.own):  # `quantities.leading`: those of the task come before its success
            own |= {name: value for name, value in said.items() if name not in own}
        return own | done | {name: value for name, value in (others | said).items() if name not in own}


def _success(
    task: Task,
    measure: Callable[[Readout], Mapping[str, float]] | None,
    reached: Mapping[str, str],
    tolerance_m: float,
) -> str:
    """Return in words what counts as a success of a task without a `success` of its own; empty if nothing does."""
    if measure:
        if "success" in _tried(measure, task):
            return _said_by(measure)
    elif not reached:
        return task.scoring.motion.success() if task.scoring.motion and task.scoring.motion.whole else ""
    within = f"{' and '.join(reached)} within {100 * tolerance_m:g} cm of its goal in the last half second"
    return within if reached else ""


def _destinations(motion: Sentence, around: Scene) -> list[np.ndarray]:
    """Return where a body should go [3] m: the things that its travels lead to."""
    words = [clause["word"].split() for clause in motion.clauses if clause.row is travel]
    parts = [part for to, *named in filter(None, words) if to == "to" and named for part in around.known(named)]
    return [part.now(around.data).copy() for part in parts]


def _rise(motion: Sentence | None) -> float:
    """Return how far a body should rise, m; 0 if it should not."""
    found = [0.0]
    for clause in motion.clauses if motion else ():
        if clause.row is at_height and not clause["low"] and clause["body"] == clause.of.name:
            found.append(clause["amount"] - clause.of.height)
        if clause.row is jump or (clause.row is risen and clause["sign"] > 0 and clause["word"] != "get up"):
            found.append(FAR.best if clause["amount"] is None else clause["amount"])
    return max(found)


def _said_by(function: Callable[..., Any]) -> str:
    """Return what counts as a success by a function of the user: its docstring, or the expression of a lambda."""
    lines = (inspect.getdoc(function) or "").splitlines()
    name = getattr(function, "__name__", "<lambda>").replace("<lambda>", "success")
    return lines[0].rstrip(".") if lines else _expression(function) or f"what {name} of the task returns"


def _expression(function: Callable[..., Any]) -> str:
    """Return what a lambda of measures returns, such as "distance_m > 2"; empty if its text is not found."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return ""
    try:
        tree = ast.parse(Path(code.co_filename).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    if len(found) != 1 or len(found[0].args.args) != 1:
        return ""
    try:
        known = inspect.getclosurevars(function)
    except ValueError:  # a variable without a value yet
        return ""
    numbers = {k: v for k, v in {**known.globals, **known.nonlocals}.items() if isinstance(v, int | float | str)}
    return ast.unparse(_Said(found[0].args.args[0].arg, numbers).visit(found[0].body))


class _Said(ast.NodeTransformer):
    """Writes the measures that a lambda reads by their names, and its constants by their values."""

    def __init__(self, metrics: str, constants: Mapping[str, float | str]):
        self._metrics, self._constants = metrics, constants

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        read = isinstance(node.value, ast.Name) and node.value.id == self._metrics
        if read and isinstance(node.slice, ast.Constant):
            return ast.Name(str(node.slice.value))
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._constants[node.id]) if node.id in self._constants else node


def _tried(measure: Callable[[Readout], Mapping[str, float]], task: Task) -> Mapping[str, float]:
    """Return what `measure` returns for a trial episode; nothing if it fails, which is told where it is used."""
    with contextlib.suppress(Exception), quiet():
        return measure(Readout(task.layout, trial(task).steps, task.goals))
    return {}


def _one_number(what: str, value: Any) -> float:
    """Return a measure of a user as a float. Raises UserError that begins with `what`."""
    try:
        return float(value)
    except (TypeError, ValueError):
        shape = f" of shape {list(np.shape(value))}" if np.ndim(value) else ""
        fix = "one number; reduce it over time, as in values.mean()" if shape else "a number"
        raise UserError(f"{what}={shortened(value)}{shape}, expected {fix}") from None


def reached_by(layout: Layout, goals: Mapping[str, Array]) -> dict[str, str]:
    """Return body or site -> name of the goal with its target position."""
    things = {goal.removesuffix("_pos"): goal for goal in goals if goal.endswith("_pos")}
    return {t: g for t, g in things.items() if t in layout.bodies or t in layout.sites}


def default_score(motion: Sentence | None, metrics: Metrics) -> float:
    """Score success first; then 1 cm of error counts as much as 6 degrees or, of a success, an effort of 0.1.

    Errors are all measures, also of a user, whose names end in _error_m or _error_rad; their signs do not count. What
    the description asks for counts by how near it is to what was asked. The effort of failures is ignored, since
    doing nothing has the lowest effort.
    """
    asked = {name for _, name, _ in motion.named()} if motion else set()
    own = {name: value for name, value in metrics.items() if name not in asked}
    errors = [abs(value) / 0.01 for name, value in own.items() if name.endswith("_error_m")]
    errors += [abs(np.rad2deg(value)) / 6 for name, value in own.items() if name.endswith("_error_rad")]
    score = -sum(errors) + (motion.score(metrics) if motion and motion.asks else 0.0)
    return score + (achieved(motion, metrics) or 0.0) * (100.0 - 10.0 * metrics.get("effort", 0.0))


def default_diagnosis(tolerance_m: float, motion: Sentence | None, metrics: Metrics) -> list[Need]:
    """Return the problems of an episode that follow from the shared measures."""
    needs, error = [], metrics.get("object_position_error_m", 0.0)
    if error > tolerance_m:
        needs.append(Need(f"it ends {100 * error:.0f} cm from where it should be", "place"))
    needs += motion.needs(metrics) if motion else []
    if not metrics.get("success", 1.0) and not needs:
        # calm helps to hold a position, but also to go nowhere
        kind = "steady" if motion is None else "unknown"
        needs.append(Need("the task is not done, or its result is not held", kind))
    counted = "return" in metrics  # by an environment, which says what effort costs
    if metrics.get("effort", 0.0) > 0.1 and not counted and (motion is None or not needs):
        needs.append(Need("the effort is higher than the motion needs", "economy"))
    return needs


def velocity_goals(motion: Sentence, roles: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return the goals that travel terms read; terms for walkers with z up also read a heading and a slope."""
    travel = motion.travel
    if travel is None:
        return {}
    way, forward = travel["way"], (1.0, 0.0, 0.0)
    goals = {"velocity": np.array([travel["speed"] * c for c in way], np.float32)}
    ahead = (way, motion.of.up) == (forward, UP) and not travel["turns"] and len(motion.phases) == 1
    walks = {"left_foot", "right_foot"} <= roles.keys() and ahead
    return goals | ({"heading": np.zeros((), np.float32), "slope": np.zeros((), np.float32)} if walks else {})


def _is_path(model: object) -> bool:
    return isinstance(model, Path) or (isinstance(model, str) and Path(model).suffix != "")


def _spec_of(model: str | Path | mujoco.MjSpec, folder: Path) -> tuple[mujoco.MjSpec, ModelAdapter | None]:
    """Return an editable spec, and its adapter if the model is a built-in one. Raises UserError."""
    if isinstance(model, mujoco.MjSpec):
        return model, None
    if not _is_path(model):
        adapter = model_adapter(str(model))
        return adapter.load(), adapter
    path = folder / Path(model).expanduser()
    if not path.is_file():
        near = similar_files(path) or f"; give its path, absolute or relative to {folder.absolute()}"
        raise UserError(f"there is no model file {path}{near}")
    return read_spec(path), None


def _at_start(model: mujoco.MjModel, start: Any) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """Return the model with data at the start of an episode, without noise. Raises UserError."""
    data = mujoco.MjData(model)
    keys = [model.key(k).name for k in range(model.nkey)]
    if isinstance(start, str):
        if start not in keys:
            raise UserError(f"start={start!r}: {unknown_name('keyframe', start, keys)}")
        mujoco.mj_resetDataKeyframe(model, data, keys.index(start))
    elif (key := start_keyframe(model)) is not None:
        mujoco.mj_resetDataKeyframe(model, data, key)
    if isinstance(start, Mapping):
        joints = [model.joint(j).name for j in range(model.njnt)]
        for joint, value in start.items():
            if joint not in joints:
                raise UserError(f"start: {unknown_name('joint', joint, joints)}")
            data.qpos[model.joint(joint).qposadr[0]] = _joint_start(model, joint, value)
    elif callable(start):
        data.qpos[:] = cast(StartFn, start)(np.random.default_rng(0), 1)[0][0]
    elif start is not None and not isinstance(start, str):
        raise UserError(
            f"start={shortened(start)}: expected joint -> rad or m, the name of a keyframe, or a function; name the "
            "joints, as in start={'elbow': -0.5}"
        )
    if not isinstance(start, str | None):  # a keyframe's controls and activations of servos hold another posture
        data.ctrl[:] = 0.0
        for i in np.flatnonzero(servos(model)):
            first = model.actuator_actadr[i]
            data.act[first : first + model.actuator_actnum[i]] = 0.0
    data.qpos[:] = follow_couplings(model, data.qpos)
    mujoco.mj_kinematics(model, data)
    return model, data


def _notes(model: mujoco.MjModel, at: mujoco.MjData) -> tuple[str, ...]:
    """Return what a user should know of the start: servos that give way, bodies that push one another out."""
    return (*filter(None, [weak_servos(model, at.qpos)]), *_deep(model, at))


def _deep(model: mujoco.MjModel, at: mujoco.MjData) -> tuple[str, ...]:
    """Return a note on bodies that are inside others at the start, from which contact forces push them out."""
    data = mujoco.MjData(model)
    data.qpos[:] = at.qpos
    mujoco.mj_forward(model, data)
    if not data.ncon or (deepest := data.contact.dist.min()) > -INSIDE:
        return ()
    at = int(data.contact.dist.argmin())
    one, two = (
        _name_of(model, int(flex), int(body))
        for flex, body in zip(data.contact.flex[at], contact_bodies(model, data)[at], strict=True)
    )
    return (f"at the start, {one} and {two} overlap by {-1000 * deepest:.0f} mm, so they are pushed apart",)


def _name_of(model: mujoco.MjModel, flex: int, body: int) -> str:
    """Return the name of a flex, or of a body if `flex` is -1."""
    if flex < 0:
        return model.body(body).name
    return mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_FLEX, flex) or f"flex {flex}"


def _joint_start(model: mujoco.MjModel, name: str, value: Any) -> float:
    """Return the start of a joint in rad or m. Raises UserError if it is no number or outside the joint's range."""
    joint = model.joint(name)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise UserError(f"start: {name!r} is {shortened(value)}, expected a finite number in rad or m")
    unit = _UNITS.get(int(joint.type[0]))
    low, high = joint.range
    if unit and joint.limited[0] and not low - _ROUNDING <= number <= high + _ROUNDING:
        fix = "; angles are in rad, not in degrees" if unit == "rad" else ""
        raise UserError(
            f"start: {name!r} is {number:g} {unit}, expected {low:.4g} to {high:.4g} {unit}, the joint's range{fix}"
        )
    return number


def _target(goal: str, value: object, model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Convert a goal to numbers; the name of a body or site gives its position at the start. Raises UserError."""
    if isinstance(value, str):
        for kind, places in ((mujoco.mjtObj.mjOBJ_SITE, data.site_xpos), (mujoco.mjtObj.mjOBJ_BODY, data.xpos)):
            found = mujoco.mj_name2id(model, kind, value)
            if found >= 0:
                return places[found].astype(np.float32)
        raise UserError(f"goal {goal!r}: {unknown_name('body or site', value, _places(model))}")
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError):
        raise UserError(f"goal {goal!r} is {value!r}, expected numbers or the name of a body or site") from None


def _placed_by(goals: Mapping[str, Array], model: mujoco.MjModel, own_program: bool) -> set[str]:
    """Return the bodies and sites with a target position in `goals`.

    Raises UserError for a `_pos` goal of another name if the user has no program that could read it.
    """
    known = [name for name in _places(model) if name not in ("", "world")]
    things = {goal.removesuffix("_pos"): value for goal, value in goals.items() if goal.endswith("_pos")}
    for thing, value in things.items():
        if thing in known and not (np.shape(value) == (3,) and np.isfinite(value).all()):
            given = np.round(np.float64(value), 6).tolist()
            raise UserError(f"goal '{thing}_pos' is {shortened(given)}, expected 3 finite numbers: x, y and z in m")
        if thing not in known and not own_program:
            raise UserError(
                f"goal '{thing}_pos' is the target position of a body or site, but "
                + unknown_name("body or site", thing, known)
            )
    return things.keys() & set(known)


def _places(model: mujoco.MjModel) -> list[str]:
    """Return the names of all bodies and sites."""
    return [model.body(b).name for b in range(model.nbody)] + [model.site(s).name for s in range(model.nsite)]


def _keep_mocap(spec: mujoco.MjSpec, model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Move mocap bodies of `spec` to where they are in `data`: a simulation begins with them where the model is."""
    poses = {}
    for b in np.flatnonzero(model.body_mocapid >= 0):
        pose = np.concatenate([data.mocap_pos[model.body_mocapid[b]], data.mocap_quat[model.body_mocapid[b]]])
        if not np.allclose(pose, [*model.body_pos[b], *model.body_quat[b]]):
            poses[model.body(b).name] = pose
    place(spec, poses)


def _starts(
    at: mujoco.MjData, model: mujoco.MjModel, adapter: ModelAdapter, rest: np.ndarray | None, noise: float
) -> StartFn:
    """Return what draws start states: those of `at` with noise on driven hinges.

    Without activations, muscles and servos get those that hold the posture, servos under the controls `rest` [nu].
    """
    qpos, qvel, act = (x[None].copy() for x in (at.qpos, at.qvel, at.act))
    joints = [model.joint(j) for j in adapter.planned_joints]

    def start(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = np.repeat(qpos, n, axis=0)
        for joint in joints:
            if joint.type[0] == mujoco.mjtJoint.mjJNT_HINGE:
                column = joint.qposadr[0]
                rows[:, column] = np.clip(rows[:, column] + noise * rng.standard_normal(n), *joint.range)
        rows = follow_couplings(model, rows)
        if act.any():
            activations = np.repeat(act, n, axis=0)
        elif model.na == model.nu and muscles(model).all():
            static = StaticOptimiser(model, np.array([joint.dofadr[0] for joint in joints], int))
            activations = np.array([static(q) for q in rows])
        else:
            held = [servo_controls(model, q) if rest is None else rest for q in rows]
            activations = np.array([servo_activations(model, q, u) for q, u in zip(rows, held, strict=True)])
        return rows, np.repeat(qvel, n, axis=0), activations

    return start


def _worst_error(read: Readout, reached: Mapping[str, str], goals: Mapping[str, Array]) -> float:
    """Return the largest distance in m of any body or site from its target in the last HOLD_S seconds."""
    held = read.time > read.time[-1] - HOLD_S
    return max(
        float(np.linalg.norm(place_of(read, thing) - goals[goal], axis=-1)[held].max())
        for thing, goal in reached.items()
    )


def place_of(read: Readout, thing: str) -> np.ndarray:
    """Return the position [..., 3] m of a body or site."""
    return read.pos(thing) if thing in read.layout.bodies else read.site(thing)


def _program(text: str | None, folder: Path) -> str | None:
    """Return the text of a reward program that is given as text or path. Raises UserError."""
    if text is None or "\n" in text:
        return text
    path = folder / Path(text).expanduser()
    if not path.is_file():
        raise UserError(f"there is no reward file {path}; give its path, or the program itself")
    return path.read_text(encoding="utf-8-sig")


def place_text(layout: Layout, thing: str) -> str:
    """Return the expression of a reward program for the position of a body or site."""
    return f"state.pos({quoted(thing)})" if thing in layout.bodies else f"state.site({quoted(thing)})"


def controls_text(model: mujoco.MjModel, rest: np.ndarray) -> str:
    """Return the expression of a reward program for the controls, from `rest` [nu] and as shares of their range.

    Muscles are excited from 0 to 1, so theirs is `action`.
    """
    rest = np.where(muscles(model), 0.0, rest)
    moved = f"(action - {array_of(rest)})" if np.round(rest, 4).any() else "action"
    return as_share(moved, control_scale(model, rest))


def as_share(text: str, scale: np.ndarray) -> str:
    """Return the expression `text` divided by `scale` [nu]."""
    if np.allclose(scale, 1.0):
        return text
    return f"{text} / {scale[0]:.4g}" if np.allclose(scale, scale[0]) else f"{text} / {array_of(scale)}"


def first_reward(
    description: str, layout: Layout, reached: Mapping[str, str], motion: Sentence | None, root: str, controls: str
) -> str:
    """Return a simple initial program: reach the targets, move as described, or keep the start posture.

    controls: from `controls_text`.
    """
    terms = {
        f"{identifier(thing)}_distance": (
            100.0,
            f"-shaping.smooth_abs(jnp.linalg.norm({place_text(layout, thing)} - state.goal({quoted(goal)})))",
        )
        for thing, goal in reached.items()
    }
    if motion and motion.moves:
        terms |= {term.name: (term.weight, term.expression) for term in motion.first_terms()}
    if not terms:
        terms["posture"] = (1.0, "-jnp.mean(jnp.square(state.qpos - state.initial.qpos))")
    if not reached:
        terms["control"] = (0.01, f"-jnp.mean(jnp.square({controls}))")
    return Genome(terms, description=description).source()
