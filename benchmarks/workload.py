"""What the benchmarks run: a task per model, K different rewards, raw physics beside the engine's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import rollout as mj_rollout

from movlr_jax.config.compose import compose
from movlr_jax.config.schema import Config
from movlr_jax.control.mpc.planner import Planner
from movlr_jax.engine.tasks import task_of
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.tasks import Task
from movlr_jax.tasks.simple import simple_task
from movlr_jax.types import SimState

HUMANOID = "humanoid"  # the small one that comes with mujoco-mjx: 21 motors, 27 degrees of freedom
_HAND = ("myoarm_r", "ms_human_700", "musclemimic_arm_r")
_TASKS = {**dict.fromkeys(_HAND, "bottle_pour"), "ostrich": "ostrich_walk"}
FULL = "full700"  # the whole body of MS-Human-700, which walks; `ms_human_700` is its arm of 81 muscles


def workload(model: str, samples: int, horizon_s: float | None = None) -> tuple[Config, Task]:
    """Settings and task for `model`: a registered name, `full700`, `humanoid`, or the path of an MJCF file.

    Raises UserError.
    """
    given = [f"optimizer.mppi.samples={samples}", "films=false"]
    given += [f"optimizer.horizon_s={horizon_s}"] if horizon_s else []
    known = model not in (HUMANOID, "tiny_muscle") and not model.endswith(".xml")
    if known:
        task = _TASKS.get(model, "flat_walk")
        config = compose([f"task={task}", f"model={'ms_human_700' if model == FULL else model}", *given])
        return config, task_of(config)
    path = humanoid_file() if model == HUMANOID else model
    optimizer = [] if model == "tiny_muscle" else ["optimizer=mppi"]
    task = simple_task(name=Path(model).stem, model=path, description="hold the posture", episode_s=1.0)
    return compose(["task=bottle_pour", *optimizer, *given]), task


def humanoid_file() -> str:
    """Return the path of the humanoid of mujoco-mjx."""
    from mujoco import mjx

    return str(Path(mjx.__file__).parent / "test_data" / "humanoid" / "humanoid.xml")


def rewards(task: Task, generation: int, k: int) -> list[RewardProgram]:
    """K programs of five terms, no two alike in any generation."""
    bodies = list(task.layout.bodies)
    return [load(parse(_source(bodies, generation * 1000 + i))) for i in range(k)]


def _source(bodies: Sequence[str], number: int) -> str:
    picked = [bodies[(number * 3 + j * (len(bodies) // 3 + 1)) % len(bodies)] for j in range(3)]
    sharp = 1 + number % 17 + number / 1000
    terms = {
        "effort": "-jnp.mean(jnp.square(action))",
        "com": f"jnp.exp(-{sharp} * jnp.linalg.norm(state.com - state.initial.com))",
        "turn": f"jnp.sum(state.rot({picked[0]!r}) * state.initial.rot({picked[0]!r}))",
        "place": f"-shaping.smooth_abs({sharp} * (state.pos({picked[1]!r}) - state.initial.pos({picked[1]!r}))[2])",
        "still": f"-jnp.sum(jnp.square(state.vel({picked[2]!r})))",
    }
    weights = ", ".join(f'"{name}": {1.0 + j}' for j, name in enumerate(terms))
    lines = "".join(f'        "{name}": {text},\n' for name, text in terms.items())
    return (
        f'"""Hold the posture, {number}."""\n\nWEIGHTS = {{{weights}}}\n\n\n'
        f"def reward(state, action):\n    return {{\n{lines}    }}\n"
    )


def starts(planner: Planner, task: Task, rows: int) -> SimState:
    """`rows` start states of the task, as an episode begins; each of 64 recurs, for making one takes milliseconds."""
    drawn = task.start(np.random.default_rng(0), min(rows, 64))
    return planner.sim_physics.start(*(np.resize(x, (rows, *x.shape[1:])) for x in drawn))


def rates(planner: Planner, task: Task, rows: int, repeats: int, raw: bool = True) -> dict[str, float]:
    """Steps/s of the closed loop and, with `raw`, of raw physics for one batch, alternating, and their ratios."""
    physics = planner.physics
    start = jax.tree.map(physics.xp.asarray, starts(planner, task, rows))
    plans = physics.xp.asarray(planner.space.held(start))[:, None]
    params = planner.space.params(physics, start, plans)

    def engine() -> Any:
        key = jax.random.key(0)
        return jax.block_until_ready(
            physics.rollout(start, planner.plan_policy, params, steps=planner.horizon, key=key)
        )

    actions = engine().actions  # compiles, too
    steps = rows * planner.horizon * getattr(physics, "substeps")  # noqa: B009
    if not raw:
        return {"engine_steps_per_s": round(statistics.median(steps / _seconds(engine) for _ in range(repeats)))}
    open_loop = (raw_native if isinstance(physics, NativePhysics) else raw_mjx)(physics, start, actions)
    for _ in range(2):  # compiles; in Warp, the second call is slower than later ones, too
        open_loop()
    runs = [(steps / _seconds(open_loop), steps / _seconds(engine)) for _ in range(repeats)]
    ratios = sorted(ours / limit for limit, ours in runs)
    return {
        "raw_steps_per_s": round(statistics.median(limit for limit, _ in runs)),
        "engine_steps_per_s": round(statistics.median(ours for _, ours in runs)),
        "efficiency": round(statistics.median(ratios), 3),
        "efficiency_min": round(ratios[0], 3),
        "efficiency_max": round(ratios[-1], 3),
    }


def raw_native(physics: Any, start: SimState, actions: Any) -> Callable[[], object]:
    """One open-loop call of C MuJoCo for all rows; actions [B, T, nu], each held for one control step."""
    controls = np.repeat(np.asarray(actions, np.float64), physics.substeps, axis=1)
    rows, steps = controls.shape[:2]
    datas = [mujoco.MjData(physics.model) for _ in range(physics.threads)]
    pool = mj_rollout.Rollout(nthread=physics.threads)
    full = np.concatenate([np.asarray(start.time)[:, None], start.qpos, start.qvel, start.act], axis=1)
    states = np.empty((rows, steps, full.shape[1]))
    sensors = np.empty((rows, steps, physics.model.nsensordata))

    def run() -> None:
        pool.rollout([physics.model] * rows, datas, full, controls, nstep=steps, skip_checks=True,
                     state=states, sensordata=sensors)  # fmt: skip

    return run


def raw_mjx(physics: Any, start: SimState, actions: Any) -> Callable[[], object]:
    """One open-loop scan of `mjx.step` for all rows; actions [B, T, nu], each held for one control step."""
    from mujoco import mjx

    known = physics.simulator(len(start.time))

    def one(model: mjx.Model, data: mjx.Data, controls: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(data: mjx.Data, control: jax.Array) -> tuple[mjx.Data, None]:
            return mjx.step(model, data.replace(ctrl=control)), None

        data, _ = jax.lax.scan(step, data, controls)
        return data.qpos, data.sensordata

    @jax.jit
    def run(model: mjx.Model, template: mjx.Data, start: SimState, controls: jax.Array) -> Any:
        def row(start: SimState, controls: jax.Array) -> Any:
            data = template.replace(qpos=start.qpos, qvel=start.qvel, act=start.act)
            return one(model, data, controls)

        return jax.vmap(row)(start, controls)

    controls = jnp.repeat(actions, physics.substeps, axis=1)
    return lambda: jax.block_until_ready(run(known.model, known.template, start, controls))


def _seconds(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun
