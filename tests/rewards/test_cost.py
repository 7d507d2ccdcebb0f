"""What a program may cost: bounded before it is accepted, in memory while it is scored, and by a deadline at last."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_task
from test_program import SOURCES, program, states

from movlr_jax._util.settings import changed
from movlr_jax.control.build import scored_at_once
from movlr_jax.control.optimizers import Mpc2, Ppo
from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.rewards.cost import CHUNK_BYTES, FEWEST, Cost
from movlr_jax.rewards.program import RewardProgram, Scorer
from movlr_jax.sandbox import confine
from movlr_jax.sandbox.cost import STATE_BYTES, measure, slower
from movlr_jax.sandbox.graph import Graph, read, run
from movlr_jax.sandbox.inputs import inputs
from movlr_jax.sandbox.probe import Probe, examine
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import document
from movlr_jax.sandbox.vet import Sandbox


def rewarding(*lines: str, result: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f'WEIGHTS = {{"a": 1.0}}\ndef reward(state, action):\n{body}\n    return {{"a": {result}}}\n'


def carrying(vectors: int, turns: int) -> str:
    """A loop that keeps so many vectors of 4,096 numbers and moves each of them in every turn."""
    return rewarding(
        f"start = (jnp.zeros(4096) + action[0],) * {vectors}",
        f"end = lax.fori_loop(0, {turns}, lambda i, c: c[1:] + (c[0] * 1.5 + i,), start)",
        result="jnp.sum(end[0]) + jnp.sum(end[-1])",
    )


CARRY_LIVE = carrying(500, 300)
EXP_SCAN = rewarding(
    "x = lax.fori_loop(0, 300, lambda i, c: jnp.exp(-c * c), jnp.zeros(4096) + action[0])", result="jnp.sum(x)"
)
EMPTY_LOOPS = rewarding(
    "turn = lambda c, x: ((c[1], c[0]), None)",
    "inner = lambda c, x: lax.scan(turn, c, None, length=1000)",
    "outer = lambda c, x: lax.scan(inner, c, None, length=1000)",
    "end, none = lax.scan(outer, (action[0], action[1]), None, length=1000)",
    result="end[0]",
)
# what is refused at a batch of 1,600 states, and what its sentence says of need, states and limit
TOO_MUCH = {
    "carry_live": (
        CARRY_LIVE,
        "line 4: the program holds about 15.7 MiB of values at once for one state, 24.5 GiB for the 1,600 states of "
        "one batch of this run; the limit is 4.0 MiB per state, use smaller arrays",
    ),
    "exp_scan": (
        EXP_SCAN,
        "line 3: the program takes about 29.5 s to compute for the 1,600 states of one batch of this run; "
        "the limit is 2.0 s, use shorter loops or smaller arrays",
    ),
    "empty loops": (
        EMPTY_LOOPS,
        "line 6: the program takes about 740.8 s to compute for the 1,600 states of one batch of this run; "
        "the limit is 2.0 s, use shorter loops or smaller arrays",
    ),
}  # fmt: skip
# remainders of numbers that are far apart, which take far longer than others
FAR_APART = [
    rewarding(
        "x = jnp.zeros(125) + 3.0e38 - jnp.abs(state.time) * 1e30",
        "y = jnp.zeros(125) + 1.2e-38",
        f"c = lax.fori_loop(0, 1000, lambda i, c: {remainder} + c, jnp.zeros(125))",
        result="jnp.sum(c)",
    )
    for remainder in ("lax.rem(x - i * 1e30, y + c * 0.0)", "(x - i) // (y + c * 0.0)")
]
# of every kind that costs most: arithmetic, transcendentals, sorting, scatters, loops over arrays, products
MODELLED = [
    carrying(40, 60),
    EXP_SCAN,
    rewarding("x = action[0] + jnp.arange(4096) * 1e-4", result="jnp.sum(jnp.sort(jnp.sin(1e4 * x)))"),
    rewarding("x = jnp.outer(action[:4].sum() + jnp.arange(40), jnp.arange(40))", result="jnp.sum(x @ x)"),
    rewarding(
        "x = action[0] + jnp.zeros(1000)",
        "for i in range(10): x = x.at[jnp.arange(1000)].add(jnp.tanh(x) + i)",
        result="jnp.sum(x)",
    ),
    rewarding(
        "c, y = lax.scan(lambda c, x: (c + x, c * x), jnp.zeros(1000), action[0] + jnp.ones((4, 1000)))",
        result="jnp.sum(c) + jnp.sum(y)",
    ),
    rewarding(
        "x = lax.fori_loop(0, 1000, lambda i, c: lax.fori_loop(0, 300, lambda j, d: d * 0.9 + j, c), action[0])",
        result="x",
    ),
]


@pytest.fixture(scope="module")
def box(probe: Probe) -> Iterator[Sandbox]:
    sandbox = Sandbox(probe, name="process" if confine.missing() else "confined", batch=1600)
    yield sandbox
    sandbox.close()


def graph_of(source: str, layout) -> Graph:
    return read(document(source, layout), list(parse(source).weights), inputs(layout))


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_program_that_costs_too_much_is_refused_with_the_numbers(box: Sandbox, name: str):
    source, message = TOO_MUCH[name]
    verdict = box.vet(source)
    assert (verdict.stage, verdict.message) == ("check", message)


@pytest.mark.parametrize("source", FAR_APART, ids=["rem", "floor_divide"])
def test_a_remainder_is_charged_what_it_costs_at_worst(tiny, box: Sandbox, source: str):
    """Where it was charged like a sine, such a program was accepted and took 29 s for a batch of 800 states."""
    verdict = box.vet(source)
    assert verdict.stage == "check"
    assert "s to compute for the 1,600 states of one batch of this run; the limit is 2.0 s" in str(verdict.message)
    graph, rows = graph_of(source.replace("1000", "20"), tiny.layout), 64
    values = [np.full((rows, *s.shape), 0.5, np.float32) for s in inputs(tiny.layout)]
    work = jax.jit(jax.vmap(lambda *x: run(graph, x)), compiler_options={"xla_backend_optimization_level": 0})
    took = fastest(work.lower(*values).compile(), values)
    assert took < 10 * measure(graph, inputs(tiny.layout)).cost.seconds(rows) + 0.01


def test_a_program_that_is_measured_slower_than_its_estimate_is_refused_with_both_figures(tiny, probe: Probe):
    """Its estimate is a millionth of the true one; the measured time decides, whatever the model misses."""
    source = rewarding("x = action[0] + jnp.arange(4096) * 1e-4", result="jnp.sum(jnp.sort(jnp.sin(1e4 * x)))")
    text, graph = document(source, tiny.layout).encode(), graph_of(source, tiny.layout)
    true = measure(graph, inputs(tiny.layout))
    wrong = replace(true, cost=replace(true.cost, call_s=1e-9, state_s=true.cost.state_s / 1e6))
    batch = 100_000
    found = examine(text, ["a"], [1.0], probe, wrong.cost, batch)
    message = slower(wrong, found["cpu_s"], found["states"], batch)
    assert message
    assert re.fullmatch(
        rf"line 4: the program took [\d.,]+ s for {found['states']} states, but [\d.e-]+ s were estimated; for "
        r"the 100,000 states of one batch of this run it would take [\d.,]+ s and the limit is 10.0 s, "
        "use simpler operations or smaller arrays",
        message,
    ), message
    assert slower(true, found["cpu_s"], found["states"], batch) is None
    assert slower(wrong, found["cpu_s"], found["states"], 10) is None, "a batch of ten is done at once in any case"


@pytest.mark.parametrize("source", SOURCES)
def test_a_usual_program_costs_next_to_nothing(tiny, source: str):
    cost = measure(graph_of(source, tiny.layout), inputs(tiny.layout)).cost
    assert cost.seconds(4096) < 0.02
    assert cost.at_once(4096) == 4096


@pytest.mark.parametrize("source", MODELLED)
def test_the_model_agrees_with_what_is_measured(tiny, source: str):
    """Memory with what XLA sets aside; processor time within a factor of ten, as machines differ."""
    graph, rows = graph_of(source, tiny.layout), 64
    cost = measure(graph, inputs(tiny.layout)).cost
    values = [np.full((rows, *s.shape), 0.5, np.float32) for s in inputs(tiny.layout)]
    work = jax.jit(jax.vmap(lambda *x: run(graph, x)), compiler_options={"xla_backend_optimization_level": 0})
    compiled = work.lower(*values).compile()
    used = compiled.memory_analysis()
    assert used
    assert used.temp_size_in_bytes <= 1.5 * rows * cost.state_bytes + (1 << 20)
    took = fastest(compiled, values)
    assert took < 10 * cost.seconds(rows) + 0.01


def fastest(compiled: Callable[..., object], values: list[np.ndarray]) -> float:
    """Processor time of the fastest of three runs, s."""
    took = []
    for _ in range(3):
        began = time.process_time()
        jax.block_until_ready(compiled(*values))
        took.append(time.process_time() - began)
    return min(took)


def test_memory_is_bounded_whatever_the_batch():
    assert Cost(state_bytes=STATE_BYTES).at_once(100_000) == FEWEST
    assert Cost(state_bytes=CHUNK_BYTES // 1000).at_once(100_000) == 1000
    assert Cost(state_bytes=1).at_once(100_000) == 100_000
    assert Cost().at_once(7) == 7
    assert Cost(call_s=1.0, state_s=0.5, state_bytes=STATE_BYTES).seconds(FEWEST + 1) == 2.0 + 0.5 * 65


@pytest.mark.parametrize("t", [10, 625])
def test_states_scored_in_parts_score_the_same(tiny, t: int):
    """33 at a time, which divides neither; the guard still sees the whole batch."""
    steps, actions, initial = states(tiny.layout, (2, 8, t))
    whole = [program(source) for source in SOURCES[:2]]
    parted = [replace(p, structure=f"{p.structure} parted", cost=Cost(state_bytes=CHUNK_BYTES // 70)) for p in whole]
    scorer = Scorer(tiny.layout, tiny.goals)
    expected, found = (scorer(programs, steps, actions, initial) for programs in (whole, parted))
    np.testing.assert_allclose(found.totals, expected.totals, rtol=1e-5, atol=1e-5)
    assert found.nonfinite == expected.nonfinite


@pytest.fixture
def held() -> Iterator[RewardProgram]:
    """A program that is not done before the test is, and whose cost nobody knows."""
    over = threading.Event()

    def wait(x: np.ndarray) -> np.ndarray:
        over.wait(60.0)
        return np.zeros(x.shape, np.float32)

    def reward(state, action):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return {"a": jax.pure_callback(wait, shape, state.time, vmap_method="broadcast_all")}

    yield RewardProgram("", "", {"a": 1.0}, reward, "held")
    over.set()


def test_a_program_that_is_late_is_scored_no_more_and_costs_no_other(tiny, held: RewardProgram):
    scorer = Scorer(tiny.layout, tiny.goals, deadline_s=2.0)
    steps, actions, initial = states(tiny.layout, (2, 8, 10))
    programs = [held, program(SOURCES[0])]
    began = time.monotonic()
    scores = scorer(programs, steps, actions, initial)
    assert time.monotonic() - began < 10.0
    said = "the program was not scored for 80 states after 2 s; use shorter loops or smaller arrays"
    assert scorer.late == {"held": said}
    assert not scores.totals[0].any()
    assert scores.nonfinite[0] == {"a": 0}
    one = jax.tree.map(lambda x: x[1:], (steps, actions, initial))
    np.testing.assert_array_equal(scores.totals[1], scorer(programs[1:], *one).totals[0])
    began = time.monotonic()
    scorer([replace(held, weights={"a": 3.0}), programs[1]], steps, actions, initial)
    assert time.monotonic() - began < 2.0, "it is not tried again, whatever its weights"


def test_the_deadline_of_a_batch_is_of_its_size(tiny, held: RewardProgram, monkeypatch: pytest.MonkeyPatch):
    """A program whose estimate is a millisecond is given up after the shortest time, not after a minute."""
    monkeypatch.setattr("movlr_jax.rewards.program._SHORTEST_S", 0.5)
    scorer = Scorer(tiny.layout, tiny.goals)
    steps, actions, initial = states(tiny.layout, (1, 8, 10))
    began = time.monotonic()
    scorer([replace(held, cost=Cost(call_s=1e-3))], steps, actions, initial)
    assert 0.5 < time.monotonic() - began < 20.0
    assert scorer.late["held"].startswith("the program was not scored for 80 states after 0.5 s")


def test_the_batch_is_that_of_plans_of_training_or_of_an_episode():
    task = replace(tiny_task.task(), episode_s=4.0)
    config = Mpc2(ctrl_dt=0.016, horizon_s=0.4)
    planned = replace(config, mppi=replace(config.mppi, samples=32))
    assert scored_at_once(planned, task) == 32 * 25
    worlds = replace(config.mppi, samples=32, worlds=3)
    assert scored_at_once(replace(config, mppi=worlds), task) == 3 * 32 * 25
    assert scored_at_once(replace(planned, mppi=replace(config.mppi, samples=2)), task) == 250
    ppo = Ppo(ctrl_dt=0.016, ppo=changed(PpoConfig(), envs=8, unroll=10, unrolls=5))
    assert scored_at_once(ppo, task) == 400
