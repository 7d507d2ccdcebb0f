"""The bodies of contacts, of which geoms and flexes are parts."""

from __future__ import annotations

import mujoco
import numpy as np


def contact_bodies(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Return the two bodies [ncon, 2] of each contact in `data`.

    A contact of a flex has no geom (-1). Its body is that of the vertex, or of the first vertex of the element.
    """
    contact = data.contact
    bodies = np.array(model.geom_bodyid[contact.geom], int).reshape(-1, 2)
    for c, side in np.argwhere(contact.geom < 0):
        bodies[c, side] = _flex_body(
            model, int(contact.flex[c, side]), int(contact.elem[c, side]), int(contact.vert[c, side])
        )
    return bodies


def _flex_body(model: mujoco.MjModel, flex: int, element: int, vertex: int) -> int:
    """Return the body of a vertex, or of the first vertex of an element if `vertex` is -1."""
    if vertex < 0:
        at = model.flex_elemdataadr[flex] + max(element, 0) * (model.flex_dim[flex] + 1)
        vertex = model.flex_elem[at]
    body = int(model.flex_vertbodyid[model.flex_vertadr[flex] + vertex])
    # vertices between the nodes of a coarser grid have no body of their own
    return body if body >= 0 else int(model.flex_nodebodyid[model.flex_nodeadr[flex]])
