"""Meshes with fewer faces, for pictures in which the details would be smaller than a pixel."""

from __future__ import annotations

import mujoco
import numpy as np

_SMALL = 500  # faces; smaller meshes stay as they are
_SHARES = (1.0, 1.6, 2.5, 4.0)  # shares of the cubes that are tried, the largest first
_AREA = 0.3  # largest relative change of the surface; that of thin parts, such as wires, changes more


def simplify(model: mujoco.MjModel, cell: float) -> None:
    """Merge the vertices of each mesh within cubes of `cell` m, in place. Use it on models that are only rendered.

    Meshes with thin parts are merged in smaller cubes.
    """
    for mesh in range(model.nmesh):
        if model.mesh_facenum[mesh] > _SMALL and model.mesh_texcoordadr[mesh] < 0:
            any(_merge(model, mesh, cell / share) for share in _SHARES)


def _merge(model: mujoco.MjModel, mesh: int, cell: float) -> bool:
    """Merge the vertices of one mesh, unless its surface would change. Return whether it did."""
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    vertices = model.mesh_vert[first : first + count].astype(float)
    where = model.mesh_faceadr[mesh]
    faces = model.mesh_face[where : where + model.mesh_facenum[mesh]]
    cube = np.floor((vertices - vertices.min(axis=0)) / cell).astype(np.int64)
    sides = cube.max(axis=0) + 1
    _, merged = np.unique((cube[:, 0] * sides[1] + cube[:, 1]) * sides[2] + cube[:, 2], return_inverse=True)
    size = np.bincount(merged)
    middle = np.stack([np.bincount(merged, vertices[:, i]) / size for i in range(3)], axis=-1)
    kept = merged[faces]
    kept = kept[(kept[:, 0] != kept[:, 1]) & (kept[:, 1] != kept[:, 2]) & (kept[:, 2] != kept[:, 0])]
    before, after = _normals(vertices, faces), _normals(middle, kept)
    area = np.linalg.norm(before, axis=1).sum()
    changed = abs(np.linalg.norm(after, axis=1).sum() - area) / max(area, 1e-12)
    if not len(kept) or changed > _AREA or len(middle) > model.mesh_normalnum[mesh]:
        return False
    normals = np.zeros_like(middle)
    for corner in range(3):
        np.add.at(normals, kept[:, corner], after)
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    model.mesh_vert[first : first + len(middle)] = middle
    model.mesh_normal[model.mesh_normaladr[mesh] :][: len(middle)] = normals
    model.mesh_face[where : where + len(kept)] = kept
    model.mesh_facenormal[where : where + len(kept)] = kept
    model.mesh_facenum[mesh] = len(kept)
    return True


def _normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Return the normals [faces, 3] with the length of the area, m^2."""
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    return 0.5 * np.cross(b - a, c - a)
