"""Run an exported policy in plain MuJoCo: python run_policy.py walk.onnx 10"""

import json
import sys

import mujoco
import numpy as np
import onnxruntime


def run(path: str, seconds: float) -> mujoco.MjData:
    session = onnxruntime.InferenceSession(path)
    about = session.get_modelmeta().custom_metadata_map
    model = mujoco.MjModel.from_binary_path(path.removesuffix(".onnx") + ".mjb")
    data = mujoco.MjData(model)
    for name, value in json.loads(about["start"]).items():
        getattr(data, name)[:] = value
    mujoco.mj_forward(model, data)
    names, substeps = ([x.name for x in session.get_inputs()], round(float(about["ctrl_dt"]) / model.opt.timestep))
    while data.time < seconds:
        seen = {name: np.asarray(getattr(data, name), np.float32) for name in names}
        data.ctrl[:] = session.run(["action"], seen)[0]
        mujoco.mj_step(model, data, substeps)
    return data


if __name__ == "__main__":
    print("coordinates (qpos) at the end:", run(sys.argv[1], float(sys.argv[2])).qpos)
