"""The state that rewards read by name, the same for every physics backend.

`instrument` adds the needed sensors to a model, and `Layout` holds the address of each value. `Fields` reads values
by name; its subclasses are `State`, which reward programs get, and `tasks.readout.Readout`, which task measures use.
The table of calls in the prompt is generated from `State`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import quote, unquote

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.biomech.world import World, world_of
from movlr_jax.errors import ProgramError, UserError, unknown_name
from movlr_jax.types import Array, Step

A = TypeVar("A", bound=Array)
_PREFIX = "movlr/"  # of the names of sensors added here; the model's own sensors keep their names
_LOWEST = 0.01  # m, lower bound of the height of the centre of mass
_TURN = 1.5  # s, duration of a turn
_REFERENCE = "reference/"  # of the names of a recorded motion in the data of a task
REFERENCE_RATE = f"{_REFERENCE}rate"  # [] samples per s of a motion that is read by time
_PLACES = {  # what is said of a name of the other kind
    "body": "{0!r} is a site, not a body; use state.site({0!r})",
    "site": "{0!r} is a body, not a site; use state.pos({0!r})",
}
# fields of a step besides its time -> the sizes of a layout that they have
STEP_SIZES = {"qpos": "nq", "qvel": "nv", "act": "na", "sensors": "nsensordata", "prev_action": "nu"}
_JOINT_SIZES = {0: (7, 6), 1: (4, 3), 2: (1, 1), 3: (1, 1)}  # mjtJoint -> (nq, nv)


@dataclass(frozen=True)
class Layout:
    """Addresses of the named values in qpos, qvel, act and the sensor vector of one model."""

    joints: Mapping[str, tuple[slice, slice]]  # name -> slices of qpos and qvel
    bodies: Mapping[str, int]  # name -> row in the blocks below
    muscles: Mapping[str, int]  # name of an actuator -> index in ctrl
    activations: np.ndarray  # [nu] index in act, -1 if an actuator has no activation
    touch: Mapping[str, tuple[int, ...]]  # part -> addresses that add up to its normal force
    sites: Mapping[str, int]  # name -> address of its position
    sensors: Mapping[str, slice]  # the model's own
    blocks: Mapping[str, int]  # block -> its first address
    goals: Mapping[str, tuple[int, ...]]  # name -> shape
    sizes: Mapping[str, int]  # nq, nv, na, nu, nsensordata
    # joint -> shape of its recorded motion
    references: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reference_by: str = "time"  # or `phase`
    world: World = field(default_factory=World)  # up, gravity and ground

    @property
    def data(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of everything that a reward gets besides steps: the goals and the recorded motion."""
        references = {reference_name(joint): shape for joint, shape in self.references.items()}
        return {**self.goals, **references, **({REFERENCE_RATE: ()} if references else {})}

    def block(self, sensors: Array, name: str, count: int, width: int = 1) -> Array:
        """Return the slice [..., count * width] of the sensor vector."""
        return sensors[..., self.blocks[name] : self.blocks[name] + count * width]

    def lengths(self, sensors: Array) -> Array:
        """Actuator lengths [..., nu] m."""
        return self.block(sensors, "length", len(self.muscles))

    def velocities(self, sensors: Array) -> Array:
        """Actuator velocities [..., nu] m/s, positive when lengthening."""
        return self.block(sensors, "velocity", len(self.muscles))


def reference_name(joint: str) -> str:
    """Return the name of the recorded motion of a joint in the data of a task."""
    return f"{_REFERENCE}{joint}"


