"""Typed settings. Hydra's DictConfig is converted here; the package reads settings as fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from movlr_jax._util.parts import check_ranges, part
from movlr_jax._util.settings import above_0, at_least, flat, from_mapping, no_secrets, one_of
from movlr_jax.config.methods import Method
from movlr_jax.config.ranking import RANKINGS, calls_needed
from movlr_jax.control.mpc.rules import RULES
from movlr_jax.control.settings import OPTIMIZERS, OptimizerSettings, PlanningSettings, PpoSettings
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.language.registry import CRITICS, JUDGES, PROPOSERS, Auto
from movlr_jax.language.settings import WATCHERS, WRITERS, ModelConfig, check_model
from movlr_jax.physics.choose import PHYSICS
from movlr_jax.tasks.base import check_episode
from movlr_jax.tasks.reference import BY
from movlr_jax.tracking.base import TRACKERS, TrackerConfig

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

    name: str = "none"  # none: this process; ray: workers of Ray
    address: str | None = (
        None  # of a Ray cluster, as auto or ray://HOST:10001; null: one is started on this machine
    )
    count: int | None = None  # workers; null: as many as the cluster has cores for
    cores: float = 1.0  # per worker
    gpus: float = 0.0  # per worker
    shard: int | None = None  # programs that a worker evaluates at once; null: equal parts for all workers
    deadline_s: float = 900.0  # s without progress, after which a worker is given up


@dataclass(frozen=True)
class Config:
    """All settings of `search` and `evaluate`. The names are part of the interface."""

    task: TaskConfig
    model: str  # name of a model, or the path of an MJCF file
    episode_s: float | None  # s, length of an evaluation episode; None: from the file of the task
    optimizer: OptimizerSettings = part(OPTIMIZERS, "mpc2")
    candidates: int = 4  # K, programs per generation
    generations: int = 3  # N
    # trials (start state, noise and training seed) of the better half of a generation's programs, the others get half
    # as many; null: what the first program's trials suggest
    trials: int | None = None
    # that a search may take, films not counted: programs get fewer trials where it would take longer, unless `trials`
    # is given
    minutes: float = 10.0
    # trials that no choice has seen, in which the best program is confirmed at the end, with the first and the
    # hand-written one in half of them; 0: none; null: 8, of trained policies 3
    confirm: int | None = None
    # probability of being better at which a program replaces the best one
    certainty: float = 0.9
    seed: int = 0
    # true: use the settings tuned for this task and model, if any; explicit settings override them
    tuned: bool = True
    # .mot or .sto file of a recorded motion, or people, or steps (see docs/data.md); rewards read it as
    # state.reference(joint)
    reference: str | None = None
    # time: from the start of the episode; phase: the file is one stride, repeated at the goal's stride frequency
    reference_by: str = "time"
    instruction: str | None = (
        None  # a motion in words, in place of the task's own, or without a task on the model alone
    )
    # instruction.partial=true: without a language model, go on with the words that were read, if some were not
    instruction_partial: bool = False
    # the tuned settings in use; set when composing
    tuned_settings: Mapping[str, Any] = field(default_factory=dict)
    run_dir: str | None = None  # folder of the results; null: runs/<task>/<time>
    resume: str | None = None  # run directory of a search to continue
    # with resume and replay: obey all that recorded settings ask for that you did not begin here (docs/sandbox.md)
    trust: bool = False
    physics: str = "auto"  # runs plans and training: auto, native, mjx, warp; episodes run in C MuJoCo
    method: Method = field(default_factory=Method)
    llm: ModelConfig = field(default_factory=lambda: ModelConfig("scripted"))
    vlm: ModelConfig = field(default_factory=lambda: ModelConfig("metrics"))
    proposer: Any = part(
        PROPOSERS, Auto()
    )  # writes programs; auto: from llm and method, else a registered proposer
    judge: Any = part(JUDGES, Auto())  # compares films; auto: from vlm and method, else a registered judge
    critic: Any = part(
        CRITICS, Auto()
    )  # criticises the best; auto: from vlm and method, else a registered critic
    ranking: str = "active"  # active, round_robin, knockout, paper
    # maximum judge calls per generation with ranking=active; null: 4 per program
    comparisons: int | None = None
    # true: a fall, a dropped object, a diverged simulation or a degenerate motion overrules the judge
    gates: bool = True
    retries: int = 3  # how often a model may correct a rejected program; it gets the reason each time
    # calls of language and vision models; the search stops at the limit and can be resumed
    max_calls: int | None = None
    # cost of language and vision models; the search stops at the limit and can be resumed
    max_cost_usd: float | None = None
    workers: WorkersConfig = field(default_factory=WorkersConfig)  # who evaluates the candidates
    tracker: TrackerConfig = field(
        default_factory=TrackerConfig
    )  # where the course of the search is shown too
    sandbox: str = "confined"  # confined (the kernel restricts generated programs) or process (weaker)
    films: bool = True
    preview: bool = False  # true: small films with few frames, in a quarter of the time
    reward: str = "human"  # for evaluate: a file, human, initial, or a run directory


def check(config: Config) -> Config:
    """Check ranges and choices that types do not express. Return `config`. Raises UserError."""
    o = config.optimizer
    check_ranges(config)
    at_least(1, config, "", "candidates", "generations", "trials")
    if config.episode_s is not None:
        check_episode(config.episode_s, o.ctrl_dt)
    at_least(0, config, "", "seed", "retries", "confirm", "max_calls", "max_cost_usd")
    if not 0.5 <= config.certainty < 1:
        raise UserError(f"certainty={config.certainty:g}: a probability of being better, from 0.5 to below 1")
    choices = {
        "physics": PHYSICS,
        "ranking": RANKINGS,
        "sandbox": SANDBOXES,
        "reference_by": BY,
    }
    one_of(config, "", **choices)
    for name, value, known in (
        ("workers", config.workers.name, WORKERS),
        ("tracker", config.tracker.name, TRACKERS),
    ):
        if value not in known:
            raise UserError(unknown_name(name, value, known))
    if (
        isinstance(o, PlanningSettings | PpoSettings)
        and o.warp_graph != "auto"
        and config.physics in ("native", "mjx")
    ):
        raise UserError(
            f"optimizer.warp_graph={o.warp_graph} has no effect with physics={config.physics}; add physics=warp or "
            "leave it out"
        )
    no_secrets("tracker.uri", config.tracker.uri, "give it in the environment variable MLFLOW_TRACKING_URI")
    no_secrets("workers.address", config.workers.address, "give it in the environment variable RAY_ADDRESS")
    at_least(1, config.workers, "workers.", "count", "shard")
    above_0(config, "", "minutes")
    above_0(config.workers, "workers.", "cores", "deadline_s")
    at_least(0, config.workers, "workers.", "gpus")
    check_model(config.llm, "llm", WRITERS)
    check_model(config.vlm, "vlm", WATCHERS)
    if config.method.start == "human" and (config.candidates, config.generations) != (1, 1):
        raise UserError(
            f"method={config.method.name} evaluates one program once; leave candidates and generations at 1"
        )
    if config.instruction and config.method.start in ("human", "canonical"):
        raise UserError(
            f"method={config.method.name} needs a hand-written reward, which an instruction has not; use another "
            "method, or leave instruction out"
        )
    if config.comparisons is not None:
        _check_comparisons(config, config.comparisons)
    return config


def recorded_config(values: Any) -> Config:
    """Return the checked settings that this or an earlier version recorded. Raises UserError."""
    if isinstance(values, Mapping):
        check_removed(flat(values))
        values = {name: value for name, value in values.items() if name not in _REMOVED}
        values |= {name: _present(values[name]) for name in ("optimizer", "method") if name in values}
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
