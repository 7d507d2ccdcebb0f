"""The page of a run, from synthetic archives."""

from __future__ import annotations

import base64
import csv
import html
import json
import math
import re
import shlex
import sqlite3
from html.parser import HTMLParser
from pathlib import Path

import pytest

from movlr_jax.cli.report import main as report_command
from movlr_jax.report import page as report
from movlr_jax.storage.archive import Archive

FILM = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00isommp42" + bytes(64)
HOSTILE = "<script>alert('x')</script> </style> \"quoted\" & $x^{ \ud800 \x00"
SCRIPTS = 3  # uPlot, the charts and the page
NO_MODELS = "no language or vision model used"
GENERATIONS, CANDIDATES = 3, 4
Step = tuple[str, dict, int, int]


def source(generation: int, candidate: int) -> str:
    return (
        f'"""Bring the bottle to the target, {generation}.{candidate}."""\n\n'
        f'WEIGHTS = {{"position": 100.0, "grasp": {10.0 * generation + candidate}}}\n\n\n'
        "def reward(state, action):\n"
        '    offset = state.pos("bottle") - state.goal("object_pos")\n'
        '    return {"position": -jnp.linalg.norm(offset), "grasp": state.touch("hand")}\n'
    )


def run_step() -> Step:
    backends = {"physics": "native: no GPU found", "optimizer": "mpc2", "proposer": "scripted: no key is set"}
    backends |= {"judge": "metrics", "critic": "metrics", "sandbox": "bubblewrap", "renderer": "egl: fastest"}
    data = {
        "task": "bottle_pour",
        "description": "grasp the dark bottle and bring it to the light one",
        "model": "myoarm_r",
        "model_notes": ["its arm derives from MoBL-ARMS (non-commercial)"],
        "seed": 7,
        "method": "movlr",
        "settings": {"candidates": CANDIDATES, "generations": GENERATIONS, "physics": "auto", "film": True},
        "backends": backends,
        "versions": {"mujoco": "3.17.0", "jax": "0.9.2", "python": "3.11.7"},
        "hardware": "2 cores, no GPU",
        "models_used": NO_MODELS,
        "goals": {"object_pos": [0.1, -0.2, 1.25]},
    }
    return "run", data, -1, -1


def evaluated_step(g: int, k: int, reason: str | None = None) -> Step:
    data: dict = {"name": f"g{g:02d}k{k:02d}", "generation": g, "candidate": k, "source": source(g, k)}
    data |= {"parent": f"g{g - 1:02d}k01" if g else None, "reason": reason, "stage": "trace" if reason else None}
    if reason:
        return ("evaluated", data | {"weights": {}, "metrics": {}, "terms": {}, "film": None, "timing": {}}, g, k)
    error = 0.31 * 0.5 ** (g + 0.1 * k)
    curve = [-math.exp(-t / 30) for t in range(100)]
    term = {"mean": -0.4, "weighted_mean": -40.0, "nonfinite": k, "curve": curve}
    data |= {
        "weights": {"position": 100.0, "grasp": 10.0 * g + k},
        "metrics": {"success": float(g == 2), "object_position_error_m": error, "effort": 0.1, "cost": math.nan},
        "terms": {"position": term, "grasp": term},
        "series": {
            "speed_m_s": [0.01 * t * (g + 1) for t in range(100)],
            "joint_limit_fraction": [None] * 50 + [0.25] * 50,
            "right_foot_force_n": [700.0 * (t % 20 < 10) for t in range(100)],
            "left_foot_force_n": [650.0 * (t % 20 >= 10) for t in range(100)],
        },
        "curve_time": [0.05 * t for t in range(100)],
        "film": f"gen_{g:02d}/k{k:02d}.mp4",
        "timing": {"wall_s_per_sim_s": 3.2, "physics_steps_per_s": 9000.0},
    }
    return "evaluated", data, g, k


