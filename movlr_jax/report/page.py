"""Write the page report.html of a finished or unfinished run.

The page is a single file with all films, charts, styles and scripts. Its content security policy prevents the browser
from loading anything else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from movlr_jax._util import quantities
from movlr_jax._util.resources import resource_text
from movlr_jax.errors import UserError
from movlr_jax.evolution.rank import silence
from movlr_jax.film.encoding import still
from movlr_jax.film.muscles import GROUPS
from movlr_jax.report import text as report_text
from movlr_jax.report import training as report_training
from movlr_jax.report import trials as report_trials
from movlr_jax.report import views as report_views
from movlr_jax.report.data import FIRST, Run, key_metrics, read_run
from movlr_jax.report.downloads import commands, downloads
from movlr_jax.report.episode import Staged, staged
from movlr_jax.report.tree import family_tree
from movlr_jax.report.views import messages
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.inside import inside, read_inside
from movlr_jax.storage.writing import write_atomically
from movlr_jax.tasks import Task
from movlr_jax.version import __version__

PAGE = "report.html"  # in the run directory
_FILM_BYTES = 9 * 2**20  # further films are linked: a page of 15 MB can be sent by e-mail
_LIBRARIES = ("vendor/uplot.min.js", "charts.js")
_SCENE = ("vendor/three.min.js", "scene.js")


@dataclass(frozen=True)
class Film:
    """A film of the run directory, embedded in the page (`data`) or linked (`link`); missing if both are None."""

    path: Path
    data: Markup | None = None
    link: str | None = None
    still: Markup | None = None  # a picture of an embedded film, which is printed in its place


def write_report(archive: Archive, task: Task | None = None, run: Run | None = None, no_task: str = "") -> Path:
    """Write report.html to the run directory and return its path. Raises UserError.

    task: The task of the run, for the 3-D view and the curves of muscles and joints; None leaves them out, and
        `no_task` says why in a sentence.
    run: Its data; None reads them. The page is not recorded in a run in which another process is working.
    """
    run = replace(run or read_run(archive), motion=task.scoring.motion if task else None)
    page = render(run, staged(run, task, no_task)).encode("utf-8", "backslashreplace")
    return write_atomically(run.root / PAGE, page) if run.used else archive.put(PAGE, page)


def render(run: Run, stage: Staged | None = None) -> str:
    """Render the page of a run as HTML."""
    films, metrics, stage = embed_films(run), key_metrics(run), stage or Staged()
    fresh = {path: told for path, told in report_trials.fresh_films(run).items() if path in films}
    return rendered(
        "report.html",
        [*_LIBRARIES, "report.js", *(_SCENE if stage.scene else ())],
        run=run,
        claim=report_text.claim(run),
        sentence=report_text.result_sentence(run),
        head=report_trials.head(run),
        fresh=fresh,
        names={path: f"trial-{i}" for i, path in enumerate(fresh)}
        | {c.film: c.name for c in run.candidates.values()},
        worth=report_text.worth(run),
        silence=silence([g.ranking for g in run.generations if g.ranking]),
        used=report_views.used(run),
        films=films,
        hero=report_trials.hero(run, [path for path, film in films.items() if film.data]),
        downloads=downloads(run),
        commands=commands(run),
        messages=messages(run),
        program=report_views.program(run),
        scene=stage.scene,
        no_scene=stage.missing,
        episode=stage.curves,
        tree=family_tree(run),
        charts=report_views.charts(run, metrics),
        motion=report_views.motion(run),
        gait=report_views.gait(run),
        learning=report_training.trainings(run),
        groups=embed_groups(run),
        metrics=metrics,
        standing=report_views.last_ranking(run),
        generations=[report_views.generation(run, g) for g in report_views.latest(run.generations)],
        ancestry=run.ancestry(run.best.name if run.best else None),
    )


def rendered(template: str, scripts: Sequence[str], media: str = "data: blob:", **values: Any) -> str:
    """Render a template of assets/report with the filters and the styles of all pages.

    scripts: Files of assets/report, which the policy of the page lets run; nothing else runs. media: Where films are.
    """
    files = {name: resource_text("assets", "report", *name.split("/")) for name in scripts}
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in files.values()]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; media-src {media}"
    css = [resource_text("assets", "report", *name.split("/")) for name in ("vendor/uplot.min.css", "report.css")]
    page = _environment().get_template(template)
    return page.render(
        version=__version__,
        css=Markup("\n".join(css)) + report_text.highlight_css(),
        policy=Markup(f"{policy}; script-src {allowed}"),
        scripts=[Markup(text) for text in files.values()],
        **values,
    )


@functools.cache
def _environment() -> Environment:
    """Return the templates of all pages, which are compiled once, and their filters."""
    environment = Environment(
        loader=FunctionLoader(lambda name: resource_text("assets", "report", name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("duration", "percent", "plain", "highlight"):
        environment.filters[name] = getattr(report_text, name)
    for name in ("human", "number", "quantity"):
        environment.filters[name] = getattr(quantities, name)
    environment.filters["count"] = quantities.counted
    return environment


def embed_films(run: Run) -> dict[Path, Film]:
    """Return all films of the run by path, the most important ones embedded."""
    leading = [c and c.film for c in (run.best, run.candidates.get(FIRST), run.full)]
    leading += report_trials.fresh_films(run)
    leading += [stage.film for _, stage in reversed(run.stages)]
    rest = [c.film for generation in reversed(run.generations) for c in generation.candidates]
    return embedded(run.root, dict.fromkeys(p for p in [*leading, *rest] if p))


def embedded(root: Path, paths: Iterable[Path]) -> dict[Path, Film]:
    """Return films of a folder by path. Those that exceed the size limit of a page are linked."""
    films, left = {}, _FILM_BYTES
    for path in paths:
        size = _size(root, str(path))
        if size is None:
            films[path] = Film(path)
        elif size > left:
            films[path] = Film(path, link=quote(os.fsencode(path)))
        else:
            left -= size
            data, picture = _embedded(root, str(path), "video/mp4"), still(inside(root, str(path)))
            films[path] = Film(path, data, still=report_text.data_address(picture, "image/jpeg") if picture else None)
    return films


def embed_groups(run: Run) -> Markup | None:
    """Return the picture of the muscle groups, or None if the run has none."""
    size = _size(run.root, GROUPS)
    return None if size is None or size > _FILM_BYTES else _embedded(run.root, GROUPS, "image/png")


def _size(root: Path, path: str) -> int | None:
    """Return the size of a file of the run in bytes, or None if it is not a regular file inside the run directory."""
    try:
        about = inside(root, path).lstat()
    except (UserError, OSError):
        return None
    return about.st_size if stat.S_ISREG(about.st_mode) else None


def _embedded(root: Path, path: str, kind: str) -> Markup:
    return report_text.data_address(read_inside(root, path, _FILM_BYTES) or b"", kind)
