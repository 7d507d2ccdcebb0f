"""The public API: tasks, rewards and searches from Python, and the registries.

The functions do what the commands do, with the same settings, messages and run directories. Settings are keywords, or
strings as on the command line: `run_search(task, "optimizer.mppi.samples=8", candidates=4)`. A mistake raises
`UserError` with the sentence that the command would print.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from movlr_jax.errors import UserError

if TYPE_CHECKING:
    import pandas

    from movlr_jax.config.schema import Config
    from movlr_jax.control.mpc.rules import PlanningRule
    from movlr_jax.control.muscle_controllers import MuscleLaw
    from movlr_jax.control.settings import OptimizerSettings
    from movlr_jax.language.base import Critic, Judge, Proposer
    from movlr_jax.models import ModelAdapter
    from movlr_jax.records import Claim, Evaluation
    from movlr_jax.rewards.function import RewardFunction
    from movlr_jax.storage.trajectory import EpisodeRecord
    from movlr_jax.tasks import Task


_FILM_BYTES = 2**26  # of a film that a notebook shows


# Tasks.


def load_task(
    name: str | Path | None = None,
    *settings: str,
    model: str | Path | None = None,
    episode_s: float | None = None,
    reference: str | Path | None = None,
    reference_by: str = "time",
    instruction: str | None = None,
    **task_settings: Any,
) -> Task:
    """Build a task.

    Args:
        name: Name of a task, or path of a Python file that defines one; None for the motion that `instruction`
            describes, on `model` alone.
        *settings: Further settings as on the command line, as "env=CartpoleBalance" of the task "playground".
        model: Name of a model or path of an MJCF file; None for the task's default.
        episode_s: Length of an evaluation episode in s; None for the task's default.
        reference: A .mot or .sto file of a recorded motion, which rewards read as `state.reference(joint)`; or for
            walkers `people` or `steps`.
        reference_by: `time`, or `phase` if the file is one stride.
        instruction: A motion in words, in place of the task's own, on its body and in its scene.
        **task_settings: Settings of the task, as `tilt_deg=30.0`; on the command line `task.settings.tilt_deg=30.0`.

    Returns:
        The task. `task.model` is the MuJoCo model, `task.goals` what rewards may aim at, `task.rewards.human` a
        hand-written reward program.

    Raises:
        UserError: For unknown names, with near matches, and values out of range.
    """
    from movlr_jax.engine.environment import prepare_environment

    prepare_environment()

    from movlr_jax.config.compose import compose
    from movlr_jax.config.overrides import overrides_of, task_override
    from movlr_jax.engine.tasks import task_of
    from movlr_jax.tasks.base import Overrides
    from movlr_jax.tasks.instruction import absolute_model

    if model is not None:
        model = str(model) if name else absolute_model(str(model))  # a search may begin in another folder
    given = {"model": model, "episode_s": episode_s, "instruction": instruction}
    if reference is not None:
        given |= {"reference": _reference(reference), "reference_by": reference_by}
    given = {key: value for key, value in given.items() if value is not None}
    given |= {f"task.settings.{key}": value for key, value in task_settings.items()}
    named, words = [task_override(name)] if name else [], overrides_of(given)
    overrides = Overrides((*named, *settings, *words))
    built = task_of(compose(overrides))
    overrides.loaded = {key: value for key, value in built.leaves().items() if key != "overrides"}
    return built.replace(overrides=overrides)


def _reference(given: str | Path) -> str | Path:
    """Return the name of a reference of the package, or the absolute path of a file."""
    from movlr_jax.tasks.reference import PEOPLE, STEPS

    return given if str(given) in (PEOPLE, STEPS) else Path(given).resolve()


# Rewards.


@dataclass(frozen=True)
class RewardResult:
    """What became of one reward: the motion that it leads to and its measures.

    Attributes:
        metrics: The task's measures of the motion by name, with units in the names; `success` is 1.0 or 0.0.
        terms: For each term of the reward, its `mean` and `weighted_mean` over the episode.
        trajectory: The episode.
        trajectory_file: The npz file that keeps it.
        policy_file: The npz file of the policy that was trained; None for a planner.
        source: The reward program.
    """

    metrics: Mapping[str, float]
    terms: Mapping[str, Mapping[str, float]]
    trajectory: EpisodeRecord
    trajectory_file: Path
    policy_file: Path | None
    source: str
    task: Task
    _states: bytes  # of this episode, also when a later one has replaced the file
    _filmed: dict[Path, tuple[bool, int]] = field(default_factory=dict)  # preview, time of writing in ns

    def film(self, path: str | Path | None = None, *, preview: bool = False) -> Path:
        """Render the episode and return the mp4 file, by default next to the trajectory. Raises UserError.

        Args:
            path: The mp4 file to write; None for the one next to the trajectory, which is rendered once.
            preview: Render a small film with few frames, in a quarter of the time.
        """
        from movlr_jax._util.quantities import summary
        from movlr_jax.evolution.film import clip_of, store, style_of
        from movlr_jax.film.captions import Caption
        from movlr_jax.film.clips import film
        from movlr_jax.storage.writing import write_atomically

        target = Path(path) if path else self.trajectory_file.with_suffix(".mp4")
        written = target.stat().st_mtime_ns if target.exists() else 0
        if path or self._filmed.get(target) != (preview, written):
            caption = Caption(self.task.description, "", summary(self.metrics))
            made = film(clip_of(self.task, self._states, caption), style_of(preview))
            store(lambda name, data: write_atomically(Path(name), data), str(target), made)
            self._filmed[target] = (preview, target.stat().st_mtime_ns)
        return target

    def __repr__(self) -> str:
        return f"RewardResult({str(self.trajectory_file)!r}: {_measured(self.metrics)})"

    def _repr_html_(self) -> str:
        try:
            shown = _video(self.film())
        except UserError as error:
            shown = html.escape(str(error))
        return shown + _table([("measure", "value"), *((k, f"{v:.4g}") for k, v in self.metrics.items())])


def evaluate_reward(
    source: str | Path, task: Task | str | Path, *settings: str, seed: int = 0, **more: Any
) -> RewardResult:
    """Optimise control under one reward and measure the motion.

    Args:
        source: Text of a reward program, path of a file or of a run directory, "human" or "initial".
        task: A task, its name, or path of a Python file that defines one.
        *settings: Settings as on the command line, as "optimizer.mppi.samples=8".
        seed: Seed of the start state and of the optimiser.
        **more: Settings by keyword, as `optimizer="mppi"`, `physics="native"`, `run_dir="results"`.

    Raises:
        UserError: If the program is rejected, with the reason, and if the simulation diverges.
    """
    config, built = _configured(task, settings, {"seed": seed, "films": False, **more})
    from dataclasses import replace

    from movlr_jax._util.progress import Reporter, interruptible
    from movlr_jax.engine.evaluate import prepared, run_episode
    from movlr_jax.storage.trajectory import EpisodeRecord

    text, given = str(source), None
    if "\n" in text:
        given = (text, f"given_{hashlib.sha256(text.encode()).hexdigest()[:8]}")
    else:
        config = replace(config, reward=text)
    reporter = Reporter()
    with interruptible():
        setup = prepared(config, reporter, given, built)
        outcome, result = run_episode(setup, seed, reporter)
    if outcome.reason or setup.verdict.program is None:
        raise UserError(f"reward {setup.origin}: {outcome.reason}")
    states = Path(result["trajectory"])
    return RewardResult(
        metrics=dict(outcome.metrics),
        terms={n: {k: t[k] for k in ("mean", "weighted_mean")} for n, t in outcome.terms.items()},
        trajectory=EpisodeRecord.read(states, setup.task.model, setup.task.adapter),
        trajectory_file=states,
        policy_file=Path(result["policy"]) if "policy" in result else None,
        source=setup.verdict.program.source,
        task=setup.task,
        _states=states.read_bytes(),
    )


def load_reward(source: str | Path, task: Task | str | Path, *settings: str, **more: Any) -> RewardFunction:
    """Return a reward program as a function in JAX, for a training loop of one's own in MuJoCo, MJX or Brax.

    Args:
        source: Text of a reward program, path of a file or of a run directory, "human" or "initial".
        task: A task, its name, or path of a Python file that defines one.
        *settings: Settings as on the command line.
        **more: Settings by keyword.

    Raises:
        UserError: If the program is rejected, with the reason.
    """
    config, built = _configured(task, settings, more)
    from movlr_jax.engine.rewards import vetted
    from movlr_jax.engine.tasks import task_of
    from movlr_jax.rewards.function import RewardFunction

    built = built or task_of(config)
    program = vetted(source, built, config, built.model)
    return RewardFunction(built.model, program, built.layout, built.data)


# Searches.


@dataclass(frozen=True)
class SearchCandidate:
    """One program of a search, and its motion.

    Attributes:
        name: As in the report: `g01k02` is program 2 of generation 1, both counted from 0.
        source: The reward program.
        parent: Name of the program that it was written from.
        reason: Why it failed; None if it ran.
        weights: Weight of each term.
        metrics: The task's measures of the motion.
        film: Its mp4 file; None without films.
        trajectory_file: The npz file of its episode.
    """

    name: str
    source: str
    parent: str | None
    reason: str | None
    weights: Mapping[str, float]
    metrics: Mapping[str, float]
    film: Path | None
    trajectory_file: Path
    _task: Callable[[], Task]

    @cached_property
    def trajectory(self) -> EpisodeRecord:
        """The episode. Raises UserError if the program failed."""
        from movlr_jax.storage.trajectory import EpisodeRecord

        if self.reason is not None:
            raise UserError(f"{self.name} has no trajectory: {self.reason}")
        task = self._task()
        return EpisodeRecord.read(self.trajectory_file, task.model, task.adapter)

    def __repr__(self) -> str:
        became = f"failed, {self.reason}" if self.reason else _measured(self.metrics)
        return f"SearchCandidate({self.name!r}: {became})"

    def _repr_html_(self) -> str:
        rows = [("measure", "value"), *((k, f"{v:.4g}") for k, v in self.metrics.items())]
        return f"<b>{self.name}</b>{_video(self.film)}{_table(rows)}<pre>{html.escape(self.source)}</pre>"


class SearchRun:
    """The run directory of a search, finished or not.

    Attributes:
        root: The run directory.
        finished: False after an interruption or a spent budget; `run_search(resume=run.root)` continues the search.
    """

    def __init__(self, root: str | Path, task: Task | None = None, trust: bool = False):
        from movlr_jax.engine.environment import prepare_environment

        prepare_environment()
        from movlr_jax.report.data import read_run
        from movlr_jax.storage.archive import Archive

        self.root = Path(root)
        self._given, self._trust = task, trust
        with Archive.open(self.root, write=False) as archive:
            self._run = read_run(archive, motion=task.scoring.motion if task else None)
        self.finished = self._run.state == "finished"

    @cached_property
    def task(self) -> Task:
        """The task of the search, built again from the settings of the run unless it is at hand."""
        if self._given is not None:
            return self._given
        from movlr_jax.config.compose import compose
        from movlr_jax.config.trust import TASK
        from movlr_jax.engine.tasks import task_of

        trust = ["trust=true"] if self._trust else []
        return task_of(compose([f"resume={self.root}", *trust], parts=TASK))

    @property
    def candidates(self) -> list[SearchCandidate]:
        """All evaluated programs, by generation."""
        return [self._candidate(c) for c in self._run.candidates.values()]

    @property
    def best(self) -> SearchCandidate:
        """The best program. Raises UserError before the first generation is ranked."""
        if self._run.best is None:
            raise UserError(f"{self.root} has no best program yet: no generation is ranked")
        return self._candidate(self._run.best)

    @property
    def confirmed(self) -> Mapping[str, Claim]:
        """What fresh trials, which no choice has seen, came to; empty before the confirmation.

        The keys are `champion`, `first` and, where the task has one, `hand-written`. Each value has the number of
        trials `n`, the `successes` (None if the task has no success), their 95 % `interval`, the trials that
        `failed` to run and the mean `metrics`.
        """
        found = self._run.confirmed
        if found is None:
            return {}
        roles = {"champion": found.champion, "first": found.first}
        others = {name: name for name in found.claims if name not in roles.values()}
        return {role: found.claims[name] for role, name in (roles | others).items() if name in found.claims}

    @property
    def claim(self) -> str:
        """What the search may claim, in a line; of a run that is not confirmed it says so."""
        from movlr_jax.report.text import claim

        found = self._run.confirmed
        return f"{claim(self._run)}: {found.text}" if found and found.text else claim(self._run)

    @property
    def report(self) -> Path:
        """The page report.html, written from the run directory as it is now."""
        from movlr_jax.engine.report import write_with_task

        return write_with_task(self.root, lambda: self.task)[0]

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a table with one row per program, by name. Needs pandas.

        Columns:

        - `parent`, `reason`: as in `SearchCandidate`.
        - The task's measures, by their names: means over the trials of the search; of `success` the rate.
        - `generation`, `candidate`: numbers of the generation and of the program in it, from 0.
        - `best`: whether it is the best program of the run.
        - `trials`, `successes`: number of trials in the search, and how many succeeded.
        - `strength`, `deviation`, `p_best`: in the last ranking that has the program, the posterior mean of its score
          with the standard deviation, in the unit of the score, and its probability of being the best. Where a judge
          watches films, the unit is the noise of a trial.
        - `weight_TERM`: weight of each term of its reward.

        Numbers that a program does not have are NaN. Where a measure has the name of one of the later columns, that
        column ends in `_in_run`.
        """
        from movlr_jax.errors import needed

        with needed("to_dataframe", "notebook"):
            import pandas

        found = self._run.candidates
        best = self._run.best.name if self._run.best else None
        standings = self._run.strengths
        unknown = {"strength": math.nan, "deviation": math.nan, "p_best": math.nan}
        index = pandas.Index(list(found), name="name")
        claims = self._run.claims
        measured = [{"parent": c.parent, "reason": c.reason, **claims[name].metrics} for name, c in found.items()]
        frame = pandas.DataFrame(measured, index=index)
        more = [
            {
                "generation": c.generation,
                "candidate": c.candidate,
                "best": name == best,
                "trials": claims[name].n,
                "successes": math.nan if claims[name].successes is None else claims[name].successes,
                **standings.get(name, unknown),
                **{f"weight_{term}": weight for term, weight in c.weights.items()},
            }
            for name, c in found.items()
        ]
        added = pandas.DataFrame(more, index=index)
        return frame.join(added.rename(columns=lambda name: f"{name}_in_run" if name in frame else name))

    def _candidate(self, c: Evaluation) -> SearchCandidate:
        from movlr_jax.storage.inside import inside
        from movlr_jax.storage.layout import candidate_path

        return SearchCandidate(
            name=c.name,
            source=c.source,
            parent=c.parent,
            reason=c.reason,
            weights=c.weights,
            metrics=c.metrics,
            film=inside(self.root, str(c.film)) if c.film else None,
            trajectory_file=self.root / candidate_path(c.generation, c.candidate, ".npz"),
            _task=lambda: self.task,
        )

    def _repr_html_(self) -> str:
        found = self.candidates
        shown = ("success", "distance", "object")
        names = sorted({name for c in found for name in c.metrics if name.startswith(shown)})
        rows = [("program", "parent", *names, "reason")]
        for c in found:
            means = self._run.claims[c.name].metrics
            values = [f"{means[n]:.4g}" if n in means else "" for n in names]
            rows.append((c.name, c.parent or "", *values, c.reason or ""))
        best = f"<p>{html.escape(self.claim)}</p>{_video(self.best.film)}" if self._run.best else ""
        return f"<p>{html.escape(str(self.root))}</p>{best}{_table(rows)}"

    def __repr__(self) -> str:
        best = self._run.best.name if self._run.best else None
        return f"SearchRun({str(self.root)!r}: {len(self._run.candidates)} programs, best {best})"


