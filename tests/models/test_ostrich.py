"""The ostrich: its posture, found for this project, and how its files come here."""

from __future__ import annotations

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest

from movlr_jax.errors import UserError
from movlr_jax.models import model_adapter, nominal_qpos, ostrich
from movlr_jax.models.download import SWITCH
from movlr_jax.models.spec import compile_spec


@pytest.fixture(scope="module")
def bird() -> tuple[mujoco.MjModel, mujoco.MjData]:
    adapter = model_adapter("ostrich")
    model = compile_spec(adapter.load())
    data = mujoco.MjData(model)
    data.qpos[:] = nominal_qpos(model, adapter)
    mujoco.mj_forward(model, data)
    return model, data


def foot_points(model: mujoco.MjModel, data: mujoco.MjData, side: str) -> np.ndarray:
    """[n, 3] m, every vertex of the meshes of one foot in the world."""
    points = []
    for g in np.flatnonzero(model.geom_bodyid == model.body(f"{side}_pes").id):
        if model.geom_type[g] == int(mujoco.mjtGeom.mjGEOM_MESH):
            mesh = model.mesh(model.geom_dataid[g])
            first, count = mesh.vertadr[0], mesh.vertnum[0]
            points.append(
                model.mesh_vert[first : first + count] @ data.geom_xmat[g].reshape(3, 3).T + data.geom_xpos[g]
            )
    return np.concatenate(points)


def test_it_stands_flat_level_and_symmetric_with_its_mass_over_the_middle_of_its_feet(bird):
    model, data = bird
    feet = [foot_points(model, data, side) for side in "lr"]
    soles = [foot[foot[:, 2] < foot[:, 2].min() + 0.01] for foot in feet]
    for foot, sole in zip(feet, soles, strict=True):
        assert abs(foot[:, 2].min()) < 2e-3
        # what is within 1 cm of the ground spans most of the foot: it is not on tiptoe
        assert np.ptp(sole[:, 0]) > 0.8 * np.ptp(foot[:, 0])
    support = np.concatenate(soles)
    middle = (support.min(axis=0) + support.max(axis=0)) / 2
    assert np.abs(data.subtree_com[model.body("ostrich").id] - middle)[:2].max() < 0.02
    np.testing.assert_allclose(data.body("ostrich").xmat.reshape(3, 3), np.eye(3), atol=1e-8)
    for joint in ostrich.CROUCH:
        low, high = model.joint(f"l_{joint}").range
        left, right = (data.joint(f"{side}_{joint}").qpos[0] for side in "lr")
        assert left == right
        assert low + 0.1 * (high - low) < left < high - 0.1 * (high - low)


@pytest.fixture
def elsewhere(monkeypatch, tmp_path) -> Path:
    """No folder is named, and the cache is empty."""
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv("OSTRICH_ROOT", raising=False)
    monkeypatch.delenv("MENAGERIE_ROOT", raising=False)
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / name)
    return tmp_path


@pytest.fixture
def server(tmp_path) -> Iterator[tuple[str, Path]]:
    """A web server of a copy of the model's small files; meshes are three bytes each."""
    site = tmp_path / "site"
    for name in (*_names(), ostrich.UNCHECKED):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(b"abc")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/", site
        httpd.shutdown()


def _names() -> list[str]:
    return [line.split()[0] for line in ostrich.REGISTRY.read_text().splitlines()]


def test_files_are_downloaded_once_and_checked(elsewhere, server, monkeypatch, tmp_path):
    url, site = server
    registry = tmp_path / "files.txt"
    digest = hashlib.sha256(b"abc").hexdigest()
    registry.write_text("".join(f"{name} sha256:{digest}\n" for name in _names()))
    monkeypatch.setattr(ostrich, "URL", url)
    monkeypatch.setattr(ostrich, "REGISTRY", registry)
    assert ostrich.files() is None
    got = ostrich.folder()
    assert elsewhere in got.parents
    assert all((got / name).read_bytes() == b"abc" for name in (*_names(), ostrich.UNCHECKED))
    for file in site.rglob("*.*"):
        file.unlink()
    assert ostrich.files() == ostrich.folder() == got, "from the cache"


def test_a_file_that_is_not_what_it_should_be_is_told(elsewhere, server, monkeypatch):
    monkeypatch.setattr(ostrich, "URL", server[0])  # its ostrich.xml is "abc"
    with pytest.raises(UserError, match=r"cannot be downloaded.*ostrich\.xml.*OSTRICH_ROOT"):
        ostrich.folder()


def test_a_folder_that_is_named_is_used_and_must_hold_the_model(elsewhere, monkeypatch):
    monkeypatch.setenv("OSTRICH_ROOT", str(elsewhere))
    with pytest.raises(UserError, match=r"contains no ostrich\.xml"):
        ostrich.files()
    (elsewhere / "ostrich.xml").write_text("<mujoco/>")
    assert ostrich.files() == elsewhere


def test_the_hashes_are_those_of_the_files_in_use():
    here = ostrich.folder()
    hashes = dict(line.split() for line in ostrich.REGISTRY.read_text().splitlines())
    assert len(hashes) == 53
    assert ostrich.UNCHECKED not in hashes
    for name, known in hashes.items():
        assert known == "sha256:" + hashlib.sha256((here / name).read_bytes()).hexdigest(), name


def test_it_moves_as_its_authors_made_it_and_what_a_task_adds_does_not():
    raw = mujoco.MjModel.from_xml_path(str(ostrich.folder() / ostrich.ENTRY))
    spec = ostrich.load()
    thing = spec.worldbody.add_body(name="thing")
    thing.add_joint(name="free")
    thing.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.1, 0, 0])
    model = compile_spec(spec)
    for field in ("jnt_range", "jnt_limited", "jnt_stiffness", "dof_damping", "dof_armature"):
        theirs = getattr(raw, field)
        assert np.array_equal(getattr(model, field)[: len(theirs)], theirs), field
    assert np.array_equal(model.geom_friction[:-1], raw.geom_friction[1:])  # without its floor
    assert np.array_equal(model.body_mass[1:6], raw.body_mass[1:6])
    assert not model.jnt_stiffness[-1]
    assert not model.dof_damping[-1]
    assert model.geom_matid[-1] < 0
