"""Make the corpus of walks and degenerate gaits in tests/data/gait_corpus.npz, on which the gate is measured.

Most motions are guided: springs make the legs follow a pattern (people's curves, or a distortion of them), soft
forces guide the pelvis, and C MuJoCo computes contacts and forces. The others are of trained policies, and falls
without guidance. `python benchmarks/gait_corpus.py` makes the guided motions, `python benchmarks/gait_corpus.py
EPISODE.npz ...` adds episodes of policies: files of `evaluate`, renamed TASK-MODEL-LABEL-KEY.npz. Either keeps the
other motions of the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import mujoco
import numpy as np
from quick import read_options

from movlr_jax.biomech.gait.reference import PERCENT, human_gait
from movlr_jax.config.compose import compose
from movlr_jax.engine.tasks import task_of
from movlr_jax.models import follow_couplings
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import Task
from movlr_jax.tasks.walking.biomechanics import leg_coordinates
from movlr_jax.tasks.walking.walker import FEET

OUT = Path(__file__).parents[1] / "tests" / "data" / "gait_corpus.npz"
STEP = 0.02  # s between stored postures
SECONDS = 6.0  # of the episodes of policies
UNIT = 4e-4  # m and rad, resolution of the stored postures
LAG_S = 1 / 30  # damping over stiffness of the joints
RAMP_S = 0.5  # s in which the pattern grows from the start posture
MODELS = {
    "ms_human_700_legs": "flat_walk",
    "myolegs": "flat_walk",
    "myolegs26": "flat_walk",
    "humanoid": "humanoid_walk",
}


@dataclass(frozen=True)
class Pattern:
    """A guided motion. Curves are those of people, scaled and shifted, in deg."""

    label: str
    speed_class: str = "free"
    stride_s: float = 1.15
    speed: float | None = None  # m/s of the pelvis; None: that of the feet in stance
    scale: dict[str, float] = field(default_factory=dict)  # angle -> factor
    shift: dict[str, float] = field(default_factory=dict)  # angle -> deg
    phase: float = 0.5  # of the right leg
    backward: bool = False
    frozen: dict[str, dict[str, float]] = field(default_factory=dict)  # side -> angle -> deg
    bounce: float = 0.0  # m, amplitude of the pelvis, once a stride
    lower: float = 0.0  # m, of the pelvis
    yaw: float = 0.0  # rad/s
    side: float = 0.0  # m/s to the left
    guide: float = 1.0  # strength of the guidance of the pelvis; 0: none
    legs: float = 1.0  # strength of the legs
    push: float = 0.0  # m/s, forward speed at the start
    lean: float = 0.19  # rad, of the pelvis; people tilt it by 11 deg
    clear: float = 1.0  # factor of CLEAR
    seconds: float = 5.0


CLEAR = {"hip_flexion": 7.0, "knee_flexion": 12.0, "ankle_dorsiflexion": 15.0}  # deg
ANGLES = ("hip_flexion", "knee_flexion", "ankle_dorsiflexion")


def angle_at(pattern: Pattern, angle: str, side: int, time: float) -> float:
    """Return a joint angle in deg at `time`."""
    frozen = pattern.frozen.get(("left", "right")[side], {})
    if angle in frozen:
        return frozen[angle]
    phase = time / pattern.stride_s + (pattern.phase if side else 0.0)
    phase = -phase if pattern.backward else phase
    mean = human_gait(pattern.speed_class).mean(angle)
    value = np.interp(100.0 * (phase % 1.0), PERCENT, mean)
    swing = np.sin(np.pi * np.clip((phase % 1.0 - 0.58) / 0.38, 0.0, 1.0))
    value += (
        pattern.clear * CLEAR[angle] * swing
    )  # a rigid pelvis does not rise over the swinging leg as people's does
    return pattern.scale.get(angle, 1.0) * value + pattern.shift.get(angle, 0.0)


class Guide:
    """Simulates patterns with one model."""

    def __init__(self, name: str):
        self.task: Task = task_of(compose([f"+task={MODELS[name]}", f"model={name}"]))
        self.model = self.task.model
        self.data = mujoco.MjData(self.model)
        self.legs = {
            angle: [(self.model.joint(c.joint), c.sign) for c in pair]
            for angle, pair in leg_coordinates(self.task.adapter, self.task.layout.joints).items()
        }
        self.model.opt.timestep = 0.001
        self.model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        self.pelvis = self.model.body(self.task.roles["pelvis"]).id
        mujoco.mj_forward(self.model, self.data)
        self.mass = float(self.model.body_subtreemass[self.model.body(self.task.adapter.root).id])

    def run(self, pattern: Pattern) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """Return time [T], qpos [T, nq], force of the feet [T, 2] and whether the body fell."""
        m, d, task = self.model, self.data, self.task
        mujoco.mj_resetData(m, d)
        qpos, qvel, _ = task.start(np.random.default_rng(1), 1)
        d.qpos[:], d.qvel[:], d.act[:] = qpos[0], qvel[0], 0.0
        mujoco.mj_forward(m, d)
        start, home = d.xpos[self.pelvis].copy(), d.xmat[self.pelvis].reshape(3, 3).copy()
        rest = qpos[0].copy()
        self._stiffen(rest, pattern.legs)
        speed = self._speed(pattern, rest) if pattern.speed is None else pattern.speed
        heights = self._heights(pattern, rest) if pattern.guide else np.zeros(60)
        if pattern.push:
            d.qvel[:] += self._forward(d) * pattern.push
        rows, step = [], m.opt.timestep
        for t in range(round(pattern.seconds / step)):
            time = t * step
            d.xfrc_applied[:] = 0.0
            grown = min(time / RAMP_S, 1.0) if pattern.guide else 1.0
            for angle, joints in self.legs.items():
                for i, (joint, sign) in enumerate(joints):
                    q, want = (int(joint.qposadr[0]), sign * np.radians(angle_at(pattern, angle, i, time + LAG_S)))
                    m.qpos_spring[q] = rest[q] + grown * (want - rest[q])
            if pattern.guide:
                self._lead(d, pattern, start, home, speed, heights, time, grown)
            mujoco.mj_step(m, d)
            if t % round(STEP / step) == 0:
                mujoco.mj_forward(m, d)
                rows.append((d.time, d.qpos.copy(), d.sensordata.copy()))
        time, path, sensors = (np.array(x) for x in zip(*rows, strict=True))
        force = np.stack([sensors[:, list(task.layout.touch[foot])].sum(axis=1) for foot in FEET], axis=-1)
        record = EpisodeRecord(
            time, path, np.zeros((len(time), m.nv)), np.zeros((len(time), m.na)), np.zeros((len(time), m.nu)),
            np.zeros((len(time), 0)), (), m, task.adapter,
        )  # fmt: skip
        steps = replace(record.replayed(task.layout).steps, sensors=sensors.astype(np.float32))
        assert task.course.over is not None
        first = type(steps)(**{k: v[0] for k, v in vars(steps).items()})
        over = task.course.over(steps, first)
        end = int(over.argmax()) + 1 if over.any() else len(time)
        return time[:end], path[:end], force[:end], bool(over.any())

    def _stiffen(self, rest: np.ndarray, strength: float) -> None:
        """Give the planned joints springs to the start posture, stiffer ones where the pattern moves them."""
        moved = {j.name for joints in self.legs.values() for j, _ in joints}
        for name in (*self.task.adapter.planned_joints, *self.task.adapter.kept_joints):
            joint, scale = self.model.joint(name), strength * self.mass / 75.0
            stiff = 2500.0 if name in moved else 60.0 if "mtp" in name or "subtalar" in name else 400.0
            self.model.jnt_stiffness[joint.id] = scale * stiff
            self.model.dof_damping[joint.dofadr[0]] = scale * stiff * LAG_S
            self.model.qpos_spring[joint.qposadr[0]] = rest[joint.qposadr[0]]

    def _posed(self, pattern: Pattern, rest: np.ndarray, time: float) -> np.ndarray:
        """Return the positions [side, heel or toes, 3] m relative to the pelvis, which leans."""
        d = mujoco.MjData(self.model)
        d.qpos[:] = rest
        for angle, joints in self.legs.items():
            for i, (joint, sign) in enumerate(joints):
                d.qpos[int(joint.qposadr[0])] = sign * np.radians(angle_at(pattern, angle, i, time + LAG_S))
        d.qpos[:] = follow_couplings(self.model, d.qpos)
        mujoco.mj_kinematics(self.model, d)
        parts = np.array(
            [[d.body(self.task.roles[f"{s}_{p}"]).xpos for p in ("foot", "toes")] for s in ("left", "right")]
        )
        c, s = np.cos(pattern.lean), np.sin(pattern.lean)
        relative = (parts - d.xpos[self.pelvis]) @ np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]).T
        return relative

    def _speed(self, pattern: Pattern, rest: np.ndarray) -> float:
        """Return the speed at which the lower foot does not slip, on average over a stride."""
        times = np.linspace(0.0, pattern.stride_s, 60)
        feet = np.array([self._posed(pattern, rest, t) for t in times])
        ends = feet.mean(axis=2)
        low = feet[..., 2].min(axis=2).argmin(axis=1)
        pace = -np.diff(ends[:, :, 0], axis=0) / np.diff(times)[:, None]
        return float(np.mean(pace[np.arange(59), low[:-1]]))

    def _heights(self, pattern: Pattern, rest: np.ndarray) -> np.ndarray:
        """Return the height [60] m of the pelvis over a stride with the lower foot on the ground, less that now."""
        flat = self._posed(
            replace(pattern, scale=dict.fromkeys(ANGLES, 0.0), shift={}, frozen={}, lean=0.0), rest, 0.0
        )
        times = np.linspace(0.0, pattern.stride_s, 60)
        return np.array([-(self._posed(pattern, rest, t) - flat)[..., 2].min() for t in times])

    def _lead(
        self, d: mujoco.MjData, pattern: Pattern, start: np.ndarray, home: np.ndarray, speed: float,
        heights: np.ndarray, time: float, grown: float,
    ) -> None:  # fmt: skip
        """Apply forces that guide the pelvis."""
        travelled = speed * max(time - 0.5 * RAMP_S, 0.0) * grown
        height = np.interp(time % pattern.stride_s, np.linspace(0.0, pattern.stride_s, 60), heights)
        bounce = pattern.bounce * np.sin(2 * np.pi * time / pattern.stride_s)
        want = start + [travelled, pattern.side * time, grown * (height - pattern.lower + bounce)]
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(self.model, d, mujoco.mjtObj.mjOBJ_BODY, self.pelvis, velocity, 0)
        k = self.mass / 75.0 * pattern.guide
        goal = np.array([grown * speed, pattern.side, 0.0])
        stiff, damp = np.array([5000.0, 5000.0, 15000.0]), np.array([900.0, 600.0, 1000.0])
        d.xfrc_applied[self.pelvis, :3] = k * (stiff * (want - d.xpos[self.pelvis]) + damp * (goal - velocity[3:]))
        c, s = np.cos(pattern.yaw * time), np.sin(pattern.yaw * time)
        c2, s2 = np.cos(pattern.lean), np.sin(pattern.lean)
        turned = (
            np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array([[c2, 0, s2], [0, 1, 0], [-s2, 0, c2]]) @ home
        )
        error = turned @ d.xmat[self.pelvis].reshape(3, 3).T
        axis = 0.5 * np.array([error[2, 1] - error[1, 2], error[0, 2] - error[2, 0], error[1, 0] - error[0, 1]])
        d.xfrc_applied[self.pelvis, 3:] = k * (5000.0 * axis + 300.0 * ([0, 0, pattern.yaw] - velocity[:3]))

    def _forward(self, d: mujoco.MjData) -> np.ndarray:
        """Return the change of qvel that moves the whole body forward at 1 m/s."""
        jacobian = np.zeros((6, self.model.nv))
        mujoco.mj_jacBody(self.model, d, jacobian[:3], jacobian[3:], self.pelvis)
        base = np.flatnonzero(np.abs(jacobian).sum(axis=0))
        way = np.zeros(self.model.nv)
        way[base] = np.linalg.pinv(jacobian[:, base]) @ [1, 0, 0, 0, 0, 0]
        return way


STRAIGHT = {"hip_flexion": 11.0, "knee_flexion": 3.0, "ankle_dorsiflexion": 0.0}
BENT = {"hip_flexion": 21.0, "knee_flexion": 20.0, "ankle_dorsiflexion": 10.0}
RAISED = {"hip_flexion": 60.0, "knee_flexion": 100.0, "ankle_dorsiflexion": 5.0}
CROUCHED = (
    {"hip_flexion": 55.0, "knee_flexion": 70.0, "ankle_dorsiflexion": 22.0},
    {"hip_flexion": 45.0, "knee_flexion": 70.0, "ankle_dorsiflexion": 27.0},
)
BAD = (
    Pattern("locked_knees", scale={"knee_flexion": 0.0, "hip_flexion": 0.7}, shift={"knee_flexion": 3.0}, speed=0.6),
    Pattern("locked_knees", scale={"knee_flexion": 0.2}, stride_s=1.0, speed=0.8),
    Pattern(
        "shuffle", scale=dict.fromkeys(ANGLES, 0.3), shift={"hip_flexion": 8.0}, stride_s=0.8, speed=0.4, clear=0.0
    ),
    Pattern("hop", frozen={"left": BENT, "right": BENT}, stride_s=0.5, bounce=0.09, speed=0.7),
    Pattern(
        "drag", frozen={"right": {"hip_flexion": 0.0, "knee_flexion": 5.0, "ankle_dorsiflexion": 0.0}}, speed=1.1
    ),
    Pattern("backward", backward=True, speed_class="slow", stride_s=1.3),
    Pattern("tiptoe", shift={"ankle_dorsiflexion": -32.0}),
    Pattern("crouch_slide", frozen=dict(zip(("left", "right"), CROUCHED, strict=True)), speed=0.7),
    Pattern("spin", yaw=2.0, speed=0.15, scale={"hip_flexion": 0.4}),
    Pattern("standing_still", frozen={"left": STRAIGHT, "right": STRAIGHT}, speed=0.0),
    Pattern("one_legged", frozen={"right": RAISED}, stride_s=0.8, scale={"hip_flexion": 0.4}, speed=0.5),
    Pattern(
        "lunge_and_fall", guide=0.0, push=1.3, frozen={"left": STRAIGHT, "right": STRAIGHT}, legs=0.7, seconds=4.0
    ),
    Pattern("slow_fall", guide=0.0, frozen={"left": STRAIGHT, "right": STRAIGHT}, legs=0.02, seconds=4.0),
)
GOOD = tuple(
    Pattern("walk", speed_class=speed, stride_s=stride)
    for speed, stride in (("very_slow", 1.5), ("slow", 1.3), ("free", 1.1), ("fast", 1.0))
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("episodes", nargs="*", type=Path, metavar="EPISODE.npz")
    given = read_options(parser)
    if given.quick:
        guide_all({}, ["humanoid"], [replace(BAD[0], seconds=1.0)])
        return
    stored: dict[str, np.ndarray] = {}
    if OUT.exists():
        with np.load(OUT) as file:
            stored = {name: file[name] for name in file.files}
    if given.episodes:
        add_episodes(stored, given.episodes)
    else:
        guide_all(stored, list(MODELS), [*BAD, *GOOD])
    OUT.parent.mkdir(exist_ok=True)
    np.savez_compressed(OUT, allow_pickle=False, **stored)
    print(OUT, OUT.stat().st_size)


def guide_all(stored: dict[str, np.ndarray], models: Sequence[str], patterns: Sequence[Pattern]) -> None:
    """Put the guided motions of `models` into `stored`."""
    for name in models:
        guide = Guide(name)
        for i, pattern in enumerate(patterns):
            if name == "humanoid" and pattern.label in ("walk", "slow_fall"):
                continue  # its servos hold it up, and against people's posture
            time, qpos, force, fell = guide.run(pattern)
            key = f"{MODELS[name]}-{name}-{pattern.label}-{i}"
            print(key, f"{time[-1]:.1f} s, fell {fell}", flush=True)
            _store(stored, key, time, qpos, force, fell)


def add_episodes(stored: dict[str, np.ndarray], paths: Iterable[Path]) -> None:
    """Put the first SECONDS of the episodes at `paths` into `stored`."""
    for path in paths:
        with np.load(path) as file:
            every = max(1, round(STEP / np.diff(file["time"]).mean()))
            keep = slice(0, round(SECONDS / STEP) * every, every)
            if file["time"][-1] < SECONDS:
                raise SystemExit(f"{path} ends at {file['time'][-1]:.1f} s: the body fell")
            names = list(file["touch_names"])
            force = file["touch"][keep][:, [names.index(foot) for foot in FEET]]
            _store(stored, path.stem, file["time"][keep], file["qpos"][keep], force, False)


def _store(
    stored: dict[str, np.ndarray], key: str, time: np.ndarray, qpos: np.ndarray, force: np.ndarray, fell: bool
) -> None:
    stored[f"{key}/time"] = time.astype(np.float32)
    assert np.abs(qpos).max() < UNIT * np.iinfo(np.int16).max
    stored[f"{key}/qpos"] = np.round(qpos / UNIT).astype(np.int16)
    stored[f"{key}/force"] = np.round(force).astype(np.int16)
    stored[f"{key}/fell"] = np.asarray(fell)


if __name__ == "__main__":
    main()
