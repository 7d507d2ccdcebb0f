"""Units and signs of recorded motions that their headers do not say or get wrong, and names of joints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import movlr_jax as mj
from movlr_jax.errors import UserError
from movlr_jax.rewards.state import reference_name
from movlr_jax.tasks import Task, simple_task
from movlr_jax.tasks.reference import with_reference
from movlr_jax.tasks.walking.biomechanics import leg_coordinates

KNEE, HIP, ANKLE = (f"{name}_r" for name in ("knee_angle", "hip_flexion", "ankle_angle"))
LEG = """<body name="femur_{s}" pos="0 {y} -0.07"><joint name="hip_flexion_{s}" axis="0 -1 0" range="-120 120"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.05"/>
<body name="tibia_{s}" pos="0 0 -0.4"><joint name="knee_angle_{s}" axis="0 -1 0" {knee}/>
<geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.04"/>
<body name="calcn_{s}" pos="0 0 -0.42"><joint name="ankle_angle_{s}" axis="0 -1 0" range="-60 40"/>
<geom type="box" size="0.1 0.04 0.02"/></body></body></body>"""
LIMITED, BACKWARD, WIDE, FREE = 'range="-10 120"', 'range="-120 10"', 'range="-120 120"', 'limited="false"'
TURN = np.linspace(0.0, 2 * np.pi, 61)
FLEXED = 30.0 - 30.0 * np.cos(TURN)  # deg, of a knee
DEGREES = {HIP: 20.0 * np.cos(TURN), KNEE: FLEXED, ANKLE: 10.0 * np.cos(TURN)}
Make = Callable[[str], Task]


@pytest.fixture(scope="module")
def body(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a body once for each knee."""

    @cache
    def make(knee: str) -> Task:
        legs = "".join(LEG.format(s=s, y=y, knee=knee) for s, y in (("r", -0.1), ("l", 0.1)))
        joints = [f"{joint}_{s}" for s in "rl" for joint in ("hip_flexion", "knee_angle", "ankle_angle")]
        path = tmp_path_factory.mktemp("body") / "legs.xml"
        path.write_text(
            f'<mujoco><worldbody><geom type="plane" size="9 9 1"/><body name="pelvis" pos="0 0 0.95"><freejoint/>'
            f'<geom size="0.1"/>{legs}</body></worldbody><actuator>'
            + "".join(f'<motor joint="{joint}"/>' for joint in joints)
            + '</actuator><keyframe><key name="home" qpos="0 0 0.95 1 0 0 0 0 0 0 0 0 0"/></keyframe></mujoco>'
        )  # fmt: skip
        task = mj.load_task(model=str(path), instruction="stand")
        assert not task.origin.warnings
        return task

    return make


def written(path: Path, header: str, columns: Mapping[str, np.ndarray], unit: float = 1.0) -> Path:
    values = np.column_stack([np.arange(61) / 60, *(unit * column for column in columns.values())])
    rows = ["\t".join(["time", *columns]), *("\t".join(f"{x:.8f}" for x in row) for row in values)]
    path.write_text("\n".join(["motion", header, "endheader", *rows]) + "\n")
    return path


def read(task: Task, joint: str) -> np.ndarray:
    return np.rad2deg(task.data[reference_name(joint)])


