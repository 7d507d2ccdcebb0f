"""Rules of planning at equal rollouts: what each makes of the same reward, on tasks that take minutes.

Every row plans with `--rollouts` rollouts at each replan, whatever it spends them on: samples, updates or worlds. All
rows of a task share start states and random numbers. Figures: the mean reward of a control step over the episode, and
the measure of the task at the end: the share of the last third of the time that the pole stands, the distance of the
fingertip from its target, or that of the bottle from its goal.

    nice python benchmarks/planner_rules.py --out benchmarks/results/planner_rules.json
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from movlr_jax.engine.environment import prepare_environment

prepare_environment()

import jax  # noqa: E402
import mujoco  # noqa: E402
import numpy as np  # noqa: E402
from quick import read_options  # noqa: E402
from record import circumstances, write  # noqa: E402

from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.control.build import build_planner  # noqa: E402
from movlr_jax.control.episode import by_candidate  # noqa: E402
from movlr_jax.engine.tasks import task_of  # noqa: E402
from movlr_jax.evolution.evaluation import make_probe  # noqa: E402
from movlr_jax.sandbox.vet import Sandbox  # noqa: E402
from movlr_jax.tasks import Task, simple_task  # noqa: E402

CARTPOLE = Path(__file__).with_name("cartpole.xml")
SWING_UP = '''"""Swing the pole up and keep it above the middle."""

WEIGHTS = {"up": 1.0, "middle": 0.1, "effort": 0.002}


def reward(state, action):
    return {
        "up": jnp.cos(state.q("hinge")),
        "middle": -jnp.square(state.q("slide")),
        "effort": -jnp.sum(jnp.square(action)),
    }
'''
REACHER = """<mujoco><option timestep="0.01" gravity="0 0 0"/><worldbody>
<body name="upper"><joint name="shoulder" type="hinge" axis="0 0 1" damping="0.05"/>
<geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02" mass="0.3" contype="0" conaffinity="0"/>
<body name="lower" pos="0.3 0 0"><joint name="elbow" type="hinge" axis="0 0 1" range="-2.6 2.6" limited="true"
damping="0.05"/><geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02" mass="0.2" contype="0" conaffinity="0"/>
<site name="tip" pos="0.3 0 0"/></body></body></worldbody>
<actuator><motor name="m1" joint="shoulder" ctrlrange="-1 1" ctrllimited="true"/>
<motor name="m2" joint="elbow" ctrlrange="-1 1" ctrllimited="true"/></actuator></mujoco>"""
REACH = '''"""Bring the tip to its target and stay there."""

WEIGHTS = {"near": 1.0, "still": 0.02, "effort": 0.01}


def reward(state, action):
    return {
        "near": -jnp.linalg.norm(state.site("tip") - state.goal("tip_pos")),
        "still": -jnp.sum(jnp.square(state.qvel)),
        "effort": -jnp.sum(jnp.square(action)),
    }
'''
BASE = {"ctrl_dt": 0.02, "sim_dt": 0.01, "plan_dt": 0.01, "replan_every": 2}


@dataclass(frozen=True)
class Setting:
    """How a row spends its rollouts."""

    updates: int = 1
    worlds: int = 1
    more: tuple[str, ...] = ()


ROWS = {
    "mppi": Setting(),
    "mppi, 4 updates": Setting(4),
    "mppi, zero-order": Setting(more=("optimizer.spline=zero",)),
    "mppi, cubic": Setting(more=("optimizer.spline=cubic",)),
    "best": Setting(more=("optimizer.mppi.rule=predictive_sampling",)),
    "best, cubic": Setting(more=("optimizer.mppi.rule=predictive_sampling", "optimizer.spline=cubic")),
    "cem": Setting(more=("optimizer.mppi.rule=cem",)),
    "cem, 4 updates": Setting(4, more=("optimizer.mppi.rule=cem", "optimizer.mppi.elites=4")),
    "dial, 4 updates": Setting(4, more=("optimizer.mppi.rule=dial", "optimizer.mppi.temperature=0.2")),
    "CMA-ES, 4 updates": Setting(4, more=("optimizer.mppi.rule=evosax",)),
    "mppi, mean of 4 worlds": Setting(1, 4),
    "mppi, worst of 4 worlds": Setting(1, 4, ("optimizer.mppi.risk=worst",)),
    "mppi, cvar of 4 worlds": Setting(1, 4, ("optimizer.mppi.risk=cvar", "optimizer.mppi.tail=0.5")),
}
FEW = ("mppi", "mppi, 4 updates", "best", "cem", "cem, 4 updates", "dial, 4 updates", "CMA-ES, 4 updates")


def cartpole() -> Task:
    def hanging(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        qpos = np.stack([rng.uniform(-0.2, 0.2, n), np.pi + rng.uniform(-0.2, 0.2, n)], axis=1)
        return qpos, np.zeros((n, 2)), np.zeros((n, 0))

    return simple_task(
        name="cartpole",
        model=mujoco.MjSpec.from_file(str(CARTPOLE)),
        description="swing the pole up and keep it there",
        start=hanging,
        human_reward=SWING_UP,
        reward=SWING_UP,
        episode_s=6.0,
    )


def reacher() -> Task:
    def folded(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return rng.uniform([-1.5, 0.5], [-0.5, 2.0], (n, 2)), np.zeros((n, 2)), np.zeros((n, 0))

    return simple_task(
        name="reacher",
        model=mujoco.MjSpec.from_string(REACHER),
        description="bring the tip to its target",
        goals={"tip_pos": [0.2, 0.35, 0.0]},
        start=folded,
        human_reward=REACH,
        reward=REACH,
        episode_s=2.0,
    )


def bottle() -> Task:
    return task_of(compose(["+task=bottle_pour", "episode_s=1.2"]))


TASKS = {
    "cartpole": (cartpole, "mppi", ("optimizer.horizon_s=0.8", "optimizer.knots=6"), tuple(ROWS)),
    "reacher": (reacher, "mppi", ("optimizer.horizon_s=0.4", "optimizer.knots=4"), tuple(ROWS)),
    "bottle_pour": (bottle, "mpc2", ("model=myoarm_r",), FEW),
}


def measured(name: str, task: Task, qpos: np.ndarray) -> float:
    """Return the figure of the end of the episodes [E, T, nq]."""
    if name == "cartpole":
        late = qpos[:, 2 * qpos.shape[1] // 3 :, 1]
        return float((np.cos(late) > 0.95).mean())
    data, far = mujoco.MjData(task.model), []
    for row in qpos[:, -1]:
        data.qpos[:] = row
        mujoco.mj_kinematics(task.model, data)
        at = data.site("tip").xpos if name == "reacher" else data.body(task.roles["object"]).xpos
        goal = task.goals["tip_pos" if name == "reacher" else "object_pos"]
        far.append(np.linalg.norm(at - goal))
    return float(np.mean(far))


def run(name: str, row: str, rollouts: int, episodes: int) -> dict[str, Any]:
    make, optimizer, words, _ = TASKS[name]
    task, setting = make(), ROWS[row]
    samples = rollouts // (setting.updates * setting.worlds)
    rhythm = [f"optimizer.{n}={v}" for n, v in BASE.items()] if optimizer == "mppi" else []
    given = [
        "+task=bottle_pour", f"optimizer={optimizer}", *rhythm, *words, f"optimizer.mppi.samples={samples}",
        f"optimizer.mppi.updates={setting.updates}", f"optimizer.mppi.worlds={setting.worlds}", *setting.more,
    ]  # fmt: skip
    planner = build_planner(compose(given).optimizer, task)
    sandbox = Sandbox(make_probe(task, planner.sim_physics, 0))
    program = sandbox.vet(task.rewards.human).program
    sandbox.close()
    assert program is not None
    start = planner.sim_physics.start(*task.start(np.random.default_rng(1), episodes))
    begun = time.process_time()
    controllers = planner.optimise([program], jax.random.key(0))
    steps = round(task.episode_s / planner.sim_physics.ctrl_dt)
    done = controllers.rollout(start, steps=steps, key=jax.random.key(0))
    states = jax.tree.map(
        lambda x: by_candidate(np.asarray(x, np.float32), 1), (done.steps, done.actions, start.step)
    )
    totals = planner.scorer([program], *states).totals[0]
    planner.physics.close()
    planner.sim_physics.close()
    return {
        "task": name,
        "row": row,
        "samples": samples,
        "updates": setting.updates,
        "worlds": setting.worlds,
        "reward": float(totals.mean()),
        "reward_of_episodes": [float(x) for x in totals.mean(axis=1)],
        "measure": measured(name, task, np.asarray(done.steps.qpos)),
        "cpu_s": time.process_time() - begun,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/planner_rules.json"))
    given = read_options(
        parser, tasks=["reacher"], rows=["mppi", "cem, 4 updates"], rollouts=16, episodes=2, out=None
    )
    rows: list[dict[str, Any]] = []
    if given.out and given.out.exists():
        rows = list(json.loads(given.out.read_text())["rows"])
    for name in given.tasks:
        episodes, rollouts = (2, 32) if name == "bottle_pour" else (given.episodes, given.rollouts)
        for row in TASKS[name][3]:
            if row not in given.rows or any(r["task"] == name and r["row"] == row for r in rows):
                continue
            rows.append(run(name, row, rollouts, episodes))
            print(json.dumps(rows[-1]), flush=True)
            about = circumstances()
            if given.out:
                write(given.out, {**about, "rows": rows})


if __name__ == "__main__":
    main()