def run_search(
    task: Task | str | Path | None = None, *settings: str, resume: str | Path | None = None, **more: Any
) -> SearchRun:
    """Search a reward for a task.

    Args:
        task: A task, its name, or path of a Python file that defines one. None with `resume`, or for the motion
            `instruction="..."` on `model="..."` alone.
        *settings: Settings as on the command line, as "optimizer.mppi.samples=8".
        resume: Run directory of a search to continue.
        **more: Settings by keyword, as `candidates=4`, `generations=3`, `method="eureka"`, `run_dir="results"`. Parts
            may be objects: `judge=MyJudge(strict=2)`, `critic`, `proposer`, `planner=Mppi(samples=8)`,
            `muscle=Torque(kp=2.0)`, `optimizer=MyOptimizer()`.

    Returns:
        The run. It is unfinished after Ctrl-C or a spent budget; `run_search(resume=run.root)` continues it.

    Raises:
        UserError: For settings that cannot be used, and when every program of a generation fails.
    """
    if task is None and resume is None and not {"model", "instruction"} & more.keys():
        raise UserError("run_search needs a task, or resume=RUN_DIR; load_task('bottle_pour') gives a task")
    if resume is not None:
        more = {**more, "resume": str(resume)}
    config, built = _configured(task, settings, more)
    from movlr_jax._util.progress import interruptible
    from movlr_jax.engine.search import run_search as run

    with interruptible():
        root, _ = run(config, built)
    return SearchRun(root, built)


