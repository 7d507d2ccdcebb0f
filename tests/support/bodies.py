"""Small bodies to read sentences on: a person, arms, four legs, a drone, two wheels, a hand, a gripper."""

from __future__ import annotations

from pathlib import Path

import mujoco
from moving import CRAWLER, HOPPER, block

from movlr_jax.models.derived import derive_adapter, name_all
from movlr_jax.models.from_path import forward_of, roles_of
from movlr_jax.tasks.words.scene import Scene


def _limb(side: str, y: float) -> str:
    return f"""
  <body name="{side}_upper_arm" pos="0 {y} .4"><joint name="{side}_shoulder_x" axis="1 0 0" range="-3 3"/>
    <joint name="{side}_shoulder_y" axis="0 1 0" range="-3 3"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".04"/>
    <body name="{side}_lower_arm" pos="0 0 -.3"><joint name="{side}_elbow" axis="0 1 0" range="-3 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.24" size=".03"/></body></body>
  <body name="{side}_thigh" pos="0 {y / 2} -.1"><joint name="{side}_hip" axis="0 1 0" range="-2 2"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".05"/>
    <body name="{side}_shin" pos="0 0 -.4"><joint name="{side}_knee" axis="0 1 0" range="0 2"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".04"/>
      <body name="{side}_foot" pos="0 0 -.4"><geom type="box" size=".1 .04 .03" pos=".05 0 -.02"/></body>
    </body></body>"""


_JOINTS = [f"{side}_{j}" for side in ("left", "right") for j in ("shoulder_x", "shoulder_y", "elbow", "hip", "knee")]
PERSON = f"""<mujoco><compiler angle="radian"/><worldbody><geom type="plane" size="5 5 .1"/>
<body name="torso" pos="0 0 .96"><freejoint/><geom type="capsule" fromto="0 0 -.1 0 0 .4" size=".1"/>
  <body name="head" pos="0 0 .55"><geom size=".1"/></body>{_limb("left", 0.2)}{_limb("right", -0.2)}
</body>
<body name="red_ball" pos=".6 0 .1"><freejoint/><geom size=".1"/><site name="top" pos="0 0 .1"/></body>
</worldbody><actuator>{"".join(f'<motor joint="{j}" gear="40" ctrlrange="-1 1"/>' for j in _JOINTS)}</actuator>
</mujoco>"""

LYING = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/>
  <body name="hip" pos="0 0 .06"><freejoint/><geom type="capsule" fromto="0 0 0 .4 0 0" size=".05"/>
    <body name="leg" pos=".4 0 0"><joint name="knee" axis="0 1 0" range="-2 2" limited="true"/>
      <geom type="capsule" fromto="0 0 0 .4 0 0" size=".05"/><body name="foot" pos=".4 0 0"><geom size=".05"/></body>
    </body></body></worldbody><actuator><motor joint="knee" ctrlrange="-1 1"/></actuator></mujoco>"""

WHEELED = """<mujoco><worldbody>
  <geom type="plane" size="5 5 .1"/>
  <body name="red_post" pos="-3 4 .5"><geom size=".1"/><site name="top" pos="0 0 .5"/></body>
  <body name="chassis" pos="0 0 .1"><freejoint/><geom type="box" size=".05 .1 .3" pos="0 0 .3"/>
    <body name="wheel"><joint name="axle" axis="0 1 0"/><geom type="cylinder" size=".1 .02" euler="90 0 0"/></body>
  </body>
