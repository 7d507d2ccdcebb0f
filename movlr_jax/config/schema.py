"""Typed settings. Hydra's DictConfig is converted here; the package reads settings as fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from movlr_jax._util.parts import check_ranges, part, setting
from movlr_jax._util.settings import flat, from_mapping, no_secrets
from movlr_jax.config.methods import Method
from movlr_jax.config.ranking import RANKINGS, calls_needed
from movlr_jax.control.mpc.rules import RULES
from movlr_jax.control.settings import OPTIMIZERS, OptimizerSettings, PlanningSettings, PpoSettings
from movlr_jax.errors import UserError
from movlr_jax.language.registry import CRITICS, JUDGES, PROPOSERS, Auto
from movlr_jax.language.settings import ModelConfig, without_removed
from movlr_jax.physics.choose import PHYSICS
from movlr_jax.tasks.base import check_episode
from movlr_jax.tasks.reference import BY
from movlr_jax.tracking.base import TrackerConfig

SANDBOXES = ("confined", "process")
WORKERS = ("none", "ray")
AUTO_SAMPLES = ("optimizer.mppi.samples", "auto")  # what users may write for its value 0
# settings that earlier versions recorded and this one has no more, with the values that changed nothing
_REMOVED: Mapping[str, Any] = {
    **dict.fromkeys(("proposals", "variants", "parents", "islands", "bank")),
    "search": "plain",
    "starts": 1,
    "inner_weights": 0,
    "optimizer.race": False,
    "optimizer.value.use": False,
    "optimizer.ppo.curriculum": False,
    "optimizer.pd.about": "start",
    "optimizer.pd.feed_forward": False,
}
_REMOVED_IN_GROUPS = ("race", "value", "curriculum", "about", "feed_forward")


@dataclass(frozen=True)
class TaskConfig:
    """The task and its settings."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkersConfig:
    """Who evaluates the candidates of a search: this process, or workers that each take a part of them."""

    name: str = setting("none", "none: this process; ray: workers of Ray", choices=WORKERS)
    address: str | None = setting(
        None, "of a Ray cluster, as auto or ray://HOST:10001; null: one is started on this machine"
    )
    count: int | None = setting(None, "workers; null: as many as the cluster has cores for", least=1)
    cores: float = setting(1.0, "per worker", above=0)
    gpus: float = setting(0.0, "per worker", least=0)
    shard: int | None = setting(
        None, "programs that a worker evaluates at once; null: equal parts for all workers", least=1
    )
    deadline_s: float = setting(900.0, "s without progress, after which a worker is given up", above=0)

    def check(self, where: str) -> None:
        no_secrets(f"{where}.address", self.address, "give it in the environment variable RAY_ADDRESS")


@dataclass(frozen=True)
class MotionConfig:
    """What moves, in which physics, and how it is controlled."""

    task: TaskConfig
    model: str  # name of a model, or the path of an MJCF file
    episode_s: float | None  # s, length of an evaluation episode; None: from the file of the task
    optimizer: OptimizerSettings = part(OPTIMIZERS, "mpc2")
    physics: str = setting(
        "auto", "runs plans and training: auto, native, mjx, warp; episodes run in C MuJoCo", choices=PHYSICS
    )
    tuned: bool = setting(
        True, "true: use the settings tuned for this task and model, if any; explicit settings override them"
    )
    tuned_settings: Mapping[str, Any] = field(default_factory=dict)  # those in use; set when composing
    reference: str | None = setting(
        None,
        ".mot or .sto file of a recorded motion, or people, or steps (see docs/data.md); rewards read it as "
        "state.reference(joint)",
    )
    reference_by: str = setting(
        "time",
        "time: from the start of the episode; phase: the file is one stride, repeated at the goal's stride frequency",
        choices=BY,
    )
    instruction: str | None = setting(
        None, "a motion in words, in place of the task's own, or without a task on the model alone"
    )
    instruction_partial: bool = setting(
        False,
        "instruction.partial=true: without a language model, go on with the words that were read, if some were not",
    )
    seed: int = setting(0, "of all random numbers", least=0)


@dataclass(frozen=True)
class SearchConfig:
    """How many programs are tried, how often, and where."""

    candidates: int = setting(4, "K, programs per generation", least=1)
    generations: int = setting(3, "N", least=1)
    trials: int | None = setting(
        None,
        "trials (start state, noise and training seed) of the better half of a generation's programs, the others get "
        "half as many; null: what the first program's trials suggest",
        least=1,
    )
    minutes: float = setting(
        10.0,
        "that a search may take, films not counted: programs get fewer trials where it would take longer, and more "
        "where it takes less than a fifth of them, unless `trials` is given",
        above=0,
    )
    confirm: int | None = setting(
        None,
        "trials that no choice has seen, in which the best program is confirmed at the end, with the first and the "
        "hand-written one in half of them; 0: none; null: 8, 6 where a search would take too long, of trained "
        "policies 3",
        least=0,
    )
    certainty: float = setting(
        0.9, "probability of being better at which a program replaces the best one", least=0.5, below=1
    )
    workers: WorkersConfig = field(default_factory=WorkersConfig)
    sandbox: str = setting(
        "confined", "confined (the kernel restricts generated programs) or process (weaker)", choices=SANDBOXES
    )


