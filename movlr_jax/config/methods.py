"""The algorithms as data: the feedback, the parent, the judge and the temperature of each method.

MoVLR (arXiv 2512.23077), Eureka (ICLR 2024), HARMON (CoRL 2024), MotionVL, the VLM-only ablation and the
hand-written baseline are the same loop (`evolution.loop.evolve`) with different parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from movlr_jax._util.registry import Registry
from movlr_jax._util.settings import at_least, one_of
from movlr_jax.errors import UserError
from movlr_jax.language.base import Evaluation

FEEDBACK = ("critique", "reflection", "descriptors", "statistics", "none")
PARENTS = ("best", "latest")
JUDGES = ("vlm", "score")
STARTS = ("initial", "nothing", "human", "canonical")
RANKINGS = ("active", "round_robin", "knockout", "paper")


@dataclass(frozen=True)
class Method:
    """One algorithm. K and N are the settings `candidates` and `generations`; a method can set them too."""

    name: str = "movlr"
    # critique of the film, reflection on numbers, descriptors of regions with statistics, statistics only, or none
    feedback: str = "critique"
    # program that is edited next: best (so far), or latest (best of the latest generation)
    parent: str = "best"
    judge: str = "vlm"  # vlm: the judge of the setting vlm; score: the task score, whatever vlm is
    # first program: initial (of the task), nothing (all are written), human (the hand-written one, never edited), or
    # canonical (the hand-written one, as the start of the edits)
    start: str = "initial"
    temperature: float = 1.0  # of the model that writes programs
    frames: int = 0  # number of frames to show instead of the film; 0: as set in vlm.media
    # s, descriptors: time between frames shown instead of the film; 0: as set in vlm.media
    every_s: float = 0.0
    watches: bool = False  # true: the vision model also writes the programs
    directions: bool = True  # programs that are written together get different directions in their requests
    mjcf: bool = False  # requests for programs contain an excerpt of the model as MJCF
    full: float = 1.0  # final training of the winner, in multiples of a candidate's steps; 1: none
    # descriptors: the search ends when the best motion has this alignment with the task, 0 to 1; null: it goes on
    stop_alignment: float | None = None
    weights: tuple[float, float] | None = None  # range of the weights that a model may write; null: any


@dataclass(frozen=True)
class Recipe:
    """A method and the search settings that it changes, such as `candidates` and `generations`."""

    method: Method
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def proposes(self) -> bool:
        """False for a baseline that only evaluates the hand-written reward."""
        return self.method.start != "human"


_MOTIONVL = Method(
    "motionvl",
    feedback="descriptors",
    temperature=0.3,
    every_s=0.1,
    full=3.33,
    stop_alignment=0.9,  # between "small flaws" (0.8) and "no change" (1) of prompts/describe_system.md
    weights=(0.0, 1.0),
)
_HUMAN = Method("human", feedback="reflection", judge="score", start="human", temperature=0.0)
METHODS: Registry[Recipe] = Registry(
    "method",
    "movlr_jax.methods",
    {
        recipe.method.name: recipe
        for recipe in (
            # films are compared pairwise, the best is criticised, its program is edited
            Recipe(Method("movlr")),
            # no films: programs from scratch, then from the best of the latest generation and its numbers
            Recipe(
                Method(
                    "eureka",
                    feedback="reflection",
                    parent="latest",
                    judge="score",
                    start="nothing",
                    directions=False,
                ),
                {"candidates": 16, "generations": 5},
            ),
            # Eureka as MoVLR's comparison has it: the loop and the budget of movlr, with numbers instead of films
            Recipe(Method("eureka_adapted", feedback="reflection", judge="score")),
            # four frames instead of the film
            Recipe(Method("harmon", frames=4)),
            # one model sees the film and writes the next program in a single call; it is also the judge
            Recipe(Method("vlm_only", feedback="none", watches=True)),
            # descriptors of regions with confidences, statistics of the terms, weights from 0 to 1; judged by films;
            # ends at a satisfactory alignment with the task.
            # full: 300 updates per candidate, 1000 for the winner
            Recipe(_MOTIONVL, {"candidates": 10, "generations": 5}),
            # RL-LLM of MotionVL's comparison: no films, the task score selects
            Recipe(
                replace(
                    _MOTIONVL,
                    name="rl_llm",
                    feedback="statistics",
                    judge="score",
                    start="canonical",
                    stop_alignment=None,
                ),
                {"candidates": 10, "generations": 5},
            ),
            # RL-LLM+VLM of MotionVL's comparison: the whole method, starting from the hand-written reward
            Recipe(
                replace(_MOTIONVL, name="rl_llm_vlm", start="canonical"), {"candidates": 10, "generations": 5}
            ),
            # the hand-written reward of the task, without proposals
            Recipe(_HUMAN, {"candidates": 1, "generations": 1}),
            # RL-Base of MotionVL's comparison: the hand-written reward, trained as long as the winners of the others
            Recipe(replace(_HUMAN, name="rl_base", full=3.33), {"candidates": 1, "generations": 1}),
        )
    },
)


def check_method(method: Method) -> None:
    """Check the choices and ranges of a method. Raises UserError."""
    one_of(method, "method.", feedback=FEEDBACK, parent=PARENTS, judge=JUDGES, start=STARTS)
    at_least(0, method, "method.", "temperature", "frames", "every_s")
    if method.full < 1:
        raise UserError(f"method.full={method.full:g}: it must be 1 (no final training) or more")
    if method.stop_alignment is not None and not 0 < method.stop_alignment <= 1:
        raise UserError(
            f"method.stop_alignment={method.stop_alignment:g}: it must be more than 0 and at most 1, or null to go on"
        )
    if method.weights and not method.weights[0] < method.weights[1] > 0:
        raise UserError(
            f"method.weights={list(method.weights)}: give two numbers, the larger one last and above 0"
        )


def parent_of(
    method: Method, best: Evaluation, ranked: Sequence[str], latest: Sequence[Evaluation]
) -> Evaluation:
    """Return the candidate whose program is edited next. `ranked` are the last ranking's names, best first."""
    if method.parent == "best":
        return best
    ran = {e.name: e for e in latest if not e.failed}
    return next((ran[name] for name in ranked if name in ran), best)


def calls_needed(scheme: str, m: int, orders: int = 2) -> int:
    """Return the minimum number of judge calls to rank m items, each pair shown `orders` times when it meets."""
    return {
        "active": orders * (m - 1),
        "round_robin": orders * m * (m - 1) // 2,
        "knockout": orders * (m - 1),
        "paper": m - 1,
    }[scheme]
