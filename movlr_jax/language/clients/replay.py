"""Recorded answers in place of a model: from a run directory, or from a recording made to be passed on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from movlr_jax._util.settings import CONFIG_BYTES, from_mapping, read_yaml
from movlr_jax.errors import UserError
from movlr_jax.language.clients import gemini, openai_compatible
from movlr_jax.language.clients.call import ModelBackend, Question
from movlr_jax.language.settings import ModelConfig, without_removed
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.inside import read_bounded, read_inside
from movlr_jax.storage.writing import write_atomically
from movlr_jax.version import __version__

ANSWERS = "answers.jsonl"  # of a recording; config.yaml next to it has the settings of the search
_BYTES = 2**27  # of it
_KEPT = (
    "purpose", "about", "sample", "state", "provider", "model", "model_version", "answer", "error", "tokens_in",
    "tokens_out", "seconds", "logprobs",
)  # fmt: skip
_RULE = f"# Recorded by movlr-jax {__version__}: programs are compared in trials, each with a seed of its own.\n"
_OF_A_PLACE = ("run_dir", "resume", "trust")  # settings that are not passed on


class RunAnswers:
    """The answers of a run directory, to exactly the same requests."""

    def __init__(self, run: Path):
        self._archive = Archive.open(run, write=False)

    def find(self, key: str, question: Question) -> dict[str, Any]:
        """Return the record of the call that was answered or refused under `key`. Raises UserError without one."""
        if (known := self._archive.find_call(key)) is None:
            raise UserError(
                f"the replayed run has no answer to this call ({question.purpose}, key {key[:12]}); replay with the "
                "settings of the recorded run, on the same machine"
            )
        return known


class Recording:
    """The answers of a recording, by the place of a call in the search.

    Motions differ in their last bits from machine to machine, so that requests are not compared. Where a replay ranks
    programs differently, a comparison or critique that the recorded search did not make has no answer; programs have.
    """

    def __init__(self, folder: Path):
        self._calls: dict[tuple[Any, ...], dict[str, Any]] = {}
        path = folder / ANSWERS
        try:
            for line in read_bounded(path, _BYTES).decode("utf-8").rstrip("\n").split("\n"):
                call = json.loads(line)
                self._calls.setdefault((call["purpose"], call["about"], call["sample"]), call)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is not a recording of movlr-jax: {error}") from None

    def find(self, key: str, question: Question) -> dict[str, Any] | None:
        """Return the record of the call that answers `question`; None for a comparison or critique of another motion.

        Raises UserError for any other call without an answer.
        """
        known = self._calls.get((question.purpose, question.about, question.sample))
        if known is None and question.purpose == "criticise":  # recorded before there were trials
            known = self._calls.get((question.purpose, question.about.partition("#")[0], question.sample))
        if known is None and question.purpose not in ("judge", "criticise"):
            raise UserError(
                f"the recording has no answer to this call ({question.purpose} {question.about}); replay it with "
                "search replay=FOLDER, which takes all settings from it"
            )
        return known


def open_answers(source: Path) -> RunAnswers | Recording:
    """Return the answers of a recording or run directory. Raises UserError."""
    return Recording(source) if (source / ANSWERS).is_file() else RunAnswers(source)


def write_recording(run: Path, folder: Path) -> list[Path]:
    """Write the answers and the settings of a search to `folder`. Return the files. Raises UserError."""
    with Archive.open(run, write=False) as archive:
        calls = archive.calls()
        settings = _settings(run)
    ended = [call for call in calls if call["state"] in ("answered", "refused")]
    by_key = {call["key"]: call for call in reversed(ended)}
    reused = [c for c in calls if c["state"] == "reused" and c["key"] in by_key]
    ended += [{**by_key[c["key"]], "about": c.get("about")} for c in reused]
    if not ended:
        raise UserError(f"{run} has no answers of a language or vision model to record")
    lines = [json.dumps({name: call.get(name) for name in _KEPT}) for call in ended]
    kept = {name: value for name, value in settings.items() if name not in _OF_A_PLACE}
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        folder / ANSWERS: "\n".join(lines) + "\n",
        folder / "config.yaml": _RULE + yaml.safe_dump(kept, sort_keys=False),
    }
    for path, text in files.items():
        write_atomically(path, text.encode())
    return list(files)


def _settings(folder: Path) -> Mapping[str, Any]:
    """Return the settings of a run directory or recording. Raises UserError."""
    text = read_inside(folder, "config.yaml", CONFIG_BYTES)
    try:
        return dict(read_yaml((text or b"").decode("utf-8")))
    except (ValueError, TypeError) as error:
        raise UserError(f"{folder / 'config.yaml'} cannot be read: {' '.join(str(error).split())}") from None


def recorded_model(model: ModelConfig, where: str, depth: int = 0) -> tuple[ModelConfig, Path | None]:
    """For replay, return the settings of the recorded model and where it is recorded; else `model` and None."""
    if model.name != "replay":
        return model, None
    source = Path(str(model.run))
    if not (source / "config.yaml").is_file():
        raise UserError(f"{where}.run={source} is neither a run directory nor a recording: it has no config.yaml")
    recorded = from_mapping(ModelConfig, without_removed(_settings(source).get(where)), where)
    if recorded.name == "replay" and depth < 8:
        recorded, _ = recorded_model(recorded, where, depth + 1)
    return recorded, source


class Replayed(ModelBackend):
    """The identity of a backend, used to compute call keys. It sends nothing."""

    def __init__(self, model: ModelConfig):
        self._config, self.name = model, model.name
        self.model = model.model or {"manual": "unnamed", "person": "person"}.get(model.name, "")

    def parameters(self, question: Question) -> Mapping[str, Any]:
        parameters = {"gemini": gemini.parameters, "openai_compatible": openai_compatible.parameters}
        return parameters[self.name](self._config, question) if self.name in parameters else {}

    async def send(self, question: Question, key: str) -> Any:
        raise UserError("a replayed run does not send calls")
