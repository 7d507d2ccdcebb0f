"""Trackers with their own packages, offline: what a search showed them is read back from their files."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from cli_cases import LEG

from movlr_jax.commands.search import main as search
from movlr_jax.errors import UserError
from movlr_jax.film.renderer import renderer
from movlr_jax.storage.archive import Archive
from movlr_jax.tracking.base import TrackerConfig, open_tracker

pytestmark = pytest.mark.usefixtures("elsewhere")
GIVEN = [*(a for a in LEG if a != "films=false" and not a.startswith("generations")), "generations=2"]
FILMS = renderer().name is not None


def best_measure(run: Path) -> tuple[str, list[float]]:
    """A measure of the best program after each generation, as the archive has it."""
    with Archive.open(run, write=False) as archive:
        known = {e.data["name"]: e.data for e in archive.events("evaluated")}
        bests = [known[e.data["best"]]["metrics"] for e in archive.events("ranked")]
    name = next(iter(bests[0]))
    return name, [metrics[name] for metrics in bests]


def run_with(tracker: str, *more: str) -> Path:
    assert search([*GIVEN, "run_dir=run", f"tracker={tracker}", *more]) == 0
    assert search(["resume=run", "generations=3"]) == 0  # goes on where it was
    return Path("run")


def records(path: Path) -> list[bytes]:
    """The records of a TFRecord file: length, checksum, data, checksum."""
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(data[12 : 12 + length])
        data = data[16 + length :]
    return found


def test_tensorboard():
    pytest.importorskip("tensorboardX")
    from PIL import Image
    from tensorboardX.proto.event_pb2 import Event

    run = run_with("tensorboard")
    name, measured = best_measure(run)
    shown, films, texts = {}, [], {}
    for path in sorted((run / "tensorboard").iterdir()):
        for record in records(path):
            event = Event.FromString(record)
            for value in event.summary.value:
                if value.HasField("image"):
                    films.append((value.tag, value.image.encoded_image_string))
                elif value.HasField("tensor"):
                    texts[value.tag] = value.tensor.string_val[0].decode()
                else:
                    shown.setdefault(value.tag, []).append((event.step, value.simple_value))
    steps, values = zip(*shown[f"best/{name}"], strict=True)
    assert steps == (0, 1, 2)  # each generation once, though the search was resumed
    assert values == pytest.approx(measured, rel=1e-6)
    assert {"score/best", "score/std", "judge/flip_rate", "models/cost_usd"} <= set(shown)
    assert any(tag.startswith("weights/") for tag in shown)
    assert (run / "best.py").read_text() in texts["best.py/text_summary"]
    if FILMS:
        tag, gif = films[0]
        assert tag == "films/g00k00"
        assert Image.open(io.BytesIO(gif)).n_frames > 1


def test_mlflow(elsewhere: Path):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    run = run_with("mlflow", f"tracker.uri={elsewhere / 'store'}", "tracker.project=legs")
    name, measured = best_measure(run)
    client = MlflowClient(str(elsewhere / "store"))
    experiment = client.get_experiment_by_name("legs")
    assert experiment
    (kept,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(kept.info.run_id, f"best/{name}")
    assert [(m.step, m.value) for m in history] == list(enumerate(measured))
    assert kept.info.status == "FINISHED"
    assert kept.data.params["candidates"] == "1"
    files = [a.path for a in client.list_artifacts(kept.info.run_id)]
    assert {"best.py", "report.html"} <= set(files)
    local = client.download_artifacts(kept.info.run_id, "best.py", str(elsewhere))
    assert Path(local).read_text() == (run / "best.py").read_text()
    if FILMS:
        assert [a.path for a in client.list_artifacts(kept.info.run_id, "films/gen_00")] == [
            "films/gen_00/k00.mp4"
        ]


def test_wandb(monkeypatch: pytest.MonkeyPatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = run_with("wandb", "tracker.online=false")
    files = sorted(run.glob("wandb/offline-run-*/run-*.wandb"))
    assert files
    text = b"".join(path.read_bytes() for path in files)
    name, _ = best_measure(run)
    assert f"best/{name}".encode() in text
    assert b"weights/" in text
    assert wandb.__version__.encode() in text
    if FILMS:
        assert list(run.glob("wandb/offline-run-*/files/media/videos/films/*.mp4"))


def test_a_store_that_cannot_be_used_is_told(elsewhere: Path):
    pytest.importorskip("mlflow")
    tracker = open_tracker(TrackerConfig("mlflow", uri="http://127.0.0.1:9"), elsewhere)
    assert tracker
    import os

    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    with pytest.raises(UserError, match="tracker=mlflow cannot use"):
        tracker.begin({}, None)