def open_run(root: str | Path, task: Task | None = None, *, trust: bool = False) -> SearchRun:
    """Read the run directory of a search. Raises UserError.

    Args:
        root: The run directory.
        task: The task of the search; needed only if it was made in Python, for its trajectories and the report.
        trust: Obey what the task of a run asks for that was not begun here, as a Python file.
    """
    return SearchRun(root, task, trust)


# Registries.


def register_task(
    name: str, build: Callable[..., Task], *, models: Sequence[str], episode_s: float = 10.0, replace: bool = False
) -> None:
    """Make `+task=NAME` and `load_task(name)` build a task.

    Args:
        name: Its name.
        build: `build(adapter, *, episode_s, **settings) -> Task`. `adapter` is the ModelAdapter of the chosen model.
            The other keyword-only arguments, with annotations and defaults, are the settings of the task.
        models: Names of the models that it is made for, the default first.
        episode_s: Length of an evaluation episode in s.
        replace: Replace a task of this name.
    """
    from movlr_jax.tasks.registry import TASKS, TaskEntry

    TASKS.register(name, TaskEntry(build, tuple(models), episode_s), replace=replace)


def register_model(adapter: ModelAdapter, *, replace: bool = False) -> None:
    """Make `model=NAME` find a model, by the name of its adapter."""
    from movlr_jax.models import MODELS

    MODELS.register(adapter.name, adapter, replace=replace)