def instrument(spec: mujoco.MjSpec, *, root: str, touch: Mapping[str, Sequence[str]], sites: Sequence[str]) -> None:
    """Add to `spec` the sensors that `State` reads.

    root: body whose subtree defines the centre of mass. touch: part -> bodies whose contacts count for it.
    sites: names of sites whose positions may be read. Raises UserError for unknown names.
    """
    bodies = [body.name for body in spec.bodies if body.name and body.name != "world"]
    xbody, sensor = mujoco.mjtObj.mjOBJ_XBODY, mujoco.mjtSensor
    for kind, names, known in (
        ("body", (root, *chain.from_iterable(touch.values())), bodies),
        ("site", sites, [site.name for site in spec.sites]),
    ):
        for name in names:
            if name not in known:
                raise UserError(f"the adapter of this model is wrong: {unknown_name(kind, name, known)}")

    def add(name: str, kind: int, objtype: int, objname: str) -> None:
        spec.add_sensor(name=_PREFIX + name, type=kind, objtype=objtype, objname=objname)

    for block, kind in (
        ("pos", sensor.mjSENS_FRAMEPOS),
        ("quat", sensor.mjSENS_FRAMEQUAT),
        ("vel", sensor.mjSENS_FRAMELINVEL),
        ("angvel", sensor.mjSENS_FRAMEANGVEL),
    ):
        for body in bodies:
            add(f"{block}/{body}", kind, xbody, body)
    for block, kind in (
        ("length", sensor.mjSENS_ACTUATORPOS),
        ("velocity", sensor.mjSENS_ACTUATORVEL),
        ("force", sensor.mjSENS_ACTUATORFRC),
    ):
        for actuator in spec.actuators:
            add(f"{block}/{actuator.name}", kind, mujoco.mjtObj.mjOBJ_ACTUATOR, actuator.name)
    add("com", sensor.mjSENS_SUBTREECOM, mujoco.mjtObj.mjOBJ_BODY, root)
    add("com_vel", sensor.mjSENS_SUBTREELINVEL, mujoco.mjtObj.mjOBJ_BODY, root)
    for name in sites:
        add(f"site/{name}", sensor.mjSENS_FRAMEPOS, mujoco.mjtObj.mjOBJ_SITE, name)
    for part, members in touch.items():
        for body in members:
            # A touch sensor sums the normal forces of its body's contacts inside a site's volume;
            # a sphere larger than any body includes all contacts.
            name = f"touch/{quote(part, safe='')}/{body}"  # names of parts may contain a slash
            site = _PREFIX + name
            spec.body(body).add_site(name=site, size=[10.0, 10.0, 10.0], rgba=[0, 0, 0, 0], group=5)
            add(name, sensor.mjSENS_TOUCH, mujoco.mjtObj.mjOBJ_SITE, site)


def layout_of(model: mujoco.MjModel, goals: Mapping[str, Array]) -> Layout:
    """Return the layout of a compiled model that `instrument` prepared."""
    joints, bodies, touch, sites, sensors, blocks = {}, {}, {}, {}, {}, {}
    root = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, f"{_PREFIX}com")
    for j in range(model.njnt):
        nq, nv = _JOINT_SIZES[int(model.jnt_type[j])]
        q, v = int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j])
        joints[model.joint(j).name] = (slice(q, q + nq), slice(v, v + nv))
    for s in range(model.nsensor):
        name, adr = model.sensor(s).name, int(model.sensor_adr[s])
        if not name.startswith(_PREFIX):
            sensors[name] = slice(adr, adr + int(model.sensor_dim[s]))
            continue
        block, _, rest = name.removeprefix(_PREFIX).partition("/")
        blocks.setdefault(block, adr)
        if block == "pos":
            bodies[rest] = len(bodies)
        elif block == "site":
            sites[rest] = adr
        elif block == "touch":
            part = unquote(rest.partition("/")[0])
            touch[part] = (*touch.get(part, ()), adr)
    return Layout(
        joints=joints,
        bodies=bodies,
        muscles={model.actuator(i).name: i for i in range(model.nu)},
        activations=model.actuator_actadr.copy(),
        touch=touch,
        sites=sites,
        sensors=sensors,
        blocks=blocks,
        goals={name: np.shape(value) for name, value in goals.items()},
        sizes={n: int(getattr(model, n)) for n in ("nq", "nv", "na", "nu", "nsensordata")},
        world=world_of(model, int(model.sensor_objid[root]) if root >= 0 else None),
    )


@jax.jit  # traced once for all programs
def rotation(quat: Array) -> Array:
    """Return the rotation matrix [..., 3, 3] of a unit quaternion [..., 4] (w, x, y, z)."""
    w, x, y, z = quat[..., 0], quat[..., 1], quat[..., 2], quat[..., 3]
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def goal_heading(goals: Mapping[str, Array], time: Array) -> Array:
    """Return the target heading [...] rad at `time` [...] s of a task with a heading, and a turn_time if it turns."""
    if "turn_time" not in goals:
        return jnp.zeros_like(time) + goals["heading"]
    return jnp.clip((time - goals["turn_time"]) / _TURN, 0.0, 1.0) * goals["heading"]


