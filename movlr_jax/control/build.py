"""Build an optimiser and its physics from the settings, once per run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from movlr_jax.control.base import Optimizer
from movlr_jax.control.held import HeldTargets
from movlr_jax.control.mpc.knots import ControlSpace
from movlr_jax.control.mpc.mpc2 import posture_space
from movlr_jax.control.mpc.planner import Planner
from movlr_jax.control.settings import Mpc2Settings, MppiSettings, OptimizerSettings, PlanningSettings, with_samples
from movlr_jax.control.targets import joint_targets, posture_of, target_box
from movlr_jax.errors import UserError
from movlr_jax.models.load import with_load
from movlr_jax.physics.base import Physics
from movlr_jax.physics.choose import planning_physics
from movlr_jax.physics.domain import Ranges, draw
from movlr_jax.physics.native import NativePhysics
from movlr_jax.tasks import Task

_FINER = 0.5  # share of the simulation step below which a time step of a model file is told
_WORLD_SEED = 0  # of the worlds of plans
# of the worlds of plans, for tasks without ranges of their own
_PLAN_RANGES = Ranges(friction=(0.6, 1.3), gains=(0.9, 1.1), joint_friction=(0.0, 0.1), latency_s=(0.0, 0.008))


def build_optimizer(
    config: OptimizerSettings, task: Task, physics: str = "native", say: Callable[[str], object] = lambda text: None
) -> Optimizer:
    """Return the optimiser of the settings on `physics` (native, mjx, warp, auto). Raises UserError."""
    step = float(task.model.opt.timestep)
    if step < _FINER * config.sim_dt:
        say(
            f"the file of the model has a time step of {1e3 * step:g} ms, and is simulated with one of "
            f"{1e3 * config.sim_dt:g} ms; if that diverges, set optimizer.sim_dt={step:g} and "
            f"optimizer.plan_dt={step:g}, or larger ones"
        )
    return config.build(task, physics, say)


def close(optimizer: Optimizer) -> None:
    """Stop the threads of an optimiser and free its programs; it cannot be used afterwards."""
    for part in (optimizer.scorer, optimizer.physics, optimizer.sim_physics):
        part.close()


def acting(config: OptimizerSettings, task: Task) -> Task:
    """Return `task` with the actuators that the optimizer commands, for its programs, measures and films.

    With PD, or a policy trained with it, these are servos in place of motors. Raises UserError.
    """
    return config.acting(task)


def scored_at_once(config: OptimizerSettings, task: Task) -> int:
    """Return the largest number of states scored in one batch per candidate: plans, training data or an episode."""
    return config.scored_at_once(task)


def build_planner(
    config: OptimizerSettings, task: Task, physics: str = "native", say: Callable[[str], object] = lambda text: None
) -> Planner:
    """Return the planner of the settings. Raises UserError.

    `physics` (native, mjx, warp, auto) rolls out the plans. Episodes always run in C MuJoCo on the unmodified model,
    so that motions planned in another engine or with fewer contacts are evaluated in the reference physics.
    """
    if not isinstance(config, PlanningSettings):
        raise UserError(f"optimizer={config.name} does not plan; give optimizer=mpc2 or mppi")
    config = with_samples(config.suited(task), config.mppi.samples or config.usual_samples(task))
    model, targets, notes = task.model, None, {}
    if isinstance(config, Mpc2Settings) and config.prior.policy:
        from movlr_jax.control.ppo.build import prior_space  # Brax takes seconds to import

        space, model = prior_space(config, task, say)
        notes = {"action": "added to the actions of a policy or a recorded stride", "policy": config.prior.policy}
    elif isinstance(config, Mpc2Settings):
        space = posture_space(
            config.muscle,
            task,
            share=config.synergy,
            knots=config.knots,
            horizon_s=config.horizon_s,
            spline=config.spline,
        )
    else:
        resting, box = task.resting, None
        if isinstance(config, MppiSettings):
            targets, why = joint_targets(config.targets, task, config.space)
            if why:
                say(why)
            if targets:
                model, resting = targets.model, partial(targets.resting, task)
            if config.space != "controls":
                few = 0.0 < config.mppi.density < 1.0
                box = target_box(model, posture_of(task), resting, config.targets.reach, few)
        resting = with_load(model, posture_of(task), resting)
        space = ControlSpace(model, config.knots, config.horizon_s, config.spline, resting, box)
    acting = replace(task, model=model)
    worlds, ranges = config.mppi.worlds, task.course.ranges or _PLAN_RANGES
    domain = draw(ranges, worlds, _WORLD_SEED) if worlds > 1 else None
    times = {"sim_dt": config.plan_dt, "ctrl_dt": config.ctrl_dt}
    plan = planning_physics(physics, acting, **times, say=say, domain=domain, graph=config.warp_graph)
    sim: Physics
    if targets and task.course.holds_controls:
        sim = HeldTargets(task.model, targets, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    else:
        sim = NativePhysics(model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    planner = Planner(config, acting, space, plan, sim, say, targets)
    planner.notes = notes
    return planner