def register_proposer(name: str, make: type[Proposer] | Callable[[], Proposer], *, replace: bool = False) -> None:
    """Make `proposer=NAME` write the programs of a search. `make` is a class of its settings (`setting`), or
    a function without arguments."""
    from movlr_jax.language.registry import PROPOSERS

    PROPOSERS.register(name, make, replace=replace)


def register_judge(name: str, make: type[Judge] | Callable[[], Judge], *, replace: bool = False) -> None:
    """Make `judge=NAME` compare the motions of a search. `make` is a class of its settings (`setting`), or
    a function without arguments."""
    from movlr_jax.language.registry import JUDGES

    JUDGES.register(name, make, replace=replace)


def register_critic(name: str, make: type[Critic] | Callable[[], Critic], *, replace: bool = False) -> None:
    """Make `critic=NAME` criticise the best motion. `make` is a class of its settings (`setting`), or
    a function without arguments."""
    from movlr_jax.language.registry import CRITICS

    CRITICS.register(name, make, replace=replace)


def register_optimizer(name: str, kind: type[OptimizerSettings], *, replace: bool = False) -> None:
    """Make `optimizer=NAME` seek control. `kind` is a class of its settings with the method `build`."""
    from movlr_jax.control.settings import OPTIMIZERS

    OPTIMIZERS.register(name, kind, replace=replace)


