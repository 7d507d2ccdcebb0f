"""Build the proposer, judge and critic of a method from the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from movlr_jax.errors import UserError
from movlr_jax.evolution.context import Watch, unwatched
from movlr_jax.evolution.pairwise import BOTH_ORDERS, Presentation, to_people
from movlr_jax.language.base import Critic, Evaluation, Judge, Proposer
from movlr_jax.language.clients.opening import open_client
from movlr_jax.language.clients.replay import recorded_model
from movlr_jax.language.critics.feedback import DescriptorCritic, NoCritic, ReflectionCritic, StatisticsCritic
from movlr_jax.language.judges.metrics import MetricsCritic, MetricsJudge
from movlr_jax.language.proposers.scripted import ScriptedProposer
from movlr_jax.language.registry import AUTO, CRITICS, JUDGES, PROPOSERS
from movlr_jax.storage.archive import Archive

if TYPE_CHECKING:
    from movlr_jax.config.schema import Config
    from movlr_jax.film.clips import Clip
    from movlr_jax.language.clients.client import ModelClient
    from movlr_jax.language.media import MotionMedia

Say = Callable[[str], None]
NONE_USED = "no language or vision model used"


@dataclass(frozen=True)
class Parts:
    """Proposer, judge and critic of a search, and the model clients to close at its end."""

    proposer: Proposer
    judge: Judge
    critic: Critic
    models_used: str  # names of the models, in one line
    clients: tuple[ModelClient, ...] = ()
    showing: Presentation = BOTH_ORDERS  # of pairs to the judge
    watch: Watch = unwatched  # shows how far a ranking is


def build_parts(
    config: Config, archive: Archive, clip: Callable[[Evaluation], Clip], films: bool, say: Say
) -> Parts:
    """Build proposer, judge and critic. Raises UserError if packages, keys or films are missing.

    The settings `proposer`, `judge` and `critic` replace the parts that the method and the models would give.
    """
    parts = _parts(config, archive, clip, films, say)
    for role, registry in (("proposer", PROPOSERS), ("judge", JUDGES), ("critic", CRITICS)):
        name = getattr(config, role)
        if name != AUTO:
            parts = replace(parts, **{role: registry.get_or_raise(name)()})
            if role == "judge":
                parts = replace(parts, showing=BOTH_ORDERS, watch=unwatched)
    return parts


def _parts(
    config: Config, archive: Archive, clip: Callable[[Evaluation], Clip], films: bool, say: Say
) -> Parts:
    """Build the parts that the method and the models give, with one shared budget. Raises UserError."""
    method = config.method
    llm, llm_source = recorded_model(config.llm, "llm")
    vlm, vlm_source = recorded_model(config.vlm, "vlm")
    watching = not vlm.embedded and (method.watches or method.judge == "vlm" or method.feedback in _SEEING)
    writing = not llm.embedded and not method.watches and method.start != "human"
    if method.watches and vlm.embedded:
        raise UserError(
            f"method={method.name} needs a vision-language model that writes programs; set vlm=gemini or another one"
        )
    if watching and vlm.name == "person" and (method.watches or method.feedback == "descriptors"):
        asked = "write programs" if method.watches else "describe motions by labels"
        raise UserError(
            f"method={method.name} asks its vision model to {asked}, which the page of vlm=person does not; give "
            "another method, or vlm=manual"
        )
    if not watching and not writing:
        return _embedded(config, say)
    from movlr_jax.language.clients.client import Budget
    from movlr_jax.language.judges import vlm as watchers
    from movlr_jax.language.media import MotionMedia
    from movlr_jax.language.proposers import llm as writers

    budget = Budget(archive, config.max_calls, config.max_cost_usd)
    media = see = None
    if watching:
        watchers.needs_films(films, f"vlm={vlm.name}")
        stills = method.frames and vlm.name != "person"  # people see the whole film
        shown = replace(vlm, media="frames", frames=method.frames) if stills else vlm
        media = MotionMedia(shown, archive, clip)
        see = open_client(vlm, "vlm", vlm_source, archive, budget, say)
    write = open_client(llm, "llm", llm_source, archive, budget, say) if writing else None
    parts, asked = _embedded(config, say), (method.directions, method.mjcf)
    if method.watches and media and see:
        talk = writers.watching_talk(media)
        proposer = writers.ModelProposer(see, talk, method.temperature, config.retries, *asked)
    elif write:
        talk = _talk(method.feedback)
        proposer = writers.ModelProposer(write, talk, method.temperature, config.retries, *asked)
    else:
        proposer = parts.proposer
    judge, showing, watch = parts.judge, parts.showing, parts.watch
    if see and media and method.judge == "vlm":
        judge, watch = watchers.ModelJudge(see, media), _watch(see)
        showing = to_people(vlm.raters) if vlm.name == "person" else showing
    return Parts(
        proposer=proposer,
        judge=judge,
        critic=_critic(config, see, media) or parts.critic,
        models_used=_used(config, write, see),
        clients=tuple(client for client in (write, see) if client),
        showing=showing,
        watch=watch,
    )


def _watch(see: ModelClient) -> Watch:
    from movlr_jax.language.clients.person import Person

    return see.backend.watch if isinstance(see.backend, Person) else unwatched


_SEEING = ("critique", "descriptors")


def _embedded(config: Config, say: Say) -> Parts:
    """Return the parts that need no model. The scripted proposer reads only the advice on terms, in every method."""
    critics: dict[str, Critic] = {
        "reflection": ReflectionCritic(),
        **dict.fromkeys(("descriptors", "statistics"), StatisticsCritic()),
    }
    critic = MetricsCritic() if config.llm.embedded else critics.get(config.method.feedback, MetricsCritic())
    return Parts(ScriptedProposer(say=say), MetricsJudge(), critic, NONE_USED)


def _critic(config: Config, see: ModelClient | None, media: MotionMedia | None) -> Critic | None:
    """Return the critic for the feedback of the method, or None to use the embedded critic."""
    from movlr_jax.language.judges import vlm as watchers

    feedback = config.method.feedback
    if feedback == "none":
        return NoCritic()
    if feedback == "descriptors" and see and media:
        return DescriptorCritic(see, replace(media, every_s=config.method.every_s or None))
    if feedback == "critique" and see and media:
        return watchers.ModelCritic(see, media)
    return None


def _talk(feedback: str) -> Callable[..., Any]:
    from movlr_jax.language.proposers import llm as writers

    return {
        "reflection": writers.eureka_talk,
        "descriptors": writers.motionvl_talk,
        "statistics": writers.motionvl_talk,
    }.get(feedback, writers.edit_talk)


def _used(config: Config, write: ModelClient | None, see: ModelClient | None) -> str:
    models = []
    if write:
        models.append(f"language model: {write.name}")
    if see:
        models.append(f"vision model: {see.name}")
    replayed = " (replayed)" if "replay" in (config.llm.name, config.vlm.name) else ""
    return "; ".join(models) + replayed
