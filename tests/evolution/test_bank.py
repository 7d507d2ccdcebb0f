"""The rollout bank of real, small searches: returns are exact, screening is recorded, resuming ends the same."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_cases import SUPPORT

import movlr_jax as mj
from movlr_jax.commands.check import check as vet_command
from movlr_jax.commands.check import main as check
from movlr_jax.commands.search import main as search
from movlr_jax.commands.session import task_of
from movlr_jax.config.compose import compose
from movlr_jax.errors import UserError
from movlr_jax.evolution import reuse
from movlr_jax.evolution.bank import Recorder, read_bank, weighted
from movlr_jax.evolution.reuse import pairs_of
from movlr_jax.language.base import Evaluation, Preference, ProposalRequest
from movlr_jax.quantities import number
from movlr_jax.rewards.program import Scorer
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import Task

pytestmark = pytest.mark.usefixtures("elsewhere")

SEARCH = [
    f"+task={SUPPORT / 'tiny_task.py'}", "optimizer=mppi", "candidates=2", "generations=2", "episode_s=0.16",
    "optimizer.mppi.samples=4", "optimizer.horizon_s=0.064", "films=false",
]  # fmt: skip
BANK = [
    "judge=least_effort",
    "search=bank",
    "proposals=6",
    "parents=sampled",
    "islands=2",
    "inner_weights=1",
    "variants=comparisons",
]


class LeastEffort:
    """A judge with an answer to every question: on so short a motion, the metrics judge calls all of them ties."""

    name = "effort judge of the tests (no vision model)"

    def compare(self, task: Task, a: Evaluation, b: Evaluation) -> Preference:
        return Preference("first" if a.metrics["effort"] < b.metrics["effort"] else "second", "less effort")


mj.register_judge("least_effort", LeastEffort)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search with all parts; tests take copies."""
    run = tmp_path_factory.mktemp("bank") / "run"
    assert search([*SEARCH, *BANK, f"run_dir={run}"]) == 0
    return run


def recorded(run: Path, kind: str) -> list[dict]:
    with Archive.open(run, write=False) as archive:
        return [e.data for e in archive.events(kind)]


def outcome(run: Path) -> list:
    """Return everything that a run decided, without times."""
    evaluated = [{k: v for k, v in d.items() if k != "timing"} for d in recorded(run, "evaluated")]
    return [recorded(run, kind) for kind in ("proposed", "ranked", "returns")] + [evaluated]


def test_every_episode_has_the_returns_that_its_evaluation_measured(finished: Path):
    """The mean of each term over an episode, from the bank, is what the search recorded when it ran."""
    task = task_of(compose(SEARCH))
    with Archive.open(finished, write=False) as archive:
        bank = read_bank(archive, task.layout)
        first = read_bank(archive, task.layout, before=1)
    assert len(bank) == 2 * 2 * 2, "both candidates and a variant of each, in two generations"
    assert first.names == bank.names[:4]
    scorer = Scorer(task.layout, task.data)
    for data in recorded(finished, "evaluated"):
        program = load(parse(data["source"]))
        (terms,) = bank.term_values(scorer, [program])
        at = bank.names.index(data["name"])
        for name, term in data["terms"].items():
            assert bank.returns(terms[name])[at] == pytest.approx(term["mean"], rel=1e-5, abs=1e-6)
        (values,) = bank.values(scorer, [program])
        np.testing.assert_allclose(values, weighted(terms, data["weights"]))
    assert scorer.traces <= len(recorded(finished, "evaluated")), "a program compiles once for any bank"


def test_motions_from_all_start_states_are_in_the_bank(tmp_path: Path):
    """A program is judged by its middle motion; the others are scored, too."""
    run, seed = tmp_path / "run", 3
    assert search([*SEARCH, "search=bank", "proposals=2", "starts=3", f"seed={seed}", f"run_dir={run}"]) == 0
    task = task_of(compose(SEARCH))
    with Archive.open(run, write=False) as archive:
        bank = read_bank(archive, task.layout, before=1)
    assert bank.names == tuple(f"g00k0{k}{e}" for k in (0, 1) for e in ("", "@1", "@2"))
    starts, _, _ = task.start(np.random.default_rng(seed), 3)
    for program in (bank.initial.qpos[:3], bank.initial.qpos[3:]):
        for start in starts:
            assert (np.abs(program - start).max(axis=1) < 1e-6).sum() == 1, "each start once"
    for data in recorded(run, "evaluated")[:2]:
        (terms,) = bank.term_values(Scorer(task.layout, task.data), [load(parse(data["source"]))])
        for name, term in data["terms"].items():
            returns = bank.returns(terms[name])
            assert returns[bank.names.index(data["name"])] == pytest.approx(term["mean"], rel=1e-5, abs=1e-6)
    assert "g00k00@1" in (run / "report.html").read_text()


