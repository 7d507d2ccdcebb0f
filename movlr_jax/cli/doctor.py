"""`movlr-jax doctor`: show what works on this machine. A check that fails is a row of the table.

model=NAME shows one model, by name or MJCF file; with instruction="..." also how the sentence is read on it.
llm=... vlm=... makes one cheap call to each. `judge vlm=...` tests the judge on pairs of motions with a known winner.
`judge RUN_DIR` shows the votes of people next to the judge of the run and the metrics.
"""

# Packages are imported inside the checks, so that the command also starts when one of them is broken.
from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from movlr_jax._util.machine import cores
from movlr_jax.cli import common
from movlr_jax.engine.environment import CACHE_SWITCH

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from movlr_jax.models import ModelAdapter

OPTIONAL = ("warp-lang", "openai")
NEEDED_MODEL = "myoarm_r"  # the default model of bottle_pour
KEYS = ("GEMINI_API_KEY", "OPENAI_API_KEY")
GIB = 2**30


@dataclass(frozen=True)
class Check:
    """Result of one check. ok: True if it works, False if it is needed and does not work, else None."""

    name: str
    ok: bool | None
    detail: str


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(doctor, __doc__, argv)


def doctor(words: list[str]) -> int:
    """Print what the words ask for. Return 0, or 1 if something that a search needs is missing. Raises UserError."""
    from rich.console import Console

    console = Console()
    if not words:
        return _overview(console)
    if words[0] == "judge" and len(words) == 2 and "=" not in words[1]:
        from movlr_jax.cli.doctor_votes import check_votes

        return check_votes(Path(words[1]), console)
    if words[0] == "judge" or words[0].startswith(("llm", "vlm")):
        from movlr_jax.cli.doctor_models import check_judge, check_models

        return check_judge(words[1:], console) if words[0] == "judge" else check_models(words, console)
    sentences = [word for word in words if word.startswith("instruction=")]
    model = " ".join(word for word in words if word not in sentences)
    shown = _show_model(model, console)
    if not sentences:
        return shown
    from movlr_jax.cli.read import show_reading

    return show_reading(sentences[-1].partition("=")[2], [model])


def _overview(console: Console) -> int:
    rows: list[Check] = []
    with console.status("checking") as status:
        for name, look in LOOKS.items():
            status.update(f"checking {name}")
            rows += _guarded(name, look)
    console.print(table(rows))
    missing = [row.name for row in rows if row.ok is False]
    if missing:
        console.print(
            f"A search on bottle_pour needs these, which do not work here: {', '.join(missing)}.", style="red"
        )
    console.print(physics_choice(), highlight=False, markup=False)
    return 1 if missing else 0


def _show_model(setting: str, console: Console) -> int:
    """Print the details of the model that `setting` (model=NAME) names. Raises UserError."""
    from movlr_jax.cli.doctor_physics import physics_cards
    from movlr_jax.errors import UserError
    from movlr_jax.models import model_adapter
    from movlr_jax.models.card import model_card

    key, _, name = setting.partition("=")
    if key != "model" or not name:
        raise UserError(
            f"doctor takes model=NAME, or llm=... vlm=..., or judge vlm=..., not {setting!r}; without arguments it "
            "shows what works here"
        )
    adapter = model_adapter(name)
    console.print(model_card(adapter))
    for card in physics_cards(adapter):
        console.print(card)
    return 0


def table(rows: list[Check]) -> Table:
    """Return the rows as a rich table."""
    from rich.table import Table
    from rich.text import Text

    marks = {True: Text("yes", "green"), False: Text("no", "bold red"), None: Text("-", "dim")}
    result = Table(title="movlr-jax: what works here", title_justify="left")
    for heading in ("", "works", "detail"):
        result.add_column(heading, overflow="fold")
    for row in rows:
        # Text, because rich would read square brackets in an error as markup
        result.add_row(Text(row.name), marks[row.ok], Text(row.detail))
    return result


def packages() -> list[Check]:
    """Check the versions of Python and of the packages. Broken ones are seen by the other checks."""
    rows = [Check("python", True, f"{platform.python_version()}, {platform.platform()}")]
    required = [line for line in metadata.requires("movlr-jax") or () if "extra ==" not in line]
    for name in (*(re.split(r"[^\w.-]", line)[0] for line in required), *OPTIONAL):
        try:
            rows.append(Check(name, True, metadata.version(name)))
        except metadata.PackageNotFoundError:
            optional = name in OPTIONAL
            rows.append(Check(name, None if optional else False, f"not installed; pip install {name}"))
    return rows


def machine() -> list[Check]:
    """Check the cores of this process, the memory, and the free disk space of the current folder."""
    n = cores()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    disk = shutil.disk_usage(Path.cwd())
    return [
        Check("CPU", True, f"{n} core{'s' if n > 1 else ''} for this process, {platform.machine()}"),
        Check("memory", True, f"{memory:.1f} GiB"),
        Check("disk", None if disk.free < GIB else True, f"{disk.free / GIB:.1f} GiB free in {Path.cwd()}"),
    ]