def ranked_step(g: int) -> Step:
    names = [f"g{g:02d}k{k:02d}" for k in (0, 1)] + ([f"g{g - 1:02d}k01"] if g else [])
    comparisons = [
        {"first": names[0], "second": names[1], "winner": "second", "reason": "it holds the bottle"},
        {"first": names[1], "second": names[0], "winner": "second", "reason": HOSTILE},
    ]
    data = {"names": names, "strengths": [0.2, 1.1, -1.3][: len(names)], "deviation": [0.5] * len(names)}
    data |= {"p_best": [0.2, 0.7, 0.1][: len(names)], "flip_rate": 0.5, "comparisons": comparisons}
    return "ranked", data | {"best": names[1]}, g, -1


def steps() -> list[Step]:
    """All events of a run in the order of time; k02 of each generation fails, k03 from the second on too."""
    all_steps = [run_step()]
    for g in range(GENERATIONS):
        sources = [source(g, k) for k in range(CANDIDATES)]
        notes = ["raised grasp", "added <b>fingers</b>", "", "crossover"]
        all_steps.append(("proposed", {"sources": sources, "parents": [None] * 4, "notes": notes}, g, -1))
        reasons = [None, None, HOSTILE, "the simulation diverged at 1.2 s" if g else None]
        all_steps += [evaluated_step(g, k, reason) for k, reason in enumerate(reasons)]
        all_steps.append(ranked_step(g))
        advice = [{"action": "strengthen", "term": "grasp", "reason": "it slips", "weight": 30.0}]
        problems = ["the bottle tilts <i>away</i>", "the thumb is idle"]
        critique = {"success": g == 2, "problems": problems, "advice": advice, "author": "metrics critic"}
        all_steps.append(("criticised", critique, g, -1))
        timing = {"propose": 0.1, "vet": 2.0, "optimise": 61.0, "film": 9.0, "rank": 0.1, "criticise": 0.1}
        all_steps.append(("timing", timing | {"physics_steps": 120_000}, g, -1))
    end = {"best": "g02k01", "generations": GENERATIONS, "wall_s": 4000.0, "interrupted": False}
    return [*all_steps, ("finished", end | {"side_by_side": "side_by_side.mp4"}, -1, -1)]


def archive_of(root: Path, recorded: list[Step], film: bytes | None = FILM) -> Archive:
    archive = Archive.create(root, "task: bottle_pour\n")
    for kind, data, generation, candidate in recorded:
        for path in (data.get("film"), data.get("side_by_side")):
            if film and isinstance(path, str):
                archive.put(path, film)
        archive.record(kind, data, generation, candidate)
    return archive


def page_of(root: Path, recorded: list[Step], film: bytes | None = FILM) -> str:
    with archive_of(root, recorded, film) as archive:
        path = report.write_report(archive)
    assert path == root / "report.html"
    return path.read_text(encoding="utf-8")


class Page(HTMLParser):
    """Tags that are open, ids, addresses and words of a page."""

    VOID = ("meta", "link", "br", "path", "use", "img", "input")

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.scripts = 0
        self.charts: list[dict] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        found = dict(attrs)
        self.ids += [found["id"]] if found.get("id") else []
        if "data-chart" in found:
            self.charts.append(json.loads(found["data-chart"] or ""))
        self.addresses += [found[key] or "" for key in ("src", "href", "poster", "data") if key in found]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["script"]:
            self.words += data

    def chart(self, label: str) -> dict:
        return next(chart for chart in self.charts if chart["label"].startswith(label))


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    return page_of(tmp_path_factory.mktemp("run") / "r", steps())


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


def test_is_self_contained(text, page):
    assert page.addresses
    assert all(a.startswith(("data:", "#")) for a in page.addresses)
    assert not re.search(r"@import|url\((?!#)", text)
    linked = re.findall(r"https?://[^\"' )]*", text)
    # names, not links
    assert set(linked) <= {"http://www.w3.org/1999/xhtml", "https://github.com/leeoniya/uPlot"}
    assert "default-src 'none'" in text


def test_is_well_formed_and_every_link_arrives(page):
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert {a[1:] for a in page.addresses if a.startswith("#")} <= set(page.ids)


