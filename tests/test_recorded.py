"""A search that a language and a vision model drove, repeated from its recording in examples/recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from movlr_jax import open_run
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.errors import UserError
from movlr_jax.language.clients.answers import Program
from movlr_jax.language.clients.call import Question
from movlr_jax.language.clients.replay import Recording
from movlr_jax.storage.archive import Archive

RECORDED = Path(__file__).parent.parent / "examples" / "recorded"
NAMES = sorted(path.parent.relative_to(RECORDED).as_posix() for path in RECORDED.glob("**/answers.jsonl"))


def answers(name: str, purpose: str) -> list[dict]:
    lines = (RECORDED / name / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    return [call for line in lines if (call := json.loads(line))["purpose"] == purpose]


def kinds() -> list[str]:
    """Return the first recording of each task with each set of names of settings, whatever their values."""
    found: dict[tuple[str, ...], str] = {}
    for name in NAMES:
        text = (RECORDED / name / "config.yaml").read_text(encoding="utf-8")
        (task,) = re.findall(r"^task:\n(?:  .*\n)*?  name: (\w+)", text, re.M)
        found.setdefault((task, *sorted({*re.findall(r"^ *\w+:", text, re.M)})), name)
    return [*found.values()]


def test_a_recording_is_small():
    for name in NAMES:
        assert sum(path.stat().st_size for path in (RECORDED / name).iterdir()) < 200_000, name


@pytest.mark.parametrize("name", kinds())
def test_a_recording_has_settings_that_exist(name: str):
    """And asks for nothing, but for the model of films, which is a file of another package."""
    if "-v5" in name:
        pytest.importorskip("gymnasium", reason="the extra gym is not installed")
    trusted = ["trust=true"] if name.startswith("films/") else []
    config = compose([f"replay={RECORDED / name}", *trusted])
    assert "replay" in (config.llm.name, config.vlm.name)


@pytest.mark.slow
def test_a_recorded_search_gives_its_programs_and_champion_again(tmp_path: Path):
    """The programs were written by a language model, from its requests alone; no model judged."""
    pytest.importorskip("gymnasium", reason="the extra gym is not installed")
    name, run = "suites/Swimmer-v5_model_varied_100", tmp_path / "run"
    assert search([f"replay={RECORDED / name}", f"run_dir={run}", "films=false"]) == 0
    written = {json.loads(call["answer"])["program"].strip() for call in answers(name, "propose")}
    with Archive.open(run, write=False) as archive:
        evaluated = [event.data for event in archive.events("evaluated")]
        assert archive.spent() == (0, 0.0)
    assert written < {e["source"].strip() for e in evaluated}, "and the first, which nobody wrote"
    assert open_run(run).best.name == "g00k01"


def test_a_recording_asked_for_another_critique_or_comparison_gives_none_and_for_another_program_says_so():
    recording = Recording(RECORDED / "release")
    for purpose in ("criticise", "judge"):
        assert recording.find("key", Question(purpose, (), Program, about="g09k09")) is None
    with pytest.raises(UserError, match="no answer to this call \\(propose g09k09\\)"):
        recording.find("key", Question("propose", (), Program, about="g09k09"))


def test_a_recording_is_found_from_any_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(RECORDED)
    for config in (compose(["replay=drink"]), compose(["+task=stand", "llm=replay", "llm.run=drink"])):
        assert config.llm.run == str(RECORDED / "drink")
