"""Write a trained policy as an ONNX graph from what MuJoCo measures to controls, with the model that it acts on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.control.onnx_export.graph import onnx_model
from movlr_jax.storage.writing import write_atomically
from movlr_jax.types import Step

if TYPE_CHECKING:
    from movlr_jax.control.ppo.trainer import PpoTrainer

# inputs of the graph: arrays of mjData, and their sizes in mjModel. ctrl holds the control of the step before
INPUTS = {"time": None, "qpos": "nq", "qvel": "nv", "act": "na", "sensordata": "nsensordata", "ctrl": "nu"}
OUTPUT = "action"


def export_policy(ppo: PpoTrainer, path: Path) -> list[Path]:
    """Write the policy of `ppo.config.init` to `path` (.onnx) and its model next to it (.mjb). Return both paths.

    The graph holds the observation with its statistics, the network, and the map from actions to controls, which for
    `action=posture` includes the muscle controller. It acts with the mode of its distribution. Raises UserError.
    """
    physics, model = ppo.sim_physics, ppo.space.model
    acting, key = ppo.acting(), jax.random.key(0)

    def policy(time, qpos, qvel, act, sensordata, ctrl):
        view = Step(time=time, qpos=qpos, qvel=qvel, act=act, sensors=sensordata, prev_action=ctrl)
        return jnp.asarray(ppo.space.controls(acting(view, key), view, physics.sim_dt, physics.ctrl_dt), jnp.float32)

    sizes = {name: () if size is None else (int(getattr(model, size)),) for name, size in INPUTS.items()}
    start = ppo.pool.step
    about = {
        "task": ppo.task.name,
        "model": ppo.task.adapter.name,
        "ctrl_dt": f"{physics.ctrl_dt:g}",
        "sim_dt": f"{physics.sim_dt:g}",
        "mujoco": mujoco.__version__,
        "actuators": json.dumps([model.actuator(i).name for i in range(model.nu)]),
        "start": json.dumps({name: np.asarray(getattr(start, name))[0].tolist() for name in ("qpos", "qvel", "act")}),
        **{name: str(value) for name, value in ppo.notes.items() if name != "groups"},
    }
    doc = "Inputs are the arrays of mjData of these names, of the model next to this file; action is the next ctrl."
    made = onnx_model(policy, sizes, OUTPUT, about, doc)
    binary = path.with_suffix(".mjb")
    acting = mujoco.MjModel.__copy__(model)
    acting.opt.timestep = physics.sim_dt
    data = np.empty(mujoco.mj_sizeModel(acting), np.uint8)
    mujoco.mj_saveModel(acting, None, data)
    return [write_atomically(path, made.SerializeToString()), write_atomically(binary, data.tobytes())]
