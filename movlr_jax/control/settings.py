"""Settings of the optimisers, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from movlr_jax._util.parts import Parts, part, setting
from movlr_jax._util.settings import plain
from movlr_jax.control.mpc.knots import SPLINES
from movlr_jax.control.mpc.rules import RULES, Mppi, PlanningRule
from movlr_jax.control.muscle_controllers import LAWS, MuscleLaw
from movlr_jax.control.ppo.config import REFERENCE, GroupsConfig, PdConfig, PpoConfig, file_hashes
from movlr_jax.control.targets import SPACES
from movlr_jax.models.motors import TargetSettings
from movlr_jax.physics.choose import GRAPHS

if TYPE_CHECKING:
    from movlr_jax.control.base import Optimizer
    from movlr_jax.tasks import Task

_OF_PRIOR = {"about": "as with optimizer=ppo, of the policy in `prior`"}
Say = Callable[[str], object]  # shows a sentence to the user
SAMPLES = 32  # per plan, where nothing else is asked for
FEW_SAMPLES, _FEW = 128, 12  # the same of a body with at most so many actuators without muscles


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """What all optimisers share. An optimiser of one's own adds its settings and overrides `build`."""

    ctrl_dt: float = setting(0.016, "s, between two actions", above=0)
    sim_dt: float = setting(0.002, "s, step of the simulation", above=0)
    trains: ClassVar[bool] = False  # whether it trains policies, rather than plans

    @property
    def name(self) -> str:
        return OPTIMIZERS.name_of(self)

    def build(self, task: Task, physics: str, say: Say) -> Optimizer:
        """Return the optimiser on `physics` (native, mjx, warp, auto). Raises UserError."""
        raise NotImplementedError

    def suited(self, task: Task) -> Self:
        """Return the settings with those that are left to the package, chosen for the body of `task`."""
        return self

    def acting(self, task: Task) -> Task:
        """Return `task` with the actuators that the optimiser commands, for its programs, measures and films."""
        return task

    def scored_at_once(self, task: Task) -> int:
        """Return the largest number of states scored in one batch per candidate."""
        return round(task.episode_s / self.ctrl_dt)

    def files(self) -> Mapping[str, str | tuple[str, ...]]:
        """Return the files that settings name, by the name of the setting, as ppo.init."""
        return {}

    def file_hashes(self) -> list[str]:
        """Return the hashes of these files, which tell contents under one path apart."""
        return file_hashes(self.files().values())


def _warp_graph() -> Any:
    about = f"physics=warp: how a step of Warp becomes a CUDA graph: {', '.join(GRAPHS)}"
    return setting("auto", about, choices=GRAPHS)


@dataclass(frozen=True, kw_only=True)
class PlanningSettings(OptimizerSettings):
    """PlanningSettings by sampling: the rhythm of the plans, and the rule that samples and updates them."""

    plan_dt: float = setting(0.008, "s, step of the planner's rollouts", above=0)
    horizon_s: float = setting(0.4, "s", above=0)
    replan_every: int = setting(2, "control steps", least=1)
    knots: int = setting(1, "of a plan, over the horizon", least=1)
    spline: str = setting("linear", "between knots: linear, zero (each is held) or cubic", choices=SPLINES)
    first_updates: int = setting(1, "rounds of samples, rollouts and update of the first plan", least=1)
    warp_graph: str = _warp_graph()
    mppi: PlanningRule = part(RULES, Mppi())
    first_sigma: ClassVar[float] = 0.1  # of a rule that does not give its own

    def __post_init__(self) -> None:
        if not self.mppi.sigma:
            object.__setattr__(self, "mppi", replace(self.mppi, sigma=self.first_sigma))

    def usual_samples(self, task: Task) -> int:
        """Return the number of samples per plan on CPUs, where none is given."""
        return SAMPLES

    def scored_at_once(self, task: Task) -> int:
        steps = max(1, round(self.horizon_s / self.ctrl_dt))
        return max(
            (self.mppi.samples or self.usual_samples(task)) * self.mppi.worlds * steps, super().scored_at_once(task)
        )


