"""Trials of a search: who gets which, when a champion is replaced, and what is claimed at the end."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
from played_search import LookedUp, Trial, played, program
from tiny_task import task as tiny_task

from movlr_jax import records
from movlr_jax.errors import UserError
from movlr_jax.evolution.confirm import confirm
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.look import look
from movlr_jax.evolution.loop import Found, evolve
from movlr_jax.evolution.trials import TrialPlan, claim_of, trial_seed
from movlr_jax.records import Confirmation, Evaluation, Preference
from movlr_jax.tasks import Task
from movlr_jax.tasks.simple import simple_task

NAMES = [[f"g{g:02d}k{k:02d}" for k in range(4)] for g in range(3)]


def noisy(worth: dict[str, float], spread: float = 1.0) -> Trial:
    """Scores with a shift of each trial and noise of each program; programs that are not named have worth 0."""

    def trial(name: str, g: int, n: int) -> dict[str, float]:
        shift = np.random.default_rng([g + 1, n]).normal()
        own = np.random.default_rng([g + 1, n, *name.encode()]).normal()
        return {"score": worth.get(name, 0.0) + spread * own + shift}

    return trial


def lines(context: SearchContext) -> list[str]:
    said: list[str] = []
    context.reporter.say = said.append  # type: ignore[method-assign]
    return said


def searched(context: SearchContext) -> tuple[Found, Confirmation | None]:
    found = evolve(context)
    return found, confirm(context, found)


def numbers_of(context: SearchContext) -> dict[str, dict[int, set[int]]]:
    """Program -> generation (-1: confirmation) -> numbers of its trials, from the record."""
    kept: dict[str, dict[int, set[int]]] = {}
    for event in context.archive.events("trials"):
        for name, trials in event.data["programs"].items():
            for n, data in trials.items():
                assert data["seed"] == trial_seed(context.config.seed, event.generation, int(n))
                kept.setdefault(name, {}).setdefault(event.generation, set()).add(int(n))
    return kept


# Seeds.


def test_programs_of_a_generation_share_their_trials_and_nothing_shares_those_of_another(tmp_path: Path):
    context = played(tmp_path / "run", NAMES, noisy({}), "trials=4", "confirm=2")
    with context.archive:
        searched(context)
        kept = numbers_of(context)
    for names in NAMES:
        for name in names:
            g = int(name[1:3])
            assert {0, 1} <= kept[name][g], "all programs get the first trials"
            assert min(kept[name]) in (-1, g), "and none of a generation before theirs"
    assert kept["g00k00"][0] >= {0, 1, 2, 3}
    look = context.workers.batches[0]  # type: ignore[attr-defined]
    assert look == (["g00k00"], [(0, n) for n in range(4)]), "the look gives the first trials of generation 0"
    seeds = [trial_seed(5, g, n) for g in range(-1, 30) for n in range(100)]
    assert len(set(seeds)) == len(seeds)
    assert set(seeds).isdisjoint(trial_seed(6, g, n) for g in range(-1, 30) for n in range(100))


def test_half_of_the_programs_get_further_trials(tmp_path: Path):
    """The champion, and the better half of the others by their first trials."""
    worth = {"g01k01": 3.0, "g01k02": 2.0, "g00k00": 1.0}
    context = played(tmp_path / "run", NAMES[:2], noisy(worth, 0.1), "trials=4", "confirm=0")
    with context.archive:
        evolve(context)
        kept = {name: of.get(1, set()) for name, of in numbers_of(context).items()}
    assert kept["g01k01"] == kept["g01k02"] == kept["g00k00"] == {0, 1, 2, 3}
    assert kept["g01k00"] == kept["g01k03"] == {0, 1}


# The champion.


@pytest.mark.parametrize(("certainty", "champion"), [(0.6, "g00k01"), (0.99999, "g00k00")])
def test_certainty_decides_whether_a_better_program_replaces_the_first(
    tmp_path: Path, certainty: float, champion: str
):
    def trial(name: str, g: int, n: int) -> dict[str, float]:
        return {"score": (1.0 if name == "g00k01" else 0.0) + (-1) ** n * (0.5 if name == "g00k00" else 0.0)}

    context = played(tmp_path / "run", [NAMES[0][:2]], trial, "trials=2", "confirm=0", f"certainty={certainty}")
    with context.archive:
        assert evolve(context).best.name == champion
        said = context.archive.get("ranked", 0)
    assert said
    assert (said["p_better"] >= certainty) == (champion == "g00k01")


def test_the_most_promising_program_is_edited_while_the_champion_stays(tmp_path: Path):
    def trial(name: str, g: int, n: int) -> dict[str, float]:
        own = {"g00k01": 1.0, "g00k00": 0.5 * (-1) ** n}
        return {"score": own.get(name, -1.0)}

    names = [NAMES[0][:2], ["g01k00", "g01k01"]]
    context = played(tmp_path / "run", names, trial, "trials=2", "confirm=0", "certainty=0.99999")
    with context.archive:
        evolve(context)
        ranked = context.archive.get("ranked", 0)
        parents = [e.data["parent"] for e in context.archive.events("evaluated") if e.generation == 1]
    assert ranked
    assert ranked["best"] == "g00k00"
    assert parents == ["g00k01", "g00k01"]


def test_a_clearly_better_program_wins_and_the_claim_is_of_fresh_trials(tmp_path: Path):
    worth = {"g01k02": 5.0}

    def trial(name: str, g: int, n: int) -> dict[str, float]:
        return {**noisy(worth)(name, g, n), "success": float(name == "g01k02" and n != 1)}

    context = played(tmp_path / "run", NAMES, trial, "trials=2", "confirm=4", human="hand")
    said = lines(context)
    with context.archive:
        found, confirmed = searched(context)
        event = context.archive.get("confirmed")
        kept = numbers_of(context)
    assert confirmed
    assert event
    assert found.best.name == confirmed.champion == event["champion"] == "g01k02"
    assert (context.archive.root / "best.py").read_text() == program("g01k02")
    assert kept["g01k02"][-1] == {0, 1, 2, 3}
    assert kept["g00k00"][-1] == kept["hand-written"][-1] == {0, 1}, "in half of the trials"
    claim = event["claims"]["g01k02"]
    assert (claim["n"], claim["successes"], claim["failed"]) == (4, 3, 0)
    assert event["claims"]["g00k00"]["successes"] == 0
    np.testing.assert_allclose(claim["interval"], [0.3006, 0.9544], atol=1e-4)  # Wilson, by hand
    assert event["text"].startswith("g01k02 from 4 fresh starts: 3 of 4 succeed (30-95 %)")
    assert "; first program 0 of 2 succeed" in event["text"]
    assert event["p_better"] > 0.9
    assert event["verdict"].startswith("a better program than the first was found (g01k02 is better with P = ")
    assert event["improved"]
    assert any(line.startswith("the hand-written program: ") for line in said), "it is looked at first, too"


def test_a_champion_that_fresh_trials_do_not_confirm_is_not_called_better(tmp_path: Path):
    def trial(name: str, g: int, n: int) -> dict[str, float]:
        other = 2.0 if g >= 0 else -4.0
        return {"score": (other if name == "g00k01" else 0.0) + 0.1 * (n % 3)}

    context = played(tmp_path / "run", NAMES[:1], trial, "trials=2", "confirm=8")
    with context.archive:
        _, confirmed = searched(context)
        event = context.archive.get("confirmed")
    assert confirmed
    assert event
    assert confirmed.champion == "g00k01"
    assert not event["improved"]
    assert event["verdict"].startswith("no better program than the first was found (g00k01 is better with P = 0.")


def test_the_recorded_hop_search_finds_the_program_that_hops(tmp_path: Path):
    """docs/write_a_task.md's hop.py, seed 5: what its twelve programs did in trials that were recorded.

    A choice by one trial announced g00k02, which is no better than the first; g02k03 hops from most starts.
    """
    recorded = json.loads((Path(__file__).parents[1] / "data" / "hop_trials.json").read_text())
    task, chosen = tiny_task().replace(score=lambda m: 100 * m["success"] + 2.5 * m["distance_m"]), []
    for order in range(3):
        rng = np.random.default_rng(order)
        columns = {name: rng.permutation(len(of["success"])) for name, of in recorded.items()}

        def trial(name: str, g: int, n: int) -> dict[str, float]:
            of = recorded[name]
            column = columns[name][(8 * max(g, 0) + n) % len(of["success"])]  # noqa: B023
            return {key: float(of[key][column]) for key in ("success", "distance_m")}

        context = played(tmp_path / str(order), NAMES, trial, "confirm=0", task=task)
        with context.archive:
            chosen.append(evolve(context).best.name)
    assert chosen.count("g02k03") >= 2, chosen


# What has only a success, fails, or has no randomness.


def test_programs_of_a_task_that_has_only_a_success_are_ordered_by_rate_and_then_by_what_the_words_name(
    tmp_path: Path,
):
    task = simple_task(
        name="go", model="tiny_muscle", description="walk forward", episode_s=0.1,
        success=lambda m: m["progress_m_s"] > 2,
    )  # fmt: skip
    rate = {"g00k01": (1, 1), "g00k02": (0, 1), "g00k03": (0, 0), "g00k00": (0, 0)}
    speed = {"g00k01": 0.2, "g00k02": 0.4, "g00k03": 0.9, "g00k00": 0.1}

    def trial(name: str, g: int, n: int) -> dict[str, float]:
        return {"success": float(rate[name][n % 2]), "progress_m_s": speed[name], "upright_fraction": 1.0}

    context = played(tmp_path / "run", NAMES[:1], trial, "trials=4", "confirm=0", task=task)
    with context.archive:
        found = evolve(context)
        said = context.archive.get("ranked", 0)
    assert said
    order = [name for _, name in sorted(zip(said["strengths"], said["names"], strict=True), reverse=True)]
    assert order == ["g00k01", "g00k02", "g00k03", "g00k00"]
    assert found.best.name == "g00k01"


def test_a_program_that_fails_in_some_trials_counts_them_in_its_rate(tmp_path: Path):
    def trial(name: str, g: int, n: int) -> dict[str, float] | str:
        if name == "g00k00" and n % 2:
            return "the simulation diverged"
        return {"score": 1.0, "success": 1.0}

    context = played(tmp_path / "run", NAMES[:1], trial, "trials=4", "confirm=0")
    said = lines(context)
    with context.archive:
        found = evolve(context)
    assert any("the first program: 2 of 4 succeed, score 1, 2 of 4 failed" in line for line in said)
    assert found.best.name != "g00k00", "the others never fail"
    claim = claim_of(context.task.scoring.motion, found.population.trials["g00k00"])
    assert (claim.successes or 0) < claim.n
    assert claim.failed == claim.n - (claim.successes or 0)


def test_a_claim_of_several_trials_has_the_range_of_each_measure_with_one_unit():
    """A mean of hits and misses is that of none of them."""
    body = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body name="drone" pos="0 0 .3"><freejoint/>
      <geom type="box" size=".1 .1 .02" mass=".5"/><site name="middle"/></body></worldbody>
      <actuator><motor site="middle" gear="0 0 1 0 0 0" ctrlrange="0 20"/></actuator></mujoco>"""
    model = mujoco.MjSpec.from_string(body)
    motion = simple_task(
        name="drone", model=model, description="hover at 1 m and turn left by 90 degrees"
    ).scoring.motion
    assert motion

    def said(*heights: float, **more: float) -> str:
        rows = [{"height_m": h, "turned_rad": 1.5 + 0.1 * h, "success": float(h > 0.9), **more} for h in heights]
        return claim_of(motion, [records.Trial(metrics=row) for row in rows]).text()

    hovers, turns = (
        "hover at 1 m: 0.2 to 1.08 m (asked 0.9 to 1.1 m)",
        "turn left by 90°: 87 to 92° (asked 80 to 100°)",
    )
    assert said(0.948, 0.2, 1.08) == f"2 of 3 succeed, {hovers}; {turns}"
    assert said(0.95, 0.95).startswith("2 of 2 succeed, hover at 1 m: 0.95 m (asked 0.9 to 1.1 m)")
    assert "fell at 1.5 s; hover" in said(0.948, 0.2, fell=1.0, time_to_fall_s=1.5)


