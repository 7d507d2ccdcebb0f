"""Build an optimiser and its physics from the settings, once per run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from movlr_jax._util.registry import Registry
from movlr_jax.control.base import Optimizer
from movlr_jax.control.config import OptimizerConfig
from movlr_jax.control.mpc.knots import ControlSpace
from movlr_jax.control.mpc.mpc2 import posture_space
from movlr_jax.control.mpc.planner import Planner, plan_steps
from movlr_jax.control.ppo.config import REFERENCE
from movlr_jax.errors import UserError, needed, unknown_name
from movlr_jax.physics.choose import planning_physics
from movlr_jax.physics.domain import Ranges, draw
from movlr_jax.physics.native import NativePhysics
from movlr_jax.tasks import Task

SAMPLES = 32  # per plan, where nothing else is asked for
_FINER = 0.5  # share of the simulation step below which a time step of a model file is told
_WORLD_SEED = 0  # of the worlds of plans
# of the worlds of plans, for tasks without ranges of their own
_PLAN_RANGES = Ranges(
    friction=(0.6, 1.3), gains=(0.9, 1.1), joint_friction=(0.0, 0.1), latency_s=(0.0, 0.008)
)


def build_optimizer(
    config: OptimizerConfig,
    task: Task,
    physics: str = "native",
    say: Callable[[str], object] = lambda text: None,
) -> Optimizer:
    """Return the optimiser `config.name` on `physics` (native, mjx, warp, auto). Raises UserError."""
    step = float(task.model.opt.timestep)
    if step < _FINER * config.sim_dt:
        say(
            f"the file of the model has a time step of {1e3 * step:g} ms, and is simulated with one of "
            f"{1e3 * config.sim_dt:g} ms; if that diverges, set optimizer.sim_dt={step:g} and "
            f"optimizer.plan_dt={step:g}, or larger ones"
        )
    return OPTIMIZERS.get_or_raise(config.name).build(config, task, physics, say)


def close(optimizer: Optimizer) -> None:
    """Stop the threads of an optimiser and free its programs; it cannot be used afterwards."""
    for part in (optimizer.scorer, optimizer.physics, optimizer.sim_physics):
        part.close()


def acting(config: OptimizerConfig, task: Task) -> Task:
    """Return `task` with the actuators that the optimizer commands, for its programs, measures and films.

    With PD, or a policy trained with it, these are servos in place of motors. Raises UserError.
    """
    option, policy = {
        "ppo": ("optimizer.ppo.init", config.ppo.init),
        "mpc2": ("optimizer.prior.policy", config.prior.policy),
    }.get(config.name, ("", ""))
    action = config.ppo.action if config.name == "ppo" else ""
    if policy not in ("", REFERENCE):
        with needed(f"optimizer={config.name}", "ppo"):
            from movlr_jax.control.ppo.policy_file import policy_settings
        action = policy_settings(policy, config.ppo, option).action
    if action != "pd":
        return task
    with needed(f"optimizer={config.name}", "ppo"):
        from movlr_jax.control.ppo.interface import acting_task
    return acting_task(config, task)


def with_samples(config: OptimizerConfig, samples: int) -> OptimizerConfig:
    """Return the settings with another number of samples per plan."""
    return replace(config, mppi=replace(config.mppi, samples=samples))


def scored_at_once(config: OptimizerConfig, task: Task) -> int:
    """Return the largest number of states scored in one batch per candidate: plans, training data or an episode."""
    plans = (
        (config.mppi.samples or SAMPLES) * config.mppi.worlds * plan_steps(config.horizon_s, config.ctrl_dt)
    )
    batch = config.ppo.batch if trains(config) else plans
    return max(batch, round(task.episode_s / config.ctrl_dt))


def build_planner(
    config: OptimizerConfig,
    task: Task,
    physics: str = "native",
    say: Callable[[str], object] = lambda text: None,
) -> Planner:
    """Return the planner `config.name`. Raises UserError.

    `physics` (native, mjx, warp, auto) rolls out the plans. Episodes always run in C MuJoCo on the unmodified model,
    so that motions planned in another engine or with fewer contacts are evaluated in the reference physics.
    """
    config = with_samples(config, config.mppi.samples or SAMPLES)
    model, notes = task.model, {}
    if config.name == "mpc2" and config.prior.policy:
        with needed("optimizer.prior.policy", "ppo"):
            from movlr_jax.control.ppo.build import prior_space
        space, model = prior_space(config, task, say)
        notes = {
            "action": "added to the actions of a policy or a recorded stride",
            "policy": config.prior.policy,
        }
    elif config.name == "mpc2":
        space = posture_space(
            config.muscle,
            task,
            share=config.synergy,
            knots=config.knots,
            horizon_s=config.horizon_s,
            spline=config.spline,
        )
    elif config.name == "mppi":
        space = ControlSpace(model, config.knots, config.horizon_s, config.spline, task.resting)
    else:
        raise UserError(unknown_name("optimizer", config.name, ("mpc2", "mppi")))
    task = replace(task, model=model)
    worlds, ranges = config.mppi.worlds, task.ranges or _PLAN_RANGES
    domain = draw(ranges, worlds, _WORLD_SEED) if worlds > 1 else None
    times = {"sim_dt": config.plan_dt, "ctrl_dt": config.ctrl_dt}
    plan = planning_physics(physics, task, **times, say=say, domain=domain, graph=config.warp_graph)
    sim = NativePhysics(model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    planner = Planner(config, task, space, plan, sim, say)
    planner.notes = notes
    return planner


def _build_learner(
    config: OptimizerConfig, task: Task, physics: str, say: Callable[[str], object]
) -> Optimizer:
    with needed(f"optimizer={config.name}", "ppo"):
        from movlr_jax.control.ppo.build import build_ppo
    return build_ppo(config, task, physics, say)


@dataclass(frozen=True)
class OptimizerEntry:
    """An optimiser by name.

    `build(config, task, physics, say)` returns the Optimizer. `physics` is the name of the physics, and `say` takes a
    sentence for the user.
    """

    build: Callable[[OptimizerConfig, Task, str, Callable[[str], object]], Optimizer]
    settings: tuple[str, ...] = (
        "ctrl_dt",
        "sim_dt",
        "options",
    )  # the fields of OptimizerConfig that it reads
    trains: bool = False  # whether it trains policies
    options: Mapping[str, Any] = field(
        default_factory=dict
    )  # defaults of its own settings, `optimizer.options.*`


_PLANNING = (
    "ctrl_dt",
    "sim_dt",
    "plan_dt",
    "horizon_s",
    "replan_every",
    "knots",
    "spline",
    "mppi",
    "warp_graph",
)
_LEARNING = ("ctrl_dt", "sim_dt", "ppo", "pd", "groups", "muscle", "warp_graph")
OPTIMIZERS: Registry[OptimizerEntry] = Registry(
    "optimizer",
    "movlr_jax.optimizers",
    {
        "mpc2": OptimizerEntry(build_planner, (*_PLANNING, "synergy", "muscle", "prior")),
        "mppi": OptimizerEntry(build_planner, _PLANNING),
        "ppo": OptimizerEntry(_build_learner, _LEARNING, trains=True),
        "dynsyn": OptimizerEntry(_build_learner, _LEARNING, trains=True),
    },
)


def trains(config: OptimizerConfig) -> bool:
    """Return whether the optimiser trains policies, rather than plans."""
    return OPTIMIZERS.get_or_raise(config.name).trains