</worldbody><actuator><motor joint="axle" ctrlrange="-1 1"/></actuator></mujoco>"""

# gears of both signs, a gain, and limits that are not symmetric
_DOG = """<mujoco><option timestep=".002"/><worldbody><geom type="plane" size="5 5 .1"/>
<body name="trunk" pos="0 0 .62"><freejoint/><geom type="box" size=".15 .1 .05" mass="4"/>{legs}</body></worldbody>
<actuator>{motors}</actuator></mujoco>"""
_DOG_LEG = """<body name="{n}_thigh" pos="{x} {y} 0"><joint name="{n}_hip" axis="0 1 0" range="-90 90" damping=".1"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass=".5"/>
<body name="{n}_shin" pos="0 0 -.3"><joint name="{n}_knee" axis="0 1 0" range="-120 120" damping=".1"/>
<geom type="capsule" fromto="0 0 0 0 0 -.27" size=".03" mass=".3"/></body></body>"""
_PLACES = {"fl": (0.15, 0.1), "fr": (0.15, -0.1), "rl": (-0.15, 0.1), "rr": (-0.15, -0.1)}
MOTOR_DOG = _DOG.format(
    legs="".join(_DOG_LEG.format(n=n, x=x, y=y) for n, (x, y) in _PLACES.items()),
    motors="".join(
        f'<motor name="{n}_h" joint="{n}_hip" gear="3" ctrlrange="-8 8"/>'
        f'<general name="{n}_k" joint="{n}_knee" gear="-2" gainprm="4" ctrlrange="-3 2"/>'
        for n in _PLACES
    ),
)

CART = (Path(__file__).parents[2] / "benchmarks" / "cartpole.xml").read_text(encoding="utf-8")

_LINKS = (("joint1", "0 0 1"), ("joint2", "0 1 0"), ("joint3", "0 0 1"), ("joint4", "0 -1 0"), ("joint5", "0 0 1"),
          ("joint6", "0 -1 0"), ("joint7", "0 0 1"))  # fmt: skip
_CHAIN = "".join(
    f'<body name="link{i + 1}" pos="0 0 .15"><joint name="{joint}" axis="{axis}" range="-160 160" damping="1"/>'
    f'<geom type="capsule" fromto="0 0 0 0 0 .1" size=".04"/>'
    for i, (joint, axis) in enumerate(_LINKS)
)
_FINGER = """<body name="{side}_finger" pos="0 {y} .06"><joint name="finger_joint{i}" type="slide" axis="0 {sign} 0"
  range="0 .04"/><geom type="box" size=".01 .01 .03"/></body>"""
# an arm of seven hinges with a gripper, as a Franka Panda, with two objects and a table
PANDA = f"""<mujoco><worldbody><geom type="plane" size="3 3 .1"/>
<body name="link0">{_CHAIN}<body name="hand" pos="0 0 .12"><geom type="box" size=".03 .08 .03"/>
{_FINGER.format(side="left", y=0.04, i=1, sign=1)}{_FINGER.format(side="right", y=-0.04, i=2, sign=-1)}</body>
{"</body>" * 8}
<body name="table" pos=".6 0 .1"><geom type="box" size=".2 .4 .1"/></body>
<body name="cube" pos=".5 .1 .22"><freejoint/><geom type="box" size=".02 .02 .02" mass=".1"/></body>
<body name="red_ball" pos=".5 -.2 .23"><freejoint/><geom size=".03" mass=".1"/></body>
</worldbody><actuator>{"".join(f'<position joint="{j}" kp="200" inheritrange="1"/>' for j, _ in _LINKS)}
<position joint="finger_joint1" kp="100" inheritrange="1"/><position joint="finger_joint2" kp="100" inheritrange="1"/>
</actuator></mujoco>"""

_DOG_LEG = """<body name="{p}_hip" pos="{x} {y} 0"><joint name="{p}_hip_joint" axis="1 0 0" range="-50 50"/>
<geom size=".04"/><body name="{p}_thigh" pos="0 {o} 0"><joint name="{p}_thigh_joint" axis="0 1 0" range="-90 150"/>
<geom type="capsule" fromto="0 0 0 0 0 -.2" size=".02"/><body name="{p}_calf" pos="0 0 -.2">
<joint name="{p}_calf_joint" axis="0 1 0" range="-150 30"/><geom type="capsule" fromto="0 0 0 0 0 -.2" size=".015"/>
<body name="{p}_foot" pos="0 0 -.2"><geom size=".022"/></body></body></body></body>"""
_CORNERS = (("FL", 0.2, 0.05, 0.08), ("FR", 0.2, -0.05, -0.08), ("RL", -0.2, 0.05, 0.08), ("RR", -0.2, -0.05, -0.08))
_DOG_JOINTS = [f"{p}_{j}_joint" for p, *_ in _CORNERS for j in ("hip", "thigh", "calf")]
QUADRUPED = f"""<mujoco><worldbody><geom type="plane" size="5 5 .1"/>
<body name="base" pos="0 0 .42"><freejoint/><geom type="box" size=".2 .08 .05" mass="6"/>
{"".join(_DOG_LEG.format(p=p, x=x, y=y, o=o) for p, x, y, o in _CORNERS)}</body>
<body name="ball" pos="1 0 .1"><freejoint/><geom size=".1" mass=".3"/></body>
</worldbody><actuator>{"".join(f'<motor joint="{j}" gear="20" ctrlrange="-1 1"/>' for j in _DOG_JOINTS)}</actuator>
</mujoco>"""

_ROTORS = ((0.14, 0.14, 0.02), (-0.14, 0.14, -0.02), (-0.14, -0.14, 0.02), (0.14, -0.14, -0.02))  # x, y, its turn
DRONE = f"""<mujoco><worldbody><geom type="plane" size="9 9 .1"/>
<body name="drone" pos="0 0 .5"><freejoint/><geom type="box" size=".1 .1 .03" mass="1"/>
{"".join(f'<site name="rotor{i}" pos="{x} {y} .02"/>' for i, (x, y, _) in enumerate(_ROTORS))}</body>
<body name="tower" pos="3 0 1"><geom type="box" size=".2 .2 1"/></body></worldbody>
<actuator>{
    "".join(f'<motor site="rotor{i}" gear="0 0 1 0 0 {way}" ctrlrange="0 8"/>' for i, (*_, way) in enumerate(_ROTORS))
}</actuator>
</mujoco>"""

ROVER = """<mujoco><worldbody><geom type="plane" size="9 9 .1"/>
<body name="post" pos="2 1 .3"><geom type="cylinder" size=".05 .3"/></body>
<body name="chassis" pos="0 0 .12"><freejoint/><geom type="box" size=".15 .1 .04" mass="4"/>
<body name="left_wheel" pos="0 .13 -.04"><joint name="left_axle" axis="0 1 0"/>
<geom type="cylinder" size=".08 .02" euler="90 0 0"/></body>
<body name="right_wheel" pos="0 -.13 -.04"><joint name="right_axle" axis="0 1 0"/>
<geom type="cylinder" size=".08 .02" euler="90 0 0"/></body></body></worldbody>
<actuator><velocity joint="left_axle" kv="2"/><velocity joint="right_axle" kv="2"/></actuator></mujoco>"""

_DIGIT = """<body name="{f}_proximal" pos="{x} {y} 0"><joint name="{f}_base" axis="0 1 0" range="-10 90"/>
<geom type="capsule" fromto="0 0 0 .04 0 0" size=".008"/><body name="{f}_distal" pos=".04 0 0">
<joint name="{f}_tip_joint" axis="0 1 0" range="0 90"/><geom type="capsule" fromto="0 0 0 .03 0 0" size=".008"/>
<site name="{f}_tip" pos=".03 0 0"/></body></body>"""
_DIGITS = (("thumb", 0.0, 0.05), ("index", 0.08, 0.03), ("middle", 0.08, 0.0), ("ring", 0.08, -0.03))
HAND = f"""<mujoco><worldbody><geom type="plane" size="2 2 .1"/>
<body name="palm" pos="0 0 .3"><joint name="wrist" axis="1 0 0" range="-60 60"/>
<geom type="box" size=".04 .04 .01" pos=".04 0 0"/>
{"".join(_DIGIT.format(f=f, x=x, y=y) for f, x, y in _DIGITS)}</body>
<body name="die" pos=".06 0 .33"><freejoint/><geom type="box" size=".015 .015 .015" mass=".02"/></body>
</worldbody><actuator><position joint="wrist" kp="5" inheritrange="1"/>
{"".join(f'<position joint="{f}_{j}" kp="2" inheritrange="1"/>' for f, *_ in _DIGITS for j in ("base", "tip_joint"))}
</actuator></mujoco>"""

BODIES = {
    "person": PERSON,
    "stiff": PERSON.replace("radian", "degree"),
    "crawler": CRAWLER,
    "hopper": HOPPER,
    "arm": block("xml", "## An arm that touches a ball"),
    "panda": PANDA,
    "quadruped": QUADRUPED,
    "drone": DRONE,
    "rover": ROVER,
    "hand": HAND,
    "cart": CART,
    "lying": LYING,
    "wheeled": WHEELED,
}


def scene_of(name: str) -> Scene:
    """Return what words can name on a body."""
    spec = mujoco.MjSpec.from_string(BODIES[name])
    name_all(spec)
    model = spec.compile()
    roles, adapter = roles_of(model), derive_adapter("body", spec.copy)
    qpos = model.key_qpos[0] if model.nkey else model.qpos0
    sites = [model.site(i).name for i in range(model.nsite)]
    return Scene(model, qpos, adapter.root, forward_of(model, qpos, roles), roles, sites, adapter.touch)
