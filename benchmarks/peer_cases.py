"""What the contestants of `peer_returns.py` share: models, rewards, start states and the episode that is measured.

Needs only MuJoCo and NumPy, so that it also runs in the Python environments of the other planners.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import mujoco
import numpy as np

SIM_DT = 0.002  # s, time step of all episodes
_DOCSTRING = '"""{words}"""\n\nWEIGHTS = {weights}\n\n\ndef reward(state, action):\n    return {{{terms}}}\n'

Terms = Callable[[Any, Any, Any, Any, Any], Mapping[str, Any]]
Act = Callable[[mujoco.MjData], np.ndarray]  # the control [nu] of the next simulation step


class Contestant(Protocol):
    """A planner in closed loop."""

    every_s: float  # between plans

    def begin(self, data: mujoco.MjData, seed: int) -> None: ...
    def plan(self, data: mujoco.MjData) -> Act: ...


@dataclass(frozen=True)
class Case:
    """A model with a reward: the terms of a program, and the same terms as functions of arrays [..., n].

    posture: start values of joints, those of a floating body last 7 or first 7 numbers of qpos.
    """

    file: str  # in hydrax/models of the checkout, or a file of this folder
    words: str
    weights: Mapping[str, float]
    program: Mapping[str, str]  # expressions in `state` and `action`
    terms: Terms  # (numpy or jax.numpy, qpos, qvel, control, sensors) -> values
    body: str  # whose position [3] and z-axis [3] are the sensors
    posture: Callable[[mujoco.MjModel], np.ndarray]
    noise: float = 0.02  # of hinges and slides at the start, rad or m
    seconds: float = 3.2  # a multiple of all times between plans

    def text(self) -> str:
        """Return the reward program."""
        terms = ", ".join(f'"{name}": {expression}' for name, expression in self.program.items())
        return _DOCSTRING.format(words=self.words.capitalize() + ".", weights=dict(self.weights), terms=terms)

    def reward(self, xp: Any, qpos: Any, qvel: Any, control: Any, sensors: Any) -> Any:
        """Return the rewards [...] of states. xp: numpy or jax.numpy."""
        values = self.terms(xp, qpos, qvel, control, sensors)
        return sum(weight * values[name] for name, weight in self.weights.items())

    def spec(self, checkout: Path | None) -> mujoco.MjSpec:
        """Return the model of the file with the sensors of the reward, and no others."""
        folder = checkout / "hydrax" / "models" if checkout else Path(__file__).parent
        spec = mujoco.MjSpec.from_file(str(folder / self.file))
        for sensor in list(spec.sensors):
            spec.delete(sensor)
        for kind in (mujoco.mjtSensor.mjSENS_FRAMEPOS, mujoco.mjtSensor.mjSENS_FRAMEZAXIS):
            spec.add_sensor(name=f"peer{int(kind)}", type=kind, objtype=mujoco.mjtObj.mjOBJ_XBODY, objname=self.body)
        return spec

    def simulated(self, checkout: Path | None, step: float = SIM_DT) -> mujoco.MjSpec:
        """Return the model with another time step (0: that of the file) and MuJoCo's iterations of the solver.

        The files limit the solver to few iterations, for MJX.
        """
        spec = self.spec(checkout)
        spec.option.timestep = step or spec.option.timestep
        spec.option.iterations, spec.option.ls_iterations = 100, 50
        return spec

    def start(self, model: mujoco.MjModel, rng: np.random.Generator) -> np.ndarray:
        """Return the start state [nq] of an episode."""
        qpos = self.posture(model).copy()
        for j in np.flatnonzero(model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)):
            at, (low, high) = model.jnt_qposadr[j], model.jnt_range[j]
            moved = qpos[at] + self.noise * rng.standard_normal()
            qpos[at] = np.clip(moved, low, high) if model.jnt_limited[j] else moved
        return qpos


def play(case: Case, model: mujoco.MjModel, who: Contestant, seed: int, seconds: float) -> tuple[float, float, Any]:
    """Return the mean reward per simulation step of an episode, its processor time per s, and its states [T, nq]."""
    data = mujoco.MjData(model)
    data.qpos[:] = case.start(model, np.random.default_rng(seed))
    mujoco.mj_forward(model, data)
    low, high = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, (-np.inf, np.inf)).T
    who.begin(data, seed)
    states, begun = [], time.process_time()
    for _ in range(round(seconds / who.every_s)):
        act = who.plan(data)
        for _ in range(round(who.every_s / SIM_DT)):
            data.ctrl[:] = np.clip(act(data), low, high)
            before = data.qpos.copy(), data.qvel.copy(), data.ctrl.copy()
            mujoco.mj_step(model, data)
            states.append((*before, data.sensordata.copy()))  # sensors are those of the state before the step
    cpu = (time.process_time() - begun) / (len(states) * SIM_DT)
    arrays = [np.array(x) for x in zip(*states, strict=True)]
    return float(case.reward(np, *arrays).mean()), cpu, arrays[0]


def measured(case: Case, model: mujoco.MjModel, who: Contestant, seeds: list[int], seconds: float) -> dict[str, Any]:
    """Return the returns of the episodes, and the processor time per simulated second, once all is compiled."""
    play(case, model, who, 0, 2 * who.every_s)
    played = [play(case, model, who, seed, seconds) for seed in seeds]
    return {
        "returns": [value for value, _, _ in played],
        "cpu_s_per_s": float(np.mean([cpu for _, cpu, _ in played])),
    }


def answer(make: Callable[[Case, argparse.Namespace], Contestant]) -> None:
    """Do the share of another planner: read the command line, measure, and print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("rule")
    parser.add_argument("samples", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("seeds", type=int, nargs="+")
    given = parser.parse_args()
    case = CASES[given.case]
    who = make(case, given)
    print(json.dumps(measured(case, case.simulated(given.checkout).compile(), who, given.seeds, given.seconds)))


def _cart_pole(file: str, slide: str, hinge: str, pole: str, up: float) -> Case:
    """Swing up; up: angle of the hinge at which the pole is upright."""
    return Case(
        file=file,
        words="swing up the pole and balance it in the middle",
        weights={"upright": 1.0, "centred": 0.3, "calm": 0.01, "effort": 0.01},
        program={
            "upright": f"jnp.cos(state.q({hinge!r}) - {up!r})",
            "centred": f"-jnp.square(state.q({slide!r}))",
            "calm": "-jnp.sum(jnp.square(state.qvel))",
            "effort": "-jnp.sum(jnp.square(action))",
        },
        terms=lambda xp, q, v, u, s: {
            "upright": xp.cos(q[..., 1] - up),
            "centred": -xp.square(q[..., 0]),
            "calm": -xp.square(v).sum(-1),
            "effort": -xp.square(u).sum(-1),
        },
        body=pole,
        posture=lambda model: np.array([0.0, up - np.pi]),
        noise=0.05,
        seconds=4.0,
    )


def _lying(model: mujoco.MjModel) -> np.ndarray:
    """Return the standing posture of G1, turned onto its back on the floor."""
    qpos = model.key("stand").qpos.copy()
    qpos[2:7] = 0.08, np.sqrt(0.5), 0.0, -np.sqrt(0.5), 0.0
    return qpos


def _cupped(_: mujoco.MjModel) -> np.ndarray:
    """Return the posture of the hand with all joints at 0, and the cube in it."""
    return np.array([0.0] * 16 + [*_PLACE, 1.0, 0.0, 0.0, 0.0])


_HALF = float(np.sqrt(0.5))
_PLACE = (0.125, 0.0, 0.02)  # m, where the cube lies in the hand
CASES: Mapping[str, Case] = {
    "cart_pole": _cart_pole("cart_pole/scene.xml", "slider", "hinge_1", "pole_1", float(np.pi)),
    "walker": Case(
        file="walker/scene.xml",
        words="walk forward at 1.5 m/s",
        weights={"height": 10.0, "upright": 1.0, "speed": 1.0, "effort": 0.1},
        program={
            "height": "-jnp.square(state.pos('torso')[2] - 1.2)",
            "upright": "state.rot('torso')[2, 2]",
            "speed": "-jnp.abs(state.vel('torso')[0] - 1.5)",
            "effort": "-jnp.mean(jnp.square(action))",
        },
        terms=lambda xp, q, v, u, s: {
            "height": -xp.square(s[..., 2] - 1.2),
            "upright": s[..., 5],
            "speed": -xp.abs(v[..., 1] - 1.5),
            "effort": -xp.square(u).mean(-1),
        },
        body="torso",
        posture=lambda model: model.qpos0,
    ),
    "cube": Case(
        file="cube/scene.xml",
        words="turn the cube by 90 degrees about the vertical in the palm",
        weights={"place": 2.0, "turned": 0.5},
        program={
            "place": f"-jnp.linalg.norm(state.pos('cube') - jnp.array({_PLACE}))",
            # sin^2 of half of the angle to the goal
            "turned": "(state.rot('cube')[1, 0] - state.rot('cube')[0, 1] + state.rot('cube')[2, 2] - 3) / 4",
        },
        terms=lambda xp, q, v, u, s: {
            "place": -xp.sqrt(xp.square(q[..., 16:19] - xp.array(_PLACE)).sum(-1)),
            "turned": xp.square(_HALF * (q[..., 19] + q[..., 22])) / xp.square(q[..., 19:]).sum(-1) - 1.0,
        },
        body="cube",
        posture=_cupped,
        noise=0.05,
    ),
    "g1": Case(
        file="g1/scene.xml",
        words="stand up",
        weights={"height": 10.0, "upright": 1.0, "effort": 0.1},
        program={
            "height": "-jnp.square(state.pos('torso_link')[2] - 0.83)",
            "upright": "state.rot('torso_link')[2, 2]",
            "effort": "-jnp.mean(jnp.square(action - state.qpos[7:]))",
        },
        terms=lambda xp, q, v, u, s: {
            "height": -xp.square(s[..., 2] - 0.83),
            "upright": s[..., 5],
            "effort": -xp.square(u - q[..., 7:]).mean(-1),
        },
        body="torso_link",
        posture=_lying,
    ),
    "quick": _cart_pole("cartpole.xml", "slide", "hinge", "pole", 0.0),  # a file of this folder
}