def test_a_claim_says_in_how_many_trials_the_motion_ended_early():
    whole, ended = {"return": 30.0, "terminated": 0.0}, {"return": 10.0, "terminated": 1.0, "terminated_s": 0.5}

    def said(*rows: dict[str, float]) -> str:
        return claim_of(None, [records.Trial(metrics=row) for row in rows]).text()

    assert said(whole, whole, ended) == "1 of 3 were ended by the environment, return 23.3"
    assert said(ended, ended) == "was ended by the environment at 0.5 s, return 10"
    assert said(whole) == "return 30"


def test_an_announced_return_has_its_interval():
    """Of 10, 20 and 60: mean 30, standard error sqrt(700 / 3), t of 2 degrees of freedom 4.303."""
    claim = claim_of(None, [records.Trial(metrics={"return": value}) for value in (10.0, 20.0, 60.0)])
    assert claim.text() == "return 30"
    assert claim.text(interval=True) == "return 30 (−35.7 to 95.7)"


def test_a_search_in_which_nothing_runs_ends_in_a_sentence(tmp_path: Path):
    context = played(tmp_path / "run", NAMES[:1], lambda name, g, n: "the simulation diverged", "trials=2")
    with context.archive, pytest.raises(UserError, match="every program of generation 0 failed") as told:
        evolve(context)
    assert "g00k03: the simulation diverged" in str(told.value)


