"""Write the table of what a reward can read into docs/write_a_reward.md: `python docs/state_table.py`."""

from __future__ import annotations

import re
from pathlib import Path

from movlr_jax.rewards.state import state_table

PAGE = Path(__file__).parent / "write_a_reward.md"
HEAD = "| call | shape and unit | meaning |\n|---|---|---|\n"


def main() -> None:
    """Replace the rows under the head of the table by those of the code."""
    rows = "".join(f"| `{call}` | {shape} | {meaning} |\n" for call, shape, meaning in state_table())
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(re.escape(HEAD) + r"(\|.*\n)+", lambda _: HEAD + rows, text), encoding="utf-8")


if __name__ == "__main__":
    main()
