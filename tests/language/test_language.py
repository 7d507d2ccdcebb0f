"""The embedded proposer, judge and critic, on the real bottle task: no language or vision model anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

from movlr_jax.errors import ProgramError
from movlr_jax.evolution.evaluation import make_probe
from movlr_jax.evolution.scripted.metrics import MetricsCritic, MetricsJudge
from movlr_jax.evolution.scripted.proposer import ScriptedProposer
from movlr_jax.evolution.scripted.terms import library
from movlr_jax.language.base import Critique, Evaluation, ProposalRequest, TermAdvice
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import Scorer
from movlr_jax.sandbox.genome import Genome, genome_of
from movlr_jax.sandbox.graph import read
from movlr_jax.sandbox.inputs import inputs
from movlr_jax.sandbox.probe import Probe
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import document, load
from movlr_jax.tasks import Task, build_task


@dataclass(frozen=True)
class Bottle:
    task: Task
    probe: Probe


@pytest.fixture(scope="module")
def bottle() -> Iterator[Bottle]:
    task = build_task("bottle_pour", "myoarm_r", 1.0, {})
    physics = NativePhysics(task.model, task.layout, sim_dt=0.002, ctrl_dt=0.016, threads=2)
    yield Bottle(task, make_probe(task, physics, seed=0))
    physics.close()


def evaluation(source: str = "", reason: str | None = None, **metrics: float) -> Evaluation:
    """One candidate that ended with these measures."""
    weights = parse(source).weights if source else {}
    return Evaluation(0, 0, source, reason=reason, weights=weights, metrics=metrics)


def ended(centimetres: float, degrees: float, success: float = 0.0, effort: float = 0.0) -> dict[str, float]:
    return {
        "object_position_error_m": centimetres / 100,
        "object_orientation_error_rad": float(np.deg2rad(degrees)),
        "success": success,
        "effort": effort,
    }


def values(source: str, probe: Probe) -> Mapping[str, np.ndarray]:
    """Every term and the total of a program at the probe's states."""
    batch = jax.tree.map(lambda x: np.asarray(x)[None], (probe.steps, probe.actions, probe.initial))
    scores = Scorer(probe.layout, probe.goals)([load(parse(source))], *batch)
    return {**scores.terms[0], "total": scores.totals[0]}


# Terms.


def test_terms_of_the_library_vary_over_real_states(bottle: Bottle):
    terms = library(bottle.task)
    assert {t.kind for t in terms.values()} == {"place", "turn", "hold", "steady", "economy"}
    source = Genome({t.name: (t.weight, t.expression) for t in terms.values()}).source()
    assert vetted(source, bottle.probe)
    found = values(source, bottle.probe)
    assert set(found) == {*terms, "total"}
    for name, value in found.items():
        assert np.isfinite(value).all(), name
        assert value.std() > 0, f"{name} says the same of every state"


def test_terms_equal_the_same_measures_in_numpy(bottle: Bottle):
    """Each against the same measure in numpy, at every state of the probe."""
    terms, probe, layout = library(bottle.task), bottle.probe, bottle.task.layout
    found = values(Genome({t.name: (1.0, t.expression) for t in terms.values()}).source(), probe)
    sensors, start = np.asarray(probe.steps.sensors, float), np.asarray(probe.initial.sensors, float)
    at = layout.blocks["pos"] + 3 * layout.bodies["bottle"]
    here, there = sensors[..., at : at + 3], np.asarray(probe.goals["object_pos"], float)
    distance = np.linalg.norm(here - there, axis=-1)
    np.testing.assert_allclose(found["position"], 0.02 - np.hypot(distance, 0.02), atol=1e-5)
    np.testing.assert_allclose(found["arrival"], np.exp(-0.5 * (distance / 0.05) ** 2), atol=1e-5)
    climb = there[2] - start[:, None, at + 2]
    lifted = (here[..., 2] - start[:, None, at + 2]) / climb  # 1 at the target's height, 0 where it stood
    np.testing.assert_allclose(found["lift"], 0.1 ** ((1 - lifted) ** 2), atol=1e-4)
    np.testing.assert_allclose(found["effort"], -np.square(probe.steps.act).mean(-1), rtol=1e-4)
    change = np.square(probe.actions - np.asarray(probe.steps.prev_action)).mean(-1)
    np.testing.assert_allclose(found["smooth"], -change, rtol=1e-4, atol=1e-6)