class Fields(Generic[A]):
    """Values of steps by name, with the leading axes [...] of the steps, for rewards and task measures.

    In each docstring, the text before the bar is the shape without those axes and the unit.
    """

    __slots__ = ("_goals", "_layout", "_step")
    _what: ClassVar[str]  # its name in error messages
    _error: ClassVar[type[Exception]]

    def __init__(self, layout: Layout, step: Step, goals: Mapping[str, Array]):
        self._layout, self._step, self._goals = layout, step, goals

    def _given(self, value: Array) -> A:
        """Convert `value` to the type that the subclass returns."""
        raise NotImplementedError

    def _find(self, kind: str, name: object, options: Mapping[str, Any]) -> Any:
        if not isinstance(name, str) or name not in options:
            others = {"body": self._layout.sites, "site": self._layout.bodies}.get(kind, {})
            other = isinstance(name, str) and name in others
            raise self._error(_PLACES[kind].format(name) if other else unknown_name(kind, name, options))
        return options[name]

    def _sensed(self, start: int, width: int) -> A:
        return self._given(self._step.sensors[..., start : start + width])

    def _at(self, values: Array, place: slice) -> A:
        """Return `values` [..., n] at `place`, without the last axis if it is one value."""
        found = values[..., place]
        return self._given(found[..., 0] if place.stop - place.start == 1 else found)

    def _body(self, block: str, body: str, width: int) -> A:
        row = self._find("body", body, self._layout.bodies)
        return self._sensed(self._layout.blocks[block] + width * row, width)

    def _actuator(self, block: str, muscle: str) -> A:
        index = self._layout.blocks[block] + self._find("muscle", muscle, self._layout.muscles)
        return self._given(self._step.sensors[..., index])

    @property
    def time(self) -> A:
        """[] s | time since the start of the episode"""
        return self._given(self._step.time)

    def q(self, joint: str) -> A:
        """[] rad or m ([4], [7] for ball and free joints) | position of a joint"""
        return self._at(self._step.qpos, self._find("joint", joint, self._layout.joints)[0])

    def qd(self, joint: str) -> A:
        """[] rad/s or m/s ([3], [6] for ball and free joints) | velocity of a joint"""
        return self._at(self._step.qvel, self._find("joint", joint, self._layout.joints)[1])

    def pos(self, body: str) -> A:
        """[3] m, world frame | position of a body: of its origin"""
        return self._body("pos", body, 3)

    def vel(self, body: str) -> A:
        """[3] m/s, world frame | linear velocity of a body: of its origin"""
        return self._body("vel", body, 3)

    def angvel(self, body: str) -> A:
        """[3] rad/s, world frame | angular velocity of a body"""
        return self._body("angvel", body, 3)

    def rot(self, body: str) -> A:
        """[3, 3] | rotation of a body; columns are its axes in the world"""
        return self._given(rotation(self._body("quat", body, 4)))

    @property
    def up(self) -> A:
        """[3] 1, world frame | unit vector against gravity"""
        return self._given(jnp.asarray(self._layout.world.up, jnp.float32))

    def height(self, body: str) -> A:
        """[] m | height of a body above the ground under it, against gravity"""
        return self._given(self._layout.world.height(self.pos(body)))

    @property
    def com(self) -> A:
        """[3] m, world frame | centre of mass of the body that actuators move, without loose objects"""
        return self._sensed(self._layout.blocks["com"], 3)

    @property
    def com_vel(self) -> A:
        """[3] m/s, world frame | velocity of the centre of mass"""
        return self._sensed(self._layout.blocks["com_vel"], 3)

    @property
    def capture_point(self) -> A:
        """[2] m, world frame | where a foot must be placed to stop there: com + com_vel sqrt(height of com / g)"""
        world, com, speed = self._layout.world, self.com, self.com_vel
        if not world.z_up:
            com, speed = com @ world.frame.T, speed @ world.frame.T
        if not world.gravity:
            return self._given(com[..., :2])
        height = jnp.maximum(world.height(self.com)[..., None], _LOWEST)
        fall = jnp.sqrt(height / world.gravity)  # s (Pratt et al., 2006, equation 5)
        return self._given(com[..., :2] + fall * speed[..., :2])

    @property
    def gait_phase(self) -> A:
        """[2] 1, from 0 to 1 | phase of the left and right stride at stride_frequency; the foot swings below 0.5"""
        if "stride_frequency" not in self._layout.goals:
            raise self._error(
                f"{self._what}.gait_phase: this task has no goal 'stride_frequency'; use phases of {self._what}.time"
            )
        strides = (self.goal("stride_frequency") * self.time)[..., None] + jnp.array([0.0, 0.5])
        return self._given(strides - jnp.floor(strides))

    @property
    def goal_heading(self) -> A:
        """[] rad, left is positive | target heading: from 0 to the goal's heading within 1.5 s after turn_time"""
        if "heading" not in self._layout.goals:
            raise self._error(f"{self._what}.goal_heading: this task has no goal 'heading'; use {self._what}.goal")
        return self._given(goal_heading(self._goals, self.time))

    def activation(self, muscle: str) -> A:
        """[] 1, from 0 to 1 | activation of a muscle"""
        index = self._layout.activations[self._find("muscle", muscle, self._layout.muscles)]
        if index < 0:
            raise self._error(f"actuator {muscle!r} has no activation: it is not a muscle")
        return self._given(self._step.act[..., index])

    def force(self, muscle: str) -> A:
        """[] N, positive when it pulls | tension of a muscle"""
        return self._given(-self._actuator("force", muscle))

    def length(self, muscle: str) -> A:
        """[] m | length of a muscle with its tendon"""
        return self._actuator("length", muscle)

    @property
    def muscles(self) -> A:
        """[nu] 1, from 0 to 1 | activations of all muscles"""
        indices = self._layout.activations
        if len(indices) == 0 or (indices < 0).any():
            raise self._error(f"{self._what}.muscles: this model has actuators that are not muscles; use action")
        return self._given(self._step.act[..., indices])

    def touch(self, name: str) -> A:
        """[] N, never negative | normal force of all contacts of a foot, finger or object, whatever it touches"""
        first, *others = self._find("touch part", name, self._layout.touch)
        sensors = self._step.sensors
        return self._given(sum((sensors[..., a] for a in others), sensors[..., first]))

    def site(self, name: str) -> A:
        """[3] m, world frame | position of a site"""
        return self._sensed(self._find("site", name, self._layout.sites), 3)

    def sensor(self, name: str) -> A:
        """depends on the sensor ([] if it has one value) | a sensor of the model"""
        return self._at(self._step.sensors, self._find("sensor", name, self._layout.sensors))

    @property
    def qpos(self) -> A:
        """[nq] | positions of all joints"""
        return self._given(self._step.qpos)

    @property
    def qvel(self) -> A:
        """[nv] | velocities of all joints"""
        return self._given(self._step.qvel)

    @property
    def prev_action(self) -> A:
        """[nu] | action of the previous step"""
        return self._given(self._step.prev_action)

    def goal(self, name: str) -> A:
        """depends on the goal | a target of the task"""
        self._find("goal", name, self._layout.goals)
        return self._given(self._goals[name])

    def reference(self, joint: str) -> A:
        """as state.q(joint) | position of a joint in the recorded motion, at this time or phase of the stride"""
        if REFERENCE_RATE not in self._goals:
            raise self._error(
                f"{self._what}.reference: this task has no recorded motion; leave it out, or give reference=FILE.mot"
            )
        self._find("joint in the recorded motion", joint, self._layout.references)
        # [S]; of ball and free joints [S, 4], [S, 7]
        samples = jnp.asarray(self._goals[reference_name(joint)])
        last = samples.shape[0] - 1
        if self._layout.reference_by == "phase":
            strides = self.goal("stride_frequency") * self.time
            at = (strides - jnp.floor(strides)) * last
        else:
            at = jnp.clip(self.time * self._goals[REFERENCE_RATE], 0.0, last)
        row = jnp.clip(jnp.floor(at), 0, last - 1).astype(jnp.int32)
        before, after = samples.at[row].get(mode="clip"), samples.at[row + 1].get(mode="clip")
        share = at - row
        if samples.ndim == 1:
            return self._given(before + share * (after - before))
        value = before + share[..., None] * (after - before)
        quat = value[..., -4:] / jnp.linalg.norm(value[..., -4:], axis=-1, keepdims=True)
        return self._given(jnp.concatenate([value[..., :-4], quat], axis=-1))

    def __getattr__(self, name: str) -> A:
        if name.startswith("__"):
            raise AttributeError(name)
        near = unknown_name("call", name, STATE_CALLS).rstrip("?")
        raise self._error(f"{self._what} has no {name!r}: {near}; available: {', '.join(STATE_CALLS)}")


