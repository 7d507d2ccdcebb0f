"""What a report says of trials: the claim in its head, strips of dots, contests of generations, and sweeps."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from test_report import FILM, words_of

from movlr_jax.api import open_run
from movlr_jax.records import Evaluation, Generation
from movlr_jax.report import page as report
from movlr_jax.report.data import Run, direction, key_metrics
from movlr_jax.report.sweep import write_sweep_page
from movlr_jax.storage.archive import Archive

FIRST, BETTER = "g00k00", "g01k00"
TEXT = "g01k00 from 4 fresh starts: 3 of 4 succeed (30-95 %), moved 3 m; first program 0 of 2 succeed, moved 1 m"
VERDICT = "g01k00 is better than the first program with P = 0.97 in fresh trials"
HEAD = ("<h1", "</header>")
NOBODY = "no better program than the first was found"


def trial(seed: int, distance: float, stem: str, **more: Any) -> dict[str, Any]:
    metrics = {"distance_m": distance, "success": float(distance > 2)} | more
    return {"seed": seed, "stem": stem, "reason": None, "metrics": metrics}


def evaluated(g: int, distance: float, seed: int) -> dict[str, Any]:
    name = f"g{g:02d}k00"
    return {
        "name": name, "generation": g, "candidate": 0, "source": "WEIGHTS = {}", "weights": {"way": 1.0 + g},
        "terms": {}, "film": f"gen_{g:02d}/k00.mp4", "parent": None,
        **trial(seed, distance, f"gen_{g:02d}/trials/{name}_00"),
    }  # fmt: skip


def ranked(g: int, names: list[str], best: str, **more: Any) -> dict[str, Any]:
    return {
        "names": names, "strengths": [4.25, 7.5][: len(names)], "deviation": [1.0] * len(names),
        "p_best": [0.5] * len(names), "noise": 2.5, "flip_rate": 0.0, "best": best, "comparisons": [],
    } | more  # fmt: skip


def events(judge: str = "metrics judge (no vision model)", final: bool = True) -> list[tuple[str, dict, int]]:
    """A search of one program a generation: the look, two generations and a final."""
    settings = {"certainty": 0.9, "task.name": "hop"}
    proposed = {"sources": ["x"], "parents": [None]}
    found: list[tuple[str, dict, int]] = [
        ("run", {"task": "hop", "backends": {"judge": judge}, "settings": settings}, -1),
        ("trials", {"programs": {FIRST: {str(n): trial(10 + n, d, f"gen_00/trials/{FIRST}_{n:02d}") for n, d in
                                         enumerate([0.5, 1.5, 2.5])}}}, 0),
        ("proposed", proposed, 0),
        ("ranked", ranked(0, [FIRST], FIRST), 0),
        ("evaluated", evaluated(0, 1.5, 11), 0),
        ("proposed", proposed, 1),
        ("trials", {"programs": {
            FIRST: {"0": trial(20, 1.0, f"gen_01/trials/{FIRST}_00")},
            BETTER: {"0": trial(20, 3.0, f"gen_01/trials/{BETTER}_00"),
                     "1": trial(21, 0.25, f"gen_01/trials/{BETTER}_01", fell=1.0, time_to_fall_s=0.7)},
        }}, 1),
        ("ranked", ranked(1, [FIRST, BETTER], FIRST, rival=BETTER, p_better=0.81), 1),
        ("evaluated", evaluated(1, 3.0, 20), 1),
    ]  # fmt: skip
    if final:
        again = {BETTER: {"0": trial(30, 4.0, f"gen_02/trials/{BETTER}_00")}}
        found += [
            ("trials", {"programs": again}, 2),
            ("ranked", ranked(2, [FIRST, BETTER], BETTER, rival=BETTER, p_better=0.96), 2),
        ]
    return found


def fresh(name: str, distances: list[float]) -> dict[str, Any]:
    return {str(n): trial(100 + n, d, f"confirmation/{name}_{n:02d}") for n, d in enumerate(distances)}


def confirmation(verdict: str = VERDICT) -> list[tuple[str, dict, int]]:
    tried = {BETTER: fresh(BETTER, [3.0, 4.0, 1.0, 4.0]), FIRST: fresh(FIRST, [0.5, 1.5])}
    claims = {
        BETTER: {"n": 4, "failed": 0, "successes": 3, "interval": [0.3, 0.95], "metrics": {"distance_m": 3.0}},
        FIRST: {"n": 2, "failed": 0, "successes": 0, "interval": [0.0, 0.66], "metrics": {"distance_m": 1.0}},
    }
    about = {"champion": BETTER, "first": FIRST, "claims": claims, "p_better": 0.97, "text": TEXT}
    end = {"best": BETTER, "score": 99.0, "generations": 2, "interrupted": False}
    return [
        ("trials", {"programs": tried}, -1),
        ("confirmed", about | {"verdict": verdict}, -1),
        ("finished", end, -1),
    ]


def run_of(root: Path, recorded: list[tuple[str, dict, int]], films: bool = True) -> Path:
    with Archive.create(root, "task: hop\n") as archive:
        for kind, data, generation in recorded:
            archive.record(kind, data, generation, 0 if kind == "evaluated" else -1)
            if films and generation < 0 and kind == "trials":
                for of in data["programs"].values():
                    for each in of.values():
                        archive.put(f"{each['stem']}.mp4", FILM)
            if films and kind == "evaluated":
                archive.put(data["film"], FILM)
        report.write_report(archive)
    return root


def page_of(root: Path, recorded: list[tuple[str, dict, int]], films: bool = True) -> str:
    return (run_of(root, recorded, films) / "report.html").read_text(encoding="utf-8")


def dots_of(text: str, start: str, end: str) -> list[tuple[str, str]]:
    """(kind, tip) of each dot of a part of the page, from left to right in each row."""
    part = text[text.index(start) : text.index(end, text.index(start))]
    found = re.findall(r'class="dot (\w+)" style="left: [\d.]+%; --lane: \d+"[^>]*title="([^"]*)"', part)
    return [(kind, html.unescape(tip)) for kind, tip in found]


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory) -> str:
    """The page of a search whose champion fresh trials confirmed."""
    return page_of(tmp_path_factory.mktemp("run") / "r", [*events(), *confirmation()])


def test_the_head_says_what_fresh_trials_confirm(confirmed):
    head = words_of(confirmed, *HEAD)
    assert head.startswith(f"hop {VERDICT}. {TEXT}.")
    assert "not confirmed" not in head
    assert "g01k00 champion 3 of 4 30–95 % mean 3 m" in head
    assert "g00k00 first program 0 of 2 0–66 % mean 1 m" in head
    assert "99" not in head, "the score of one start"


def test_the_head_says_that_nothing_better_was_found(tmp_path):
    head = words_of(page_of(tmp_path / "r", [*events(), *confirmation(NOBODY)]), *HEAD)
    assert head.startswith("hop No better program than the first was found.")


@pytest.mark.parametrize("final", [False, True])
def test_the_head_of_an_unconfirmed_run_says_what_all_its_trials_came_to(tmp_path, final):
    head = words_of(page_of(tmp_path / "r", events(final=final)), *HEAD)
    assert "not confirmed" in head
    if final:  # 3.0, 0.25 and 4.0 m
        assert "Not confirmed: g01k00 is the champion so far." in head
        assert "g01k00 champion 2 of 3 21–94 % mean 2.42 m" in head
    else:  # 0.5, 1.5, 2.5 and 1.0 m
        assert "Not confirmed: no better program than the first was found so far." in head
        assert "g00k00 champion and first program 1 of 4 5–70 % mean 1.38 m" in head
    assert "one of 3 trials" in head if final else "one of 4 trials" in head


def test_each_fresh_trial_is_a_dot_with_its_seed_and_its_film(confirmed):
    dots = dots_of(confirmed, 'id="trials"', "All of these trials")
    kinds = ["miss", "success", "success", "success", "miss", "miss"]
    assert [kind for kind, _ in dots] == kinds, "1, 3, 4 and 4 m; 0.5 and 1.5 m"
    assert dots[0][1] == "g01k00, trial 3, seed 102: no success; moved 1 m"
    watched = re.findall(r'class="dot \w+" [^>]*data-watch="([^"]*)"', confirmed)
    names = set(re.findall(r'data-name="([^"]*)"', confirmed))
    assert len({name for name in watched if name.startswith("trial-")}) == 6
    assert set(watched) <= names | {FIRST, BETTER}
    assert re.findall(r'--lane: 1"[^>]*title="g01k00, trial 4', confirmed), "two dots at 4 m lie above each other"


def test_films_beyond_the_limit_are_links_of_their_dots(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_FILM_BYTES", 2 * len(FILM))
    text = page_of(tmp_path / "r", [*events(), *confirmation()])
    links = set(re.findall(r'class="dot \w+" [^>]*href="(confirmation/[^"]*)"', text))
    assert links == {f"confirmation/{BETTER}_{n:02d}.mp4" for n in range(4)} | {
        f"confirmation/{FIRST}_{n:02d}.mp4" for n in range(2)
    }


def test_the_trials_are_a_table_too_and_a_command_repeats_one(confirmed):
    (command,) = re.findall(r"<span>Repeat a fresh trial</span><code>([^<]*)", confirmed)
    assert command.endswith("seed=100")
    table = words_of(confirmed, "All of these trials as a table", "</details>")
    assert "g01k00 3 102 no success 1 m film" in table
    assert "g00k00 2 101 no success 1.5 m film" in table


def test_a_generation_shows_its_entrants_and_what_decided_and_the_final_is_none(tmp_path):
    text = page_of(tmp_path / "r", events())
    said = words_of(text, 'id="generation-1"', "All trials of generation 1")
    assert "g01k00 is better than g00k00 with P = 0.81; 0.9 is needed, so g00k00 stays." in said
    assert "Two equal programs differ by 2.5 in the score of one trial" in said
    dots = dots_of(text, 'id="generation-1"', "All trials of generation 1")
    assert [kind for kind, _ in dots] == ["cross", "success", "miss"], "the best first; the fall is a cross"
    assert dots[0][1] == "g01k00, trial 2, seed 21: no success, it fell after 0.7 s; fell at 0.7 s: moved 0.25 m"
    final = words_of(text, 'id="generation-2"', 'id="generation-1"')
    assert "Final champion g01k00" in final
    assert "g01k00 is better than g00k00 with P = 0.96 and replaces it." in final
    assert "Generation 2" not in final
    assert "After 2 programs in 2 generations" in words_of(text, *HEAD)
    assert "final: g01k00" in words_of(text, '<table class="heatmap"', "</table>")


@pytest.mark.parametrize(
    ("judge", "label", "meaning"),
    [
        ("metrics judge (no vision model)", "mean score", "in the unit of the score"),
        ("gemini-3.8-flash", "worth", "in units of a trial's noise"),
    ],
)
def test_the_number_of_a_ranking_has_its_name_and_unit(tmp_path, judge, label, meaning):
    said = words_of(page_of(tmp_path / "r", events(judge)), "<h3>All programs", "</table>")
    assert f"{label}: posterior mean ± standard deviation" in said
    assert meaning in said
    assert "7.5 ± 1" in said
    assert "strength" not in said


def test_a_hostile_record_of_trials_does_not_stop_the_page(tmp_path):
    evil = "<script>alert(1)</script>"
    odd = {
        evil: {"0": {"seed": 1, "stem": "../../secret", "metrics": {"distance_m": float("nan")}, "reason": evil}},
        FIRST: {"x": {"seed": 2}, "9" * 5000: {"seed": 3}, "1": None, "2": {"metrics": None}},
        "none": None,
    }
    claims = {evil: {"n": -3, "successes": 10, "metrics": {"distance_m": None}}}
    about = {"champion": evil, "first": None, "claims": claims, "text": evil, "verdict": evil}
    recorded = [*events(), ("trials", {"programs": odd}, -1), ("trials", {"programs": odd}, 1)]
    text = page_of(tmp_path / "r", [*recorded, ("confirmed", about, -1)], films=False)
    assert evil not in text
    assert "secret" not in text


def test_a_run_tells_python_what_it_may_claim_and_counts_its_trials(tmp_path):
    pytest.importorskip("pandas")
    run = open_run(run_of(tmp_path / "r", [*events(), *confirmation()]))
    assert run.claim == f"{VERDICT}: {TEXT}"
    assert list(run.confirmed) == ["champion", "first"]
    mine = run.confirmed["champion"]
    assert (mine.n, mine.successes, mine.failed, mine.metrics) == (4, 3, 0, {"distance_m": 3.0})
    assert mine.interval == pytest.approx((0.3006, 0.9544), abs=1e-3)  # Wilson's, by hand
    frame = run.to_dataframe()
    assert list(frame["trials"]) == [4, 3]
    assert list(frame["successes"]) == [1, 2]
    assert list(frame["distance_m"]) == pytest.approx([1.375, 7.25 / 3])
    open_ = open_run(run_of(tmp_path / "open", events()))
    assert open_.confirmed == {}
    assert open_.claim == "Not confirmed: g01k00 is the champion so far"


def test_a_sweep_shows_successes_of_fresh_trials_with_their_interval(tmp_path):
    for name in ("0", "1"):
        run_of(tmp_path / name, [*events(), *confirmation()])
    run_of(tmp_path / "2", events())
    text = write_sweep_page(tmp_path).read_text()
    groups = words_of(text, 'id="groups"', "</section>")
    assert "6 of 8 (41–93 %)" in groups, "those of both confirmed runs"
    runs = words_of(text, 'id="runs"', "</section>")
    assert runs.count("3 of 4 (30–95 %)") == 2
    assert "7.5" in runs, "the mean score, not that of one start"
    assert "99" not in runs


def test_the_return_of_an_environment_is_its_first_measure():
    metrics = {"return": 300.0, "terminated": 1.0, "terminated_s": 1.9, "distance_m": 2.0, "effort": 0.2}
    run = Run(Path(), generations=[Generation(0, candidates=[Evaluation(0, 0, "", metrics=metrics)])])
    assert key_metrics(run) == ["return", "distance_m"]
    assert [direction(metric) for metric in key_metrics(run)] == [1, 1]
