"""The algorithms as data: the feedback, the parent, the judge and the temperature of each method.

MoVLR (arXiv 2512.23077), Eureka (ICLR 2024), HARMON (CoRL 2024), MotionVL, the VLM-only ablation and the
hand-written baseline are the same loop (`evolution.loop.evolve`) with different parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from movlr_jax._util.parts import setting
from movlr_jax._util.registry import Registry
from movlr_jax.errors import UserError

FEEDBACK = ("critique", "reflection", "descriptors", "statistics", "none")
PARENTS = ("best", "latest")
JUDGES = ("vlm", "score")
STARTS = ("initial", "nothing", "human", "canonical")


@dataclass(frozen=True)
class Method:
    """One algorithm. K and N are the settings `candidates` and `generations`; a method can set them too."""

    name: str = "movlr"
    feedback: str = setting(
        "critique",
        "critique of the film, reflection on numbers, descriptors of regions with statistics, statistics, or none",
        choices=FEEDBACK,
    )
    parent: str = setting(
        "best",
        "program that is edited next: best (most promising so far), or latest (best of the latest generation)",
        choices=PARENTS,
    )
    judge: str = setting(
        "vlm", "vlm: the judge of the setting vlm; score: the task score, whatever vlm is", choices=JUDGES
    )
    start: str = setting(
        "initial",
        "first program: initial (of the task), nothing (all are written), human (the hand-written one, never "
        "edited), or canonical (the hand-written one, as the start of the edits)",
        choices=STARTS,
    )
    temperature: float = setting(1.0, "of the model that writes programs", least=0)
    frames: int = setting(0, "number of frames to show instead of the film; 0: as set in vlm.media", least=0)
    every_s: float = setting(
        0.0, "s, descriptors: time between frames shown instead of the film; 0: as set in vlm.media", least=0
    )
    watches: bool = setting(False, "true: the vision model also writes the programs")
    directions: bool = setting(True, "programs that are written together get different directions in their requests")
    mjcf: bool = setting(False, "requests for programs contain an excerpt of the model as MJCF")
    final_training: float = setting(
        1.0, "final training of the winner, in multiples of a candidate's steps; 1: none", least=1
    )
    stop_alignment: float | None = setting(
        None,
        "descriptors: the search ends when the best motion has this alignment with the task; null: it goes on",
        above=0,
        most=1,
    )
    weights: tuple[float, float] | None = setting(None, "range of the weights that a model may write; null: any")

    def check(self, where: str) -> None:
        if self.weights and not self.weights[0] < self.weights[1] > 0:
            raise UserError(
                f"{where}.weights={list(self.weights)}: give two numbers, the larger one last and above 0"
            )


@dataclass(frozen=True)
class MethodEntry:
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
    final_training=3.33,
    stop_alignment=0.9,  # between "small flaws" (0.8) and "no change" (1) of prompts/describe_system.md
    weights=(0.0, 1.0),
)
_HUMAN = Method("human", feedback="reflection", judge="score", start="human", temperature=0.0)
METHODS: Registry[MethodEntry] = Registry(
    "method",
    "movlr_jax.methods",
    {
        recipe.method.name: recipe
        for recipe in (
            # films are compared pairwise, the best is criticised, its program is edited
            MethodEntry(Method("movlr")),
            # no films: programs from scratch, then from the best of the latest generation and its numbers
            MethodEntry(
                Method(
                    "eureka", feedback="reflection", parent="latest", judge="score", start="nothing", directions=False
                ),
                {"candidates": 16, "generations": 5},
            ),
            # Eureka as MoVLR's comparison has it: the loop and the budget of movlr, with numbers instead of films
            MethodEntry(Method("eureka_adapted", feedback="reflection", judge="score")),
            # four frames instead of the film
            MethodEntry(Method("harmon", frames=4)),
            # one model sees the film and writes the next program in a single call; it is also the judge
            MethodEntry(Method("vlm_only", feedback="none", watches=True)),
            # descriptors of regions with confidences, statistics of the terms, weights from 0 to 1; judged by films;
            # ends at a satisfactory alignment with the task.
            # final training: 300 updates per candidate, 1000 for the winner
            MethodEntry(_MOTIONVL, {"candidates": 10, "generations": 5}),
            # RL-LLM of MotionVL's comparison: no films, the task score selects
            MethodEntry(
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
            MethodEntry(
                replace(_MOTIONVL, name="rl_llm_vlm", start="canonical"), {"candidates": 10, "generations": 5}
            ),
            # the hand-written reward of the task, without proposals
            MethodEntry(_HUMAN, {"candidates": 1, "generations": 1}),
            # RL-Base of MotionVL's comparison: the hand-written reward, trained as long as the winners of the others
            MethodEntry(replace(_HUMAN, name="rl_base", final_training=3.33), {"candidates": 1, "generations": 1}),
        )
    },
)
