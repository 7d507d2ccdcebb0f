"""MJX physics: `impl="jax"` (CPU, GPU, TPU) and `impl="warp"` (NVIDIA), with the same interface as `physics.native`.

A rollout is one compiled program: vmap over rows, scan over control steps and simulation steps, with the policy
inside. It is compiled before its first run, once per policy and shape, and does not depend on rewards. Rows are
distributed over all local devices; callers split a batch that does not fit into memory (`MjxPhysics.parts`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx

from movlr_jax.errors import UserError
from movlr_jax.physics.agreement import compared
from movlr_jax.physics.common import Scene, planning_model, whole_substeps
from movlr_jax.physics.domain import Domain, fields, late_steps
from movlr_jax.physics.mjx_model import (
    ContactCounts,
    fit_for_jax,
    flatten_tree,
    limit_contacts,
    probe_contacts,
    warp_sizes,
    without_com_velocity,
    without_solver_messages,
    without_wrap_points,
)
from movlr_jax.physics.policy import row_keys, shared
from movlr_jax.physics.programs import Programs, Say, free_memory, row_bytes
from movlr_jax.physics.simulator import Played, Simulator, World
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, Policy, SimState, Trajectory

IMPLS = {"mjx": "jax", "warp": "warp"}  # name of a physics backend -> `impl` of MJX


class MjxPhysics:
    """Simulation of `model` by MJX, with time step `sim_dt` and control step `ctrl_dt`.

    The model is copied; `changes` lists the changes that MJX needs in the copy.
    """

    xp = jnp  # array module of states and plans: they stay on the device

    def __init__(
        self,
        model: mujoco.MjModel,
        layout: Layout,
        *,
        sim_dt: float,
        ctrl_dt: float,
        coarse: bool = False,
        name: str = "mjx",
        start: tuple[Array, Array, Array] | None = None,
        say: Say = lambda text: None,
        domain: Domain | None = None,
        graph: str = "auto",
    ):
        """start: typical qpos [n, nq], qvel, act, used to estimate the number of contacts (Warp).

        domain: N worlds, row r uses world r modulo N; if None, all rows use the model unchanged.
        graph: how a step of Warp becomes a CUDA graph, a name of `choose.GRAPHS`; auto: as MJX does.
        """
        self.substeps = whole_substeps(sim_dt, ctrl_dt)
        self.name, self.layout, self.sim_dt, self.ctrl_dt = name, layout, sim_dt, ctrl_dt
        self.steps_done = 0  # total number of simulation steps over all rows
        model = planning_model(model, sim_dt, coarse)
        if domain is not None:  # only joints that have dry friction in the model can have it in a world
            model.dof_frictionloss[:] = fields(model, domain)["dof_frictionloss"].max(axis=0)
        self._warp = name == "warp"
        if self._warp:
            check_warp()
            self.model, self.changes = model, ()
            self._probe = probe_contacts(model, start)
        else:
            self.model, self.changes = fit_for_jax(model)
            self._probe = ContactCounts()
        flatten_tree(self.model)
        self._com = without_com_velocity(self.model, layout.blocks.get("com_vel"))
        try:
            self._mjx = mjx.put_model(self.model, impl=IMPLS[name], graph_mode=_graph_mode(graph))
            if self._warp:
                self._mjx = without_solver_messages(without_wrap_points(self.model, self._mjx))
            else:
                self._mjx, limited = limit_contacts(self._mjx)
                self.changes += (limited,) if limited else ()
        except (NotImplementedError, ValueError) as error:
            raise UserError(
                f"physics={name} cannot run this model: {error}; use physics=native"
                + ("" if self._warp else " or physics=warp")
            ) from None
        self._worlds: World | None = None
        if domain is not None:
            late = late_steps(domain, sim_dt, self.substeps)
            self._worlds = jax.tree.map(jnp.asarray, World(fields(self.model, domain), late))
        self._worlds_by_rows: dict[int, World | None] = {}
        self._simulators: dict[int, Simulator] = {}
        self._programs = Programs(name, self._constants, say)
        self.traces, self.compile_s = self._programs.traces, self._programs.compile_s
        self.devices, self.collect = self._programs.devices, self._programs.collect
        self._memory = free_memory(jax.local_devices()[0])

    # for custom loops inside jit

    def simulator(self, rows: int) -> Simulator:
        """Return pure functions of one simulation for a batch of `rows` on one device; use them with vmap and jit."""
        rows = rows if self._warp else 1  # only Warp needs the number of rows
        if rows not in self._simulators:
            sizes: dict[str, Any] = warp_sizes(self._probe, rows) if self._warp else {}
            source = self.model if self._warp else self._mjx
            template = mjx.make_data(source, impl=IMPLS[self.name], **sizes)
            self._simulators[rows] = Simulator(self._mjx, template, self.substeps, self.ctrl_dt, self._com)
        return self._simulators[rows]

    # the Physics protocol

    def start(self, qpos: Array, qvel: Array, act: Array) -> SimState:
        given = jax.tree.map(lambda x: jnp.asarray(x, float), (qpos, qvel, act))
        begin = lambda simulator, *values: jax.vmap(simulator.begin)(*values)  # noqa: E731
        return self._programs.run("start", self._rows(begin), given, len(qpos))

    def rollout(
        self,
        start: SimState,
        policy: Policy,
        params: Any,
        *,
        steps: int,
        key: jax.Array,
        candidates: int = 1,
        read: np.ndarray | None = None,
    ) -> Trajectory:
        # `read` is ignored: programs compiled for it would have to be compiled anew for other rewards
        # the result stays on the device, or distributed over all devices
        rows = len(start.time)
        if shared(params, rows):
            return self._rollout_of_candidates(start, policy, params, steps, key, candidates)
        keys = _keys(key, rows, steps, candidates)

        def play(simulator: Simulator, start: SimState, params: Any, keys: jax.Array, world: World | None) -> Played:
            simulate = jax.vmap(simulator.rollout, in_axes=(0, None, 0, 0, 0), out_axes=1)
            return simulate(start, policy, params, keys, world)

        self.steps_done += rows * steps * self.substeps
        what, inputs = f"rollout of {steps} steps", (start, params, keys, self._worlds_of(rows))
        return _trajectory(self._programs.run(what, self._rows(play), inputs, rows, of=policy, rows_axis=1))

    def _rollout_of_candidates(
        self, start: SimState, policy: Policy, params: Any, steps: int, key: jax.Array, k: int
    ) -> Trajectory:
        """Roll out rows that share their candidate's parameters; the N rows within a candidate are distributed."""
        rows = len(start.time)

        def play(simulator: Simulator, params: Any, start: SimState, keys: jax.Array, world: World | None) -> Played:
            return simulator.rollout_of_candidates(start, policy, params, keys, world)

        self.steps_done += rows * steps * self.substeps
        what = f"rollout of {steps} steps under {k} policies"
        keys = _turned(_keys(key, rows, steps, k), (k, rows // k)) if key.ndim else _keys(key, rows // k, steps, 1)
        inputs = (jax.tree.map(lambda x: _turned(x, (k, rows // k)), start), keys, self._worlds_of(rows // k))
        played = self._programs.run(
            what, self._rows(play), inputs, rows // k, of=policy, common=(params,), per_row=k, rows_axis=1
        )
        return _trajectory(played)

    def lengths(self, qpos: Array) -> Array:
        compute = lambda simulator, q: jax.vmap(simulator.lengths)(q)  # noqa: E731
        return self._programs.run("lengths", self._rows(compute), (jnp.asarray(qpos, float),), len(qpos))

    def kinematics(self, qpos: Array) -> tuple[Array, Array]:
        compute = lambda simulator, q: jax.vmap(simulator.kinematics)(q)  # noqa: E731
        return self._programs.run("kinematics", self._rows(compute), (jnp.asarray(qpos, float),), len(qpos))

    def parts(self, rows: int, steps: int) -> int:
        """Return into how many parts to split a rollout of `rows` x `steps` so that each part fits into memory."""
        each = row_bytes(self.model, self.simulator(1).template, steps)
        fits = max(1, int(self._memory * self.devices / each))
        return -(-rows // fits)

    def close(self) -> None:
        """Free the compiled programs."""
        self._programs.clear()
        self._worlds_by_rows.clear()

    def _worlds_of(self, rows: int) -> World | None:
        """Return the world of each row [rows], the same arrays each time: Warp's graphs contain their addresses."""
        if rows not in self._worlds_by_rows:
            each = jax.tree.map(lambda x: x[jnp.arange(rows) % len(x)], self._worlds)
            self._worlds_by_rows[rows] = each
        return self._worlds_by_rows[rows]

    def _constants(self, rows: int) -> tuple[mjx.Model, mjx.Data]:
        simulator = self.simulator(rows)
        return simulator.model, simulator.template

    def _rows(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Adapt `function(simulator, *inputs)` for `Programs`: the model is an argument, not a constant."""

        def with_constants(constants: tuple[mjx.Model, mjx.Data], *inputs: Any) -> Any:
            return function(Simulator(*constants, self.substeps, self.ctrl_dt, self._com), *inputs)

        return with_constants


def mjx_physics(
    name: str,
    scene: Scene,
    *,
    sim_dt: float,
    ctrl_dt: float,
    say: Say,
    domain: Domain | None = None,
    graph: str = "auto",
) -> MjxPhysics:
    """Return MJX physics for planning in `scene`; `say` reports the changes of the model.

    Raises UserError if the engine cannot run the model, or ignores a feature of it.
    """
    start = scene.start(np.random.default_rng(0), 4)
    physics = MjxPhysics(
        scene.model,
        scene.layout,
        sim_dt=sim_dt,
        ctrl_dt=ctrl_dt,
        coarse=True,
        name=name,
        start=start,
        say=say,
        domain=domain,
        graph=graph,
    )
    agreement = compared(name, scene, sim_dt=sim_dt)
    if not agreement.agrees:
        raise UserError(f"{agreement.sentence(name)}; use physics=native")
    for change in physics.changes:
        say(f"  {name}, for planning: {change}")
    return physics


def _graph_mode(graph: str) -> Any:
    """Return Warp's value of a name of `choose.GRAPHS`, None for auto."""
    if graph == "auto":
        return None
    import warp  # pyright: ignore[reportMissingImports]

    return warp.JaxCallableGraphMode[graph.upper()]


def check_warp() -> None:
    """Raise UserError if Warp is not installed, and turn off its log of loaded modules."""
    from mujoco.mjx import warp

    if not warp.WARP_INSTALLED:
        raise UserError("physics=warp needs the package warp-lang: pip install 'movlr-jax[warp]'")
    from warp import config  # pyright: ignore[reportMissingImports]

    # older versions have the first setting, newer versions the second
    for name, value in (("quiet", True), ("log_level", logging.WARNING)):
        if hasattr(config, name):
            setattr(config, name, value)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _keys(key: jax.Array, rows: int, steps: int, candidates: int) -> jax.Array:
    """Return the keys [rows, steps] of the policy, the same as in `physics.native`."""
    each = jax.vmap(lambda t: row_keys(key, t, rows, candidates))
    return each(jnp.arange(steps)).swapaxes(0, 1)


@jax.jit
def _trajectory(played: Played) -> Trajectory:
    """Return the trajectory of B rows, of rows [T, B] or [T, N, K].

    A program of its own, because its results would be memory for the data of the steps in the program of a rollout.
    """
    done = played.trajectory()
    return done if done.valid.ndim == 1 else jax.tree.map(lambda x: _turned(x, None), done)


@partial(jax.jit, static_argnums=1)
def _turned(x: jax.Array, split: tuple[int, int] | None) -> jax.Array:
    """Reshape [K * N, ...] to [N, K, ...] if `split` is (K, N), and back if it is None."""
    if split:
        return jnp.reshape(x, (*split, *x.shape[1:])).swapaxes(0, 1)
    n, k = x.shape[:2]
    return x.swapaxes(0, 1).reshape(n * k, *x.shape[2:])
