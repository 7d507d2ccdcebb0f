"""`movlr-jax view RUN_DIR [CANDIDATE]`: replay a motion, to be looked at from all sides.

RUN_DIR is a run directory: its best program is shown, or the named one, as g01k03. An npz file of `evaluate`
works too. With a display, MuJoCo's own viewer opens. Space pauses, the left and right arrows step, the up and down
arrows change the speed. Without one, or with in=browser, a page is served on 127.0.0.1 (extra `view`), port=8080.
The task comes from the settings next to the trajectory; +task=NAME model=... names it if there are none. trust=true
runs the Python file of a recorded task.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from movlr_jax.cli import common
from movlr_jax.cli.words import EpisodeWords, check_port, read_episodes
from movlr_jax.engine.episodes import ALL, EpisodeRequest
from movlr_jax.errors import UserError, needed
from movlr_jax.film.viewer import Replay, has_display, in_browser, in_window
from movlr_jax.storage.trajectory import EpisodeRecord

WHERE = ("auto", "window", "browser")


@dataclass(frozen=True)
class _Words(EpisodeWords):
    in_: str = "auto"
    port: int = 8080


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(view, __doc__, argv)


def view(words: list[str]) -> int:
    """Show one episode until the viewer is closed. Return 0. Raises UserError."""
    request, own = read_view(words)
    where = own.in_
    if where == "auto":
        where = "window" if has_display() else "browser"
    if where == "browser":
        with needed("view without a display, or with in=browser,", "view"):
            import mjviser  # noqa: F401
    task = request.task()
    (name, states, _), *_ = request.episodes("view")
    record = EpisodeRecord.read(states, task.model, task.adapter)
    replay = Replay(task, record, f"{name}: {task.description}")
    with contextlib.suppress(KeyboardInterrupt):
        in_window(replay) if where == "window" else in_browser(replay, own.port)
    return 0


def read_view(words: list[str]) -> tuple[EpisodeRequest, _Words]:
    """Return the episode to show, and where. Raises UserError."""
    names = [i for i, word in enumerate(words) if "=" not in word and not word.startswith("-")]
    if len(names) == 2:  # the second one names a candidate
        words = [f"candidate={word}" if i == names[1] else word for i, word in enumerate(words)]
    request, own = read_episodes("view RUN_DIR g01k03", _Words, words)
    check_port(own.port)
    if own.in_ not in WHERE:
        raise UserError(f"in={own.in_}: it must be one of {', '.join(WHERE)}")
    if own.candidate == ALL:
        raise UserError("view shows one motion; name a candidate, as in candidate=g01k03")
    return request, own
