"""Trackers with their own packages, offline: what a search showed them is read back from their files."""

from __future__ import annotations

import io
import json
import statistics
import struct
from pathlib import Path
from typing import Any

import pytest
from cli_cases import LEG

from movlr_jax.cli.search import main as search
from movlr_jax.film.renderer import renderer
from movlr_jax.storage.archive import Archive

pytestmark = pytest.mark.usefixtures("elsewhere")
GIVEN = [*(a for a in LEG if a != "films=false" and not a.startswith("generations")), "generations=2"]
FILMS = renderer().name is not None


def best_measure(run: Path) -> tuple[str, list[float]]:
    """A measure of the best program after each generation, as the archive has it: the mean of its trials so far."""
    with Archive.open(run, write=False) as archive:
        rounds, ranked = archive.events("trials"), archive.events("ranked")
    means, name = [], ""
    for after in ranked:
        trials = [
            trial["metrics"]
            for event in rounds
            if 0 <= event.generation <= after.generation
            for trial in event.data["programs"].get(after.data["best"], {}).values()
        ]
        name = name or next(iter(trials[0]))
        means.append(statistics.fmean(metrics[name] for metrics in trials))
    return name, means


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
    client = MlflowClient(f"sqlite:///{elsewhere / 'store' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("legs")
    assert experiment
    (kept,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(kept.info.run_id, f"best/{name}")
    assert [m.step for m in history] == [0, 1, 2]
    assert [m.value for m in history] == pytest.approx(measured)
    assert kept.info.status == "FINISHED"
    assert kept.data.params["candidates"] == "1"
    files = [a.path for a in client.list_artifacts(kept.info.run_id)]
    assert {"best.py", "report.html"} <= set(files)
    local = client.download_artifacts(kept.info.run_id, "best.py", str(elsewhere))
    assert Path(local).read_text() == (run / "best.py").read_text()
    if FILMS:
        assert [a.path for a in client.list_artifacts(kept.info.run_id, "films/gen_00")] == ["films/gen_00/k00.mp4"]


def offline_records(path: Path) -> list[bytes]:
    """The records of an offline run of wandb: a header of 7 bytes, then blocks of 32 KiB with parts of records.

    A part is its checksum, length, kind (1 whole, 2 first, 3 middle, 4 last) and data.
    """
    data, found, place, block = path.read_bytes(), [b""], 7, 32768
    while place + 7 <= len(data):
        if block - place % block < 7:
            place += block - place % block
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        if kind == 0:
            break
        found[-1] += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            found.append(b"")
    return found[:-1]


def wandb_records(run: Path) -> list[Any]:
    """The records of the offline runs of a search, in order."""
    from wandb.proto.wandb_internal_pb2 import Record

    paths = sorted(run.glob("wandb/offline-run-*/run-*.wandb"))
    return [Record.FromString(record) for path in paths for record in offline_records(path)]


def test_wandb(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = run_with("wandb", "tracker.online=false")
    kept = wandb_records(run)
    (about, again) = [r.run for r in kept if r.WhichOneof("record_type") == "run"]
    assert about.run_id == again.run_id  # the resumed search continues the run
    assert about.project == "movlr-jax"
    assert {c.key: json.loads(c.value_json) for c in about.config.update}["candidates"] == 1
    rows = [
        {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in r.history.item}
        for r in kept
        if r.WhichOneof("record_type") == "history"
    ]
    name, measured = best_measure(run)
    assert [row["generation"] for row in rows] == [0, 1, 2]
    assert [row[f"best/{name}"] for row in rows] == pytest.approx(measured)
    assert {"score/best", "score/std", "judge/flip_rate", "models/cost_usd"} <= set(rows[0])
    assert any(key.startswith("weights/") for key in rows[0])
    artifacts = [
        r.artifact for r in kept if r.WhichOneof("record_type") == "artifact" and r.artifact.type == "reward"
    ]
    assert [sorted(e.path for e in a.manifest.contents) for a in artifacts] == [["best.py", "report.html"]] * 2
    if FILMS:
        films = run.glob("wandb/offline-run-*/files/media/videos/films/*.mp4")
        assert len([path for path in films if path.stat().st_size]) == 3


def search_without_a_report(tracker: str, *more: str) -> None:
    """A search that finishes, but something is in the way of its report."""
    assert search([*GIVEN, "films=false", "generations=1", "run_dir=run"]) == 0
    Path("run/report.html").unlink()
    Path("run/report.html").mkdir()
    assert search(["resume=run", "generations=2", f"tracker={tracker}", *more]) == 2


def test_mlflow_knows_how_a_search_ended(elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    def status() -> str:
        client = MlflowClient(f"sqlite:///{elsewhere / 'store' / 'mlflow.db'}")
        (run,) = client.search_runs(["1"])
        return run.info.status

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    search_without_a_report("mlflow", "tracker.uri=store")
    assert status() == "FAILED"
    Path("run/report.html").rmdir()
    again = ["resume=run", "generations=3", "tracker=mlflow", "tracker.uri=store"]
    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "log_batch", interrupt)
        assert search(again) == 130
    assert status() == "KILLED"
    assert search(again) == 0
    assert status() == "FINISHED"


def test_a_tracker_that_cannot_be_reached_is_told_before_any_work(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert search([*GIVEN, "run_dir=run", "tracker=mlflow", "tracker.uri=http://127.0.0.1:9"]) == 2
    said = capfd.readouterr().err
    assert "tracker=mlflow cannot use http://127.0.0.1:9: " in said
    assert "generation 0" not in said
    assert search(["resume=run", "tracker=none", "generations=1", "films=false"]) == 0


def test_a_search_goes_on_without_its_tracker_and_sends_the_rest_later(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    pytest.importorskip("mlflow")
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    log = MlflowClient.log_batch
    away = ["after generation 0", "after generation 1"]

    def sometimes(*given: Any, **named: Any) -> Any:
        if away and named.get("metrics") and away.pop():
            raise MlflowException("the server is away")
        return log(*given, **named)

    monkeypatch.setattr(MlflowClient, "log_batch", sometimes)
    given = ["films=false", "run_dir=run", "tracker=mlflow", "tracker.uri=store"]
    assert search([*GIVEN, *given, "generations=3"]) == 0
    said = capfd.readouterr().err
    assert said.count("WARNING: tracker=mlflow cannot use store: the server is away") == 2
    assert "sends the rest" not in said
    name, measured = best_measure(Path("run"))
    client = MlflowClient(f"sqlite:///{elsewhere / 'store' / 'mlflow.db'}")
    (kept,) = client.search_runs(["1"])
    history = client.get_metric_history(kept.info.run_id, f"best/{name}")
    assert [m.step for m in history] == [0, 1, 2]
    assert [m.value for m in history] == pytest.approx(measured)
    Path("store").rename("elsewhere")
    Path("store").touch()  # nothing can be sent, but everything is there
    assert search(["resume=run"]) == 0
