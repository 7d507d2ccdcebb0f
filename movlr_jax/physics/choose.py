"""Choice of the physics backend for planning: the setting `physics`, or the best one for this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from movlr_jax._util.machine import cores
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.physics.native import NativePhysics

if TYPE_CHECKING:
    from movlr_jax.physics.base import Physics
    from movlr_jax.physics.common import Scene
    from movlr_jax.physics.domain import Domain

PHYSICS = ("auto", "native", "mjx", "warp")
GRAPHS = ("auto", "warp", "warp_staged", "warp_staged_ex", "jax", "none")  # how Warp's steps become CUDA graphs


def choose(name: str) -> tuple[str, str]:
    """Return (native, mjx or warp; why) for the setting `name`. Raises UserError."""
    if name not in PHYSICS:
        raise UserError(unknown_name("physics", name, PHYSICS))
    if name != "auto":
        return name, "set by the user"
    import jax

    kinds = {device.platform for device in jax.devices()}
    n = cores()
    where = f"C MuJoCo on {n} core{'s' if n > 1 else ''}"
    if kinds == {"cpu"}:
        return "native", f"JAX finds no accelerator, and on a CPU {where} is faster than MJX"
    from mujoco.mjx import warp

    if warp.WARP_INSTALLED and any("nvidia" in device.device_kind.lower() for device in jax.devices()):
        return "warp", "JAX finds an NVIDIA GPU, and Warp runs models without changes"
    return "mjx", "JAX finds an accelerator"


def use_full_precision() -> str:
    """Let JAX compute matrix products in full single precision on an accelerator; return a sentence about it.

    With the TF32 or bfloat16 products that are the default there, mass matrices and the solver's Hessian are wrong by
    one part in a thousand, and trained walks fall. A user's own setting stays.
    """
    import jax

    if jax.default_backend() == "cpu" or jax.config.jax_default_matmul_precision is not None:
        return ""
    jax.config.update("jax_default_matmul_precision", "highest")
    return (
        "matrix products have full single precision, which physics needs (JAX_DEFAULT_MATMUL_PRECISION sets another)"
    )


def planning_physics(
    name: str,
    scene: Scene,
    *,
    sim_dt: float,
    ctrl_dt: float,
    say: Callable[[str], object] = lambda text: None,
    domain: Domain | None = None,
    graph: str = "auto",
) -> Physics:
    """Return the physics for the rollouts of a planner, with an integrator for large time steps. Raises UserError.

    If the backend that `auto` picked does not support this model, native is used; for a backend set by name this is
    an error. domain: randomised worlds for the rows, as in `NativePhysics`. graph: one of GRAPHS, for Warp.
    """
    chosen, why = choose(name)
    if graph != "auto" and chosen != "warp":
        raise UserError(
            f"optimizer.warp_graph={graph} has no effect with physics={chosen}; add physics=warp or leave it out"
        )
    if name == "auto" and chosen != "native":
        say(f"physics={chosen}: {why}")
    if chosen != "native":
        from movlr_jax.physics.mjx import mjx_physics

        if sentence := use_full_precision():
            say(sentence)
        try:
            times = {"sim_dt": sim_dt, "ctrl_dt": ctrl_dt}
            return mjx_physics(chosen, scene, **times, say=say, domain=domain, graph=graph)
        except UserError as error:
            if name != "auto":
                raise
            say(f"physics=native instead: {error}")
    return NativePhysics(scene.model, scene.layout, sim_dt=sim_dt, ctrl_dt=ctrl_dt, coarse=True, domain=domain)
