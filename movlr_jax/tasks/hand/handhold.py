"""Find an open hand posture around a cube, and the position of the cube in it."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter, follow_couplings, nominal_qpos
from movlr_jax.models.adapter import Posture
from movlr_jax.models.spec import compile_spec

GAP = 0.003  # m between the cube and the holding fingers
HOLDING = ("thumb", "index", "middle", "ring")  # these hold with their last phalanges
FAR = 0.3  # m, upper bound of computed distances
INSIDE = 0.03  # share of a joint's range that is avoided at each end
LEVEL = {
    "thumb": 0.0,
    "index": 0.008,
    "middle": -0.008,
}  # m above the centre of the cube: two fingers oppose the thumb


def around_block(adapter: ModelAdapter, half: float) -> tuple[Posture, np.ndarray, float]:
    """Find a hand posture around an upright cube of half edge `half` m, between thumb and fingers.

    Returns the adapter's posture with new wrist and hand joints (joint -> rad), and position [3] m and heading rad of
    the cube. Solves a least-squares problem over these joints and the pose of the cube: the last phalanges of HOLDING
    at distance GAP, everything else at least as far away, and joints near the posture of the model. Raises UserError
    if the cube does not fit.
    """
    from scipy.optimize import least_squares  # slow to import

    fit = _Fit(adapter, half)
    first = np.concatenate([fit.prior, [0.0, 0.0, 0.02, 0.5]])
    low = np.concatenate([fit.low, [-0.05, -0.05, -0.05, -np.pi]])
    high = np.concatenate([fit.high, [0.05, 0.05, 0.06, np.pi]])
    found = least_squares(fit.residuals, first, bounds=(low, high), diff_step=1e-4).x
    fit.place(found)
    if (nearest := min(fit.distance(geom) for geom in fit.parts)) < 0:
        raise UserError(
            f"the hand of model {adapter.name!r} does not fit around a cube of {200 * half:.3g} cm "
            f"({-1000 * nearest:.1f} mm overlap); make the cube smaller"
        )
    hand = dict(zip(fit.joints, found[:-4].tolist(), strict=True))
    return {**adapter.posture, **hand}, fit.origin + found[-4:-1], float(found[-1])


class _Fit:
    """The model with a cube. A trial [joints + 4] has joint angles, the cube's shift in m and its heading in rad."""

    def __init__(self, adapter: ModelAdapter, half: float):
        self.adapter = adapter
        spec = adapter.load()
        cube = spec.worldbody.add_body(name="cube")
        cube.add_freejoint(name="cube_free")
        cube.add_geom(name="cube", type=mujoco.mjtGeom.mjGEOM_BOX, size=[half] * 3)
        self.model = m = compile_spec(spec)
        self.data = d = mujoco.MjData(m)
        self.nominal = nominal_qpos(m, adapter)
        self.free = m.joint("cube_free").qposadr[0]
        hand = {body: part for part, bodies in adapter.touch.items() for body in bodies}
        touching = np.flatnonzero(m.geom_contype | m.geom_conaffinity)
        bodies = {int(g): m.body(m.geom_bodyid[g]).name for g in touching}
        self.parts = {g: hand[body] for g, body in bodies.items() if body in hand}
        ends = {adapter.touch[part][-1] for part in HOLDING}
        self.holding = {g for g in self.parts if bodies[g] in ends}
        moved = _joints_from(m, adapter.role("forearm"))
        self.joints = [name for name in adapter.planned_joints if m.joint(name).id in moved]
        joints = [m.joint(name) for name in self.joints]
        self.qpos = np.array([j.qposadr[0] for j in joints])
        low, high = np.array([j.range for j in joints]).T
        slack = INSIDE * (high - low)
        self.low, self.high = low + slack, high - slack
        self.prior = np.clip(self.nominal[self.qpos], self.low + 1e-3, self.high - 1e-3)
        d.qpos[:] = self.nominal
        mujoco.mj_kinematics(m, d)
        self.origin = d.site(adapter.role("palm_site")).xpos + adapter.grasp_offset

    def place(self, trial: np.ndarray) -> None:
        """Set the pose of hand and cube to `trial`."""
        qpos = self.nominal.copy()
        qpos[self.qpos] = trial[:-4]
        qpos = follow_couplings(self.model, qpos)
        qpos[self.free : self.free + 3] = self.origin + trial[-4:-1]
        qpos[self.free + 3 : self.free + 7] = [np.cos(trial[-1] / 2), 0, 0, np.sin(trial[-1] / 2)]
        self.data.qpos[:] = qpos
        mujoco.mj_kinematics(self.model, self.data)

    def distance(self, geom: int) -> float:
        """Return the distance in m between a geom of the hand and the cube, negative inside."""
        cube = self.model.geom("cube").id
        return float(mujoco.mj_geomDistance(self.model, self.data, geom, cube, FAR, None))

    def residuals(self, trial: np.ndarray) -> np.ndarray:
        """Return the residuals: distances (about 1 per mm, larger inside), fingertip heights, prior."""
        self.place(trial)
        found = []
        for geom in self.parts:
            excess = 1000 * (self.distance(geom) - GAP)  # mm
            if geom in self.holding:
                found.append(excess * (2.0 if excess < 0 else 0.8))
            else:
                found.append(1.5 * min(0.0, excess))
        height = self.data.body("cube").xpos[2]
        for part, level in LEVEL.items():
            tip = self.data.site(self.adapter.role(f"{part}_site")).xpos[2]
            found.append(0.3 * 1000 * (tip - height - level))
        return np.concatenate([found, 2.0 * (trial[:-4] - self.prior), 30.0 * trial[-4:-1]])


def _joints_from(model: mujoco.MjModel, body: str) -> set[int]:
    """Return the joints of `body` and its descendants."""
    below = {model.body(body).id}
    for b in range(model.nbody):  # parents come before children
        if model.body_parentid[b] in below:
            below.add(b)
    return {j for j in range(model.njnt) if model.jnt_bodyid[j] in below}
