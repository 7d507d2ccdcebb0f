"""`python -m movlr_jax.doctor`: what works here. Every look is guarded: what is broken is a row, not an end.

`model=NAME` shows one model instead. Imports are made late, for what is broken must not keep this from starting.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from movlr_jax.commands.cli import run_one
from movlr_jax.commands.environment import CACHE_SWITCH, prepare_environment
from movlr_jax.machine import cores

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from movlr_jax.models import ModelAdapter

# import name -> distribution, of what the search of bottle_pour cannot do without
NEEDED = {
    "mujoco": "mujoco",
    "jax": "jax",
    "flax": "flax",
    "numpy": "numpy",
    "hydra": "hydra-core",
    "myo_sim": "myo-sim",
    "mediapy": "mediapy",
    "imageio_ffmpeg": "imageio-ffmpeg",
    "PIL": "pillow",
    "rich": "rich",
    "matplotlib": "matplotlib",
    "jinja2": "jinja2",
}
OPTIONAL = ("mujoco-mjx", "warp-lang", "google-genai", "openai", "genai-prices")
NEEDED_MODEL = "myoarm_r"  # of bottle_pour
KEYS = ("GEMINI_API_KEY", "OPENAI_API_KEY")
GIB = 2**30


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. ok: True works, False is needed and does not work, None is neither."""

    name: str
    ok: bool | None
    detail: str


def main(argv: list[str] | None = None) -> int:
    """Prints the table. Returns 0, or 1 when something that bottle_pour's search needs is missing.

    With `model=NAME` prints all about one model, and returns 2 where it does not exist or cannot be had.
    """
    from rich.console import Console

    parser = argparse.ArgumentParser(
        prog="python -m movlr_jax.doctor",
        description="What works here: versions, GPU, renderer, models, keys. With model=NAME: all about one model.",
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="model=NAME",
        help="a model's name, or the path of an MJCF file; llm=... vlm=...: one cheap call to each; "
        "judge vlm=...: known pairs of motions through the judge",
    )
    settings = parser.parse_args(argv).settings
    console = Console()
    if settings and (settings[0] == "judge" or settings[0].startswith(("llm", "vlm"))):
        return run_one(lambda chosen: _ask_models(chosen, console), settings)
    if settings:
        return run_one(lambda setting: _show_model(setting, console), " ".join(settings))
    rows: list[Check] = []
    with console.status("looking") as status:
        for name, look in LOOKS.items():
            status.update(f"looking at {name}")
            rows += _guarded(name, look)
    console.print(table(rows))
    missing = [row.name for row in rows if row.ok is False]
    if missing:
        console.print(
            f"The search of bottle_pour needs what does not work here: {', '.join(missing)}.", style="red"
        )
    console.print(physics_choice(), highlight=False, markup=False)
    return 1 if missing else 0


def _ask_models(settings: list[str], console: Console) -> int:
    """Calls to the models that `settings` name. Returns 0, or 1 where one does not answer. Raises UserError."""
    from movlr_jax.commands import doctor_models

    if settings[0] == "judge":
        return doctor_models.check_judge(settings[1:], console)
    return doctor_models.check_models(settings, console)


def _show_model(setting: str, console: Console) -> int:
    """Prints all about the model that `setting` (model=NAME) names. Raises UserError."""
    from movlr_jax.commands.doctor_physics import physics_card
    from movlr_jax.errors import UserError
    from movlr_jax.models import model_adapter
    from movlr_jax.models.card import model_card

    key, _, name = setting.partition("=")
    if key != "model" or not name:
        raise UserError(
            f"doctor takes model=NAME, or llm=... vlm=..., or judge vlm=..., not {setting!r}; alone it shows what "
            "works here"
        )
    adapter = model_adapter(name)
    console.print(model_card(adapter))
    console.print(physics_card(adapter))
    return 0


def table(rows: list[Check]) -> Table:
    """The rows as a table of rich."""
    from rich.table import Table
    from rich.text import Text

    marks = {True: Text("yes", "green"), False: Text("no", "bold red"), None: Text("-", "dim")}
    result = Table(title="movlr-jax: what works here", title_justify="left")
    for heading in ("", "works", "detail"):
        result.add_column(heading, overflow="fold")
    for row in rows:
        # as Text: square brackets in an error are not markup
        result.add_row(Text(row.name), marks[row.ok], Text(row.detail))
    return result


def packages() -> list[Check]:
    """Python and the packages; the needed ones are imported, for an installed one may be broken."""
    rows = [Check("python", True, f"{platform.python_version()}, {platform.platform()}")]
    for module, distribution in NEEDED.items():
        try:
            importlib.import_module(module)
            rows.append(Check(distribution, True, metadata.version(distribution)))
        except Exception as error:  # whatever a broken package does on import
            absent = isinstance(error, ModuleNotFoundError) and error.name == module
            why = f"not installed; pip install {distribution}" if absent else sentence(error)
            rows.append(Check(distribution, False, why))
    for distribution in OPTIONAL:
        try:
            rows.append(Check(distribution, True, metadata.version(distribution)))
        except metadata.PackageNotFoundError:
            rows.append(Check(distribution, None, "not installed; optional"))
    return rows