def devices() -> list[Check]:
    """Check the devices of JAX."""
    import jax

    found = jax.devices()
    names = ", ".join(f"{d.platform}:{d.id} {d.device_kind}" for d in found)
    gpu = any(d.platform == "gpu" for d in found)
    return [Check("JAX devices", True, names), Check("GPU", gpu or None, "yes" if gpu else "no")]


def films() -> list[Check]:
    """Check that frames can be rendered and encoded."""
    from movlr_jax.film.renderer import renderer

    backend = renderer()
    without = "" if backend.name else "; searches run without films"
    return [
        Check("renderer", True if backend.name else None, f"{backend.name or 'none'}: {backend.reason}{without}"),
        *_guarded("ffmpeg", _ffmpeg),
    ]


def models() -> list[Check]:
    """Check every built-in model: compile the needed one, and look for the files of the others."""
    from movlr_jax.models import MODELS

    return [row for name in MODELS for row in _guarded(f"model {name}", functools.partial(_model, name))]


def keys() -> list[Check]:
    """Check which keys of language and vision models are set. The keys themselves are never shown."""
    given = {name: bool(os.environ.get(name)) for name in KEYS}
    return [Check(name, there or None, "yes" if there else "no") for name, there in given.items()]


def sandbox() -> list[Check]:
    """Check in a child process that the kernel can confine generated programs."""
    from movlr_jax.sandbox import confine

    lacks = confine.missing() or confine.trial()
    if lacks:
        detail = f"cannot confine generated programs, lacks {'; '.join(lacks)}; sandbox=process accepts less"
        return [Check("sandbox", None, detail)]
    return [Check("sandbox", True, f"confined: {confine.describe()}")]


def physics_choice() -> str:
    """Return one sentence: which physics `physics=auto` picks here, and why."""
    try:
        from movlr_jax.physics.choose import choose

        name, why = choose("auto")
    except Exception:  # JAX or MuJoCo is broken; the table already says so
        return "physics=auto picks native here: JAX or MuJoCo does not work."
    return f"physics=auto picks {name} here: {why}."


def compiling() -> list[Check]:
    """Check the XLA flags and the cache of compiled physics."""
    flags = os.environ.get("XLA_FLAGS", "")
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    where = cache or f"nothing is cached ({CACHE_SWITCH}=off)"
    return [Check("XLA_FLAGS", True, flags or "none"), Check("compiled physics", bool(cache) or None, where)]


def sentence(error: BaseException) -> str:
    """Return an error on one line, at most 300 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__


LOOKS: dict[str, Callable[[], list[Check]]] = {
    "packages": packages,
    "machine": machine,
    "JAX devices": devices,
    "compiling": compiling,
    "films": films,
    "models": models,
    "keys": keys,
    "sandbox": sandbox,
}


_NEEDED_LOOKS = ("packages", "JAX devices", "ffmpeg", "models", f"model {NEEDED_MODEL}")


def _guarded(name: str, look: Callable[[], list[Check]]) -> list[Check]:
    """Return the rows of `look`, or one row with its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return look()
    except Exception as error:
        return [Check(name, False if name in _NEEDED_LOOKS else None, sentence(error))]


def _ffmpeg() -> list[Check]:
    from movlr_jax.film.encoding import ffmpeg_version

    return [Check("ffmpeg", True, ffmpeg_version())]


def _model(name: str) -> list[Check]:
    from movlr_jax.errors import UserError
    from movlr_jax.models import MODELS
    from movlr_jax.models.download import SWITCH

    adapter = MODELS[name]
    about = f"{adapter.info.source}; licence: {adapter.info.licence}"
    if adapter.info.files is None or name == NEEDED_MODEL:
        return [Check(f"model {name}", True, f"{_size(adapter)}; {about}")]
    try:
        here = adapter.info.files()
    except UserError as error:
        return [Check(f"model {name}", None, str(error))]
    if here is None:
        then = f"and {SWITCH}=off" if os.environ.get(SWITCH) == "off" else "the first use downloads it"
        return [Check(f"model {name}", None, f"not downloaded yet, {then}; {about}")]
    return [Check(f"model {name}", True, about)]


def _size(adapter: ModelAdapter) -> str:
    """Load and compile a model, and return its numbers of joints and muscles."""
    import mujoco
    import numpy as np

    from movlr_jax.models.spec import compile_spec

    model = compile_spec(adapter.load())
    muscles = np.count_nonzero(model.actuator_gaintype == mujoco.mjtGain.mjGAIN_MUSCLE)
    return f"{model.njnt} joints, {muscles} muscles"