@pytest.mark.parametrize("still", [True, False])
def test_a_task_without_randomness_says_that_trials_differ_in_noise_alone(tmp_path: Path, still: bool):
    base = tiny_task().replace(score=lambda m: m["score"])
    at = base.start(np.random.default_rng(0), 1)
    task = replace(base, start=lambda rng, rows: tuple(np.repeat(x, rows, axis=0) for x in at)) if still else base
    context = played(tmp_path / "run", NAMES[:1], noisy({}), "trials=2", "confirm=0", task=task)
    said = lines(context)
    with context.archive:
        evolve(context)
    alone = "the task always starts from the same state, so trials differ in the planner's noise alone"
    assert (alone in said) == still


def test_a_search_ends_early_when_all_trials_succeed_and_nothing_is_asked_for(tmp_path: Path):
    def trial(name: str, g: int, n: int) -> dict[str, float]:
        return {"score": 1.0, "success": 1.0, "effort": 0.0}

    ready = tiny_task().replace(score=lambda m: m["score"], diagnose=lambda metrics: [])
    context = played(tmp_path / "run", NAMES, trial, "trials=6", "confirm=2", task=ready)
    with context.archive:
        _, confirmed = searched(context)
        stopped = context.archive.events("stopped")
        proposed = context.archive.events("proposed")
    assert len(stopped) == len(proposed) == 1
    assert re.fullmatch(
        r"the search ends after generation 0: all \d+ trials of g00k00 succeed, and the critic asks for nothing",
        stopped[0].data["reason"],
    )
    assert confirmed