# Genomes.

LONG = '''"""Words with a tail."""

import jax.numpy as jnp

WEIGHTS = {
    "near": 12.3456789,
    "turn": -0.001234567,
}
SCALE = 0.05
OFFSET: float = 0.25


def closeness(a, b):
    """How near two points are."""
    gap = a - b
    return jnp.exp(
        -jnp.linalg.norm(gap) / SCALE
    )


def reward(state, action):
    total = 0.0
    for tip in ("THtip_r", "IFtip_r"):
        total = total + closeness(state.site(tip), state.pos("bottle"))
    inner = lambda x: x + OFFSET  # noqa: E731

    def half(x):
        if OFFSET > 1:
            return x
        return 0.5 * x

    return {
        "near": inner(total),
        "turn": half(shaping.rotation_error(state.rot("bottle"), state.goal("object_rot"))) + jnp.sum(
            action * 0.001
        ),
    }
'''


@pytest.mark.parametrize("which", ["long", "initial", "human"])
def test_genome_computes_what_its_program_does(bottle: Bottle, which: str):
    source = {"long": LONG, "initial": bottle.task.rewards.initial, "human": bottle.task.rewards.human}[which]
    genome = genome_of(source)
    again = genome.source()
    assert parse(again).weights == parse(source).weights
    assert parse(again).description == parse(source).description
    before, after = values(source, bottle.probe), values(again, bottle.probe)
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])
    assert genome_of(again) == genome, "a second round changes nothing"


def test_edit_of_a_genome_changes_nothing_else(bottle: Bottle):
    genome = genome_of(LONG)
    child = genome.with_term("more", 3.0, "jnp.sum(action)").with_weight("turn", 2.0)
    assert parse(child.source()).weights == {"near": 12.3456789, "turn": 2.0, "more": 3.0}
    before, after = values(LONG, bottle.probe), values(child.source(), bottle.probe)
    for name in ("near", "turn"):
        np.testing.assert_array_equal(before[name], after[name])
    assert set(parse(child.without("near").source()).weights) == {"turn", "more"}


BODIES = {
    "variable": "    terms = {'a': action[0]}\n    return terms\n",
    "loop": "    for i in range(2):\n        return {'a': action[i]}\n    return {'a': action[1]}\n",
    "splat": "    return {**{'a': action[0]}}\n",
    "other names": "    return {'b': action[0]}\n",
    "more arguments": "k=2):\n    return {'a': k * action[0]}\n",
}


@pytest.mark.parametrize("name", BODIES)
def test_program_without_a_genome_is_refused(name: str):
    start = "WEIGHTS = {'a': 1.0}\ndef reward(state, action" + (", " if name == "more arguments" else "):\n")
    with pytest.raises(ProgramError, match="weights can be edited by script"):
        genome_of(start + BODIES[name])


# The scripted proposer.


def request(
    bottle: Bottle, seed: int = 0, generation: int = 1, parent: str | None = None, advice: tuple[TermAdvice, ...] = ()
) -> ProposalRequest:
    parent = parent or bottle.task.rewards.human
    return ProposalRequest(
        generation=generation,
        task=bottle.task,
        parent=evaluation(parent, **ended(10, 40)),
        critique=Critique(False, (), advice),
        history=(evaluation(parent, **ended(10, 40)), evaluation(bottle.task.rewards.initial, **ended(20, 50))),
        seed=seed,
    )


