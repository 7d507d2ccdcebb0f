"""The algorithms as data: what feedback is made, whose program is edited, who judges, at which temperature.

MoVLR (arXiv 2512.23077), Eureka (ICLR 2024), HARMON (CoRL 2024), MotionVL, the VLM-only ablation and the
hand-made baseline are the same loop (`evolution.evolve`) with other parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.language.base import Evaluation
from movlr_jax.registry import Registry

FEEDBACK = ("critique", "reflection", "descriptors", "statistics", "none")
PARENTS = ("best", "latest")
JUDGES = ("vlm", "score")
STARTS = ("initial", "nothing", "human", "canonical")
RANKINGS = ("active", "round_robin", "knockout", "paper")


@dataclass(frozen=True)
class Method:
    """One algorithm. K and N are the settings `candidates` and `generations`, which each method sets too."""

    name: str = "movlr"
    # critique of the film, reflection on numbers, descriptors of regions beside statistics, statistics alone, or none
    feedback: str = "critique"
    parent: str = "best"  # best so far, or the best of the latest generation
    judge: str = "vlm"  # vlm: who the setting says; score: the task's score, whatever it says
    # the first program: the task's initial one, nothing (all are written), the human one which nobody edits, or the
    # human one as the canonical reward that edits begin from
    start: str = "initial"
    temperature: float = 1.0  # of the writer
    frames: int = 0  # pictures in place of the film; 0: as vlm.media says
    every_s: float = 0.0  # descriptors: pictures at this distance in place of the film; 0: as vlm.media says
    watches: bool = False  # the writer itself sees the motion: vlm writes too
    full: float = 1.0  # how many times as long the winner is trained in the end; 1: it is not trained again


@dataclass(frozen=True)
class Recipe:
    """A method by name, and the settings of the search that it comes with, as `candidates` and `generations`."""

    method: Method
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def proposes(self) -> bool:
        """False for a baseline that evaluates the hand-written reward alone."""
        return self.method.start != "human"


_MOTIONVL = Method("motionvl", feedback="descriptors", temperature=0.3, every_s=0.1, full=3.33)
_HUMAN = Method("human", feedback="reflection", judge="score", start="human", temperature=0.0)
METHODS: Registry[Recipe] = Registry(
    "method",
    "movlr_jax.methods",
    {
        recipe.method.name: recipe
        for recipe in (
            # films judged pairwise, the best criticised, its program edited
            Recipe(Method("movlr")),
            # no film: programs from nothing, then from the best of the latest generation and its numbers
            Recipe(
                Method("eureka", feedback="reflection", parent="latest", judge="score", start="nothing"),
                {"candidates": 16, "generations": 5},
            ),
            # four pictures in place of the film
            Recipe(Method("harmon", frames=4)),
            # one model watches and writes the next program in a single call, and selects
            Recipe(Method("vlm_only", feedback="none", watches=True)),
            # descriptors of regions with confidences, statistics of the terms, weights from 0 to 1; films select.
            # full: 300 updates for each candidate, 1000 for the winner
            Recipe(_MOTIONVL, {"candidates": 10, "generations": 5}),
            # RL-LLM of MotionVL's comparison: nobody watches, the task's score selects
            Recipe(
                replace(_MOTIONVL, name="rl_llm", feedback="statistics", judge="score", start="canonical"),
                {"candidates": 10, "generations": 5},
            ),
            # RL-LLM+VLM of MotionVL's comparison: the whole method, from the hand-written reward on
            Recipe(
                replace(_MOTIONVL, name="rl_llm_vlm", start="canonical"), {"candidates": 10, "generations": 5}
            ),
            # the hand-written reward of the task: nothing is proposed
            Recipe(_HUMAN, {"candidates": 1, "generations": 1}),
            # RL-Base of MotionVL's comparison: the hand-written reward, trained as long as the others' winners
            Recipe(replace(_HUMAN, name="rl_base", full=3.33), {"candidates": 1, "generations": 1}),
        )
    },
)


def check_method(method: Method) -> None:
    """Raises UserError."""
    for name, choices in (
        ("feedback", FEEDBACK),
        ("parent", PARENTS),
        ("judge", JUDGES),
        ("start", STARTS),
    ):
        if getattr(method, name) not in choices:
            raise UserError(unknown_name(f"method.{name}", getattr(method, name), choices))
    if method.full < 1:
        raise UserError(
            f"method.full={method.full:g}: the winner is trained as long as candidates are, 1, or longer"
        )
    for name in ("temperature", "frames", "every_s"):
        if getattr(method, name) < 0:
            raise UserError(f"method.{name}={getattr(method, name):g}: it must be 0 or more")


def parent_of(
    method: Method, best: Evaluation, ranked: Sequence[str], latest: Sequence[Evaluation]
) -> Evaluation:
    """Whose program is edited next. `ranked` are the names of the last ranking, the strongest first."""
    if method.parent == "best":
        return best
    ran = {e.name: e for e in latest if not e.failed}
    return next((ran[name] for name in ranked if name in ran), best)


def calls_needed(scheme: str, m: int) -> int:
    """The least number of calls that ranks m items which meet now."""
    return {"active": 2 * (m - 1), "round_robin": m * (m - 1), "knockout": 2 * (m - 1), "paper": m - 1}[
        scheme
    ]