# The look.


def weak(root: Path, needs: int, ends: int | None = None) -> tuple[SearchContext, list[tuple[int, bool]]]:
    """A search whose plans have 32 samples, and need more than `needs`; and the numbers that it tries and keeps."""
    used, kept = [32], []

    def trial(name: str, g: int, n: int) -> dict[str, float]:
        return {"score": 0.1 * n, "success": float(used[-1] > needs)}

    def resize(samples: int, keep: bool) -> None:
        used.append(samples)
        kept.append((samples, keep))
        mppi = replace(context.config.optimizer.mppi, samples=samples)
        context.config = replace(context.config, optimizer=replace(context.config.optimizer, mppi=mppi))

    settings = ("optimizer.mppi.samples=32", "trials=4", "confirm=0")
    context = played(root, NAMES[:1], trial, *settings, ends=ends)
    context.resize = resize
    return context, kept


def successes(context: SearchContext) -> float:
    trials = context.archive.events("trials")[0].data["programs"]["g00k00"].values()
    return sum(trial["metrics"]["success"] for trial in trials)


@pytest.mark.parametrize("needs", [100, 1000])
def test_a_planner_under_which_nothing_succeeds_gets_more_samples_if_that_helps(tmp_path: Path, needs: int):
    context, kept = weak(tmp_path / "run", needs)
    said = lines(context)
    with context.archive:
        look(context, TrialPlan.of(context.config))
        found = successes(context)
    if needs == 100:
        assert kept == [(128, False), (128, True)]
        assert "plans have 128 samples: with 32 no program succeeds, with more it does better:" in said
        assert found == 4
    else:
        assert kept == [(128, False), (32, False)]
        assert "plans have 32 samples: with 128 (optimizer.mppi.samples=128) they are no better" in said
        assert found == 0


