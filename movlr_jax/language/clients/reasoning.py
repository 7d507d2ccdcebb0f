"""Cut out of an answer what the model thought before it, in the marks that models and servers use for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = (
    r"(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|analysis|scratch_?pad|deliberation|planning|drafts?"
    r"|(?:inner_|internal_)?monologue|chain_of_thought)"
)
# in square brackets, which programs use, too
_LOUD = r"(?-i:THINK(?:ING)?|THOUGHTS?|REASON(?:ING)?|ANALYSIS)"
_MARK = re.compile(
    rf"""
    (?P<answer>  # what was before it is reasoning, even if that has no mark of its own
        </(?:\w{{1,20}}:)?{_NAMES}\s*> | <\|?end_(?:of_)?{_NAMES}\|?> | \[/{_LOUD}\] | ◁/think▷ | <unused95>
      | <\|channel\|>\s*(?:final|commentary)[^<{{]{{0,100}}(?:<\|constrain\|>\s*\w+\s*)?(?:<\|message\|>)?
      | <channel\|>
      | (?-i:assistant(?:final|commentary)) | \[BEGIN[ ]FINAL[ ]RESPONSE\] | <(?:final_)?(?:answer|response)>
    )
  | (?P<stop><\|end\|> | </details> | here(?:'s|[ ]is)[ ]my[ ]response:)  # ends reasoning that has begun
  | (?P<begin>
        <(?:\w{{1,20}}:)?{_NAMES}(?:\s[^<>]{{0,200}})?> | <\|?(?:start|begin)_(?:of_)?{_NAMES}\|?> | \[{_LOUD}\]
      | ◁think▷ | <unused94>(?:thought)? | <\|channel\|>\s*analysis(?:<\|message\|>)? | <\|channel>(?:thought)?
      | (?-i:\Aanalysis(?=[A-Z])) | \Ahere(?:'s|[ ]is)[ ]my[ ]thought[ ]process:
      | <details\s[^<>]{{0,200}}type=["']reasoning["'][^<>]{{0,200}}>
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_TOKEN = re.compile(
    r"<\|\w{1,40}\|>(?:assistant\b)?|</(?:final_)?(?:answer|response)>|\[END FINAL RESPONSE\]", re.IGNORECASE
)


@dataclass(frozen=True)
class Thought:
    """An answer without its reasoning."""

    answer: str
    reasoned: bool  # whether any was cut
    ended: bool  # whether it ended; if not, no answer follows


def without_reasoning(text: str) -> Thought:
    """Return `text` without reasoning: between marks, before a mark that ends it, after one that nothing ends."""
    kept: list[str] = []
    at, inside, reasoned = 0, False, False
    for mark in _MARK.finditer(text):
        kind = mark.lastgroup
        if kind == "stop" and not inside:
            continue
        if not inside:
            kept.append(text[at : mark.start()])
        if kind == "answer" and not inside:
            reasoned = reasoned or any(part.strip() for part in kept)
            kept.clear()
        at, inside = mark.end(), kind == "begin"
        reasoned = reasoned or inside
    if not inside:
        kept.append(text[at:])
    return Thought(_TOKEN.sub("", "".join(kept)), reasoned, not inside)
