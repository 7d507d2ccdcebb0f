"""Whole searches with language and vision models over real HTTP, on a small leg."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_servers import Asked, FakeServer, scripted_model
from model_search import LLM_KEY, MODELS, TASK, VLM_KEY, calls, servers, set_keys
from outcomes import outcome

from movlr_jax.cli import compare
from movlr_jax.cli.export import main as export
from movlr_jax.cli.search import main
from movlr_jax.config.compose import compose
from movlr_jax.control.build import build_optimizer
from movlr_jax.engine import compare as compare_engine
from movlr_jax.engine import parts
from movlr_jax.engine import search as engine_search
from movlr_jax.engine.compare import is_finished
from movlr_jax.engine.tasks import task_of
from movlr_jax.report.data import read_run
from movlr_jax.report.page import render
from movlr_jax.storage.archive import Archive


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch):
    set_keys(monkeypatch)


@pytest.fixture(scope="module")
def shared() -> Iterator[None]:
    """Task, planner and sandbox of all searches here, built once for each set of settings."""

    def once(make: Callable, key: Callable = repr) -> Callable:
        kept: dict[str, object] = {}

        def build(*args):
            name = key(args[0])
            if name not in kept:
                kept[name] = make(*args)
            return kept[name]

        return build

    real, sandboxes = parts.Sandbox, []

    def sandbox(probe, name: str, batch) -> parts.Sandbox:
        if not sandboxes:
            sandboxes.append(real(probe, name=name, batch=batch))
            sandboxes[0].close = lambda: None
        return sandboxes[0]

    with pytest.MonkeyPatch.context() as patch:
        tasks = once(task_of, lambda config: f"{config.task} {config.model} {config.episode_s}")
        patch.setattr(engine_search, "task_of", tasks)
        patch.setattr(engine_search, "build_optimizer", once(build_optimizer))
        patch.setattr(engine_search, "close", lambda planner: None)  # the next search needs it
        patch.setattr(parts, "Sandbox", sandbox)
        yield
    for one in sandboxes:
        real.close(one)


def everything(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, shared: None) -> Path:
    """A search of two models, a fifth of whose calls fail in every way there is."""
    run = tmp_path_factory.mktemp("models") / "run"
    llm, vlm = servers(fault_rate=0.2, stall_s=9)  # longer than the timeout, which a busy machine does not reach
    # each kind once for certain, then by chance
    llm.script = ["500", "truncated", "", "blocked", "schema", ""]
    vlm.script = ["429", "503", "", "cut", "half_body", "", "stall", "", "empty", ""]
    with llm, vlm, pytest.MonkeyPatch.context() as patch:
        set_keys(patch)
        args = [*TASK, *MODELS, f"llm.base_url={llm.url}", f"vlm.base_url={vlm.url}", f"run_dir={run}"]
        assert main(args) == 0
        assert llm.good()
        assert vlm.good()
        assert any(r["fault"] for r in [*llm.requests, *vlm.requests])
        assert max((llm.answered + vlm.answered).values()) == 1, "nothing was paid for twice"
    return run


def test_search_under_faults_ends_with_a_report_without_keys(recorded: Path):
    page = (recorded / "report.html").read_text()
    assert "openai_compatible Qwen2.5-Coder-32B-Instruct" in page
    assert "no language or vision model used" not in page
    made = calls(recorded)
    assert {c["purpose"] for c in made} >= {"propose", "judge", "criticise"}
    assert {c["state"] for c in made} >= {"answered", "failed"}
    assert all(c["model_version"] for c in made if c["state"] == "answered")
    written = everything(recorded.parent)
    assert not [key for key in (LLM_KEY, VLM_KEY) if key.encode() in written]


def test_replay_gives_the_same_run_without_servers_or_keys(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name)
    again = tmp_path / "again"  # the file of its task is still the one that the run began with
    assert main([f"replay={recorded}", f"run_dir={again}"]) == 0
    assert outcome(again) == outcome(recorded)
    with Archive.open(again, write=False) as archive:
        assert archive.spent() == (0, 0.0)


def test_recording_repeats_the_search_from_two_files(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """With the settings of the recorded search, and although the films differ."""
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name)
    folder, again = tmp_path / "recording", tmp_path / "again"
    assert export([str(recorded), "format=answers", f"out={folder}"]) == 0
    assert sorted(p.name for p in folder.iterdir()) == ["answers.jsonl", "config.yaml"]
    assert capsys.readouterr().out.split() == [str(folder / "answers.jsonl"), str(folder / "config.yaml")]
    answers = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    places = [(a["purpose"], a["about"], a["sample"]) for a in answers]
    assert len(set(places)) == len(places), "a critique is of one trial"
    replaced(folder / "config.yaml", "vlm", size=[96, 96])  # other films
    assert main([f"replay={folder}", f"run_dir={again}"]) == 2
    said = capsys.readouterr().err
    assert f"{folder} was not begun by you on this machine, and asks for: task.settings.file=" in said
    assert main([f"replay={folder}", f"run_dir={again}", "trust=true"]) == 0
    assert outcome(again) == outcome(recorded)


def test_keys_that_servers_send_back_are_redacted_everywhere(
    shared: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """Servers that send the key back: in a refusal of it, in every field of every answer, and in a program."""

    def echo(value):
        if isinstance(value, dict):
            return {k: v if k in ("winner", "action", "region") else echo(v) for k, v in value.items()}
        if isinstance(value, list):
            return [echo(v) for v in value]
        return f"{value}\n# {LLM_KEY} {VLM_KEY}" if isinstance(value, str) else value

    for name, more in (
        ("expired", {"key": "sk-of-somebody-else"}),
        ("echoed", {"brain": lambda asked: echo(scripted_model(asked))}),
        ("given up", {"fault_rate": 1.0, "faults": ("500",)}),
    ):
        llm, vlm = servers(**more)
        with llm, vlm:
            urls = [f"llm.base_url={llm.url}", f"vlm.base_url={vlm.url}"]
            settings = [*urls, "llm.attempts=2", "generations=1", f"run_dir={tmp_path / name}"]
            status = main([*TASK, *MODELS, *settings])
        assert status == (0 if name == "echoed" else 2)
        assert main([*TASK, *MODELS, *urls, f"llm.key_env={LLM_KEY}", "run_dir=x"]) == 2
    said = "".join(capfd.readouterr())
    written = everything(tmp_path)
    assert "[key]" in said
    assert written.count(b"[key]") > 10
    for key in (LLM_KEY, VLM_KEY):
        assert key.encode() not in written
        assert key not in said


def replaced(path: Path, role: str, **settings: object) -> None:
    """Change settings of a model in a file of settings."""
    values = yaml.safe_load(path.read_text())
    values[role] |= settings
    path.write_text(yaml.safe_dump(values))


@contextlib.contextmanager
def modelled(
    run: Path, *settings: str, status: int = 0, task: Sequence[str] = TASK, vlm: dict | None = None, **more: Any
) -> Iterator[tuple[FakeServer, FakeServer]]:
    """Search in `run` with two servers, which serve within the context. vlm: settings of the second one alone."""
    writer, watcher = FakeServer("openai", **more), FakeServer("gemini", **{**more, **(vlm or {})})
    with writer, watcher:
        urls = [f"llm.base_url={writer.url}", f"vlm.base_url={watcher.url}"]
        assert main([*task, *MODELS, *urls, *settings, f"run_dir={run}"]) == status
        yield writer, watcher


def run_method(method: str, tmp_path: Path, *settings: str) -> tuple[FakeServer, FakeServer, Path]:
    run = tmp_path / method
    with modelled(run, f"method={method}", *settings) as (llm, vlm):
        return llm, vlm, run


def programs(server: FakeServer) -> list[Asked]:
    return [r["asked"] for r in server.requests if r["asked"].wants == "program"]


def test_eureka_sees_no_image_and_speaks_in_four_messages(shared: None, tmp_path: Path):
    llm, vlm, run = run_method("eureka", tmp_path)
    assert not vlm.requests
    assert not any(a.media for a in programs(llm))
    turns = Counter(tuple(a.turns) for a in programs(llm) if "cannot be used" not in a.said)
    assert turns == {("user",): 2, ("user", "assistant", "user"): 2}, "in addition to the system's message"
    reflection = next(a for a in programs(llm) if len(a.turns) == 3).texts[-1]
    assert len(re.findall(r"\[(.*?)\]", reflection)[0].split(",")) == 10
    assert "Task score" in reflection
    with Archive.open(run, write=False) as archive:
        first = archive.get("proposed", 0)
    assert first is not None
    assert first["parents"] == [None, None], "nothing is given to begin with"


def test_harmon_sees_four_pictures_of_each_motion(shared: None, tmp_path: Path):
    llm, vlm, _ = run_method("harmon", tmp_path, "generations=1")
    assert {(r["asked"].wants, len(r["asked"].media)) for r in vlm.requests} == {("winner", 8), ("advice", 4)}
    assert {kind for r in vlm.requests for kind, _ in r["asked"].media} == {"image/jpeg"}
    assert not any(a.media for a in programs(llm))


def test_vlm_only_makes_one_call_for_each_program(shared: None, tmp_path: Path):
    llm, vlm, run = run_method("vlm_only", tmp_path)
    assert not llm.requests
    made = Counter(c["purpose"] for c in calls(run))
    assert made["propose"] == 3, "two generations of two, the first program is given"
    assert set(made) <= {"propose", "repair", "judge"}, "nobody criticises, the same model selects"
    assert made["judge"] >= 4
    later = [a for a in programs(vlm) if a.media and "cannot be used" not in a.said]
    assert len(later) == 2
    assert [[kind for kind, _ in a.media] for a in later] == [["video/mp4"]] * 2


def observer(alignment: float) -> Callable[[Asked], dict]:
    """A model whose label tells one motion from another."""

    def brain(asked: Asked) -> dict:
        answer = scripted_model(asked)
        if asked.wants == "descriptors":
            motion = hashlib.sha256(b"".join(data for _, data in asked.media)).hexdigest()[:6]
            label = {"region": "knees", "label": f"left knee flexion {motion}", "confidence": 0.7}
            answer = {"descriptors": [label], "success": True, "alignment": alignment}
        return answer

    return brain


def described(run: Path) -> list[dict]:
    with Archive.open(run, write=False) as archive:
        return [event.data["candidates"] for event in archive.events("described")]


def test_motions_are_described_once_for_the_proposer(shared: None, tmp_path: Path):
    run, again = tmp_path / "run", tmp_path / "again"
    sized = ["candidates=3", "generations=1", "method=motionvl"]
    with modelled(run, *sized, brain=observer(0.4)) as (llm, vlm):
        asked = [r["asked"] for r in vlm.requests if r["asked"].wants == "descriptors"]
        motions = [b"".join(data for _, data in a.media) for a in asked]
        assert len(set(motions)) == len(motions), "equal motions share a call"
        assert main([f"resume={run}", "generations=2"]) == 0
        later = [r["asked"] for r in vlm.requests if r["asked"].wants == "descriptors"][len(asked) :]
        assert len(later) <= 3, "only those of the new generation"
        _, _, evaluated = outcome(run)
        ran = [{e["name"] for e in evaluated if e["generation"] == g and not e["reason"]} for g in (0, 1)]
        assert [set(seen) for seen in described(run)] == ran
        assert len(ran[0]) > 1
        labels = {seen["descriptors"][0]["label"] for seen in described(run)[0].values()}
        edits = [a.said for a in programs(llm) if "The best program so far" in a.said]
        assert edits
        assert all(label in said for label in labels for said in edits)
        assert all(said.count("Alignment with the task: 0.4") == len(ran[0]) - 1 for said in edits)
        assert 'class="chip">alignment 0.4<' in (run / "report.html").read_text()
    replay = ["llm=replay", f"llm.run={run}", "vlm=replay", f"vlm.run={run}"]
    assert main([*TASK, *replay, *sized, f"run_dir={again}"]) == 0
    assert described(again) == described(run)[:1]


def test_search_ends_at_the_alignment_of_the_method(shared: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run, said = tmp_path / "run", "the search ends after generation 0: "
    settings = ["method=motionvl", "generations=3"]
    with modelled(run, *settings, brain=observer(0.95)) as (llm, vlm):
        assert said in capsys.readouterr().err
        made = len(llm.requests) + len(vlm.requests)
        assert main([f"resume={run}"]) == 0
        assert said in capsys.readouterr().err
        assert len(llm.requests) + len(vlm.requests) == made
        with Archive.open(run, write=False) as archive:
            data = read_run(archive)
        assert (len(data.generations), data.state) == (1, "finished")
        assert data.stopped.startswith(said)
        assert data.stopped.endswith("reaches an alignment of 0.95 with the task (method.stop_alignment=0.9)")
        assert data.stopped in render(data)
        assert is_finished(compose([f"resume={run}"]))


def test_weights_outside_the_range_of_the_method_are_repaired(shared: None, tmp_path: Path):
    """Every first answer has a weight of 3. The start program, whose weights are larger, is scaled."""

    def heavy(asked: Asked) -> dict:
        answer = scripted_model(asked)
        if asked.wants == "program":
            weight = "0.5" if "cannot be used" in asked.said else "3.0"
            answer["program"] = (
                f'WEIGHTS = {{"sweep": {weight}}}\n\ndef reward(state, action):\n    return {{"sweep": state.time}}'
            )
        return answer

    task = (Path(__file__).parent.parent / "support" / "tiny_task.py").read_text()
    (tmp_path / "start.py").write_text(
        'WEIGHTS = {"near": 40.0, "calm": 10.0}\n\n\ndef reward(state, action):\n'
        '    return {"near": -state.pos("foot")[2], "calm": -jnp.mean(action)}\n'
    )
    start = f'reward="{tmp_path / "start.py"}", episode_s=0.1'
    (tmp_path / "task.py").write_text(task.replace("episode_s=0.1", start))
    run, task = tmp_path / "run", [f"+task={tmp_path / 'task.py'}", *TASK[1:]]
    with modelled(run, "method=motionvl", *TASK[1:3], task=task, brain=heavy) as (llm, _):
        pass
    assert all("between 0 and 1" in a.said for a in programs(llm)), "in the first generation too"
    first = next(a for a in programs(llm) if "cannot be used" not in a.said)
    assert 'WEIGHTS = {"near": 1, "calm": 0.25}' in first.said
    repairs = [a for a in programs(llm) if "cannot be used" in a.said]
    assert repairs
    assert all("the weight of 'sweep' is 3, expected a number from 0 to 1" in a.said for a in repairs)
    _, _, evaluated = outcome(run)
    assert [data["weights"] for data in evaluated] == [{"near": 1.0, "calm": 0.25}, *[{"sweep": 0.5}] * 3]


def test_broken_program_is_sent_back_with_its_reason(shared: None, tmp_path: Path):
    order = itertools.count()

    def stubborn(asked: Asked) -> dict:
        """Break every first try, and all tries of the first program."""
        answer = scripted_model(asked)
        if asked.wants == "program" and ("cannot be used" not in asked.said or "stays" in asked.said):
            mark = "stays" if "stays" in asked.said or next(order) == 0 else "once"
            answer["program"] = (
                f'WEIGHTS = {{"a": 1.0}}\n\ndef reward(state, action):\n    return {{"a": state.pos("{mark}")[0]}}'
            )
        return answer

    run = tmp_path / "run"
    with modelled(run, "candidates=3", "generations=1", "retries=2", brain=stubborn) as (llm, _):
        repairs = [a for a in programs(llm) if "cannot be used" in a.said]
    assert any("there is no body" in a.said for a in repairs)
    assert len(outcome(run)[2]) == 3, "a slot that stays broken is an entry"


def test_generation_without_a_valid_program_ends_the_search(
    shared: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def hopeless(asked: Asked) -> dict:
        return {"changes": "none", "program": "import os"} if asked.wants == "program" else scripted_model(asked)

    with modelled(tmp_path / "run", "retries=1", status=2, brain=hopeless) as (llm, _):
        assert "are invalid, in two rounds with retries=1" in capsys.readouterr().err
    assert len(programs(llm)) == 4, "one slot, one repair, and both again"


def test_judge_that_never_answers_is_reported_and_has_its_own_status(
    shared: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """On the terminal, in the closing lines, in the record and in the report; no program is called the best."""
    run = tmp_path / "run"
    silent = {"write": lambda asked, content: "the left one" if asked.wants == "winner" else content}
    with modelled(run, "vlm.attempts=2", "gates=false", status=3, vlm=silent) as (_, vlm):
        said, made = capsys.readouterr().err, len(vlm.requests)
        assert main([f"resume={run}"]) == 3, "the same search, the same result"
        assert len(vlm.requests) == made
    with Archive.open(run, write=False) as archive:
        rankings = [event.data for event in archive.events("ranked")]
        finished, evaluated = archive.get("finished"), archive.events("evaluated")
        page = render(read_run(archive))
    first = next(e.data["name"] for e in evaluated if e.data["reason"] is None)
    for ranking in rankings:
        assert {(c["winner"], c["answered"]) for c in ranking["comparisons"]} == {("none", False)}
        assert {*ranking["strengths"], *ranking["p_best"], ranking["flip_rate"]} == {None}
        assert ranking["best"] == first
    asked = sum(len(ranking["comparisons"]) for ranking in rankings)
    closing = f"the judge did not answer {asked} of {asked} comparisons, so 2 of 2 generations are not ranked"
    assert f"WARNING: {closing}" in said
    assert finished is not None
    assert finished["judge_silence"].startswith(closing)
    assert page.count(closing) == 1
    assert not [text for text in ("is the best with P", "flip rate", ">tie<") if text in said + page]


def test_spent_budget_ends_the_search_and_it_is_resumable(
    shared: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    _, _, whole = run_method("movlr", tmp_path, "generations=1")
    run = tmp_path / "run"
    with modelled(run, "generations=1", "max_calls=3") as (llm, vlm):
        assert "max_calls=3 is used up" in capsys.readouterr().err
        assert len(llm.requests) + len(vlm.requests) == 3
        assert main([f"resume={run}", "max_calls=100"]) == 0
        answered = Counter(llm.answered) + Counter(vlm.answered)
        assert set(answered.values()) == {1}, "nothing was paid for twice"
    assert outcome(run) == outcome(whole)


def test_compare_is_resumed_after_an_interrupt(
    shared: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    root, searched = tmp_path / "compared", []

    def interrupted(config):
        searched.append(config.method.name)
        if len(searched) == 2:
            raise KeyboardInterrupt
        return run_search(config)

    run_search = compare_engine.run_search
    monkeypatch.setattr(compare_engine, "run_search", interrupted)
    given = [*TASK, "methods=[movlr,eureka,human]", "generations=1", f"run_dir={root}", "films=false"]
    assert compare.main(given) == 130
    assert f"the same command with run_dir={root} continues" in capsys.readouterr().err
    assert compare.main(given) == 0
    assert searched == ["movlr", "eureka", "eureka", "human"]
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out.strip().splitlines()[-1])}
    assert set(rows) == {"movlr", "eureka", "human"}
    assert rows["movlr"]["sim_s"] == rows["eureka"]["sim_s"] == pytest.approx(0.6), "two programs"
    assert rows["human"]["programs"] == 1
    assert all(row["calls"] == 0 and row["score"] is not None and row["finished"] for row in rows.values())
    assert (root / "report.html").stat().st_size > 0
    assert len((root / "compare.csv").read_text().splitlines()) == 4
    assert compare.main([*given, "candidates=3"]) == 2
    assert "was created with other settings: candidates was 2, is 3" in capsys.readouterr().err
    assert compare.main([*TASK, "methods=[movlr,eurika]"]) == 2
    assert "did you mean 'eureka'" in capsys.readouterr().err
