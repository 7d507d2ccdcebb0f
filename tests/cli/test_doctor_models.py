"""doctor asks the configured models: one cheap call each, and known pairs through the judge."""

from __future__ import annotations

import json

import pytest
from fake_servers import Asked, FakeServer, scripted_model

from movlr_jax.cli.doctor import main
from movlr_jax.engine.known_pairs import known_pairs
from movlr_jax.tasks import build_task

SMALL = ["vlm.size=[64,64]", "vlm.fps=2", "vlm.media=frames", "vlm.frames=2", "vlm.attempts=2"]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-SECRET-doctor-012345")
    monkeypatch.setenv("COLUMNS", "200")


def test_one_cheap_call_to_each(capsys: pytest.CaptureFixture[str]):
    with FakeServer("gemini") as vlm:
        assert main(["vlm=gemini", f"vlm.base_url={vlm.url}"]) == 0
        assert len(vlm.requests) == 1
    said = capsys.readouterr().out
    assert "llm: scripted, embedded: needs no language or vision model" in said
    assert "vlm: gemini gemini-3.8-flash: answered in" in said


def test_key_that_is_not_let_in_is_row_without_key(capsys: pytest.CaptureFixture[str]):
    with FakeServer("gemini", key="another") as vlm:
        assert main(["vlm=gemini", f"vlm.base_url={vlm.url}"]) == 1
    said = capsys.readouterr().out
    assert "denies access" in said
    assert "SECRET" not in said


def test_known_pairs_are_what_they_are_called():
    import numpy as np

    task = build_task("flat_walk", "myolegs", 10.0, {})
    pairs = {pair.name: pair for pair in known_pairs(task)}
    walk, back = pairs["forward, reversed"].good, pairs["forward, reversed"].bad
    assert back is not None
    np.testing.assert_array_equal(walk.qpos[0, :7], back.qpos[0, :7])  # where the cameras look
    np.testing.assert_allclose(walk.qpos[::-1, 7:], back.qpos[:, 7:])
    np.testing.assert_allclose(walk.qpos[::-1, :3] - walk.qpos[-1, :3], back.qpos[:, :3] - back.qpos[0, :3])
    assert np.abs(np.diff(walk.qpos, axis=0)).max() < 0.1, "no jumps"
    travelled = (walk.qpos[-1] - walk.qpos[0])[:3] @ np.array(task.adapter.forward)
    assert travelled == pytest.approx(2.0, abs=0.05)
    fallen = pairs["standing, fallen"].bad
    assert fallen is not None
    assert (fallen.qpos[-1] - fallen.qpos[0])[2] < -0.5
    bent, locked = pairs["bent knees, locked knees"].good, pairs["bent knees, locked knees"].bad
    assert locked is not None
    knees = [task.model.joint(f"knee_angle_{side}").qposadr[0] for side in "lr"]
    assert np.abs(locked.qpos[:, knees]).max() < 0.01
    assert 0.9 < bent.qpos[:, knees].max() < 1.3, "55 to 70 degrees"
    for clip in (bent, locked):  # neither distance nor a fall tells them apart
        moved = (clip.qpos[-1] - clip.qpos[0])[:3]
        assert moved @ np.array(task.adapter.forward) == pytest.approx(1.98, abs=0.05)
        assert np.ptp(clip.qpos[:, 2]) < 0.15


def test_judge_that_always_says_first_is_found_out(capsys: pytest.CaptureFixture[str]):
    def first(asked: Asked) -> dict:
        return {**scripted_model(asked), "winner": "first"} if asked.wants == "winner" else scripted_model(asked)

    with FakeServer("gemini", brain=first) as vlm:
        assert main(["judge", "vlm=gemini", f"vlm.base_url={vlm.url}", *SMALL]) == 0
        assert len(vlm.requests) == 8
        assert not any("Success:" in json.dumps(request["body"]) for request in vlm.requests), "that of the task"
    said = capsys.readouterr().out
    assert "accuracy 3 of 8, flip rate 100 %, first shown preferred 8 of 8, 8 calls, 0." in said
    assert "a generation of 4 programs makes at most 20 calls to it, about 0." in said
    assert "its accuracy is no better than chance" in said


@pytest.mark.slow
def test_silence_is_no_tie(capsys: pytest.CaptureFixture[str]):
    """Who says tie to everything is right about the film shown twice; who says nothing, of none."""

    def tie(asked: Asked) -> dict:
        return {**scripted_model(asked), "winner": "tie"}

    for server, accuracy in (
        (FakeServer("gemini", brain=tie), 2),
        (FakeServer("gemini", script=["blocked"] * 99), 0),
    ):
        with server as vlm:
            assert main(["judge", "vlm=gemini", f"vlm.base_url={vlm.url}", *SMALL]) == 0
        said = capsys.readouterr().out
        assert f"accuracy {accuracy} of 8, flip rate 0 %, first shown preferred 0 of 8" in said
        assert ("8 of 8 comparisons were not answered" in said) == (accuracy == 0)


def test_metrics_judge_sees_no_films(capsys: pytest.CaptureFixture[str]):
    assert main(["judge"]) == 2
    assert "vlm=metrics compares numbers and sees no films" in capsys.readouterr().err
