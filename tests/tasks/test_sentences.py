"""How sentences are read on bodies: a corpus with the reading of each, or the word at which it is refused."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from bodies import scene_of

from movlr_jax.tasks.words.reading import Unreadable, read

CORPUS = [
    json.loads(line) for line in Path(__file__).with_name("sentences.jsonl").read_text(encoding="utf-8").splitlines()
]
scene = cache(scene_of)


@pytest.mark.parametrize("body", sorted({entry["body"] for entry in CORPUS}))
def test_sentence_on_body_is_read_whole_or_refused(body: str):
    wrong = []
    for entry in (entry for entry in CORPUS if entry["body"] == body):
        expected = {name: entry[name] for name in ("reads", "refused") if name in entry}
        try:
            found = {"reads": read(entry["words"], scene(body)).text()}
        except Unreadable as error:
            found = {"refused": error.word}
        if found != expected:
            wrong.append((entry["words"], expected, found))
    assert not wrong


@pytest.mark.parametrize(
    ("body", "words", "near"),
    [
        ("crawler", "walk forward three times", "walk forward"),
        ("person", "raise the right arm, then whistle", "raise the right arm"),
        ("person", "wave with the left hand, slowly", "wave with the left hand"),
    ],
)
def test_refusal_names_sentences_that_would_be_read(body: str, words: str, near: str):
    with pytest.raises(Unreadable, match=r"understood would be: .*llm=.*instruction\.partial=true") as error:
        read(words, scene(body))
    assert repr(near) in str(error.value)


@pytest.mark.parametrize(
    ("body", "words", "said", "unsaid"),
    [
        ("arm", "touch the ball with the left hand", "touch the ball'", "left arm"),
        ("panda", "raise the left arm", "it has: arm (hand)", "'raise the right arm'"),
        ("panda", "rotate joint9 by 30 degrees", "which has joint1, joint2, joint3", "is it"),
        ("person", "walk without turning by 30 degrees", "cannot be excluded by an amount", "which side"),
        (
            "hopper",
            "bend the knee by 200 degrees",
            "reaches 0° to 120°, so 200° is out of its range",
            "by 200 degrees |",
        ),
    ],
)
def test_refusal_says_what_the_model_has(body: str, words: str, said: str, unsaid: str):
    with pytest.raises(Unreadable) as error:
        read(words, scene(body))
    assert said in str(error.value)
    assert unsaid not in str(error.value)


def test_a_hand_at_a_thing_that_cannot_move_touches_its_surface():
    """The middle of the table is 20 cm below its top."""
    told = read("move the hand down until it touches the table", scene("panda"))
    assert ("1", "hand at table", "hand_to_table_gap_m", "at most 3.0 cm") in told.table()


def test_partial_reading_says_what_is_left():
    found = read("raise the right arm, then whistle", scene("person"), partial=True)
    assert (found.text(), found.unread) == ("right arm up, stay in place, upright", ("whistle",))
    assert not found.whole
    assert "'whistle' is not a word" in found.problem
    nothing = read("play the piano", scene("crawler"), partial=True)
    assert (nothing.asks, nothing.whole) == (False, False)


@pytest.mark.parametrize(
    "words", ["Walk  forward.", "please walk forward", "the robot should walk forward", "walk forwards!"]
)
def test_words_that_say_nothing_change_nothing(words: str):
    assert read(words, scene("crawler")).phases == read("walk forward", scene("crawler")).phases


def test_directions_after_a_turn_are_those_of_the_body():
    """By hand: after a quarter turn to the left, forward is +y; until it is done, where the body faces."""
    (_, (after,)) = read("turn left by 90 degrees, then walk forward", scene("crawler")).phases
    assert after["way"] == pytest.approx((0.0, 1.0, 0.0), abs=1e-6)
    assert not after["turns"]
    ((_, together),) = read("turn left by 90 degrees and walk forward", scene("crawler")).phases
    assert (together["way"], together["turns"]) == ((1.0, 0.0, 0.0), True)
    (_, (back,)) = read("walk forward 2 m, then turn around", scene("crawler")).phases
    assert back.measure.text == "turn left by 180°"


def test_a_body_that_stays_in_place_does_so_in_all_phases_before():
    """T1 fell while it raised its arms to lower them again: nothing asked it to stay in place before."""

    def sway(words: str) -> str:
        return next(t.expression for t in read(words, scene("person")).terms() if t.name.endswith("sway"))

    always = sway("raise the right arm")
    assert sway("raise the right arm, then lower it") == always
    assert sway("squat, then raise the right arm") != always, "only after the squat"
