"""Sky, floor and light for the films of all tasks. They do not affect the physics."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from movlr_jax.biomech.world import World

_ZENITH, _NADIR = np.array([0.62, 0.73, 0.85]), np.array([0.90, 0.92, 0.94])  # the sky's gradient, rgb

_SKYBOX = mujoco.mjtTexture.mjTEXTURE_SKYBOX

FLOOR = "stage/floor"  # the material


def add_sky(spec: mujoco.MjSpec) -> None:
    """Add a bright sky to `spec`, unless it has one."""
    if any(texture.type == _SKYBOX for texture in spec.textures):
        return
    spec.add_texture(
        name="stage/sky",
        type=_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=_ZENITH,
        rgb2=_NADIR,
        width=256,
        height=1536,
    )


def add_stage(spec: mujoco.MjSpec) -> None:
    """Add a bright sky, the material FLOOR (for a plane with rgba 1 1 1 1) and daylight to `spec`."""
    for other in list(spec.textures):
        if other.type == _SKYBOX:  # only one skybox is used
            spec.delete(other)
    add_sky(spec)
    spec.add_texture(
        name=FLOOR,
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=[0.66, 0.69, 0.73],
        rgb2=[0.635, 0.665, 0.705],
        mark=mujoco.mjtMark.mjMARK_CROSS,  # a line at every metre, so that speed can be seen
        markrgb=[0.42, 0.46, 0.52],
        width=96,
        height=96,
    )
    floor = spec.add_material(name=FLOOR, texrepeat=[2, 2], texuniform=True, specular=0, shininess=0)
    floor.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = FLOOR
    spec.worldbody.add_light(
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        pos=[0, 0, 4],
        dir=np.array([0.35, 0.65, -0.9]) @ _frame(spec),
        diffuse=[0.66, 0.64, 0.60],
        specular=[0.25] * 3,
        castshadow=False,
    )
    light = spec.visual.headlight
    light.ambient, light.diffuse, light.specular = [0.36] * 3, [0.30] * 3, [0.1] * 3
    # the distant floor fades into the sky colour at the horizon, in the middle of the gradient
    spec.visual.rgba.haze = [*(_ZENITH + _NADIR) / 2, 1]
    spec.visual.map.haze = 0.5


def _frame(spec: mujoco.MjSpec) -> np.ndarray:
    """Return the horizontal axes and up [3, 3] of the world of `spec`, as rows."""
    gravity = np.asarray(spec.option.gravity, float)
    size = np.linalg.norm(gravity)
    return World(-gravity / size).frame if size else np.eye(3)


def add_lathed_mesh(
    spec: mujoco.MjSpec, name: str, profile: tuple[tuple[float, float], ...], edges: int = 24
) -> None:
    """Add the mesh `name`: the `profile` of (radius, height) in m, from bottom to top, rotated about z."""
    outline, turn = np.array(profile), np.linspace(0, 2 * np.pi, edges, endpoint=False)
    radius, height = outline[:, :1], np.repeat(outline[:, 1:], edges, axis=1)
    points = np.stack([radius * np.cos(turn), radius * np.sin(turn), height], axis=-1).reshape(-1, 3)
    ring, edge = np.divmod(np.arange((len(outline) - 1) * edges), edges)
    here, right = ring * edges + edge, ring * edges + (edge + 1) % edges
    faces = np.concatenate(
        [np.stack([here, right, right + edges], -1), np.stack([here, right + edges, here + edges], -1)]
    )
    corners = points[faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    spec.add_mesh(name=name, uservert=points.ravel(), userface=faces[area > 1e-12].ravel())


def add_tube_mesh(
    spec: mujoco.MjSpec, name: str, lines: Sequence[tuple[np.ndarray, np.ndarray]], radius: float, edges: int = 6
) -> None:
    """Add the mesh `name` of tubes with `radius` in m along `lines`.

    A line is its points [n, 3] m, closed if the last one is the first, and the unit normal [3] of its plane.
    """
    turn = np.linspace(0, 2 * np.pi, edges, endpoint=False)[:, None]
    vertices, faces, count = [], [], 0
    for points, normal in lines:
        ways = np.diff(points, axis=0)
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
        closed = np.allclose(points[0], points[-1])
        before = np.vstack([ways[-1:] if closed else ways[:1], ways])
        after = np.vstack([ways, ways[:1] if closed else ways[-1:]])
        side = np.cross(normal, before + after)
        # mitred: a bend is as thick as the rest
        side /= (side * np.cross(normal, after)).sum(axis=1, keepdims=True)
        around = np.cos(turn) * side[:, None] + np.sin(turn) * normal  # [n, edges, 3]
        vertices.append((points[:, None] + radius * around).reshape(-1, 3))
        ring, edge = np.divmod(np.arange(len(ways) * edges), edges)
        here, right = (count + ring * edges + e for e in (edge, (edge + 1) % edges))
        faces += [np.stack([here, right, right + edges], -1), np.stack([here, right + edges, here + edges], -1)]
        count += len(points) * edges
    spec.add_mesh(
        name=name,
        uservert=np.concatenate(vertices).ravel(),
        userface=np.concatenate(faces).ravel(),
        inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,  # the ends of tubes are open
    )
