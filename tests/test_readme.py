"""What the README and the pages of docs/ promise is what the code has."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import get_origin

import pytest

from movlr_jax.config.compose import compose
from movlr_jax.config.overrides import expand
from movlr_jax.errors import UserError
from movlr_jax.rewards.state import state_table
from movlr_jax.sandbox.source import parse
from movlr_jax.storage.events import KINDS, hints_of

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
COMPOSED = ("search", "evaluate", "check")  # commands whose settings Hydra composes

COMMAND = re.compile(r"""python -m movlr_jax\.(\w+)((?: +(?:[^\s`|#"]|"[^"]*")+)*)""")


def commands() -> list[tuple[str, ...]]:
    """Return the settings of every search, evaluation and check that a page shows, with placeholders filled in."""
    found: dict[tuple[str, ...], None] = {}
    for text in TEXTS.values():
        for line in text.replace("\\\n", " ").splitlines():
            for name, rest in COMMAND.findall(line):
                settings = tuple(s for s in shlex.split(rest) if re.match(r"\+?[a-z_.]+=", s))
                if name in COMPOSED and any(s.startswith(("+task=", "instruction=")) for s in settings):
                    found[settings] = None
    return list(found)


def test_state_table_is_that_of_code():
    rows = [f"| `{call}` | {shape} | {meaning} |" for call, shape, meaning in state_table()]
    assert "\n".join(rows) in TEXTS["docs/write_a_reward.md"]


@pytest.mark.parametrize("kind", KINDS)
def test_events_of_run_have_fields_of_page(kind: str):
    (row,) = re.findall(rf"^\| `{kind}` \|.*", TEXTS["docs/data.md"], re.M)
    fields = hints_of(KINDS[kind]) if get_origin(KINDS[kind]) is None else {}
    if kind in ("full", "voted"):  # those of another row, of which it names a few
        fields = KINDS[kind].__annotations__
    assert set(fields) <= set(re.findall(r"`(\w+)`", row)), row


def test_first_page_names_every_extra():
    of_developers = {"dev", "browser"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = "".join(re.findall(r"^\| `pip install.*", TEXTS["docs/index.md"], re.M))
    assert set(re.findall(r"\[(\w+)\]", table)) >= set(extras) - of_developers


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_to_files(page: str):
    folder = (ROOT / page).parent
    for link in re.findall(r"\]\(([^)#\s]+)", TEXTS[page]):
        if not link.startswith("http"):
            assert (folder / link).exists(), f"{page} links to {link}, which does not exist"


@pytest.mark.parametrize("settings", commands(), ids=" ".join)
def test_commands_have_settings_that_exist(settings: tuple[str, ...]):
    replaced = {"NAME=value": "", "+task=TASK": "+task=flat_walk", "model=MODEL": "model=myolegs"}
    given = [replaced.get(s, s) for s in settings]
    given = [re.sub(r"^seed=[\d,]+$", "seed=0", s) for s in given if not s.startswith("task.settings.NAME")]
    try:
        config = compose(expand(given)[0])
    except UserError as error:
        if "which is not installed" in str(error):  # that of an environment
            pytest.skip(str(error))
        pytest.fail(str(error))
    assert config.task.name


@pytest.mark.parametrize("page", [page for page, text in TEXTS.items() if "\nWEIGHTS = {" in text])
def test_reward_programs_can_be_read(page: str):
    for block in re.findall(r"```python\n(.*?)```", TEXTS[page], re.S):
        if "\nWEIGHTS = {" in block:
            assert parse(block).weights