def test_embeds_every_film_once_the_best_beside_the_first_at_the_top(text):
    encoded = "data:video/mp4;base64," + base64.b64encode(FILM).decode()
    ran = sum(1 for kind, data, _, _ in steps() if kind == "evaluated" and not data["reason"])
    assert text.count(f'src="{encoded}"') == ran
    named = re.findall('data-name="(g[^"]*)"', text)
    assert len(named) == len(set(named)) == ran
    assert named[:2] == ["g02k01", "g00k00"]
    assert set(re.findall('data-film="([^"]*)"', text)) == set(named), "the family tree shows every film again"
    assert re.search(r"<h1[^>]*>grasp the dark bottle and bring it to the light one</h1>", text)


def words_of(text: str, start: str, end: str) -> str:
    """The words between two pieces of a page, whatever tags are between them."""
    part = text[text.index(start) : text.index(end, text.index(start))]
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", part)).split())


def test_a_run_without_trials_says_that_each_program_ran_once(text):
    head = words_of(text, "<h1", 'class="hero')
    assert "Not confirmed: g02k01 is the champion." in head
    assert "After 12 programs in 3 generations, the best is g02k01." in head
    assert "One start of each program not confirmed" in head
    # 0.31 * 0.5^2.1 and 0.31 * 0.5^0
    assert "g02k01 champion 1 of 1 21–100 % mean 7.2 cm" in head
    assert "g00k00 first program 0 of 1 0–79 % mean 31.0 cm" in head


def test_charts_have_their_data_and_link_to_programs(text, page):
    labels = [chart["label"] for chart in page.charts]
    assert labels == [
        "weighted value of each term against time",
        "speed of the centre of mass against time",
        "joints at their limits against time",
        "force under the feet against time",
        "object position error of every program over generations",
    ]
    assert [chart["clock"] for chart in page.charts] == [True] * 4 + [False]
    measure = page.charts[-1]
    assert sorted(name for name in measure["names"] if name) == sorted(
        data["name"] for kind, data, _, _ in steps() if kind == "evaluated"
    )
    assert measure["tips"][measure["names"].index("g02k01")] == "g02k01: 7.2 cm"
    for chart in page.charts:
        assert all(len(line["y"]) == len(chart["x"]) for line in chart["lines"])
        assert chart["x"] == sorted(set(chart["x"]))


def test_answers_that_depend_on_the_order_are_marked(text):
    assert text.count(">order matters<") == 2 * GENERATIONS


def test_the_family_tree_has_every_program_and_the_line_of_the_best(text):
    tree = text[text.index('class="card scroll tree"') : text.index("Success over generations")]
    nodes = dict(re.findall(r'class="node (\w+)" id="node-(\w+)"', tree))
    assert re.findall(r'class="node (\w+)" id="node-g0[012]k01"', tree) == ["ancestor", "ancestor", "best"]
    assert set(nodes) == {"best", "ancestor", "failed", "other"}
    assert tree.count('class="node ') == 12
    assert tree.count('class="chosen"') == 2
    assert tree.count("<path") == 8  # each program but those of the first generation has a parent


def downloads_of(text: str) -> dict[str, bytes]:
    links = re.findall(r'download="([^"]*)" href="data:[^;]*;base64,([^"]*)"', text)
    return {name: base64.b64decode(data) for name, data in links}


def test_offers_program_curves_and_all_programs(text):
    files = downloads_of(text)
    assert files["g02k01.py"].decode() == source(2, 1)
    curves = list(csv.reader(files["g02k01_curves.csv"].decode().splitlines()))
    assert curves[0][:3] == ["time_s", "term.position", "term.grasp"]
    assert len(curves) == 101
    rows = list(csv.DictReader(files["programs.csv"].decode().splitlines()))
    assert len(rows) == 12
    assert rows[0]["weight.grasp"] == "0.0"
    assert rows[0]["cost"] == ""  # not a number
    assert "g02k01.npz" not in files


def test_a_table_runs_nothing_in_a_spreadsheet(tmp_path):
    kind, data, g, k = evaluated_step(0, 0)
    data |= {"weights": {"=HYPERLINK(1)": 1.0}, "reason": "@SUM(1)", "stage": "run"}
    files = downloads_of(page_of(tmp_path / "r", [(kind, data, g, k)]))
    rows = list(csv.reader(files["programs.csv"].decode().splitlines()))
    assert "weight.=HYPERLINK(1)" in rows[0]
    assert "'@SUM(1)" in rows[1]