def test_screening_says_why_for_every_proposal(finished: Path):
    for g, data in enumerate(recorded(finished, "proposed")):
        assert len(data["sources"]) == len(data["chosen"]) == 2
        assert len(data["screened"]) == 4
        assert all(s["reason"] and s["source"] not in data["sources"] for s in data["screened"])
        assert g == 0 or all("comparisons; " in reason for reason in data["chosen"])
        assert g or any(s["reason"].startswith(("g00k00 stands", "g00k01 stands")) for s in data["screened"])
    page = (finished / "report.html").read_text()
    assert "4 proposals screened out before the simulation" in page
    assert "Returns of the best program" in page


class Lifts:
    """A proposer of sound programs, however the program that it is asked to edit looks."""

    name = "proposer of the tests (no language model)"

    def propose(self, request: ProposalRequest, n: int) -> list[str]:
        body = 'def reward(state, action):\n    return {"up": jnp.tanh(%d * state.pos("foot")[2])}\n'
        return ['WEIGHTS = {"up": 1.0}\n' + body % (i + 1) for i in range(n)]


mj.register_proposer("lifts", Lifts)


@pytest.mark.parametrize("candidates", [1, 2])
@pytest.mark.parametrize("proposer", ["lifts", "scripted"])  # those of the second keep the broken term
def test_a_first_program_that_cannot_be_scored_is_a_failed_candidate(
    proposer: str, candidates: int, tmp_path: Path
):
    broken = 'WEIGHTS = {"up": 1.0}\n\ndef reward(state, action):\n    return {"up": state.pos("tail")[2]}\n'
    tiny = (SUPPORT / "tiny_task.py").read_text().replace("def task(", "def sound(")
    Path("broken.py").write_text(
        f"{tiny}\n\ndef task() -> Task:\n    from dataclasses import replace\n\n"
        f"    return replace(sound(), initial_reward={broken!r})\n"
    )
    run, alive = tmp_path / "run", proposer == "lifts" and candidates == 2
    settings = [*SEARCH[1:], "search=bank", "proposals=4", "generations=1", f"run_dir={run}"]
    status = search(["+task=broken.py", *settings, f"candidates={candidates}", f"proposer={proposer}"])
    assert (status == 0) == alive
    (data,) = recorded(run, "proposed")
    assert data["sources"][0] == broken
    assert len(data["sources"]) == len(data["chosen"]) == candidates
    assert "there is no body 'tail'" in data["chosen"][0]
    expected = {"lifts": "g00k01 stands for it" if alive else "", "scripted": "there is no body 'tail'"}
    assert all(expected[proposer] in s["reason"] for s in data["screened"])


def test_the_best_is_the_program_from_which_most_is_expected(finished: Path):
    rankings = recorded(finished, "ranked")
    for data in rankings:
        assert len(data["worth"]) == len(data["names"])
        assert data["best"] == data["names"][int(np.argmax(data["worth"]))]
    sources = {d["name"]: d["source"] for d in recorded(finished, "evaluated")}
    assert (finished / "best.py").read_text() == sources[rankings[-1]["best"]]
    page = (finished / "report.html").read_text()
    assert all(f"worth {number(w, 2)}" in page for w in rankings[-1]["worth"])


class SilentLater(LeastEffort):
    """A judge that answers in the first generation only."""

    name = "silent judge of the tests (no vision model)"

    def compare(self, task: Task, a: Evaluation, b: Evaluation) -> Preference:
        if max(a.generation, b.generation) == 0:
            return super().compare(task, a, b)
        return Preference("none", "the answer is empty", answered=False)


mj.register_judge("silent_later", SilentLater)


