"""What the README promises is what the code has."""

from __future__ import annotations

from pathlib import Path

from movlr_jax.rewards.state import state_table

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_state_table_is_that_of_the_code():
    rows = [f"| `{call}` | {shape} | {meaning} |" for call, shape, meaning in state_table()]
    assert "\n".join(rows) in README


def test_exactly_two_commands_do_all_the_set_up():
    assert README.count("pip install") == 2
    assert "pip install -e . && python -m movlr_jax.search +task=bottle_pour" in README
    assert "pip install -e '.[test]' && pytest" in README
