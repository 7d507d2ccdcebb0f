"""`doctor llm=... vlm=...`: one cheap call to each model. `doctor judge vlm=...`: test the judge on known pairs."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from movlr_jax._util.progress import Reporter
from movlr_jax._util.settings import changed
from movlr_jax.config.compose import compose
from movlr_jax.engine.known_pairs import SECONDS, KnownPair, known_pairs
from movlr_jax.errors import UserError
from movlr_jax.evolution.pairwise import flip_rate
from movlr_jax.language.clients.client import Budget, ModelClient, open_client
from movlr_jax.records import Comparison, Evaluation, Preference
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import Task, build_task

if TYPE_CHECKING:
    from rich.console import Console

_TASK = "flat_walk"  # task of the known pairs, unless the user names another one with a walking body
_PATIENCE_S = 30.0  # longest timeout of a test call


def check_models(arguments: Sequence[str], console: Console) -> int:
    """Make one cheap call to every configured model. Return 0, or 1 if one does not answer."""
    config = compose(_with_default(arguments, "bottle_pour"))
    status = 0
    for where, model in (("llm", config.llm), ("vlm", config.vlm)):
        if model.embedded:
            console.print(f"{where}: {model.name}, embedded: needs no language or vision model and no key")
            continue
        quick = changed(model, timeout_s=min(model.calls.timeout_s, _PATIENCE_S), attempts=2)
        with _temporary_client(model if model.name in ("manual", "replay") else quick, where) as (client, archive):
            result, status = _ready(client, status)
            calls, cost = archive.spent()
        price = _usd(client, cost, 6)
        console.print(f"{where}: {client.name}: {result}; {calls} call(s), {price}", markup=False, soft_wrap=True)
    return status


def _ready(client: ModelClient, status: int) -> tuple[str, int]:
    from movlr_jax.language import prompts
    from movlr_jax.language.clients.answers import Ready
    from movlr_jax.language.clients.call import Message, Question

    started = time.monotonic()
    try:
        (answer,) = client.ask([Question("check", [Message("user", [prompts.fill("ready")])], Ready)])
    except UserError as error:
        return f"does not work: {str(error).removesuffix(client.go_on_later)}", 1
    if answer.value is None:
        return f"answers, but not in the requested format: {answer.problem}", 1
    return f"answered in {time.monotonic() - started:.1f} s", status


def check_judge(arguments: Sequence[str], console: Console) -> int:
    """Show known pairs to the configured judge in both orders; print accuracy, flip rate and cost. Return 0."""
    config = compose(_with_default(arguments, _TASK))
    if config.vlm.embedded:
        raise UserError("vlm=metrics compares numbers and sees no films; give vlm=gemini or vlm=openai_compatible")
    task = build_task(config.task.name, config.model, config.episode_s, config.task.settings)
    pairs = known_pairs(task)
    results, comparisons = [], []
    with _temporary_client(config.vlm, "vlm") as (client, archive):
        for n, pair in enumerate(pairs):
            judged = judge_pair(client, archive, config.vlm, task, pair)
            for order, (expected, preference) in enumerate(judged):
                results.append((pair.name, order, expected, preference))
                a, b = (f"{n} good", f"{n} bad") if order == 0 else (f"{n} bad", f"{n} good")
                comparisons.append(Comparison.of(a, b, preference))
        calls, cost = archive.spent()
    _print(console, client.name, results)
    right, flips = sum(_right(*t[2:]) for t in results), flip_rate(comparisons)
    first = sum(preference.winner == "first" for *_, preference in results)
    console.print(
        f"accuracy {right} of {len(results)}, flip rate {100 * flips:.0f} %, first shown preferred {first} of "
        f"{len(results)}, {calls} calls, {_usd(client, cost, 4)}",
        soft_wrap=True,
    )
    silent = sum(not preference.answered for *_, preference in results)
    if silent:
        console.print(f"{silent} of {len(results)} comparisons were not answered", style="red", soft_wrap=True)
    at_most = config.comparisons or 4 * (config.candidates + 1)
    price = _usd(client, at_most * cost / max(calls, 1), 2)
    console.print(
        f"a generation of {config.candidates} programs makes at most {at_most} calls to it, about {price}",
        soft_wrap=True,
    )
    if right <= len(results) // 2:
        console.print("its accuracy is no better than chance: do not use it as a judge", style="red")
    return 0


def _usd(client: ModelClient, cost: float, digits: int) -> str:
    return "price unknown" if client.price.tokens_in is None else f"{cost:.{digits}f} USD"


def _right(expected: str, preference: Preference) -> bool:
    return preference.winner == expected


def judge_pair(
    client: ModelClient, archive: Archive, model: Any, task: Task, pair: KnownPair
) -> list[tuple[str, Preference]]:
    """Return (expected winner, preference) for both orders; in the second order the good motion is shown last."""
    from movlr_jax.language.judge import ModelJudge
    from movlr_jax.language.media import MotionMedia

    generation = len(archive.events("pair"))
    archive.record("pair", {"name": pair.name}, generation)
    a, b = (Evaluation(generation, k, "") for k in range(2))
    clips = {a.name: pair.good, b.name: pair.bad or pair.good}
    judge = ModelJudge(client, MotionMedia(model.shown, archive, lambda e: clips[e.name]))
    # the success of the task is not that of the pair
    pair_task = task.replace(description=pair.description, focus="", success="", episode_s=SECONDS)
    # with one film shown twice, both orders are the same question, so the second order needs another sample number
    preferences = judge.compare_all(pair_task, [(a, b), (b, a)], [0, 0 if pair.bad else 1])
    expected = ("first", "second") if pair.bad else ("tie", "tie")
    return list(zip(expected, preferences, strict=True))


def _print(console: Console, name: str, results: Sequence[tuple[str, int, str, Preference]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"known pairs, judged by {name}", title_justify="left")
    for heading in ("pair", "shown first", "expected", "answer", "reason"):
        table.add_column(heading, overflow="fold")
    for pair, order, expected, preference in results:
        first = pair.split(", ")[order] if ", " in pair else pair
        mark = "green" if _right(expected, preference) else "bold red"
        table.add_row(pair, first, expected, Text(preference.winner, mark), Text(preference.reason))
    console.print(table)


@contextlib.contextmanager
def _temporary_client(model: Any, where: str) -> Iterator[tuple[ModelClient, Archive]]:
    """Open a model client with a temporary archive."""
    from movlr_jax.language.clients.replay import recorded_model

    known, source = recorded_model(model, where)
    with tempfile.TemporaryDirectory() as folder, Archive.create(Path(folder) / "doctor", "") as archive:
        client = open_client(known, where, source, Budget(archive), Reporter().say)
        try:
            yield client, archive
        finally:
            client.close()


def _with_default(arguments: Sequence[str], task: str) -> list[str]:
    named = any(a.lstrip("+").startswith("task=") for a in arguments)
    return [*([] if named else [f"+task={task}"]), *arguments]
