"""How sentences are read, against expectations that were worked out from the English, not from a reading.

Of the sentences, 108 were written before the reader was run on them. Two of these were corrected afterwards in which
words a refusal names, and two in what counts: a finger that is straight, not one that straightens by 20 degrees, and
both feet at a ball that both feet should kick. The others were added with a mend, after the code had shown that a
word was dropped or not known.

An expectation names the clauses of each phase with facts in SI units: rotations in rad, left or as the joint's axis
positive; directions [3] in the world at the start, x ahead and y to the left; heights in m, up positive. What the
reader adds so that a motion makes sense, to stay in place and to approach an object, is no part of it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bodies import scene_of

from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.reading import Unreadable, read

SENTENCES = [
    json.loads(line)
    for line in Path(__file__).with_name("sentences_by_hand.jsonl").read_text(encoding="utf-8").splitlines()
]
scene = cache(scene_of)


def signed(amount: float | None, sign: int) -> float | None:
    return None if amount is None else sign * amount


def facts(clause: Clause) -> dict[str, Any]:
    """Return what an expectation may say of a clause."""
    given, found = dict(clause.given), {"clause": clause.row.__name__}
    sign, amount = given.get("sign", 1), given.get("amount", given.get("distance"))
    found |= {"up": sign > 0, "m": signed(amount, sign), "to": given.get("to"), "times": given.get("times")}
    found |= {"way": given.get("way"), "joint": given.get("name"), "state": given.get("word"), "s": given.get("s")}
    found["rad"] = signed(given.get("by", given.get("angle")), sign)
    found["bound"] = {1: "least", -1: "most"}.get(clause.bound)
    found["part"] = given["part"].words if "part" in given else None
    if clause.row is c.travel:
        found |= {"m_s": given["speed"] if given["exact"] else None, "fastest": given["fastest"]}
        found["frame"] = "body" if given["turns"] else "world"
    if clause.row is c.near:
        found |= {"once": given["once"], "away" if given["apart"] else "at": given["other"].words}
    if clause.row is c.over:
        below = given["word"] == "below"
        found |= {"clause": "near", "on": given["other"].words, "above_m": signed(given["gap"], -1 if below else 1)}
    if clause.row is c.around:
        found["times"] = given["turns"]
    if clause.row is c.takes:
        found |= {"over": given["over"], "tempo": given["tempo"]}
    if clause.row is c.still:
        found["still"] = given["words"]
    if clause.row is c.closed:
        found |= {"fingers": given["words"], "open": given["opens"], "share": given["share"]}
    if clause.row is c.above:
        found |= {"over": given["other"].words}
    if clause.row is c.leaned:
        found |= {"rad": given["angle"]}
    if clause.row is c.untouched:
        found |= {"clause": "never", "what": "near", "at": given["thing"].words}
    if clause.row is c.pointed:
        found["limb"] = given["axis"] is None
    if clause.row is c.never:
        found = facts(given["what"]) | {"clause": "never", "what": given["what"].row.__name__, "most": given["most"]}
    if clause.row is c.repeated:
        found = facts(given["what"]) | {
            "clause": "repeated",
            "what": given["what"].row.__name__,
            "times": given["times"],
        }
    if clause.row is c.stay:
        found["within_m"] = given["within"]
    if clause.row is c.squat:
        found |= {"m": -given["depth"], "returns": given["returns"]}
    if clause.row is c.at_height:
        found |= {"most": given["low"], "least": given["least"]}
    if clause.row is c.jump:
        found["each_m"] = given["amount"]
    return found


def agrees(expected: dict[str, Any], found: dict[str, Any]) -> bool:
    def same(one: Any, other: Any) -> bool:
        if isinstance(one, float | list) and other is not None:
            return bool(np.allclose(one, other, atol=2e-3))
        return one == other

    return all(same(value, found.get(name)) for name, value in expected.items())


def told(clause: Clause, expected: list[dict[str, Any]]) -> bool:
    """Return whether a clause is what the sentence says, and not what the reader adds to it."""
    implied = clause.row is c.stay and not any(e["clause"] == "stay" for e in expected)
    implied |= clause.row is c.pace and not any(e["clause"] == "pace" for e in expected)
    return not implied and not (clause.row in (c.near, c.gripped) and not clause["must"])


def disagreement(entry: dict[str, Any]) -> str:
    try:
        sentence = read(entry["words"], scene(entry["body"]))
    except Unreadable as error:
        return "" if entry.get("refused") == error.word else f"refused for {error.word!r}: {error.why}"
    asks = entry.get("asks", [])
    expected = [clause for phase in asks for clause in phase]
    phases = [[facts(clause) for clause in phase if told(clause, expected)] for phase in sentence.phases]
    phases = [phase for phase in phases if phase]
    right = [len(phase) for phase in phases] == [len(phase) for phase in asks] and all(
        any(agrees(clause, found) for found in phase)
        for asked, phase in zip(asks, phases, strict=True)
        for clause in asked
    )
    upright = entry.get("upright", sentence.balance) == sentence.balance
    return "" if right and upright else f"read as {sentence.text()!r}"


@pytest.mark.parametrize("entry", SENTENCES, ids=lambda entry: f"{entry['body']}: {entry['words']}")
def test_sentence_means_what_it_says(entry: dict[str, Any]):
    assert not disagreement(entry)
