"""Read a sentence on a model: all of it, or refuse it and say which word is not understood.

`grammar.lark` is the language. `interpreter.py` gives each parse its meaning on the model; those that make no sense
there drop out. If different readings are left, the sentence is ambiguous and refused, too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

import lark
from lark.visitors import CollapseAmbiguities

from movlr_jax.errors import UserError
from movlr_jax.tasks.words.interpreter import meaning
from movlr_jax.tasks.words.phrase import NotRead
from movlr_jax.tasks.words.scene import Scene, plain
from movlr_jax.tasks.words.sentence import MOST_PHASES, Sentence

_GRAMMAR = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
_MOST_PARSES = 64
_ARTICLES = "the|a|an|its|your|his|her|their"
_EXAMPLES = (
    "walk forward", "walk forward 2 m", "walk backward", "walk left", "run forward", "turn left by 90 degrees",
    "turn right by 90 degrees", "turn left, then walk forward", "walk in a circle", "jump", "stand still",
    "march in place",
    "squat", "lie down", "raise the right arm", "raise both arms", "bend the right knee", "wave",
    "lift the cube by 10 cm",
    "flex the elbow to 90 degrees", "hover at 1 m", "climb by 1 m", "keep the head level", "stand on the left leg",
)  # fmt: skip


class Unreadable(UserError):
    """A sentence that is not understood. `word` is what is left over, `why` the reason."""

    def __init__(self, sentence: str, word: str, why: str, near: Sequence[str] = ()):
        self.word, self.why = word, why
        instead = f"; understood would be: {' | '.join(map(repr, near))}" if near else ""
        super().__init__(
            f"instruction={sentence!r}: {word!r} {why}{instead}; or let a language model read it (llm=...), or go on "
            "without it (instruction.partial=true)"
        )


def read(description: str, scene: Scene, partial: bool = False) -> Sentence:
    """Return what a description asks for on a model. Raises Unreadable.

    partial: read what can be read; `Sentence.unread` has the rest.
    """
    language = _Language(scene)
    try:
        return replace(language.read(description), description=description)
    except _Left as left:
        problem = Unreadable(description, left.word, left.why, _near(language, description, left))
        if not partial:
            raise problem from None
        return replace(_in_part(language, description), description=description, problem=str(problem))


class _Left(Exception):
    """The word of a text at which reading ends."""

    def __init__(self, word: str, why: str, at: int = 0):
        self.word, self.why, self.at = word, why, at


class _Language:
    """The grammar with the nouns of one model."""

    def __init__(self, scene: Scene):
        self._scene = scene
        self._known = _words() | scene.nouns

    @cached_property
    def _parser(self) -> lark.Lark:
        return _parser(tuple(sorted(self._scene.nouns, key=lambda word: (-len(word), word))))

    def read(self, text: str) -> Sentence:
        plain_text = normalised(text, self._known)
        self._check_words(plain_text)
        try:
            tree = self._parser.parse(plain_text)
        except lark.UnexpectedCharacters as error:
            word = plain_text[error.pos_in_stream :].split(maxsplit=1)[0].strip(",;.") or ","
            before = plain_text[: error.pos_in_stream].strip()
            raise _Left(
                word,
                f"makes no sense after {before!r}" if before else "begins no motion",
                error.pos_in_stream,
            ) from None
        except lark.UnexpectedEOF:
            raise _Left(
                plain_text.split()[-1] if plain_text else "", "is not the end of a sentence", len(plain_text)
            ) from None
        return self._meant(tree, plain_text)

    def _check_words(self, text: str) -> None:
        for found in re.finditer(r"[^\s,;.]+", text):
            word = found[0]
            if word in self._known or re.fullmatch(r"-?[\d.]+|[+-]?[xyz]", word):
                continue
            close = difflib.get_close_matches(word, self._known, 1, 0.8)
            why = "is not a word that is understood here, nor a part of this model"
            raise _Left(word, why + (f" (is it {close[0]!r}?)" if close else ""), found.start())

    def _meant(self, tree: lark.Tree, text: str) -> Sentence:
        """Return the one reading of all parses that make sense. Raises _Left."""
        readings: dict[object, Sentence] = {}
        problem: NotRead | None = None
        for parse in _parses(tree):
            try:
                sentence = meaning(self._scene, text, parse)
            except NotRead as error:
                problem = problem if problem and problem.at >= error.at else error
                continue
            except UserError as error:
                problem = problem or NotRead(text, str(error), -1)
                continue
            readings[(tuple(map(frozenset, sentence.phases)), sentence.balance)] = sentence
        if not readings:
            assert problem
            raise _Left(problem.word, problem.why, problem.at)
        if len(readings) > 1:
            told = [repr(sentence.text()) for sentence in readings.values()]
            raise _Left(text, f"can mean {' or '.join(told[:3])}")
        sentence = next(iter(readings.values()))
        if len(sentence.phases) > MOST_PHASES:
            raise _Left("then", f"occurs more than {MOST_PHASES - 1} times")
        return sentence


@cache
def _words() -> set[str]:
    """Return all words of the grammar."""
    quoted = re.findall(r'"([^"]+)"', re.sub(r"//.*", "", _GRAMMAR))
    return {word for text in quoted for word in text.split()}


@cache
def _parser(nouns: tuple[str, ...]) -> lark.Lark:
    """Return the parser for a model with these nouns. Every word ends where a word ends."""
    noun = "|".join(re.escape(word) for word in nouns)
    part = "|".join(re.escape(word) for word in nouns if not word.isdigit())
    text = re.sub(r"//.*", "", _GRAMMAR)

    def word(found: re.Match[str]) -> str:
        return "/" + found[1].replace("/", r"\/").replace(" ", rf"\s+(?:(?:{_ARTICLES})\s+)*") + r"\b/"

    begin, rest = text.split("\nWAY:", 1)
    way, after = rest.split("\nCIRCLE:", 1)
    way = re.sub(r'"([^"]+)"', word, way)
    way = re.sub(
        r"/(left|right|back)\\b/", rf"/\1\\b(?!\\s+(?:(?:the|front|rear|hind)\\s+)*(?:{part})\\b)/", way
    )
    begin, after = (re.sub(r'"([^"]+)"', word, part) for part in (begin, after))
    grammar = f"{begin}\nWAY:{way}\nCIRCLE:{after}\nNOUN: /(?:{noun})\\b/\n"
    return lark.Lark(
        grammar, parser="earley", ambiguity="explicit", propagate_positions=True, maybe_placeholders=False
    )


def _parses(tree: lark.Tree) -> Iterable[lark.Tree]:
    found = CollapseAmbiguities().transform(tree)
    return found[:_MOST_PARSES]


def normalised(text: str, known: set[str]) -> str:
    """Return a text in lower case, with units apart from their numbers and words in the form that the grammar has."""
    text = re.sub(r"[.!]+\s*$", "", text.replace("’", "'"))
    text = text.replace("°", " degrees").replace("'", "")
    text = re.sub(r"\b(met(?:er|re)s?|m) (?:per|a|an) (?:second|s)\b", "m/s", text, flags=re.I)
    text = re.sub(r"\b(counter|anti)-(clockwise)", r"\1\2", text, flags=re.I)
    text = re.sub(r"(?<=\d)-?(?=(?:m|cm|mm|s|deg|degrees?|rad|km/h|m/s)\b)", " ", text)
    text = re.sub(r"(?<=\d)-(?=degree)|(?<=[a-z])-(?=[a-z]{3})", " ", text, flags=re.I)
    words: list[str] = []
    for piece in re.findall(r"[,;]|\.(?!\d)|[^\s,;]+?(?=[,;]|\.(?:\s|$)|\s|$)", text):
        number = re.fullmatch(r"-?[\d.]+|[+-]?[xyz]", piece)
        many = plain(piece) if piece.lower() not in known and "/" not in piece and not number else [piece]
        if any(word.isdigit() and word not in known for word in many) and not number:
            many = [piece]  # "joint9" of a model with seven
        words += [base_form(word.lower(), known) for word in many]
    joined = " ".join(words)
    joined = re.sub(
        r"\b(?:keep|continue|start|begin|try)(?: to)? (?=(?:walk|run|go|move|turn|spin|jump|hop|drive|crawl|fly)\b)",
        "",
        joined,
    )
    return re.sub(r" (?=[,;])", "", joined)


def base_form(word: str, known: set[str]) -> str:
    """Return the form of a word that is known: walks, walking -> walk; stopping -> stop; lying -> lie."""
    if word in known:
        return word
    irregular = {"lying": "lie", "feet": "foot", "calves": "calf", "stood": "stand", "held": "keep"}
    stems = [word.removesuffix(end) for end in ("ing", "es", "s") if word.endswith(end)]
    tries = [irregular.get(word, ""), *stems, *(f"{stem}e" for stem in stems)]
    tries += [stem[:-1] for stem in stems if len(stem) > 2 and stem[-1] == stem[-2]]
    return next((form for form in tries if form in known), word)


def _near(language: _Language, text: str, left: _Left) -> list[str]:
    """Return at most three sentences near to a text that are understood."""
    pieces = re.split(
        r"\s*(?:,|;|\band\b|\bthen\b|\bwhile\b|\bwithout\b)\s*", normalised(text, language._known)
    )
    shorter = [re.sub(rf"\s*\b{re.escape(left.word)}\b", "", normalised(text, language._known)).strip(" ,")]
    begins = normalised(text, language._known)[: left.at].strip(" ,")
    tries = [*shorter, begins, *pieces]
    tries += difflib.get_close_matches(text.lower(), _EXAMPLES, 3, 0.3)
    found: list[str] = []
    for near in dict.fromkeys(
        re.sub(rf"(?:\s*\b(?:{_ARTICLES}|to|by|at|with|around))+$", "", t).strip() for t in tries
    ):
        if not near:
            continue
        try:
            language.read(near)
        except _Left:
            continue
        found.append(near)
    return found[:3]


_BETWEEN = re.compile(r"\s*(?:[,;]|\bthen\b|\band\b|\bwhile\b|\bwith\b|\bwithout\b)\s*")


def _in_part(language: _Language, text: str) -> Sentence:
    """Return the reading of a text without the words that cannot be read, at most some of each clause."""
    words, unread = normalised(text, language._known), []
    for _ in range(8):
        try:
            return replace(language.read(words), unread=tuple(unread))
        except _Left as error:
            word = error.word if error.word and error.word in words else ""
            if not word or word == words:
                break
            at = words.find(word, max(error.at, 0))
            at = at if at >= 0 else words.find(word)
            unread.append(word)
            words = f"{words[:at]} {words[at + len(word) :]}".strip()
            words = re.sub(
                r"^(?:[,;]|and\b|then\b|with\b|without\b|\s)+|(?:[,;]|\b(?:and|then|with|without|to|on|the|by|while)|\s)+$",
                "",
                words,
            )
            words = re.sub(r"\b(and|then|,)(?:\s+(?:and|then|,))+", r"\1", words)
    # clause by clause
    for piece in filter(None, _BETWEEN.split(normalised(text, language._known))):
        try:
            return replace(language.read(piece), unread=(text,))
        except _Left:
            continue
    scene = language._scene
    return Sentence(text, scene.of, (), scene.stands, unread=(text,))