def vetted(source: str, probe: Probe) -> bool:
    """Whether a program passes reading, loading, tracing and the check; raises otherwise."""
    return bool(read(document(source, probe.layout), list(parse(source).weights), inputs(probe.layout)).out)


def test_equal_requests_give_equal_programs(bottle: Bottle):
    proposer = ScriptedProposer()
    seen: set[tuple[str, ...]] = set()
    for seed, generation in ((0, 1), (0, 2), (1, 1), (2, 1)):
        ask = request(bottle, seed, generation)
        sources = proposer.propose(ask, 4)
        assert sources == proposer.propose(ask, 4)
        assert sources[:2] == proposer.propose(ask, 2)
        assert len(set(sources)) == 4
        assert bottle.task.rewards.human not in sources
        seen.add(tuple(sources))
    assert len(seen) == 4
    assert proposer.propose(request(bottle), 0) == []


def test_proposed_programs_of_many_seeds_are_valid(bottle: Bottle):
    """Four generations of each seed, every one from a child of the last: sound, never the same program twice in one
    search, weights in bounds."""
    proposer, sound = ScriptedProposer(), set()  # terms of programs that were vetted
    for seed in range(8):
        tried: list[Evaluation] = []
        ask = replace(request(bottle, seed, 0), parent=None, critique=None, history=())
        for generation in range(4):
            sources = proposer.propose(ask, 3)
            assert len(sources) == 3
            for source in sources:
                genome = genome_of(source)
                assert all(0.01 <= abs(w) <= 500 for w, _ in genome.terms.values()), genome
                assert source not in [e.source for e in tried]
                assert not genome.helpers
                # no term knows of another: those that were vetted after the same lines are sound in any company
                terms = {(genome.preamble, name, text) for name, (_, text) in genome.terms.items()}
                assert terms <= sound or vetted(source, bottle.probe)
                sound |= terms
                tried.append(evaluation(source, **ended(10, 40)))
            parent = tried[-1 - seed % 3]
            critique = MetricsCritic().criticise(bottle.task, parent)
            ask = ProposalRequest(generation + 1, bottle.task, parent, critique, tuple(tried), seed)
    ((preamble, *_), *_) = sound
    largest = {f"{name}{i}": (1.0, text) for i, (_, name, text) in enumerate(sorted(sound))}
    assert vetted(Genome(largest, preamble).source(), bottle.probe), "no program has more operations than may be"


ADVICE = (
    TermAdvice("add", "arrival", "too far"),
    TermAdvice("add", "still", "it shakes", weight=7.0),
    TermAdvice("add", "effort", "far too strong", weight=1e9),
    TermAdvice("strengthen", "orientation", "not turned"),
    TermAdvice("weaken", "position", "too greedy"),
    TermAdvice("remove", "fingers", "in the way"),
    TermAdvice("add", "no_such_term", "nonsense"),
    TermAdvice("strengthen", "nor_this", "nonsense"),
)


PARENT = '''"""Made by hand for these tests."""

WEIGHTS = {"position": 90.0, "orientation": 10.0, "grasp": 30.0, "fingers": 2.5}


def reward(state, action):
    bottle = state.pos("bottle")
    return {
        "position": -jnp.linalg.norm(bottle - state.goal("object_pos")),
        "orientation": -shaping.rotation_error(state.rot("bottle"), state.goal("object_rot")),
        "grasp": -jnp.linalg.norm(state.site("S_grasp_r") - bottle),
        "fingers": -jnp.linalg.norm(state.site("IFtip_r") - bottle),
    }
'''