def test_says_how_to_do_each_thing_again(tmp_path):
    kind, data, g, k = run_step()
    settings = {"task.name": "bottle_pour", "model": "myoarm_r", "seed": 7, "optimizer.name": "mpc2"}
    settings |= {"instruction": "lift it; don't drop it"}
    root = tmp_path / "a run"
    text = page_of(root, [(kind, data | {"settings": settings}, g, k), *steps()[1:]])
    shown = [html.unescape(command) for command in re.findall("<code>(python .*?)</code>", text)]
    assert f"python -m movlr_jax.search replay='{root}'" in shown
    words = shlex.split(next(command for command in shown if "evaluate" in command))
    assert words[3:6] == ["+task=bottle_pour", f"reward={root / 'best.py'}", "optimizer=mpc2"]
    assert "instruction=lift it; don't drop it" in words
    assert "seed=7" in words


def test_shows_the_messages_of_the_models_as_text(tmp_path):
    long = "You write reward programs. " * 30
    with archive_of(tmp_path / "r", steps()) as archive:
        for i in range(2):
            parts = [{"role": "system", "parts": [long]}]
            parts += [{"role": "user", "parts": [HOSTILE, {"media": "video/mp4", "sha256": "0", "bytes": 5000}]}]
            record = {"purpose": "judge", "provider": "gemini", "model": "g", "messages": parts}
            archive.log_call(f"k{i}", "answered", record | {"answer": "<b>second</b>", "seconds": 2.0})
        report.write_report(archive)
    page = Page((tmp_path / "r" / "report.html").read_text())
    assert page.words.count(long) == 1
    assert "system, as in call 1" in page.words
    assert "[video/mp4, 5 kB]" in page.words
    assert page.words.count("<b>second</b>") == 2
    assert page.scripts == SCRIPTS


def test_shows_the_full_training_beside_the_short_one(tmp_path):
    """The winner's, on a page that has no curves of the full training before it is done."""
    short = {"env_steps": [100.0, 200.0], "terms": {"position": [0.1, 0.2], "grasp": [0.0, 0.3]}, "kl": [0.01] * 2}
    full = {name: values * 4 for name, values in short.items() if name != "terms"}
    full |= {"env_steps": [100.0 * (i + 1) for i in range(8)], "terms": {"position": [0.1] * 8, "grasp": [0.3] * 8}}
    recorded = [
        (kind, data | {"learning": short} if kind == "evaluated" and not data["reason"] else data, g, k)
        for kind, data, g, k in steps()
    ]
    outcome = {"name": "g02k01", "env_steps": 800, "reason": None, "film": None, "learning": full}
    outcome["metrics"] = {"distance_m": 9.25, "success": 1.0}
    page = Page(page_of(tmp_path / "full", [*recorded, ("full", outcome, -1, -1)]))
    assert "g02k01 after 800 control steps: moved 9.25 m: success." in page.words
    assert "training-full" in page.ids
    assert "training during the search" in page.words
    assert "training-full" not in Page(page_of(tmp_path / "short", recorded)).ids
    # of a program that the run does not have
    lost = [*recorded, ("full", outcome | {"name": "g09k09"}, -1, -1)]
    assert "Final training" not in Page(page_of(tmp_path / "lost", lost)).words


def test_charts_how_the_best_program_moves(text, page):
    """Speed, joint limits and the force under both feet; the first program's is dotted where there is one line."""
    speed, limits, force = (page.chart(name) for name in ("speed of", "joints at", "force under"))
    assert [chart["unit"] for chart in (speed, limits, force)] == ["m/s", "%", "N"]
    assert [(line["name"], line["dash"]) for line in speed["lines"]] == [("g02k01", 0), ("g00k00", 2)]
    assert limits["lines"][0]["y"] == [None] * 50 + [25.0] * 50  # a share of 0.25 is 25 %
    # the left foot has the first colour, whatever the order of the record
    assert [(line["name"], line["colour"]) for line in force["lines"]] == [("left", "c0"), ("right", "c1")]
    assert force["lines"][0]["y"][0] == 0