def machine() -> list[Check]:
    """Cores that this process may use, memory, and room on the disk of the current folder."""
    n = cores()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    disk = shutil.disk_usage(Path.cwd())
    return [
        Check("CPU", True, f"{n} core{'s' if n > 1 else ''} for this process, {platform.machine()}"),
        Check("memory", True, f"{memory:.1f} GiB"),
        Check("disk", None if disk.free < GIB else True, f"{disk.free / GIB:.1f} GiB free in {Path.cwd()}"),
    ]


def devices() -> list[Check]:
    """What JAX computes on."""
    found = _jax_devices()
    names = ", ".join(f"{d.platform}:{d.id} {d.device_kind}" for d in found)
    gpu = any(d.platform == "gpu" for d in found)
    return [Check("JAX devices", True, names), Check("GPU", gpu or None, "yes" if gpu else "no")]


def films() -> list[Check]:
    """Whether pictures can be drawn, and encoded."""
    from movlr_jax.film.renderer import renderer

    backend = renderer()
    without = "" if backend.name else "; searches run without films"
    return [
        Check(
            "renderer", True if backend.name else None, f"{backend.name or 'none'}: {backend.reason}{without}"
        ),
        *_guarded("ffmpeg", _ffmpeg),
    ]


def models() -> list[Check]:
    """Every model this package knows: the needed one loaded and compiled, of the others whether they are here."""
    from movlr_jax.models import MODELS

    return [row for name in MODELS for row in _guarded(f"model {name}", functools.partial(_model, name))]


def keys() -> list[Check]:
    """Which keys of language and vision models are set. Never what they are."""
    return [Check(name, True if os.environ.get(name) else None, _yes_no(name)) for name in KEYS]


def sandbox() -> list[Check]:
    """Whether the kernel can hold generated programs, tried out in a child."""
    from movlr_jax.sandbox import confine

    lacks = confine.missing() or confine.trial()
    if lacks:
        detail = f"cannot confine generated programs, lacks {'; '.join(lacks)}; sandbox=process accepts less"
        return [Check("sandbox", None, detail)]
    return [Check("sandbox", True, f"confined: {confine.describe()}")]


def physics_choice() -> str:
    """One sentence: which physics `physics=auto` takes here, and why."""
    try:
        from movlr_jax.physics.choose import choose

        name, why = choose("auto")
    except Exception:  # JAX or MuJoCo is broken, and a row says so
        return "physics=auto picks native here: JAX or MuJoCo do not work."
    return f"physics=auto picks {name} here: {why}."


def compiling() -> list[Check]:
    """XLA's flags, and where compiled physics is kept."""
    flags = os.environ.get("XLA_FLAGS", "")
    kept = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    where = kept or f"nothing is kept ({CACHE_SWITCH}=off)"
    return [Check("XLA_FLAGS", True, flags or "none"), Check("compiled physics", bool(kept) or None, where)]


def sentence(error: BaseException) -> str:
    """An error on one line."""
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
    """What `look` found, or a row that says how it failed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return look()
    except Exception as error:
        return [Check(name, False if name in _NEEDED_LOOKS else None, sentence(error))]


def _ffmpeg() -> list[Check]:
    import imageio_ffmpeg

    program = imageio_ffmpeg.get_ffmpeg_exe()
    done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=True)
    return [Check("ffmpeg", True, " ".join(done.stdout.split()[:3]))]


def _model(name: str) -> list[Check]:
    from movlr_jax.errors import UserError
    from movlr_jax.models import MODELS

    adapter = MODELS[name]
    about = f"{adapter.source}; licence: {adapter.licence}"
    if adapter.files is None or name == NEEDED_MODEL:
        return [Check(f"model {name}", True, f"{_size(adapter)}; {about}")]
    try:
        here = adapter.files()
    except UserError as error:
        return [Check(f"model {name}", None, str(error))]
    if here is None:
        return [Check(f"model {name}", None, f"not here yet, the first use downloads it; {about}")]
    return [Check(f"model {name}", True, about)]


def _size(adapter: ModelAdapter) -> str:
    """Joints and muscles of a model, which it must be loaded and compiled for."""
    import mujoco
    import numpy as np

    from movlr_jax.models.spec import compile_spec

    model = compile_spec(adapter.load())
    muscles = np.count_nonzero(model.actuator_gaintype == mujoco.mjtGain.mjGAIN_MUSCLE)
    return f"{model.njnt} joints, {muscles} muscles"


def _jax_devices() -> list[Any]:
    import jax

    return jax.devices()


def _yes_no(name: str) -> str:
    return "yes" if os.environ.get(name) else "no"


if __name__ == "__main__":
    prepare_environment()
    sys.exit(main())