def test_first_child_follows_the_advice(bottle: Bottle):
    old = parse(PARENT).weights
    expected = {
        "position": 0.5 * old["position"],
        "orientation": 2 * old["orientation"],
        "grasp": old["grasp"],
        "arrival": library(bottle.task)["arrival"].weight,
        "still": 7.0,
        "effort": 500.0,  # the most a weight may be
    }
    for seed in range(5):
        source = ScriptedProposer().propose(request(bottle, seed, parent=PARENT, advice=ADVICE), 2)[0]
        assert parse(source).weights == expected
        assert vetted(source, bottle.probe)
    before, after = values(PARENT, bottle.probe), values(source, bottle.probe)
    np.testing.assert_array_equal(before["grasp"], after["grasp"])


def test_first_generation_serves_what_trials_of_the_first_program_lacked(bottle: Bottle):
    trials = [evaluation(bottle.task.rewards.initial, **ended(12, 100)), evaluation(**ended(4, 100))]
    ask = replace(request(bottle, generation=0), parent=None, critique=None, history=(), trials=trials)
    served = [parse(source).weights for source in ScriptedProposer().propose(ask, 3)]
    assert {*served[0]} == {"position", "grasp", "arrival", "pose", "still"}, "one term for each need, in one program"
    assert len({frozenset(weights) for weights in served}) == 3, "the others differ"


# The metrics judge and critic.


@pytest.mark.parametrize(("tie", "winner"), [(0.0, "second"), (0.01, "second"), (0.2, "tie")])
def test_metrics_judge_ignores_differences_within_the_tie_of_the_task(bottle: Bottle, tie: float, winner: str):
    task = bottle.task.replace(score=lambda m: m["object_position_error_m"], tie=tie)  # m: all are small
    near, far, same = (evaluation(**ended(cm, 5)) for cm in (53, 71, 53))
    assert MetricsJudge().compare(task, near, far).winner == winner
    assert MetricsJudge().compare(task, near, same).winner == "tie"
    assert "0.53 against 0.71" in MetricsJudge().compare(task, near, far).reason


@pytest.mark.parametrize(
    ("a", "b", "winner"),
    [
        (ended(1, 5), ended(10, 5), "first"),
        (ended(4, 29, success=1), ended(0, 31), "first"),  # success before everything
        (ended(6, 10), ended(6.1, 10), "tie"),  # a millimetre says nothing
        (ended(3, 12), ended(6, 0), "first"),
        (ended(500, 180), {"failed": 1.0, **ended(0, 0, success=1)}, "first"),
    ],
)
def test_metrics_judge_prefers_success_then_the_score(
    bottle: Bottle, a: dict[str, float], b: dict[str, float], winner: str
):
    reason = "it diverged" if b.get("failed") else None
    entries, mirrored = (evaluation(**a), evaluation(reason=reason, **b)), {"first": "second", "second": "first"}
    assert MetricsJudge().compare(bottle.task, *entries).winner == winner
    assert MetricsJudge().compare(bottle.task, *reversed(entries)).winner == mirrored.get(winner, winner)


@pytest.mark.parametrize(
    ("metrics", "kinds"),
    [
        (ended(2, 10, success=1), []),
        (ended(2, 20, success=1), ["turn"]),
        (ended(6, 40), ["place", "turn", "steady"]),
        (ended(20, 60), ["hold", "place", "turn", "steady"]),
        (ended(2, 10, success=1, effort=0.2), ["economy"]),
    ],
)
def test_metrics_critic_adds_terms_for_what_is_wrong(bottle: Bottle, metrics: dict[str, float], kinds: list[str]):
    """One term of the needed kind each, one that is not there yet, with the weight it usually has."""
    best = evaluation(bottle.task.rewards.initial, **metrics)
    critique = MetricsCritic().criticise(bottle.task, best)
    terms = library(bottle.task)
    assert critique.success == bool(metrics["success"])
    assert [terms[a.term].kind for a in critique.advice] == kinds
    assert [a.reason for a in critique.advice] == list(critique.problems)
    assert "no vision model" in critique.author
    for item in critique.advice:
        assert item.action == "add"
        assert item.term not in best.weights
        assert item.weight == terms[item.term].weight