@dataclass(frozen=True, kw_only=True)
class MppiSettings(PlanningSettings):
    """Plans over knots of the controls, or of joint targets in place of the torques of motors without servos."""

    plan_dt: float = setting(0.0, "s, step of the planner's rollouts; 0: what suits the body", least=0)
    horizon_s: float = setting(0.0, "s; 0: what suits the body", least=0)
    knots: int = setting(0, "of a plan, over the horizon; 0: what suits the body", least=0)
    replan_every: int = setting(0, "control steps; 0: what suits the body", least=0)
    first_updates: int = setting(4, "rounds of samples, rollouts and update of the first plan", least=1)
    space: str = setting(
        "auto", "what plans are: controls, or targets of joints that PD follows in place of motors", choices=SPACES
    )
    targets: TargetSettings = field(default_factory=TargetSettings)
    first_sigma: ClassVar[float] = 0.2

    def usual_samples(self, task: Task) -> int:
        return FEW_SAMPLES if task.model.nu <= _FEW and not task.model.na else SAMPLES


@dataclass(frozen=True, kw_only=True)
class PriorConfig:
    """A trained policy, or a recorded stride, to whose actions the plans of a planner are added."""

    policy: str = setting(
        "", "path of a policy_k00.npz, a policy of assets/policies, or reference: the recorded stride; empty: none"
    )


@dataclass(frozen=True, kw_only=True)
class Mpc2Settings(PlanningSettings):
    """Plans over target postures, which a muscle law tracks (Wei et al., 2025), or around a policy."""

    synergy: float = setting(
        0.6, "correlation of the noise of joints that the model's adapter lists together", least=0, below=1
    )
    muscle: MuscleLaw = part(LAWS, "linear")
    prior: PriorConfig = field(default_factory=PriorConfig)
    ppo: PpoConfig = field(default_factory=PpoConfig, metadata=_OF_PRIOR)
    pd: PdConfig = field(default_factory=PdConfig, metadata=_OF_PRIOR)
    groups: GroupsConfig = field(default_factory=GroupsConfig, metadata=_OF_PRIOR)

    def files(self) -> Mapping[str, str | tuple[str, ...]]:
        prior = {} if self.prior.policy in ("", REFERENCE) else {"prior.policy": self.prior.policy}
        return {**self.ppo.files(), **prior}


@dataclass(frozen=True, kw_only=True)
class PpoSettings(OptimizerSettings):
    """Trains one policy per program."""

    ctrl_dt: float = setting(0.02, "s, between two actions", above=0)
    warp_graph: str = _warp_graph()
    ppo: PpoConfig = field(default_factory=PpoConfig)
    pd: PdConfig = field(default_factory=PdConfig)
    groups: GroupsConfig = field(default_factory=GroupsConfig)
    muscle: MuscleLaw = part(LAWS, "linear")
    trains: ClassVar[bool] = True

    @property
    def action(self) -> str:
        """What the policies command."""
        return self.ppo.policy.action

    def scored_at_once(self, task: Task) -> int:
        return max(self.ppo.batch, super().scored_at_once(task))

    def files(self) -> Mapping[str, str | tuple[str, ...]]:
        return self.ppo.files()


def with_samples(config: PlanningSettings, samples: int) -> PlanningSettings:
    """Return the settings with another number of samples per plan."""
    return replace(config, mppi=replace(config.mppi, samples=samples))


def known_settings(config: OptimizerSettings) -> dict[str, Any]:
    """Return the settings as nested mappings, with those of other rules and laws at their defaults."""
    found = plain(config)
    for f in fields(config):
        if "parts" in f.metadata:
            found[f.name] = f.metadata["parts"].known(getattr(config, f.name))
    return found


OPTIMIZERS: Parts[OptimizerSettings] = Parts(
    "optimizer",
    "movlr_jax.optimizers",
    {name: f"movlr_jax.control.optimizers:{name.capitalize()}" for name in ("mpc2", "mppi", "ppo", "dynsyn")},
)