class State(Fields[Array]):
    """The state of one simulation at one control step, as a reward program reads it."""

    __slots__ = ("_initial",)
    _what, _error = "state", ProgramError

    def __init__(self, layout: Layout, step: Step, goals: Mapping[str, Array], initial: Step):
        super().__init__(layout, step, goals)
        self._initial = initial

    def _given(self, value: Array) -> Array:
        return value

    @property
    def time(self) -> Array:
        """[] s | time since the start of the episode"""
        return self._step.time - self._initial.time

    @property
    def initial(self) -> State:
        """the same calls | the state at the start of the episode"""
        return State(self._layout, self._initial, self._goals, self._initial)


def parts(state: State) -> tuple[Step, Step, Mapping[str, Array]]:
    """Return (step, start of the episode, goals), all the data of a state."""
    return state._step, state._initial, state._goals


def _call(name: str, member: object) -> str:
    if isinstance(member, property):
        return f"state.{name}"
    parameters = list(inspect.signature(member).parameters)[1:]  # pyright: ignore[reportArgumentType]
    return f"state.{name}({', '.join(parameters)})"


STATE_CALLS = tuple(
    dict.fromkeys(name for kind in (Fields, State) for name in vars(kind) if not name.startswith("_"))
)


def state_table() -> list[tuple[str, str, str]]:
    """Return (call, shape and unit, meaning) of everything that a reward may read, in the order of the class."""
    rows = []
    for name in STATE_CALLS:
        member = inspect.getattr_static(State, name)
        shape, _, meaning = (inspect.getdoc(member) or "").partition(" | ")
        rows.append((_call(name, member), shape, meaning))
    return rows