def test_escapes_whatever_the_record_holds(text, page):
    assert page.scripts == SCRIPTS
    assert "<script>alert" not in text
    assert "<script>alert('x')</script>" in page.words
    assert "<b>fingers</b>" in page.words
    assert "<i>away</i>" in page.words


@pytest.mark.parametrize("n", [0, 1, 3, 8, 15, len(steps())])
def test_works_for_every_prefix_of_a_run(tmp_path, n):
    page = Page(page_of(tmp_path / "r", steps()[:n]))
    assert page.open == []
    assert {a[1:] for a in page.addresses if a.startswith("#")} <= set(page.ids)
    assert ("is not finished" in page.words) == (n < len(steps()))


def test_bare_events_are_enough(tmp_path):
    bare: list[Step] = [("run", {}, -1, -1), ("proposed", {}, 0, -1), ("evaluated", {"curve_time": None}, 0, 0)]
    bare += [("ranked", {"best": "g00k00", "names": ["g00k00", "g07k07"]}, 0, -1), ("criticised", {}, 0, -1)]
    assert Page(page_of(tmp_path / "r", [*bare, ("timing", {}, 0, -1), ("finished", {}, -1, -1)])).open == []


def test_strange_numbers_and_names_do_not_stop_the_charts(tmp_path):
    kind, data, g, k = evaluated_step(0, 0)
    term = {"mean": math.nan, "weighted_mean": None, "nonfinite": 3, "curve": [math.nan, None, math.inf, 1.0]}
    names = ["_hidden", "$x_{", "名前", "<i>", "", *(f"term {i}" for i in range(30))]
    data |= {"weights": dict.fromkeys(names, 0.0) | {"_hidden": -2.0}, "terms": dict.fromkeys(names, term)}
    data |= {"metrics": {"distance_m": math.inf, "object_angle_rad": -1e9}, "curve_time": [0.0, 0.1, 0.2]}
    motion = [math.nan, None, math.inf, 1.0]
    data |= {"series": {"left_": motion, "right_x_m": motion, "$x_{": [1.0], "<i>": [], "none": None}}
    kind_r, ranked, _, _ = ranked_step(0)
    page = Page(page_of(tmp_path / "r", [(kind, data, g, k), (kind_r, ranked | {"best": "g00k00"}, 0, -1)]))
    assert "_hidden" in page.words
    assert "$x_{" in page.words


def test_a_film_outside_the_run_is_not_drawn_in(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    kind, data, g, k = evaluated_step(0, 0)
    text = page_of(tmp_path / "r", [(kind, data | {"film": "../secret"}, g, k)], film=None)
    assert "../secret" not in text
    assert "no film" in text
    assert base64.b64encode(b"secret").decode() not in text


def test_main_refuses_what_is_no_run(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    sqlite3.connect(foreign / "run.db").execute("CREATE TABLE t (x)").connection.close()
    text = tmp_path / "text"
    text.mkdir()
    (text / "run.db").write_text("this is no database " * 100)
    for path in (tmp_path / "missing", tmp_path / "empty", foreign, text):
        assert report_command([str(path)]) == 2
        output = capsys.readouterr()
        assert (output.out, output.err.count("\n")) == ("", 1)
    assert not (foreign / "report.html").exists()


def test_main_shows_a_run_in_progress_and_leaves_its_record_alone(tmp_path, capsys):
    run = tmp_path / "r"
    with archive_of(run, steps()[:-1]) as archive:
        assert report_command([str(run), "scene=false"]) == 0
        assert capsys.readouterr().out == f"The report is at {run / 'report.html'}\n"
        text = (run / "report.html").read_text(encoding="utf-8")
        assert "The search is in progress; this page shows what was done" in Page(text).words
        assert 'class="chip state">in progress<' in text
        assert "movlr_jax.search resume=" not in text
        assert not archive.has("report.html"), "only the process of the search writes the record"
        archive.record(*steps()[-1])
        assert report_command([str(run), "scene=false"]) == 0, "a finished run, which people judge by `vote`"
        assert "in progress" not in (run / "report.html").read_text(encoding="utf-8")