RADIANS = np.pi / 180
# ending, header, unit of the numbers, which columns, whether they are read as degrees, the warning
HEADERS = {
    "degrees": (".mot", "inDegrees=yes", 1.0, (KNEE, HIP), True, ""),
    "capitals and quotes": (".mot", 'Version=1\nINDEGREES = "YES"', 1.0, (KNEE, HIP), True, ""),
    "radians": (".sto", "version=1\ninDegrees=no", RADIANS, (KNEE, HIP), False, ""),
    "degrees that are radians": (
        ".mot", "version=1\ninDegrees=yes", RADIANS, (KNEE, HIP, ANKLE), True,
        "its header says inDegrees=yes, but its angles reach 1.05, as angles in radians do: they are taken as "
        "degrees; if they are not, write inDegrees=no",
    ),
    "radians that are degrees": (
        ".sto", "version=1\ninDegrees=no", 1.0, (KNEE, HIP), True,
        "its header says inDegrees=no, but its angles reach 60, which radians cannot be: they are taken as degrees",
    ),
    "radians that are degrees, by the range alone": (
        ".sto", "version=1\ninDegrees=no", 1.0, (ANKLE,), True,
        "its angles reach 10, which radians cannot be: they are taken as degrees",
    ),
    "an old motion": (
        ".mot", "nRows=61", 1.0, (ANKLE,), True,
        "its header does not say the unit of angles: they are taken as degrees; if they are not, write inDegrees=no",
    ),
    "states without a unit": (
        ".sto", "version=1", RADIANS, (KNEE,), False, "they are taken as radians; if they are not, write inDegrees=y",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_contradicts_its_values_is_a_warning(name: str, body: Make, tmp_path: Path):
    ending, header, unit, columns, in_degrees, sentence = HEADERS[name]
    path = written(tmp_path / f"walk{ending}", header, {n: DEGREES[n] for n in columns}, unit)
    task = with_reference(body(LIMITED), path)
    for joint in columns:
        expected = unit * DEGREES[joint] * (1.0 if in_degrees else 1 / RADIANS)
        np.testing.assert_allclose(read(task, joint), expected, atol=1e-4)
    units = [w for w in task.origin.warnings if "sign" not in w]
    assert len(units) == bool(sentence)
    assert all(sentence in w and path.name in w for w in units)
    assert all(w.partition(": ")[2] in task.origin.notes[-1] for w in task.origin.warnings), "it is recorded"


# the range of the knee, whether its flexion is negative in the file, the sign with which it is read, the warning
SIGNS = [
    (LIMITED, False, 1.0, ""),
    (LIMITED, True, -1.0, "turned round, since the ranges of the joints have the other sign: knee_angle_r"),
    (BACKWARD, False, -1.0, "turned round, since the ranges of the joints have the other sign: knee_angle_r"),
    (BACKWARD, True, 1.0, ""),
    (WIDE, True, 1.0, "the signs of knee_angle_r are taken as they are, since the ranges of the joints allow both"),
    (FREE, True, 1.0, "the signs of knee_angle_r are taken as they are"),
]


@pytest.mark.parametrize(("knee", "negative", "sign", "sentence"), SIGNS)
def test_knees_are_turned_only_where_the_range_says_so(
    knee: str, negative: bool, sign: float, sentence: str, body: Make, tmp_path: Path
):
    flexed = -FLEXED if negative else FLEXED
    path = written(tmp_path / "walk.mot", "inDegrees=yes", {HIP: DEGREES[HIP], KNEE: flexed})
    task = with_reference(body(knee), path)
    np.testing.assert_allclose(read(task, KNEE), sign * flexed, atol=1e-4)
    np.testing.assert_allclose(read(task, HIP), DEGREES[HIP], atol=1e-4)
    assert len(task.origin.warnings) == bool(sentence)
    assert all(sentence in warning for warning in task.origin.warnings)


@pytest.mark.parametrize(("knee", "sign"), [(LIMITED, 1.0), (BACKWARD, -1.0), (WIDE, 1.0)])
def test_the_flexion_of_a_knee_has_the_sign_of_its_range(knee: str, sign: float, body: Make):
    task = body(knee)
    pairs = leg_coordinates(task.adapter, task.layout.joints, task.model)
    assert [c.sign for c in pairs["knee_flexion"]] == [sign, sign]
    assert [c.sign for c in pairs["hip_flexion"]] == [1.0, 1.0]


# Names.

NAMES = (
    "robot/left knee", "a/b/value", "/leading", 'a "quoted" one', "it's", "tab\there", "line\nend", " outer ",
    "50%0A", "k|force", "back\\slash", "</script>", "\u2028", "time", "Überknie",
)  # fmt: skip


@pytest.fixture(scope="module")
def chain() -> Task:
    import mujoco

    spec = mujoco.MjSpec()
    body = spec.worldbody
    for name in NAMES:
        body = body.add_body(name=name, pos=[0, 0, 0.1])
        body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0])
        body.add_geom(name=f"g{name}", size=[0.02, 0, 0])
        spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    return simple_task(name="chain", model=spec, description="move")


def test_a_motion_of_joints_with_any_name_is_read_back(chain: Task, tmp_path: Path):
    task, time = chain, np.arange(1, 30) * 0.016
    qpos = np.sin(np.outer(time, 1 + np.arange(len(NAMES)))).astype(np.float32)
    empty = [np.zeros((29, n)) for n in (task.model.nv, task.model.na, task.model.nu, 0)]
    mj.EpisodeRecord(time, qpos, *empty, (), task.model, task.adapter).export(tmp_path / "own.mot")
    again = with_reference(task, tmp_path / "own.mot")
    assert set(again.layout.references) == set(NAMES)
    for i, name in enumerate(NAMES):
        np.testing.assert_allclose(again.data[reference_name(name)], qpos[:, i], atol=1e-6)
    assert not again.origin.warnings


def test_a_file_of_nothing_but_other_names_is_refused(chain: Task, tmp_path: Path):
    path = written(tmp_path / "other.mot", "inDegrees=yes", {"robot/left_knee": TURN})
    with pytest.raises(UserError, match=r"has no coordinate of the model .* 'robot/left_knee' .did you mean"):
        with_reference(chain, path)
