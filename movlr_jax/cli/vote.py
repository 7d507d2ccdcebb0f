"""`movlr-jax vote RUN_DIR`: a page where people compare the films of a run two by two.

Prints the address of the page; Ctrl-C ends it and prints the ranking. Votes are recorded in run.db as they are given,
and a later call continues with them. Several people can vote at once, each under a name.
host=127.0.0.1 and port=8765 say where the page is; another host needs the token that the printed address has.
`movlr-jax doctor judge RUN_DIR` shows the votes next to the judge of the run and the metrics.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from movlr_jax.cli import common
from movlr_jax.cli.words import check_port, no_others, read_words_after
from movlr_jax.errors import UserError, needed, printable
from movlr_jax.language.settings import PageConfig
from movlr_jax.report.data import read_run
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.inside import read_inside
from movlr_jax.storage.layout import VOTE_PAGE
from movlr_jax.storage.writing import InUse


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(vote, __doc__, argv)


@dataclass(frozen=True)
class _Words:
    host: str = PageConfig.host
    port: int = PageConfig.port


def vote(words: list[str]) -> int:
    """Serve the page until Ctrl-C, then print the ranking. Return 0. Raises UserError."""
    with needed("vote", "vote"):
        from movlr_jax.cli.vote_questions import RunQuestions
        from movlr_jax.voting.server import Server
    run_dir, own, others = read_words_after("folder", "vote RUN_DIR", _Words, words)
    no_others("vote", _Words, others)
    check_port(own.port)
    try:
        archive = Archive.open(run_dir)
    except InUse:  # so the address is of a search on this machine, not from elsewhere
        if page := _page_of_search(run_dir):
            print(f"the search in {run_dir} waits for votes at {printable(page)}", file=sys.stderr)
            return 0
        raise
    with archive:
        run = read_run(archive)
        questions = RunQuestions(archive, run)
        server = Server(questions, own.host, own.port)
        print(f"vote at {server.address} (Ctrl-C ends it)", file=sys.stderr, flush=True)
        with contextlib.suppress(KeyboardInterrupt):  # the way to end it
            server.run()
        _print(questions.results(), len(questions.votes))
    return 0


def _page_of_search(run_dir: Path) -> str:
    """Return the address of the page of the search that works in `run_dir`, or an empty string."""
    try:
        return (read_inside(run_dir, VOTE_PAGE, 1000) or b"").decode("utf-8", "replace").strip()
    except UserError:
        return ""


def _print(results: dict[str, object], votes: int) -> None:
    """Print the ranking, and as JSON on the last line of stdout."""
    rows = results["rows"]
    assert isinstance(rows, list)
    print(f"{votes} votes", file=sys.stderr)
    for place, row in enumerate(rows, 1):
        sure = "not compared" if row["p_best"] is None else f"best with P = {row['p_best']:.2f}"
        print(f"{place:3d}  {row['name']}  {sure}, {row['votes']} votes", file=sys.stderr)
    ranking = [{name: row[name] for name in ("name", "p_best", "votes")} for row in rows]
    print(json.dumps({"votes": votes, "ranking": ranking, "judge": results["judge"]}), flush=True)