def test_without_an_answer_the_previous_best_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Even if the larger bank of the second generation changes what is expected of the programs of the first."""
    calls = []

    def worth(rewards: np.ndarray, simulated: np.ndarray, worth: np.ndarray) -> np.ndarray:
        calls.append(len(rewards))
        return np.arange(len(rewards)) * (1.0 if len(calls) == 1 else -1.0)

    monkeypatch.setattr(reuse, "expected_worth", worth)
    run = tmp_path / "run"
    assert search([*SEARCH, *BANK, "judge=silent_later", f"run_dir={run}"]) == 0
    first, second = recorded(run, "ranked")
    assert first["best"] == first["names"][-1]
    assert second["flip_rate"] is None
    assert second["best"] == first["best"]


def test_variants_after_the_first_comparisons_are_fitted_and_reported(finished: Path):
    inner = [d["inner"] for d in recorded(finished, "evaluated")]
    assert all("fitted" not in i for i in inner[:2]), "nothing is known before the first ranking"
    for i in inner[2:]:
        assert set(i["fitted"]["deviation"]) == set(i["fitted"]["weights"])
        assert len(i["tried"]) == 2


@pytest.mark.parametrize(
    "stage",
    ["evaluated", *(pytest.param(stage, marks=pytest.mark.slow) for stage in ("proposed", "ranked"))],
)
def test_a_resumed_search_ends_as_the_uninterrupted_one(finished: Path, stage: str):
    """Stopped right after a stage of generation 0: what was recorded later is gone."""
    run = Path(shutil.copytree(finished, "run"))
    with Archive.open(run) as archive:
        (cut,) = archive._read("SELECT MAX(id) FROM events WHERE kind = ? AND generation = 0", (stage,))[0]
        archive._write("DELETE FROM events WHERE id > ?", (cut,))
        archive._write("DELETE FROM files WHERE path LIKE 'gen_01%'")
    shutil.rmtree(run / "gen_01")
    assert search([f"resume={run}"]) == 0
    assert outcome(run) == outcome(finished)


def test_check_scores_a_program_on_the_motions_of_a_run(finished: Path, capsys: pytest.CaptureFixture[str]):
    best = finished / "best.py"
    assert check([*SEARCH, f"reward={best}", f"bank={finished}"]) == 0
    line = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    last = recorded(finished, "returns")[-1]
    assert list(line["returns"]) == last["motions"]
    assert list(line["returns"].values()) == pytest.approx(last["returns"], rel=1e-5)
    assert (line["agrees"], line["comparisons"]) == (last["agree"], last["decided"])


def test_a_rejected_program_has_no_returns(finished: Path, capsys: pytest.CaptureFixture[str]):
    Path("bad.py").write_text("WEIGHTS = {}\n")
    assert check([*SEARCH, "reward=bad.py", f"bank={finished}"]) == 1
    line = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert line["verdict"] == "reject"
    assert "returns" not in line


def test_a_bank_that_cannot_be_used_is_told(finished: Path):
    task = task_of(compose(SEARCH))
    run = Path(shutil.copytree(finished, "run"))
    with Archive.open(run) as archive:
        whole = archive.read("gen_00/bank.npz")
        other = replace(task.layout, sizes={**task.layout.sizes, "nq": 99})
        with pytest.raises(UserError, match=r"gen_00/bank.npz cannot be read: qpos is \(\d+, \d+\) float32"):
            read_bank(archive, other)
        archive.put("gen_00/bank.npz", whole[:200])
        with pytest.raises(UserError, match=r"bank\.npz cannot be read: it is not a valid npz file"):
            read_bank(archive, task.layout)
    Archive.create(Path("plain"), "").close()
    asked = compose([*SEARCH, "reward=initial", "bank=plain"])
    with pytest.raises(UserError, match="bank=plain has no rollout bank"):
        vet_command(asked)


def test_an_empty_generation_has_an_empty_bank(finished: Path):
    task, run = task_of(compose(SEARCH)), Path(shutil.copytree(finished, "run"))
    with Archive.open(run) as archive:
        archive.put("gen_00/bank.npz", Recorder().data([]))
        assert len(read_bank(archive, task.layout)) == 4
        assert len(read_bank(archive, task.layout, before=1)) == 0
        assert len(pairs_of(archive, read_bank(archive, task.layout, before=1))) == 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["proposals=8"], "proposals=8 has no effect in search=plain; add search=bank"),
        (["optimizer.race=true"], "optimizer.race=true is a part of search=bank"),
        (["search=bank", "proposals=1"], "proposals=1: at least as many programs must be written"),
        (["search=bnak"], "did you mean"),
        (["search=bank", "islands=0"], "islands=0: it must be 1 or more"),
    ],
)
def test_settings_that_do_not_fit_are_told(given: list[str], sentence: str):
    with pytest.raises(UserError, match=sentence):
        compose([*SEARCH, *given])