@dataclass(frozen=True)
class RolesConfig:
    """Who writes, compares and criticises, and what that may cost."""

    method: Method = field(default_factory=Method)
    llm: ModelConfig = field(default_factory=lambda: ModelConfig("scripted"))
    vlm: ModelConfig = field(default_factory=lambda: ModelConfig("metrics"))
    # auto: from llm or vlm and method
    proposer: Any = part(PROPOSERS, Auto())
    judge: Any = part(JUDGES, Auto())
    critic: Any = part(CRITICS, Auto())
    ranking: str = setting("active", f"of the motions: {', '.join(RANKINGS)}", choices=RANKINGS)
    comparisons: int | None = setting(
        None, "maximum judge calls per generation with ranking=active; null: 4 per program"
    )
    gates: bool = setting(
        True, "true: a fall, a dropped object, a diverged simulation or a degenerate motion overrules the judge"
    )
    retries: int = setting(
        3, "how often a model may correct a rejected program; it gets the reason each time", least=0
    )
    max_calls: int | None = setting(
        None, "calls of language and vision models; the search stops at the limit and can be resumed", least=0
    )
    max_cost_usd: float | None = setting(
        None, "cost of language and vision models; the search stops at the limit and can be resumed", least=0
    )


@dataclass(frozen=True)
class ResultsConfig:
    """What is kept, and what is gone on with."""

    run_dir: str | None = setting(None, "folder of the results; null: runs/<task>/<time>")
    resume: str | None = setting(None, "run directory of a search to continue")
    trust: bool = setting(
        False,
        "with resume and replay: obey all that recorded settings ask for that you did not begin here "
        "(docs/sandbox.md)",
    )
    tracker: TrackerConfig = field(default_factory=TrackerConfig)
    films: bool = setting(True, "of all candidates")
    preview: bool = setting(False, "true: small films with few frames, in a quarter of the time")
    reward: str = setting("human", "for evaluate: a file, human, initial, environment, or a run directory")


@dataclass(frozen=True)
class Config(ResultsConfig, RolesConfig, SearchConfig, MotionConfig):
    """All settings of `search` and `evaluate`, those of the last base first. The names are part of the interface."""

    def check(self, where: str) -> None:
        o, method = self.optimizer, self.method
        if self.episode_s is not None:
            check_episode(self.episode_s, o.ctrl_dt)
        plans_or_trains = isinstance(o, PlanningSettings | PpoSettings)
        if plans_or_trains and o.warp_graph != "auto" and self.physics in ("native", "mjx"):
            raise UserError(
                f"optimizer.warp_graph={o.warp_graph} has no effect with physics={self.physics}; add physics=warp or "
                "leave it out"
            )
        if method.start == "human" and (self.candidates, self.generations) != (1, 1):
            raise UserError(f"method={method.name} evaluates one program once; leave candidates and generations at 1")
        if self.instruction and method.start in ("human", "canonical"):
            raise UserError(
                f"method={method.name} needs a hand-written reward, which an instruction has not; use another "
                "method, or leave instruction out"
            )
        if self.comparisons is not None:
            _check_comparisons(self, self.comparisons)


def check(config: Config) -> Config:
    """Check ranges and choices that types do not express. Return `config`. Raises UserError."""
    check_ranges(config)
    return config


def recorded_config(values: Any) -> Config:
    """Return the checked settings that this or an earlier version recorded. Raises UserError."""
    if isinstance(values, Mapping):
        check_removed(flat(values))
        values = {name: value for name, value in values.items() if name not in _REMOVED}
        values |= {name: _present(values[name]) for name in ("optimizer", "method") if name in values}
        values |= {role: without_removed(values[role]) for role in ("llm", "vlm") if role in values}
    return check(from_mapping(Config, values))


def _present(group: Any) -> Any:
    """Return a recorded group without removed settings, and with the present names of others."""
    if not isinstance(group, Mapping):
        return group
    kept = {str(n): _present(v) for n, v in group.items() if n not in _REMOVED_IN_GROUPS}
    if isinstance(options := kept.pop("options", None), Mapping):  # of an optimiser of one's own
        kept |= options
    if "full" in kept:
        kept["final_training"] = kept.pop("full")
    return kept


def with_present_names(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded settings, by dotted name, with the present names of parts that have been renamed."""
    found = dict(recorded)
    if isinstance(rule := found.get("optimizer.mppi.rule"), str):
        found["optimizer.mppi.rule"] = RULES.present(rule)
    return found


def check_removed(recorded: Mapping[str, Any]) -> None:
    """Raise UserError if settings, by dotted name, were recorded with a part that this version has no more."""
    for name, former in _REMOVED.items():
        if (value := recorded.get(name, former)) != former:
            raise UserError(
                f"this version of movlr-jax has no {name}={str(value).lower()}; use the version that recorded it"
            )


def _check_comparisons(config: Config, given: int) -> None:
    """Raise UserError if ranking a generation needs more calls, which would otherwise fail after the simulation."""
    # the recorded raters of a replayed run are not known here
    orders = 1 if config.vlm.name == "replay" else config.vlm.orders
    if given < orders:
        needs = "in both orders needs 2" if orders == 2 else f"needs {orders}, one for each rater"
        raise UserError(f"comparisons={given}: one pair {needs}")
    # the best so far is compared with each later generation
    k, more = config.candidates, config.generations > 1
    least = calls_needed(config.ranking, k + more, orders)
    if given < least:
        ranked = f"{k + more} programs{f' ({k} candidates and the best so far)' if more else ''}"
        raise UserError(
            f"comparisons={given}: ranking={config.ranking} of {ranked} needs at least {least} comparisons; give "
            f"comparisons={least} or leave it out"
        )
