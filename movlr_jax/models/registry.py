"""The models this package knows by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import mujoco

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.models import myosim
from movlr_jax.resources import resource_dir


@dataclass(frozen=True)
class ModelAdapter:
    """A musculoskeletal or robot model and the names in it that matter.

    planned_joints are what MPC2 plans target postures over; joints coupled to others by equality constraints
    follow and are never listed. roles maps what tasks speak of (hand, thumb, palm_site ...) to names.
    """

    name: str
    load: Callable[[], mujoco.MjSpec]
    root: str  # body whose subtree has the centre of mass
    planned_joints: Sequence[str]
    roles: Mapping[str, str]
    touch: Mapping[str, Sequence[str]]  # part -> bodies
    sites: Sequence[str]
    synergies: Sequence[Sequence[str]] = ()  # planned joints that natural motion moves together
    posture: Mapping[str, float] = field(default_factory=dict)  # joint -> rad or m, a natural start
    grasp_offset: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m, palm_site to what the posture grasps
    source: str = ""
    licence: str = ""

    def role(self, name: str) -> str:
        """The name in this model of what a task calls `name`. Raises UserError when it has none."""
        if name not in self.roles:
            raise UserError(
                f"model {self.name!r} has no part for the role {name!r}, which this task needs; "
                f"it has: {', '.join(self.roles)}. Choose another model=..."
            )
        return self.roles[name]


MODELS: dict[str, ModelAdapter] = {
    "myoarm_r": ModelAdapter(
        name="myoarm_r",
        load=lambda: myosim.load("myoarm_r"),
        root="Full Body",
        planned_joints=myosim.ARM_JOINTS,
        synergies=(myosim.FINGER_FLEXION,),
        roles=myosim.ARM_ROLES,
        touch=myosim.HAND_PARTS,
        sites=myosim.HAND_SITES,
        posture=myosim.ARM_POSTURE,
        grasp_offset=myosim.GRASP_OFFSET,
        source="myo-sim (PyPI), entry myoarm_r",
        licence="Apache-2.0; the arm derives from MoBL-ARMS, whose authors ask for non-commercial use",
    ),
    "tiny_muscle": ModelAdapter(
        name="tiny_muscle",
        load=lambda: mujoco.MjSpec.from_file(str(resource_dir("assets") / "models" / "tiny_muscle.xml")),
        root="pelvis",
        planned_joints=("hip", "knee"),
        roles={"trunk": "pelvis", "thigh": "thigh", "shank": "shank", "foot": "foot"},
        touch={"foot": ("foot",)},
        sites=("pelvis", "sole"),
        posture={"height": -0.038, "hip": 0.3, "knee": 0.6},
        source="assets/models/tiny_muscle.xml, made for tests and first steps",
        licence="Apache-2.0",
    ),
}


def model_adapter(name: str) -> ModelAdapter:
    """The adapter of a model by name. Raises UserError with near matches."""
    if name not in MODELS:
        raise UserError(unknown_name("model", name, MODELS))
    return MODELS[name]
