"""The return of the default planner and of other sampling planners: same model, reward, starts and processor time.

Each contestant plans with its own defaults for this kind of model (`peer_returns_judo.py`, `peer_returns_hydrax.py`),
in a loop that all share (`peer_cases.play`): one simulation in C MuJoCo, and the mean reward per step of it. The
processor time of a simulated second counts all threads, once everything is compiled. The others get as many samples
as take about as much of it as this package does; this is measured on another seed.

    hold    the controls that hold the start posture
    ours    what `evaluate model=FILE` chooses
    judo    MPPI and CEM (package judo-rai)
    hydrax  planning in MJX on the CPU

    git clone https://github.com/vincekurtz/hydrax && uv venv --python 3.12 hydrax-venv
    uv pip install --python hydrax-venv/bin/python jax flax evosax interpax mujoco==3.17.0 mujoco-mjx==3.17.0
    nice python benchmarks/peer_returns.py --checkout hydrax --hydrax hydrax-venv/bin/python --judo judo/bin/python
    python benchmarks/peer_returns.py --report   # the table, from all rows so far

The models are those of the checkout. Rows are kept as soon as they are measured, and a second call goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import mujoco  # noqa: E402
import numpy as np  # noqa: E402
from peer_cases import CASES, SIM_DT, Act, Case, measured  # noqa: E402
from quick import read_options  # noqa: E402
from record import RESULTS, circumstances, commit, write  # noqa: E402

from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.control.build import build_planner, close, scored_at_once  # noqa: E402
from movlr_jax.engine.parts import sized  # noqa: E402
from movlr_jax.evolution.evaluation import make_probe  # noqa: E402
from movlr_jax.models.actuators import servo_controls  # noqa: E402
from movlr_jax.sandbox.probe import Probe  # noqa: E402
from movlr_jax.sandbox.vet import Sandbox  # noqa: E402
from movlr_jax.tasks.simple import simple_task  # noqa: E402

OUT = RESULTS / "peer_returns.json"
SEED = 9500  # of the first episode; nothing was chosen on these
TUNED_SEED, TUNED_S = 100, 1.0  # an episode on which the processor time of numbers of samples is measured
FEW, SOME, MOST = 8, 40, 1000  # samples: the least, those of the second measurement, and at most
LONGEST_S = 180.0  # of processor time per episode
OTHERS = {"judo_mppi": ("judo", "mppi"), "judo_cem": ("judo", "cem"), "hydrax": ("hydrax", "example")}


class Hold:
    """The controls that hold the start posture."""

    every_s = 0.1

    def begin(self, data: mujoco.MjData, seed: int) -> None:
        self.control = servo_controls(data.model, data.qpos)

    def plan(self, data: mujoco.MjData) -> Act:
        return lambda now: self.control


class Ours:
    """The planner that the settings give for a model and a sentence."""

    def __init__(self, case: Case, checkout: Path | None, settings: list[str]):
        spec = case.simulated(checkout)
        model = spec.compile()

        def start(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            qpos = np.array([case.start(model, rng) for _ in range(n)])
            return qpos, np.zeros((n, model.nv)), np.zeros((n, model.na))

        task = simple_task(name="peers", model=spec, description=case.words, start=start, reward=case.text())
        config = compose([f"model={case.file}", f'instruction="{case.words}"', *settings])
        config = sized(config, task, 1, print)
        self.planner = planner = build_planner(config.optimizer, task, say=print)  # pyright: ignore[reportArgumentType]
        assert planner.sim_physics.sim_dt == SIM_DT
        self.samples = planner.config.mppi.samples
        self.every_s = planner.config.replan_every * planner.sim_physics.ctrl_dt
        probe = make_probe(task, planner.sim_physics, 0)
        sandbox = Sandbox(probe, batch=scored_at_once(config.optimizer, task))
        verdict = sandbox.vet(task.rewards.initial)
        sandbox.close()
        assert verdict.program, verdict.message
        self.programs = [verdict.program]
        self.difference = self._difference(case, model, probe)

    def _difference(self, case: Case, model: mujoco.MjModel, probe: Probe) -> float:
        """Return the largest difference of the program and the two functions, on states of random controls."""
        rows = jax.tree.map(lambda x: np.asarray(x)[None], (probe.steps, probe.actions, probe.initial))
        program = self.planner.scorer(self.programs, *rows).totals[0]
        steps, sensors = probe.steps, np.zeros((*program.shape, model.nsensordata))
        data = mujoco.MjData(model)
        for at in np.ndindex(*program.shape):
            data.qpos[:], data.qvel[:] = steps.qpos[at], steps.qvel[at]
            mujoco.mj_forward(model, data)
            sensors[at] = data.sensordata
        arrays = [np.asarray(x) for x in (steps.qpos, steps.qvel, probe.actions, sensors)]
        functions = [case.reward(np, *arrays), np.asarray(case.reward(jnp, *(jnp.asarray(x) for x in arrays)))]
        return max(float((np.abs(f - program) / (1 + np.abs(program))).max()) for f in functions)

    def _state(self, data: mujoco.MjData) -> Any:
        rows = (np.array([x]) for x in (data.qpos, data.qvel, data.act))
        return replace(self.planner.sim_physics.start(*rows), time=np.array([data.time]))

    def begin(self, data: mujoco.MjData, seed: int) -> None:
        p = self.planner
        self.controllers, self.key = p.optimise(self.programs, jax.random.key(seed)), jax.random.key(seed)
        start = p.space.begun(self._state(data))
        self.initial, self.home, self.command = start.step, p.space.held(start), np.asarray(start.prev_action)
        self.known, self.updates = p.init(self.home), max(p.config.first_updates, p.config.mppi.updates)

    def plan(self, data: mujoco.MjData) -> Act:
        p, state = self.planner, replace(self._state(data), prev_action=self.command)
        self.key, sample, random, act = jax.random.split(self.key, 4)
        plan = self.controllers.replan(self.known, state, self.initial, self.home, sample, random, self.updates)
        self.known, self.updates = p.shift(plan), p.config.mppi.updates
        params = p.space.params(p.sim_physics, state, np.asarray(plan.mean)[:, None])
        steps = p.config.replan_every
        commands = np.asarray(p.sim_physics.rollout(state, p.sim_policy, params, steps=steps, key=act).actions)[0]
        self.command, begun, ctrl_dt = commands[-1:], data.time, p.sim_physics.ctrl_dt
        return lambda now: self._control(now, commands[int((now.time - begun) / ctrl_dt + 1e-6)])

    def _control(self, data: mujoco.MjData, command: np.ndarray) -> np.ndarray:
        """Return the controls [nu]; those of joint targets are what the servos of the planner would apply."""
        targets = self.planner.targets
        if targets is None:
            return command
        m, joints = targets.model, targets.model.actuator_trnid[:, 0]
        # lengths and velocities in `data` are those before the last step
        length = m.actuator_gear[:, 0] * data.qpos[m.jnt_qposadr[joints]]
        velocity = m.actuator_gear[:, 0] * data.qvel[m.jnt_dofadr[joints]]
        states = np.array([np.ones(m.nu), length, velocity])
        force = m.actuator_gainprm[:, 0] * command + (m.actuator_biasprm[:, :3] * states.T).sum(axis=1)
        limited = np.clip(force, *m.actuator_forcerange.T)
        force = np.where(m.actuator_forcelimited, limited, force)
        return np.where(targets.which, force / targets.gain, command)


def asked(name: str, case: str, given: argparse.Namespace, samples: int, seconds: float, seeds: list[int]) -> Any:
    """Return what another planner did, in a process of its own."""
    package, rule = OTHERS[name]
    script = Path(__file__).with_name(f"peer_returns_{package}.py")
    words = [getattr(given, package), script, case, given.checkout, rule, samples, seconds, *seeds]
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def row_of(case: str, who: str, given: argparse.Namespace, cpu_s_per_s: float | None) -> dict[str, Any]:
    """Return the row of a contestant; the others get as many samples as take `cpu_s_per_s`."""
    of, seeds = CASES[case], list(range(given.begin, given.begin + given.episodes))
    seconds = given.seconds or of.seconds
    model = of.simulated(given.checkout).compile()
    if who == "hold":
        return measured(of, model, Hold(), seeds, seconds)
    if who == "ours":
        ours = Ours(of, given.checkout, given.settings)
        assert ours.difference < 1e-4, f"the rewards of {case} differ by {ours.difference:.2g}"
        found = measured(of, model, ours, seeds, seconds)
        close(ours.planner)
        return {"samples": ours.samples, "difference_of_rewards": ours.difference, **found}
    assert cpu_s_per_s, "ours is measured first"
    few, some = (asked(who, case, given, n, TUNED_S, [TUNED_SEED])["cpu_s_per_s"] for n in (FEW, SOME))
    if few * seconds > LONGEST_S:
        return {"samples": FEW, "skipped": f"{few:.0f} s of processor time per simulated second"}
    more = (cpu_s_per_s - few) / max((some - few) / (SOME - FEW), 1e-9)
    samples = int(np.clip(round(FEW + more), FEW, MOST))
    return {"samples": samples, **asked(who, case, given, samples, seconds, seeds)}


def report(rows: Mapping[str, Any]) -> None:
    print("| model | planner | samples | return | CPU s per s |\n|---|---|---|---|---|")
    for model, who in itertools.product(CASES, ("hold", "ours", *OTHERS)):
        row = rows.get(f"{model} {who}")
        if row is None:
            continue
        shown = row.get("skipped") or f"{row['mean']:.2f} ± {row['stderr']:.2f} | {row['cpu_s_per_s']:.2f}"
        print(f"| {model} | {who} | {row.get('samples', '')} | {shown} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, help="folder with a checkout of hydrax, whose models are used")
    parser.add_argument("--judo", metavar="PYTHON", help="Python of an environment with judo-rai")
    parser.add_argument("--hydrax", metavar="PYTHON", help="Python of an environment with what hydrax needs")
    parser.add_argument("--case", nargs="+", choices=CASES, default=[case for case in CASES if case != "quick"])
    parser.add_argument("--who", nargs="+", choices=["hold", "ours", *OTHERS], default=["hold", "ours", *OTHERS])
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--begin", type=int, default=SEED, help="seed of the first episode")
    parser.add_argument("--seconds", type=float, default=0.0, help="of an episode; 0: those of the case")
    parser.add_argument("--settings", nargs="*", default=[], help="settings of ours, to look for reasons")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--report", action="store_true")
    given = read_options(parser, case=["quick"], episodes=1, seconds=0.2, settings=["optimizer.mppi.samples=4"])
    known: dict[str, Any] = {"rows": {}}
    if given.out.is_file() and not given.quick:
        known = json.loads(given.out.read_text(encoding="utf-8"))
    rows, at = known["rows"], commit()
    for case in [] if given.report else given.case:
        for who in given.who:
            name = f"{case} {who}"
            if name in rows:
                continue
            if who in OTHERS and not getattr(given, OTHERS[who][0]):
                print(f"{who} is skipped: its Python is not given")
                continue
            row = row_of(case, who, given, rows.get(f"{case} ours", {}).get("cpu_s_per_s"))
            if "returns" in row:
                values = np.array(row["returns"])
                error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
                row |= {"mean": float(values.mean()), "stderr": float(error)}
            rows[name] = {**row, "commit": at}
            if not given.quick:
                write(given.out, {"benchmark": "peer_returns", **circumstances(), "rows": rows})
            print(name, json.dumps(rows[name]), flush=True)
    report(rows)


if __name__ == "__main__":
    main()