def register_rule(name: str, kind: type[PlanningRule], *, replace: bool = False) -> None:
    """Make `optimizer.mppi.rule=NAME` plan. `kind` is a class of its settings with the method `update`."""
    from movlr_jax.control.mpc.rules import RULES

    RULES.register(name, kind, replace=replace)


def register_law(name: str, kind: type[MuscleLaw], *, replace: bool = False) -> None:
    """Make `optimizer.muscle.law=NAME` control muscles. `kind` is a class of its settings with the method `force`."""
    from movlr_jax.control.muscle_controllers import LAWS

    LAWS.register(name, kind, replace=replace)


def register_method(
    name: str, *, replace: bool = False, settings: Mapping[str, Any] | None = None, **fields: Any
) -> None:
    """Make `method=NAME` choose how a search works.

    Args:
        name: Its name.
        replace: Replace a method of this name.
        settings: Settings of the search that come with it, as {"candidates": 16}.
        **fields: Fields of `movlr_jax.config.methods.Method`, as feedback="reflection", judge="score".
    """
    from movlr_jax._util.parts import check_ranges
    from movlr_jax.config.methods import METHODS, Method, MethodEntry

    try:
        method = Method(name, **fields)
    except TypeError as error:
        raise UserError(f"the method {name!r} cannot be made: {error}") from None
    check_ranges(method, "method")
    METHODS.register(name, MethodEntry(method, settings or {}), replace=replace)


