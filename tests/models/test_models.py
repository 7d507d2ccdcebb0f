"""Every model: what its adapter says of it holds in the compiled model."""

from __future__ import annotations

import functools
from itertools import chain

import mujoco
import numpy as np
import pytest

from movlr_jax.errors import UserError
from movlr_jax.models import MODELS, model_adapter, ms_human, nominal_qpos
from movlr_jax.models.spec import compile_spec, read_spec

ACTUATORS = {  # as their authors count them
    "myoarm_r": 63,
    "myohand_r": 39,
    "myolegs": 80,
    "myolegs26": 26,
    "myotorso": 210,
    "ms_human_700_legs": 100,
    "ms_human_700_manipulation": 81,
    "ms_human_700": 700,
    "musclemimic_fullbody": 416,
    "musclemimic_bimanual": 126,
    "ostrich": 120,
    "tiny_muscle": 7,
    "humanoid": 12,
}
SERVOS = ("humanoid",)  # what has those in place of muscles
WALKERS = ["myolegs", "myolegs26", "ms_human_700_legs", "ms_human_700", "musclemimic_fullbody", "ostrich"]
FEET = ("left_foot", "right_foot")

every_model = pytest.mark.parametrize("name", MODELS)
every_walker = pytest.mark.parametrize("name", WALKERS)


@functools.cache
def compiled(name: str) -> mujoco.MjModel:
    """The model over a floor 1 m below the origin, which measures how low its parts reach."""
    spec = MODELS[name].load()
    spec.worldbody.add_geom(name="below", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], pos=[0, 0, -1])
    return compile_spec(spec)