def test_a_search_that_would_take_too_long_gives_fewer_trials_also_when_resumed(tmp_path: Path):
    context = played(tmp_path / "run", NAMES[:1], lambda *_: {"score": 0.0, "success": 0.0}, "minutes=1e-9")
    context.resize = lambda *_: pytest.fail("four times the samples would take even longer")
    said = lines(context)
    with context.archive:
        wanted = TrialPlan.of(context.config)
        plan = look(context, wanted)
        assert plan == look(context, wanted) == replace(wanted, first=1, more=1, most=2, last=6, confirm=6)
        assert len(context.journal.trials(0)["g00k00"]) == 2, "of the look, too"
    assert any("so they are not tried" in line for line in said)
    assert any("few trials, because minutes=1e-09 (or give trials=N)" in line for line in said)


@pytest.mark.parametrize(
    ("words", "judge", "times"),
    [
        (["minutes=60"], None, 4),
        (["minutes=60"], "films", 1),  # each trial costs answers of the judge
        (["minutes=1e-9", "trials=4"], None, 1),
    ],
)
def test_a_search_whose_trials_are_cheap_gives_more_unless_they_are_given_or_judged(
    tmp_path: Path, words: list[str], judge: str | None, times: int
):
    context = played(
        tmp_path / "run", NAMES[:1], lambda *_: {"score": 0.0, "success": 1.0}, *words, judge=judge and Watching()
    )  # fmt: skip
    with context.archive:
        wanted = TrialPlan.of(context.config)
        plan = look(context, wanted)
        assert plan == look(context, wanted)  # of a search that is resumed
    many = {name: times * getattr(wanted, name) for name in ("first", "more", "most", "last")}
    assert plan == replace(wanted, **many)


def test_a_look_that_is_interrupted_begins_again(tmp_path: Path):
    """Whether plans need more samples is decided as if nothing had happened."""
    for ends in (1, None):
        context, kept = weak(tmp_path / "run", 100, ends)
        with context.archive, pytest.raises(KeyboardInterrupt) if ends else contextlib.nullcontext():
            look(context, TrialPlan.of(context.config))
            assert successes(context) == 4
    assert kept == [(128, False), (128, True)]


# Judges of films.


class Watching:
    """Prefers the higher score, and notes what it was shown."""

    name = "watching"

    def __init__(self) -> None:
        self.shown: list[tuple[Evaluation, Evaluation]] = []

    def compare(self, task: Task, first: Evaluation, second: Evaluation) -> Preference:
        self.shown.append((first, second))
        return Preference("first" if first.metrics["score"] > second.metrics["score"] else "second", "seen")


def test_a_judge_sees_two_motions_of_the_same_trial_in_both_orders(tmp_path: Path):
    judge = Watching()
    context = played(tmp_path / "run", NAMES, noisy({"g02k03": 3.0}), "trials=4", "confirm=0", judge=judge)
    with context.archive:
        evolve(context)
        rankings = [event.data for event in context.archive.events("ranked")]
    assert all(a.seed == b.seed for a, b in judge.shown)
    pairs = [(a.name, b.name, a.seed) for a, b in judge.shown]
    assert sorted(pairs) == sorted((b, a, seed) for a, b, seed in pairs)
    recorded = [(c["first"], c["second"], c["trial"]) for data in rankings for c in data["comparisons"]]
    assert recorded == pairs
    for data in rankings[: len(NAMES)]:
        assert len({c["trial"] for c in data["comparisons"]}) >= 2, "other rounds show another trial"


def test_a_judge_who_may_be_asked_seldom_is_asked_no_more_often_in_a_generation(tmp_path: Path):
    judge = Watching()
    context = played(tmp_path / "run", NAMES, noisy({}), "trials=4", "confirm=0", "comparisons=8", judge=judge)
    with context.archive:
        evolve(context)
        counts = [len(event.data["comparisons"]) for event in context.archive.events("ranked")]
    assert max(counts) <= 8


