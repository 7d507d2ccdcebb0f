"""Build the proposer, judge and critic of a search from the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from movlr_jax._util.parts import filled, services_of
from movlr_jax.config.schema import Config
from movlr_jax.errors import UserError
from movlr_jax.evolution.context import Roles, unwatched
from movlr_jax.evolution.pairwise import BOTH_ORDERS, to_people
from movlr_jax.evolution.scripted.metrics import (
    MetricsCritic,
    MetricsJudge,
    NoCritic,
    ReflectionCritic,
    StatisticsCritic,
)
from movlr_jax.evolution.scripted.proposer import ScriptedProposer
from movlr_jax.film.clips import Clip
from movlr_jax.language import proposer as writers
from movlr_jax.language.base import Critic, Evaluation, Proposer
from movlr_jax.language.clients.client import Budget, ModelClient, open_client
from movlr_jax.language.clients.person import Person
from movlr_jax.language.clients.replay import recorded_model
from movlr_jax.language.critic import DescriptorCritic, ModelCritic
from movlr_jax.language.judge import ModelJudge
from movlr_jax.language.media import MotionMedia
from movlr_jax.language.registry import CRITICS, JUDGES, PROPOSERS, Auto
from movlr_jax.storage.archive import Archive

T = TypeVar("T")
Say = Callable[[str], None]
_SEEING = ("critique", "descriptors")  # feedback that comes from watching


def build_roles(config: Config, archive: Archive, clip: Callable[[Evaluation], Clip], films: bool, say: Say) -> Roles:
    """Build proposer, judge and critic, and open the models that they ask. Raises UserError.

    The settings `proposer`, `judge` and `critic` replace the parts that the method and the models would give. A part
    gets the services that it declares: `client`, the model to ask, which is llm= for a proposer and vlm= for a judge
    or critic; `media`, the motions as that model sees them; and `say`, which shows a sentence.
    """
    models = _Models(config, archive, clip, films, say)
    proposer, judge, critic = _proposer(config, models), config.judge, _critic(config, models)
    if isinstance(judge, Auto):
        seen = config.method.judge == "vlm" and not models.vlm.embedded
        judge = ModelJudge() if seen else MetricsJudge()
    asked = models.watcher if config.method.watches else models.writer
    by_people = "client" in services_of(judge) and models.vlm.name == "person"
    voting = models.watcher("judge").backend if by_people else None
    return Roles(
        proposer=models.fill(proposer, f"proposer={PROPOSERS.name_of(proposer)}", asked),
        judge=models.fill(judge, f"judge={JUDGES.name_of(judge)}", models.watcher),
        critic=models.fill(critic, f"critic={CRITICS.name_of(critic)}", models.watcher),
        models_used=models.used() + ("" if isinstance(config.judge, Auto) else f"; the judge is {judge.name}"),
        clients=models.clients,
        showing=to_people(models.vlm.page.raters) if by_people else BOTH_ORDERS,
        watch=voting.watch if isinstance(voting, Person) else unwatched,
    )


class _Models:
    """The models of a search, each opened when a part first asks for it, and with one budget for all."""

    def __init__(self, config: Config, archive: Archive, clip: Callable[[Evaluation], Clip], films: bool, say: Say):
        self.llm, self._llm_source = recorded_model(config.llm, "llm")
        self.vlm, self._vlm_source = recorded_model(config.vlm, "vlm")
        self._config, self._archive, self._clip, self._films, self.say = config, archive, clip, films, say
        self._budget = Budget(archive, config.max_calls, config.max_cost_usd)
        self._writer: ModelClient | None = None
        self._watcher: ModelClient | None = None

    def writer(self, who: str) -> ModelClient:
        """Return the client of the language model. Raises UserError without one."""
        if self.llm.embedded:
            raise UserError(f"{who} asks a language model; give llm=gemini or another one")
        if self._writer is None:
            self._writer = open_client(self.llm, "llm", self._llm_source, self._budget, self.say)
        return self._writer

    def watcher(self, who: str) -> ModelClient:
        """Return the client of the vision model. Raises UserError without one, or without films."""
        if self.vlm.embedded:
            raise UserError(f"{who} asks a vision-language model; give vlm=gemini or another one")
        if self._watcher is None:
            self._check_films(f"vlm={self.vlm.name}")
            self._watcher = open_client(self.vlm, "vlm", self._vlm_source, self._budget, self.say)
        return self._watcher

    def media(self, who: str) -> MotionMedia:
        """Return the motions as the vision model sees them. Raises UserError without films."""
        self._check_films(who)
        method, vlm = self._config.method, self.vlm
        stills = method.frames and vlm.name != "person"  # people see the whole film
        shown = replace(vlm.shown, media="frames", frames=method.frames) if stills else vlm.shown
        return MotionMedia(shown, self._archive, self._clip)

    def fill(self, made: T, who: str, open_model: Callable[[str], ModelClient]) -> T:
        """Return a part with the services that it uses."""
        makers: dict[str, Callable[[], Any]] = {
            "client": lambda: open_model(who),
            "media": lambda: self.media(who),
            "say": lambda: self.say,
        }
        return filled(made, {name: makers[name]() for name in services_of(made) if name in makers})

    def used(self) -> str:
        """Return the names of the opened models in one line."""
        named = {"language model": self._writer, "vision model": self._watcher}
        models = [f"{kind}: {client.name}" for kind, client in named.items() if client]
        replayed = " (replayed)" if "replay" in (self._config.llm.name, self._config.vlm.name) else ""
        return "; ".join(models) + replayed if models else "no language or vision model used"

    @property
    def clients(self) -> tuple[ModelClient, ...]:
        return tuple(client for client in (self._writer, self._watcher) if client)

    def _check_films(self, who: str) -> None:
        if not self._films:
            raise UserError(
                f"{who} needs films, but none are rendered: films=false is set, or no renderer works here "
                "(see doctor)"
            )


def _proposer(config: Config, models: _Models) -> Proposer:
    """Return the proposer of the settings, without its services. Raises UserError."""
    method, vlm = config.method, models.vlm
    if not isinstance(config.proposer, Auto):
        return config.proposer
    if method.watches and vlm.embedded:
        raise UserError(
            f"method={method.name} needs a vision-language model that writes programs; set vlm=gemini or another one"
        )
    if vlm.name == "person" and (method.watches or method.feedback == "descriptors"):
        asked = "write programs" if method.watches else "describe motions by labels"
        raise UserError(
            f"method={method.name} asks its vision model to {asked}, which the page of vlm=person does not; give "
            "another method, or vlm=manual"
        )
    writes = not models.llm.embedded and method.start != "human"
    if not (method.watches or writes):
        return ScriptedProposer()
    talks = {
        "reflection": writers.eureka_talk,
        "descriptors": writers.motionvl_talk,
        "statistics": writers.motionvl_talk,
    }
    talk = talks.get(method.feedback, writers.edit_talk)
    if method.watches:
        talk = writers.watching_talk(models.media(f"vlm={vlm.name}"))
    return writers.ModelProposer(
        talk=talk,
        temperature=method.temperature,
        retries=config.retries,
        directed=method.directions,
        mjcf=method.mjcf,
    )


def _critic(config: Config, models: _Models) -> Critic:
    """Return the critic of the settings, without its services.

    The scripted proposer reads only the advice on terms, in every method.
    """
    if not isinstance(config.critic, Auto):
        return config.critic
    method, sees = config.method, not models.vlm.embedded
    watching = sees and (method.watches or method.judge == "vlm" or method.feedback in _SEEING)
    writing = not models.llm.embedded and not method.watches and method.start != "human"
    if method.feedback == "none" and (watching or writing):
        return NoCritic()
    if method.feedback in _SEEING and sees:
        return DescriptorCritic(every_s=method.every_s) if method.feedback == "descriptors" else ModelCritic()
    if config.llm.embedded:
        return MetricsCritic()
    if method.feedback == "reflection":
        return ReflectionCritic()
    return StatisticsCritic() if method.feedback in ("descriptors", "statistics") else MetricsCritic()