# What they share.


def _configured(
    task: Task | str | Path | None, settings: Sequence[str], more: Mapping[str, Any]
) -> tuple[Config, Task | None]:
    """Return the checked settings, and the task if it is built already."""
    from movlr_jax.engine.environment import prepare_environment, prepare_physics

    prepare_environment()
    from dataclasses import replace

    from movlr_jax.config.compose import SHORTHANDS, compose
    from movlr_jax.config.objects import separated, with_parts
    from movlr_jax.config.overrides import overrides_of, task_override
    from movlr_jax.config.schema import TaskConfig
    from movlr_jax.engine.tasks import adapted, task_of
    from movlr_jax.tasks import Task

    for setting in settings:
        if not isinstance(setting, str):
            raise UserError(
                f"{setting!r} is not a setting; give each as a text of its own, as in "
                'run_search("bottle_pour", "candidates=2", "generations=1"), or by keyword, as candidates=2'
            )
    if not (task is None or isinstance(task, str | Path | Task)):
        raise UserError(f"{task!r} is not a task; give one, its name, or the path of a Python file that defines one")
    words, parts = separated(more)
    overrides = [*settings, *overrides_of(words)]
    names = [text.lstrip("+").partition("=")[0] for text in overrides]
    others = [n for n in names if n in ("model", "episode_s", *SHORTHANDS) or n.startswith("task.")]
    if task is None or isinstance(task, str | Path):
        config, built = compose([*([task_override(task)] if task else []), *overrides]), None
    elif others and not task.named:
        made = "changed" if task.origin.overrides else "made"
        raise UserError(
            f"{others[0]} cannot be set here: the task {task.name} was {made} in Python; give it where it is made"
        )
    elif task.origin.overrides:
        config = compose([*task.origin.overrides, *overrides])
        changed = others or {"reference", "reference_by", "instruction"} & {*names}
        built = task_of(config) if changed and task.named else task
    else:  # made in Python: no command can name it
        ours = {"task": TaskConfig(task.name), "model": task.adapter.name, "episode_s": task.episode_s}
        resumed = "resume" in names
        config, built = compose(overrides if resumed else ["+task=own", *overrides]), task
        if resumed and (other := [n for n, value in ours.items() if getattr(config, n) != value]):
            raise UserError(
                f"{config.resume} is a search of another task: {other[0]} was {getattr(config, other[0])}, is "
                f"{ours[other[0]]}; give the task of that search"
            )
        config = replace(config, **ours)
    config = with_parts(config, parts)
    prepare_physics(config.physics)
    return config, built and adapted(built, config)


def _measured(metrics: Mapping[str, float]) -> str:
    from movlr_jax._util.quantities import summary

    return summary(metrics)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """An HTML table whose first row is its head."""
    lines = []
    for i, row in enumerate(rows):
        tag = "td" if i else "th"
        cells = "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _video(path: Path | None) -> str:
    """A film as HTML that needs no file; empty without one."""
    if path is None or not path.is_file() or path.stat().st_size > _FILM_BYTES:
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<video controls loop width="480" src="data:video/mp4;base64,{data}"></video>'