def test_a_motion_that_failed_is_not_shown(tmp_path: Path):
    def trial(name: str, g: int, n: int) -> dict[str, float] | str:
        return "the simulation diverged" if (int(name[-1]) + n) % 2 else noisy({})(name, g, n)

    judge = Watching()
    context = played(tmp_path / "run", NAMES, trial, "trials=4", "confirm=0", judge=judge)
    with context.archive:
        evolve(context)
    assert not any(e.failed for pair in judge.shown for e in pair)


def test_the_ranking_of_the_paper_shows_each_program_once_before_the_winner_so_far(tmp_path: Path):
    judge = Watching()
    context = played(tmp_path / "run", NAMES, noisy({}), "trials=2", "confirm=0", "ranking=paper", judge=judge)
    with context.archive:
        evolve(context)
        kept = numbers_of(context)
        rankings = [event.data for event in context.archive.events("ranked")]
    assert len(judge.shown) == 3 + 4 + 4, "the programs of a generation but the first champion"
    winner = "g00k00"
    for data in rankings:
        for c in data["comparisons"]:
            assert c["second"] == winner
            winner = c[c["winner"]]
        assert data["best"] == winner, "whatever its probability"
    assert all(numbers == {0} for of in kept.values() for g, numbers in of.items() if g), "no further rounds"


# Interrupted.


def test_interrupted_at_any_batch_a_search_goes_on_to_the_same_end(tmp_path: Path):
    """Also between two rounds of a generation and in the confirmation."""

    def end(context: SearchContext) -> tuple[str, list, list, dict | None]:
        archive = context.archive
        kept = [
            (e.kind, e.generation, e.candidate, e.data) for e in archive.events() if e.kind in ("evaluated", "trials")
        ]
        ranked = [e.data for e in archive.events("ranked")]
        return (archive.root / "best.py").read_text(), kept, ranked, archive.get("confirmed")

    def make(root: Path, ends: int | None = None) -> SearchContext:
        return played(root, [n[:3] for n in NAMES[:2]], noisy({"g01k02": 2.0}), "trials=3", "confirm=3", ends=ends)

    whole = make(tmp_path / "whole")
    with whole.archive:
        searched(whole)
        expected = end(whole)
        workers = whole.workers
    assert isinstance(workers, LookedUp)
    assert len(workers.batches) >= 6, "a look, two rounds of each generation, and two of the confirmation"
    assert expected[3]
    for ends in range(len(workers.batches)):
        root, ran = tmp_path / f"ended{ends}", []
        context = make(root, ends)
        with context.archive, pytest.raises(KeyboardInterrupt):
            searched(context)
        ran += context.workers.batches  # type: ignore[attr-defined]
        context = make(root)
        with context.archive:
            searched(context)
            assert end(context) == expected, ends
        assert ran + context.workers.batches == workers.batches, "nothing is simulated twice"  # type: ignore[attr-defined]


def test_finished_search_that_goes_on_ends_like_one_that_had_its_generations_from_the_start(tmp_path: Path):
    """Its final is none of a longer search, and its claim is made anew."""

    def make(root: Path, generations: int) -> SearchContext:
        settings = ("trials=4", "confirm=2", "certainty=0.99")
        return played(root, NAMES[:generations], noisy({"g00k02": 0.5, "g02k01": 4.0}, 2.0), *settings)

    whole = make(tmp_path / "whole", 3)
    with whole.archive:
        searched(whole)
        expected = [e.data["best"] for e in whole.archive.events("ranked")], whole.archive.get("confirmed")
    short = make(tmp_path / "run", 2)
    with short.archive:
        searched(short)
        assert short.archive.get("ranked", 2), "a final takes the place of the third generation"
        before = short.archive.get("confirmed")
    longer = make(tmp_path / "run", 3)
    with longer.archive:
        searched(longer)
        found = [e.data["best"] for e in longer.archive.events("ranked")], longer.archive.get("confirmed")
    assert found == expected
    assert found[1] != before
