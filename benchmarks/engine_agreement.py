"""How far MJX and Warp are from C MuJoCo on models: what every run with these engines checks before it starts.

    python benchmarks/engine_agreement.py --engine mjx --models humanoid myoarm_r benchmarks/cartpole.xml

A model is a name, or the path of an MJCF file. Nothing is taken from earlier comparisons. With --out, a JSON file is
written; otherwise it is printed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from movlr_jax.engine import environment

environment.prepare_environment()
environment.prepare_physics("mjx")

from quick import read_options  # noqa: E402
from record import circumstances, write  # noqa: E402

from movlr_jax.control.optimizers import Mpc2  # noqa: E402
from movlr_jax.errors import UserError  # noqa: E402
from movlr_jax.physics.agreement import TOLERANCE, compared  # noqa: E402
from movlr_jax.physics.mjx import check_warp  # noqa: E402
from movlr_jax.tasks import Task, build_task, simple_task  # noqa: E402

SCENES = ("flat_walk", "humanoid_walk", "bottle_pour", "ostrich_walk")


def scene_of(model: str) -> Task:
    """Return a built-in task with `model`, or one that holds its posture."""
    for name in SCENES:
        try:
            return build_task(name, model, 1.0, {})
        except UserError:
            continue
    return simple_task(name="hold", model=model, description="hold the posture")


def row(engine: str, model: str) -> dict[str, object]:
    """Return what the comparison found, or why there is none, and print it."""
    found: dict[str, object] = {"model": Path(model).stem}
    try:
        scene = scene_of(model)
        found |= {"nv": scene.model.nv, "nu": scene.model.nu}
        agreement = compared(engine, scene, sim_dt=Mpc2.plan_dt, remember=False)
        found |= vars(agreement) | {"agrees": agreement.agrees}
        what = f"{agreement.difference:.1e} at {agreement.where}, {agreement.seconds:.1f} s"
        print(f"{model}: {what}, {'agrees' if agreement.agrees else agreement.sentence(engine)}", flush=True)
    except (NotImplementedError, ValueError, UserError) as error:
        found["error"] = str(error)
        print(f"{model}: {engine} cannot run it: {error}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("mjx", "warp"), default="mjx")
    parser.add_argument("--models", nargs="+", default=["humanoid", "tiny_muscle", "ms_human_700_legs"])
    parser.add_argument("--out", type=Path)
    given = read_options(parser, models=["humanoid"])
    if given.engine == "warp":
        check_warp()
    rows = [row(given.engine, model) for model in given.models]
    result = circumstances() | {"engine": given.engine, "tolerance": TOLERANCE, "models": rows}
    if given.out:
        write(given.out, result)
    else:
        print(json.dumps(result, default=float))


if __name__ == "__main__":
    main()