def standing(name: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = compiled(name)
    data = mujoco.MjData(model)
    data.qpos[:] = nominal_qpos(model, MODELS[name])
    mujoco.mj_forward(model, data)
    return model, data


def solid_geoms(model: mujoco.MjModel, body: str) -> list[int]:
    """Its geoms that collide, by their own bits or in a pair."""
    paired = {*model.pair_geom1, *model.pair_geom2}
    geoms = np.flatnonzero(model.geom_bodyid == model.body(body).id)
    return [g for g in geoms if model.geom_contype[g] or model.geom_conaffinity[g] or g in paired]


def lowest(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> float:
    """m above the origin that the lowest point of a geom has, as MuJoCo's collider finds it."""
    return mujoco.mj_geomDistance(model, data, geom, model.geom("below").id, 10.0, None) - 1.0


def coupled(model: mujoco.MjModel) -> set[int]:
    return set(model.eq_obj1id[model.eq_type == mujoco.mjtEq.mjEQ_JOINT].tolist())


@every_model
def test_it_compiles_with_its_actuators_and_all_that_the_adapter_names(name):
    adapter, model = MODELS[name], compiled(name)
    kinds = mujoco.mjtObj
    roles = adapter.roles.items()
    named = {
        kinds.mjOBJ_JOINT: [*adapter.planned_joints, *adapter.kept_joints, *adapter.posture],
        kinds.mjOBJ_BODY: [
            adapter.root,
            *chain.from_iterable(adapter.touch.values()),
            *(n for role, n in roles if not role.endswith("_site")),
        ],
        kinds.mjOBJ_SITE: [*adapter.sites, *(n for role, n in roles if role.endswith("_site"))],
        kinds.mjOBJ_ACTUATOR: list(chain.from_iterable(adapter.muscle_groups.values())),
    }
    missing = [n for kind, names in named.items() for n in names if mujoco.mj_name2id(model, kind, n) < 0]
    assert not missing
    assert set(chain.from_iterable(adapter.synergies)) <= set(adapter.planned_joints)
    assert not set(adapter.planned_joints) & set(adapter.kept_joints)
    assert adapter.info.source
    assert adapter.info.licence
    assert model.ncam == model.nkey == 0
    assert all(model.joint(i).name for i in range(model.njnt))
    hollow = [body for body in chain.from_iterable(adapter.touch.values()) if not solid_geoms(model, body)]
    assert not hollow
    assert model.nu == ACTUATORS[name]
    kind = mujoco.mjtGain.mjGAIN_FIXED if name in SERVOS else mujoco.mjtGain.mjGAIN_MUSCLE
    assert (model.actuator_gaintype == kind).all()


@pytest.mark.parametrize("entry", ["MS-Human-700-Manipulation", "MS-Human-700"])
def test_ms_human_moves_the_same_without_the_path_points_of_other_entries(entry):
    whole = compile_spec(read_spec(ms_human.folder() / f"{entry}.xml"))
    ours = compile_spec(ms_human.load(entry))
    assert ours.nsite < whole.nsite
    assert ours.ntendon == whole.nu  # one each
    found = []
    for model in (whole, ours):
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT  # ours has no floor
        model.jnt_limited[:] = False
        data, rng = mujoco.MjData(model), np.random.default_rng(0)
        for _ in range(20):
            data.ctrl[:] = rng.uniform(0.0, 0.3, model.nu)
            mujoco.mj_step(model, data)
        found.append((data.qpos, data.actuator_length, data.actuator_force))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


@every_model
def test_planned_and_kept_joints_have_limits_and_muscles_of_their_own(name):
    adapter = MODELS[name]
    model, data = standing(name)
    moment = np.zeros((model.nu, model.nv))
    mujoco.mju_sparse2dense(moment, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind)
    for joint in (*adapter.planned_joints, *adapter.kept_joints):
        j = model.joint(joint)
        assert model.jnt_limited[j.id], joint
        assert j.id not in coupled(model), joint
        assert np.abs(moment[:, j.dofadr[0]]).max() > 1e-5, f"no muscle moves {joint}"
        assert j.range[0] - 1e-9 <= data.qpos[j.qposadr[0]] <= j.range[1] + 1e-9, joint


@every_model
def test_it_steps_from_its_posture(name):
    model, data = standing(name)
    for _ in range(round(0.02 / model.opt.timestep)):
        mujoco.mj_step(model, data)
    assert np.isfinite(data.qpos).all()
    assert np.isfinite(data.qvel).all()
    assert np.abs(data.qvel).max() < 50
    assert not any(warning.number for warning in data.warning)


@every_model
def test_left_is_left_of_right_and_toes_are_ahead_of_heels(name):
    adapter = MODELS[name]
    _, data = standing(name)
    forward = np.array(adapter.forward)
    assert np.isclose(np.linalg.norm(forward), 1.0)
    leftward = np.cross([0.0, 0.0, 1.0], forward)
    for part in ("foot", "toes", "hand"):
        if f"left_{part}" in adapter.roles:
            left, right = (data.body(adapter.role(f"{side}_{part}")).xpos for side in ("left", "right"))
            assert (left - right) @ leftward > 0.05
    for side in ("left", "right"):
        if f"{side}_toes" in adapter.roles:
            toes = data.body(adapter.role(f"{side}_toes")).xpos
            # the foot of a human begins at its heel, the robot's beneath its ankle
            marked = f"{side}_heel" in adapter.sites
            heel = data.site(f"{side}_heel").xpos if marked else data.body(adapter.role(f"{side}_foot")).xpos
            assert (toes - heel) @ forward > 0.1


@pytest.mark.parametrize("name", ["myoarm_r", "myohand_r", "ms_human_700_manipulation"])
def test_a_hand_that_reaches_forward_is_ahead_of_its_trunk(name):
    adapter = MODELS[name]
    _, data = standing(name)
    assert (data.body(adapter.role("hand")).xpos - data.body(adapter.role("trunk")).xpos) @ np.array(
        adapter.forward
    ) > 0.1


@every_walker
def test_a_walker_stands_flat_upright_over_its_feet_and_touches_nothing_else(name):
    adapter = MODELS[name]
    model, data = standing(name)
    assert adapter.forward == (1.0, 0.0, 0.0)
    reach = {
        part: [lowest(model, data, g) for body in bodies for g in solid_geoms(model, body)]
        for part, bodies in adapter.touch.items()
    }
    soles = [*reach["left_foot"], *reach["right_foot"]]
    assert max(soles) - min(soles) < 0.01
    for part in adapter.touch.keys() - set(FEET):
        assert min(reach[part]) > min(soles) + 0.04, part
    head, pelvis = (data.body(adapter.role(role)).xpos[2] for role in ("head", "pelvis"))
    assert head > pelvis + 0.4
    assert pelvis > min(soles) + 0.7
    assert not data.ncon, "parts of the body are inside each other"
    driven = {*adapter.planned_joints, *adapter.kept_joints}
    for j in range(model.njnt):
        if model.joint(j).name not in driven and j not in coupled(model):
            assert not model.jnt_limited[j], f"{model.joint(j).name} ends its walk"
    com = data.subtree_com[model.body(adapter.root).id]
    feet = [data.body(adapter.role(f"{side}_{part}")).xpos for side in ("left", "right") for part in ("foot", "toes")]
    heels, toes = np.mean(feet[::2], axis=0), np.mean(feet[1::2], axis=0)
    assert heels[0] - 0.03 < com[0] < toes[0] + 0.03
    assert abs(com[1] - heels[1]) < 0.01


def test_an_unknown_model_is_told_with_what_there_is():
    with pytest.raises(UserError, match=r"did you mean 'myolegs'.*ostrich.*MJCF file by its path") as error:
        model_adapter("myoleg")
    assert "myotorso" in str(error.value)


def test_the_leg_muscles_that_an_injury_weakens_are_there_in_every_human_walker():
    injured = ("biceps_femoris_r", "gastrocnemius_r", "semimembranosus_r", "semitendinosus_r")
    for name in ("myolegs", "ms_human_700_legs", "ms_human_700", "musclemimic_fullbody"):
        assert set(injured) <= MODELS[name].muscle_groups.keys()
