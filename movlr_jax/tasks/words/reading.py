"""Read a sentence on a model: all of it, or refuse it and say which word is not understood.

`grammar.lark` is the language. `interpreter.py` gives each parse its meaning on the model; those that make no sense
there drop out. If different readings are left, the sentence is ambiguous and refused, too.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import lark
from lark.visitors import CollapseAmbiguities

from movlr_jax.errors import UserError
from movlr_jax.models.names import coded, place_of
from movlr_jax.tasks.words.interpreter import meaning
from movlr_jax.tasks.words.parts import NAMED
from movlr_jax.tasks.words.phrase import NUMBERS, NotRead
from movlr_jax.tasks.words.scene import Scene, plain
from movlr_jax.tasks.words.sentence import MOST_PHASES, Sentence

_GRAMMAR = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
_MOST_PARSES = 64
_MOST_UNREAD = 8
_NUMBER = r"-?[\d.]+|[+-]?[xyz]"
_ARTICLES = "the|a|an|its|your|his|her|their"
_NUMBERS = "\\d[\\d.]*|" + "|".join(NUMBERS)
_TEENS = ("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_UNITS = (
    "met(?:er|re)s?|m|cm|mm|centimet(?:er|re)s?|seconds?|s|ms|min(?:utes?)?|degrees?|rad|revolutions?|times"
    "|inch(?:es)?|ft"
)


def _number(found: re.Match[str]) -> str:
    """Return a number from eleven to ninety-nine in digits."""
    word = found[1].lower()
    if word in _TEENS:
        return str(11 + _TEENS.index(word)) + (f" {found[2]}" if found[2] else "")
    return str(20 + 10 * _TENS.index(word) + NUMBERS.get((found[2] or "").lower(), 0))


# what is said in other words: a pattern -> the same in the words of the grammar, in this order
_BEGINS = r"(?:^|(?<=[,;] )|(?<=\bthen )|(?<=\band ))"
# after these, "back up" is up again
_DOWN = r"\b(?:down|squat|crouch|kneel|sit|lie|lower|bend|lean|duck|bow|lunge|sink|descend|flex|tilt|curl)"
_IS, _WHO = r"(?:it is|it was|they are|they were|you are)", r"(?:you|it|they)"
_GOES = "walk|go|run|drive|fly|trot|crawl|jog|roll"
_WHOLE = (
    "body|robot|humanoid|person|human|figure|character|agent|dog|robot dog|quadruped|drone|quadcopter|quadrotor"
    "|walker|ant|rover|vehicle|patient|subject|hopper|cheetah|swimmer|fish"
)
_BENDS = r"\b((?:bend|flex|straighten)\w*(?: the| your)?(?: left| right| both)?)"
_LET = r"\bwithout letting ((?:the|your|its) [\w ]+?|it|them)"
_MAKE = r"(?:make|have|let|get)(?: the| a| your)?"
_SHOULD = r"^((?:the|your|both|its) [\w ]+?) (?:should|must|ha(?:s|ve) to|needs? to)"
_ALONE = "bend|flex|straighten|extend|open|close|turn|rotate|move|wave|lean|tilt|pitch|stretch|point|stay|spread|curl"
_WITH = "touch|tap|press|push|pull|kick|lift|grasp|grab|hold|reach(?= the| your| for)"
_DIGIT = r"(?:the |your )?((?:thumb|index|middle|ring|little)(?: finger)?(?: tip)?)"
_STATES = "still|straight|upright|level|horizontal|vertical"
_CHANGED = "covered|walked|travelled|traveled|gone|moved|driven|flown|turned|rotated|spun|climbed"
_SAME: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"(?:,? please)?[.!?]*\s*$", ""),
    (r"°", " degrees"),
    (rf"\b({'|'.join((*_TEENS, *_TENS))})(?:[- ](one|two|three|four|five|six|seven|eight|nine))?\b", _number),
    (r"\btill\b", "until"),
    (r",(?= (?:(?:counter|anti)-?)?clockwise$)", ""),
    (rf"\b((?:more than|beyond|past|within|exceeding) (?:{_NUMBERS}) ?(?:{_UNITS})) (?:in |to )?either"
     r" (?:way|direction|side)\b", r"\1"),
    (r"(?:,| -) no (?=\w+ing\b)", " without "),
    (r"\bclear of the (?=ground|floor)", "off the "),
    (r"\b(?:swing|come) a?round (?=(?:by )?\d|to the (?:left|right)|left|right)", "turn "),
    (r"\b(?:do|execute|perform|take) (?=an? (?:half|quarter|full|whole) (?:turn|circle)\b)", "make "),
    (r"\b(?:trace|describe)(?= an? circle\b)(?!.*\b(?:hand|arm|foot|leg|finger|fingertip|head|gripper)\b)", "go in"),
    (r"\b(?:do|fly|walk|run|drive|make|trot) (?:one|an?) (?:full |complete )?(?:lap|loop|orbit) (?:a?round|of) ",
     "go around "),
    (r"^(?:stay|remain|keep) (?:balanced|upright) (?=(?:on the spot |in place )?for )", "stand still "),
    (rf"\b({_NUMBERS}) (?:full |whole |complete )?(?:turns|rotations)\b", r"\1 revolutions"),
    (r"^(?:please,? )?(?:(?:could|can|would|will) you(?: mind)?(?: please)?|i want you to|i would like you to) ", ""),
    (r"\b(you|they)'re\b", r"\1 are"),
    (r"\bit's\b", "it is"),
    (rf"^(?:the |a )?(?:{_WHOLE}) (?:should|must|has to|needs to) ", ""),
    (rf"^{_MAKE} (?:{_WHOLE})(?: to)? (?=\w)", ""),
    # "the elbow should bend", "make the gripper touch the ball": what should move
    (rf"^(?:make|let|have) ((?:the|your|both|its) [\w ]+?) (?=(?:{_ALONE}|{_WITH})\b)", r"\1 should "),
    (rf"{_SHOULD} (?:reach|stretch) (?=straight|up|out|forward|side)", r"stretch \1 "),
    (rf"{_SHOULD} ({_ALONE})\b", r"\2 \1"),
    (rf"{_SHOULD} ({_WITH}) ([^,;.]+?)"
     r"(?=$|[,;.]| and\b| then\b| without\b| while\b| for\b)", r"\2 \3 with \1"),
    # hands
    (r"\b(?:face|turn|rotate|flip|point) ((?:the|your|both) (?:left |right )?palms?)(?: to)?(?: face| point)? ",
     r"turn \1 "),
    (rf"{_SHOULD} face (?=up|down|forward|back|left|right|the (?:floor|ground|ceiling|sky))", r"turn \1 "),
    (r"\b(palms?) (?:is |are )?fac(?:es|ing) ", r"\1 "),
    (r"\b(palms? (?:to |towards? )?)the (floor|ground|ceiling|sky)\b",
     lambda found: found[1].split()[0] + {"floor": " down", "ground": " down"}.get(found[2].lower(), " up")),
    (r"^first(?:,| (?!\w+ joint\b|joint\b|finger\b|knuckle\b)) *", ""),
    (r"(?:,(?: and)?| and) next,? (?!to\b)", ", then "),
    (r"(?<=\w)'s (?=\w)", " "),  # the finger's first joint
    (r"'", ""),
    (r"^after (?!that\b)([^,]+), (?!then\b)([^,]+)$", r"\1, then \2"),
    (r"^before (?:you )?([^,]+), ([^,]+)$", r"\2, then \1"),
    (r"^(?!.*\bthen\b)([^,;.]+),? after (\w+ing\b[^,;.]+)$", r"\2, then \1"),
    (r"^(?!.*\bthen\b)([^,;.]+),? after (?:you|it) (?!have\b|has\b)(\w+[^,;.]*)$", r"\2, then \1"),
    (r",? before (?=\w+ing\b)", ", then "),
    (r"\b(while|as) (?:still|always) (?=\w+ing\b)", r"\1 "),
    # "rotate joint4, keeping the gripper closed"
    (r"(?<!ing),(?: while)? (?!(?:bring|swing|ring|spring|wing|string)\b)(\w+ing\b)"
     r"(?! (?:(?:the|its|your|a) )?(?:same |constant |current )?(?:heading|altitude|height|balance)\b)",
     lambda found: f" while {found[1]}" if not re.match(r"\s*\w+ing\b", found.string) else found[0]),
    (rf"\b(?:perfectly|completely|absolutely|totally) (?=(?:{_STATES})\b)"
     rf"|\bkept (?=(?:{_STATES}|bent|open|closed|at)\b)", ""),
    (r"\b(?:and |but )?(?:do not|dont|never) let (?=(?:the|your|its) )", "without letting "),
    (rf"\b({_NUMBERS}) more (?={_UNITS}\b)", r"\1 "),
    (r"\ball (?:of )?(?:the )?other\b", "the other"),
    (r"\b(the other (?:two|three|four))(?= (?:on|off|still|in|up|down|straight|bent|closed|open|where|as)\b|[,;.]|$)",
     r"\1 others"),
    (r"\b(above|below) (shoulder|head|hip|knee|waist|elbow) (?:height|level)\b", r"\1 the \2"),
    (r"\breach (?=(?:both|the|your)(?: left| right)? arms?\b)", "stretch "),
    (r"\b(?:and )?(?:while )?(?:stay|remain|keep)(?:ing)? at (?:the|its) (?:same |current )?(?:height|altitude)\b",
     "without change height"),
    (r"\b(?:and )?only (then|after that)\b", r"\1"),
    (r"\band,? at the same time,? ", "and "),
    (r"^(while [^,;]+), (?!then\b)([^,;]+)$", r"\2 \1"),
    (r"(?<=the )(index|middle|ring|little)(?=,| and\b| then\b|$)",
     lambda found: found[0] + " finger" * ("finger" in found.string)),
    (r",? (?:as )?(?:seen|viewed) from above\b|,? (?:while|when|as) (?:you are )?doing (?:so|this|that|it)\b", ""),
    (r"(\bthen\b.*?),? one after (?:another|the other)$", r"\1"),
    (r"\b(hold|keep|maintain)(ing)? (?:the|this|that|your) (?:pinch|grip|grasp|pose|position|posture|squeeze)\b",
     r"\1\2 it"),
    (r"\b(?:keep|maintain|hold)(?:ing)? (?:your |its |the )?balance\b", "balance"),
    (rf"\b(?:lean|bend|bow)((?:ing)?) (forward|back(?:ward)?|left|right|to the (?:left|right))"
     rf"( (?:by )?(?:{_NUMBERS}) ?degrees)? (?:at|from) the (waist|hips?)\b",
     r"bend\1 the \4 \2\3"),
    (r"\b(turn|twist|rotate)((?:ing)?(?: (?:left|right))?) (?:at|from) the (waist|hips?|neck)\b", r"\1\2 the \3"),
    # amounts
    (rf"\b(to|at) ((?:{_NUMBERS}) ?(?:{_UNITS})) (?:above|off|over|from) the (?:ground|floor)\b", r"\1 \2"),
    (r"\bto (?:a )?right angles?\b", "to 90 degrees"),
    (r"\b(?:with|at) an? speed of\b", "at"),
    (r"\bin an? (clockwise|(?:counter|anti)-?clockwise) circle\b", r"\1 in a circle"),
    # "walk forward, 2 m"
    (rf",(?= (?:by |at |for )?(?:(?:{_NUMBERS}) ?(?:{_UNITS}|m/s)|(?:an? |one )?(?:half|quarter|full|whole)(?: an?)? "
     r"turn)(?:$|[,;.]| (?:and|then)\b))", ""),
    (rf"\bin (?:less than|under|at most|no more than) (?=(?:{_NUMBERS}) ?s(?:ec|econds?)?\b)", "within "),
    (r"\b(?:mov|shift)(e|ing|)\b (?:the|your|its) (?:whole )?body (?=(?:by )?\d|to\b|forward|back|left|right)",
     lambda found: "moving " if found[1] == "ing" else "move "),
    (r"\btip(ping)? over\b(?! (?:the|a|an|it|your|its)\b)", lambda found: f"fall{'ing' * bool(found[1])} over"),
    (r"\btip(?:ping)? (?=(?:past|beyond|more than|by more than) -?\d)", "tilting "),
    (rf"\b(?:past|beyond) (?=(?:{_NUMBERS}) ?(?:{_UNITS})\b)", "more than "),
    (rf"\b(?:about|approximately|roughly|exactly) (?=(?:{_NUMBERS}) ?-?(?:{_UNITS})\b)", ""),
    (rf"\bhalf an? (?={_UNITS}\b)", "0.5 "),
    (r"\b(met(?:er|re)s?|m) (?:per|a|an) (?:second|s)\b", "m/s"),
    (r"\b(centimet(?:er|re)s?|cm) (?:per|a) (?:second|s)\b", "cm/s"),
    (rf"\b(?:an?|one|1) ({_UNITS}) and a half\b", r"1.5 \1"),
    (rf"\b({_NUMBERS}) and a half (?={_UNITS})\b", lambda found: f"{NUMBERS.get(found[1].lower()) or found[1]}.5 "),
    (r"\ban? (?=(?:centi)?met(?:er|re)\b)|(?:(?<=for )|(?<=in )|(?<=over ))a (?=second\b)", "1 "),
    (r"\bminus (?=\d)", "-"),
    (r"(?<!\S)\+(?=\d)|(?<=\bwave) (?:from )?side to side\b|(?<=\bwave it) (?:from )?side to side\b", ""),
    (r"\bstay (?:down|low|there) (?=for\b)", "hold "),
    (r"\bwithout (the|your|its) (\w+) (bend|lean|tilt|roll|turn|mov)ing\b",
     lambda found: f"without {'tilt' if found[3] == 'roll' else found[3]}ing {found[1]} {found[2]}"),
    (rf"\b(?:do|perform) ({_NUMBERS}) (?:(slow|quick) )?(squat|jump|hop)s\b",
     lambda found: f"{found[3]} {found[1]} times" + (f" {found[2]}ly" if found[2] else "")),
    (r"\b(?:do|perform|make) an? (?:(slow|quick) )?(squat|jump|hop)\b",
     lambda found: found[2] + (f" {found[1]}ly" if found[1] else "")),
    (r"\bthrough (?=-?\d|(?:an?|one) (?:full|half|quarter|whole) turn\b|half an? turn\b)", "by "),
    (r"(?<=\d) ?(?:feet|foot)\b", " ft"),
    (r"\b(counter|anti)-(clockwise)", r"\1\2"),
    (r"(?<=\d)-?(?=(?:m|cm|mm|s|ms|min|deg|degrees?|rad|km/h|m/s|mph)\b)|(?<=\d)-(?=degree)"
     r"|(?<=[a-z])-(?=[a-z]{3})", " "),
    (r"\bhalf way\b|\bhalf (?=open|close)", "halfway "),
    (r"\ball the way (around|round)\b", "a full turn"),
    (r"\bhalfway (around|round)\b", "half a turn"),
    (r"\b((?:jump|hop|leap|fly|climb|rise|go)\w*) straight (?=up\b)", r"\1 "),
    (rf"((?:{_NUMBERS}) (?:{_UNITS})) straight (?=(?:up|down)\b)", r"\1 "),
    (rf"\bstraight ((?:up|down) (?:by )?(?:{_NUMBERS}) (?:{_UNITS})\b)", r"\1"),
    (r"\b(?:for )?(?:one|1|an?) (?=(?:full|half|quarter|whole) (?:turn|circle)\b)", ""),
    (rf"\b(?:another|a further) (?=(?:{_NUMBERS}) (?:{_UNITS})\b)|(?<=\bm) more\b|(?<=\bmeters) more\b", ""),
    (rf"\b(while|but) (?!(?:you|it|they|(?:the |your |its )?(?:{_WHOLE}))\b)([\w ]+?) (?:stays?|remains?) "
     r"(?=(?:still|upright|level|straight|bent|closed|open|curled|up|down|in place|where|planted"
     r"|on the (?:floor|ground))\b)",
     r"\1 keeping \2 "),
    (r"\bwithout letting ((?:the|your) [\w ]+?) touch (?=the (?:ground|floor)\b)", r"and keep \1 off "),
    (r"\bpick ((?:the|a|an) [\w ]+?) up\b", r"pick up \1"),
    (rf"\b(?:open and close|close and open) ((?:the|your) [\w ]+?) (twice|(?:{_NUMBERS}) times)\b", r"close \1 \2"),
    (r"\b(open|close) and (open|close) ((?:the|your) [\w ]+?)(?=$|[,;.]| then\b)", r"\1 \3, then \2 it"),
    (rf"\b(?:and )?(?:keep|hold)(?:ing)? ((?:the|your) [\w ]+?) (?:level|upright) (?:to )?within"
     rf" (?=(?:{_NUMBERS}) degrees)", r"without tilting \1 more than "),
    (r"\b((?:rais|lift|lower)\w* [^,;.]*?\b(?:arm|leg)s?\b[^,;.]*?) at the (?:shoulder|hip)s?\b", r"\1"),
    (rf"{_BENDS} arm(s?) at the elbows?\b", r"\1 elbow\2"),
    (rf"{_BENDS} leg(s?) at the knees?\b", r"\1 knee\2"),
    (r"\bevery (arm|leg|finger|hand|knee|elbow)\b", r"all \1s"),
    (r"\bany (?:of )?(?=the |your )|\bany (?=(?:arm|leg|finger|foot|hand|knee|elbow|joint)\b)", "all "),
    (r"\b(?:firmly )?planted\b(?: (?:firmly )?on the (?:ground|floor))?", "on the ground"),
    (r"\b(without|do not|dont|never) chang(?:e|ing) (?:its |your |the )?(?:altitude|height)\b",
     r"\1 change height"),
    (r"\b(?:keep|maintain|hold)(?:ing)? (?:its |your |the |a )?(?:same |constant |current )?(?:altitude|height)\b",
     "without change height"),
    (r"\bwithout losing (?:any )?(?:altitude|height)\b", "without sinking"),
    (r"\bwithout gaining (?:any )?(?:altitude|height)\b", "without rising"),
    (rf"\bto (?=(?:{_NUMBERS}) ?(?:{_UNITS}) (?:above|over|below|under|underneath)\b)", ""),
    (r"\b((?:raise|lift|lower|bend|straighten|flex|turn)\b[^,;.]*? and [^,;.]*?) together\b", r"\1"),
    (r"\b(?:tilt|tip|dip|point)(?=(?:ing)? (?:the |your |its )?(?:\w+ )?nose[ -](?:down|up)\b)", "pitch"),
    (r"\b(pitch\w* (?:the |your |its )?(?:\w+ )?)nose[ -](down|up)\b",
     lambda found: found[1] + {"down": "forward", "up": "back"}[found[2].lower()]),
    (r"\b(?:come|go|get|return) back (?:to )?(?:level|upright|(?:the )?horizontal)\b", "stand upright"),
    (rf"{_LET} touch ", r"without touching with \1 "),
    (rf"{_LET} (?:fall|drop)\b", r"without dropping \1"),
    (rf"{_LET} (bend|lean|tilt|turn|move|rotate|straighten|open|close|rise)\b",
     r"without \2 \1"),
    # places and ends
    (r"\bparallel to the (?:floor|ground)\b", "level"),
    (rf"\b(?<!soon )(?:where|as) {_IS}\b", "in place"),
    (r"\b(to )?where (?:you|it) (?:started|began)\b", "to the start"),
    (r"\bout (?=to (?:the|your|its) sides?\b|sideways\b)", ""),
    (r"\b(?:over|across) (?=to (?:the|a|your|its)\b)", ""),
    (r"\bto (?:the|your|its) sides\b", "to the side"),
    (r"\b((?:arm|leg)s?(?: straight)?) (?:out )?in front(?: of (?:you|yourself|it|(?:the|your|its) body))?"
     r"(?=[,;.]|$| (?:and|then|until|for|with)\b)", r"\1 forward"),
    (rf"\buntil {_IS} (?:as high as|at the (?:height|level) of) ", "to height of "),
    (r"\b((?:walk|drive|roll|run|trot|crawl)\w*) up (?=to the (?!left|right|side))", r"\1 "),
    (rf"\bpinch (?:with )?{_DIGIT} and {_DIGIT}(?: together)?\b", r"touch the \1 with the \2"),
    (rf"\b(?:touch|bring|put|press) (?:the tips of )?{_DIGIT} and {_DIGIT} together\b", r"touch the \1 with the \2"),
    (r"\b((?:spread|splay)\b[^,;.]*?) apart\b", r"\1"),
    (rf"\b(?:of|with)(?: an?)? (radius|diameter)(?: of)? ((?:{_NUMBERS}) ?(?:{_UNITS}))\b", r"\1 \2"),
    (rf"\b(?:of|with)(?: an?)? ((?:{_NUMBERS}) ?(?:{_UNITS}))(?: in)? (radius|diameter)\b", r"\2 \1"),
    (r"\baway from (?:the robot|you|yourself|itself)\b", "away"),
    (r"\bin (?:an? )?circles? (?=around (?:the|a|it)\b)", ""),
    (r"\bcircle (?:around )?(?=(?:the|a|it)\b)", "go around "),
    (r"\b(?:keep|maintain|hold)(?:ing)? (?:your |its |the |this )?(?:same )?(?:heading|facing (?:forward|ahead))\b",
     "without turning"),
    (r"(?<=\w),? (?:while )?facing (?:forward|ahead|the same (?:way|direction))\b", " while facing forward"),
    (rf"{_BEGINS}(?:back(?:ing)? (?:up|away|off)|revers(?:e|ing))\b",
     lambda found: found[0] if re.search(_DOWN, found.string[: found.start()], re.I) else "go backward"),
    (r"\b(left|right) (arm|leg|hand|foot|knee|elbow|wrist|ankle)\b(.*?)\b(left|right|other) one\b", r"\1 \2\3\4 \2"),
    (rf"\b(sideways|to the side|forward) until {_IS} (?:horizontal|at shoulder height"
     r"|level(?: with (?:the|your) shoulders?)?)\b", r"\1"),
    (r"\bas (fast|far|high) as (?:you|it) (?:possibly )?can\b", r"as \1 as possible"),
    (r"\b((?:put|set|place|lower|bring|carry|walk|go|fly)\b[^,;.]*?) back"
     r" (?=(?:down|on|onto|to the (?!left|right))\b)",
     r"\1 "),
    (r"\b((?:put|set|place)\b[^,;.]*?) down (?=on(?:to)?\b)", r"\1 "),
    (rf"\buntil ((?:{_NUMBERS}) seconds?) (?:have|has) (?:passed|elapsed)\b", r"for \1"),
    (rf"\buntil {_IS} ((?:{_NUMBERS}) (?:{_UNITS})) (?:off|above|over|from) the (?:ground|floor)\b",
     r"to a height of \1"),
    (rf"\b(?:until|as soon as|when|once) {_IS} (?:within )?({_NUMBERS}) ({_UNITS})"
     r" (?:(?:away )?from|of|in front of)\b", r"\1 \2 short of"),
    (rf"\buntil {_IS} ({_NUMBERS}) ({_UNITS}) away\b(?! from)", r"and stop \1 \2 short of it"),
    (rf"\b((?:stop|halt|stand)\b[^,;.]*?) ({_NUMBERS}) ({_UNITS}) (?:(?:away )?from|before)\b", r"\1 \2 \3 short of"),
    (rf"\buntil {_IS} at (?=-?\d)", "to "),
    (r"\bback (?=to -?\d)|\ball the way (?=to\b|back\b)|\btake a (?=step (?:forward|back|to)\b)"
     r"|(?<=jump) up and down\b|(?<=jumping) up and down\b"
     rf"|\buntil {_WHO} (?:have|has) (?:{_CHANGED}) (?=(?:by )?(?:{_NUMBERS})\b)"
     rf"|\buntil {_IS} (?=(?:\d\S* \w+ )?(?:above|over|below|under|level|horizontal|vertical|upright)\b)", ""),
    (r"\b(squat|crouch)\b([^,;.]*?) until (?:the|your) (\w+) (?:are|is) (?=level|horizontal)", r"\1\2 with \3 "),
    (rf"\b((?:turn|spin|rotate)\b[^,;.]*?) until (?:{_WHO} faces?|{_IS} facing) (?=the (?!left|right|back|front))",
     r"\1 to "),
    (r"\b((?:lower|raise|lift|move|bring|push|pull|drag|carry)\b[^,;.]*?) until it (?:touches|reaches) ", r"\1 to "),
    (rf"\b((?:{_GOES})\b[^,;.]*?) until (?:{_WHO} (?:reach|get to)|{_IS} at) ",
     r"\1 to "),
    (rf"\b((?:{_GOES})\b[^,;.]*?) until you (?:touch|hit|bump into) ([^,;.]+?)(?=[,;.]| and\b| then\b|$)",
     r"\1 to \2, then meet \2"),
)  # fmt: skip
_INSTEAD = (  # what is said in other words where a model has no part of a name
    ("fingertip", r"\b(finger|thumb)tip", r"\1 tip"),
    ("head", r"\b(?:above|over) (?:the|your|its) head\b", "overhead"),
    ("base", r"\baway from (?:the|your|its)(?: robot)? base\b", "away"),
)
_JOIN = "and|then|while|with|without"
_NO_NOUN = (  # an article before what is no noun
    rf"\b(?:{_ARTICLES}) (?:(?:left|right|forward|backward|up|down)(?= (?:by|to|at|and|then)\b|$)|by|to|at|{_JOIN}"
    r"|still|upright|level|straight)\b"
)
_EXAMPLES = (
    "walk forward", "walk forward 2 m", "walk backward", "walk left", "run forward", "turn left by 90 degrees",
    "turn right by 90 degrees", "turn left, then walk forward", "walk in a circle", "jump", "stand still",
    "march in place", "squat", "lie down", "raise the right arm", "raise both arms", "bend the right knee", "wave",
    "lift the cube by 10 cm", "flex the elbow to 90 degrees", "hover at 1 m", "climb by 1 m", "keep the head level",
    "stand on the left leg",
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
    known = _words() | scene.nouns
    placed = any(place_of(words) for words in scene.parts.names.values())  # "the FL leg" of a quadruped

    def coded_place(found: re.Match[str]) -> str:
        place = coded(found[1]) if placed else ""
        named = base_form((found[2] or "").lower(), scene.nouns) in scene.nouns
        return f"{place}{'' if named else ' leg'} {found[2] or ''}".rstrip() if place else found[0]

    spelt = re.sub(r"\b([A-Z]{2})\b(?: (\w+))?", coded_place, description)
    for noun, said, same in _INSTEAD:
        spelt = spelt if noun in scene.nouns else re.sub(said, same, spelt, flags=re.I)
    text = normalised(spelt, known)
    try:
        return replace(_whole(text, scene, known), description=description)
    except NotRead as left:
        problem = Unreadable(description, left.word, left.why, _near(text, scene, known, left))
        if not partial:
            raise problem from None
        found, unread = _in_part(text, scene, known)
        found = found or Sentence(description, scene.of, (), scene.stands)
        unread = unread or (text,)
        return replace(found, description=description, unread=unread, problem=str(problem))


def _whole(text: str, scene: Scene, known: set[str]) -> Sentence:
    """Return the one reading of a normalised text. Raises NotRead."""
    for found in re.finditer(r"[^\s,;.]+", text):
        if found[0] not in known and not re.fullmatch(_NUMBER, found[0]):
            close = difflib.get_close_matches(found[0], known, 1, 0.8)
            hint = f" (is it {close[0]!r}?)" if close else ""
            if alike := scene.numbered(found[0]):
                hint = f", which has {', '.join(alike)}"
            why = "is not a word that is understood here, nor a part of this model"
            raise NotRead(found[0], why + hint, found.start())
    if steps := re.search(rf"(?<=\b)(?:{_NUMBERS}) step\b", text):
        raise NotRead("step", "cannot be counted; say how far, as in walk forward 2 m", steps.start())
    for found in re.finditer(rf"\b([a-z]+) (\d+)\b(?! (?:{_UNITS})\b)", text):
        alike = scene.numbered(f"{found[1]}{found[2]}") if found[1] in scene.nouns else []
        if alike and f"{found[1]}{found[2]}" not in map(str.lower, alike):
            raise NotRead(found[0], f"is no part of this model, which has {', '.join(alike)}", found.start())
    parser = _parser(tuple(sorted(scene.nouns, key=lambda word: (-len(word), word))))
    try:
        tree = parser.parse(text)
    except lark.UnexpectedCharacters as error:
        at = (
            error.pos_in_stream
            if text[error.pos_in_stream] == ","
            else text.rfind(" ", 0, error.pos_in_stream + 1) + 1
        )
        before = text[:at].strip()
        word = text[at:].split(maxsplit=1)[0].strip(",;.") or ","
        if base_form(word.removesuffix("s"), {*NAMED}) in NAMED and word not in scene.nouns:
            raise NotRead(word, "is no part of this model", at) from None
        raise NotRead(word, f"makes no sense after {before!r}" if before else "begins no motion", at) from None
    except lark.UnexpectedEOF:
        raise NotRead(text.split()[-1] if text else "", "is not the end of a sentence", len(text)) from None
    sentence = _meant(CollapseAmbiguities().transform(tree)[:_MOST_PARSES], text, scene)
    always = re.search(r"\b(?:whole time|all time|at all times|throughout)\b", text)
    if always and len(sentence.phases) > 1:
        raise NotRead(always[0], "can be said of one part or of all; say it without, of each part", always.start())
    return sentence


def _meant(parses: Sequence[lark.Tree], text: str, scene: Scene) -> Sentence:
    """Return the one reading of all parses that make sense. Raises NotRead, of the parse that got farthest."""
    readings: dict[object, tuple[int, Sentence]] = {}
    problems: list[NotRead] = []
    for parse in parses:
        try:
            sentence = meaning(scene, text, parse)
        except NotRead as error:
            problems.append(error)
        except UserError as error:
            problems.append(NotRead(text, str(error), -1))
        else:
            elided = len(list(parse.find_data("elided")))
            readings[(tuple(map(frozenset, sentence.phases)), sentence.balance)] = elided, sentence
    if not readings:
        raise max(problems, key=lambda problem: problem.at)
    least = min(elided for elided, _ in readings.values())  # "bend the knee and the elbow by 30 degrees": both
    sentence, *others = (sentence for elided, sentence in readings.values() if elided == least)
    if others:
        raise NotRead(text, f"can mean {' or '.join(repr(s.text()) for s in (sentence, *others[:2]))}")
    if len(sentence.phases) > MOST_PHASES:
        raise NotRead("then", f"occurs more than {MOST_PHASES - 1} times")
    return sentence


@cache
def _words() -> set[str]:
    """Return all words of the grammar."""
    quoted = re.findall(r'"([^"]+)"', re.sub(r"//.*", "", _GRAMMAR))
    return {word for text in quoted for word in text.split()}


@cache
def _parser(nouns: tuple[str, ...]) -> lark.Lark:
    """Return the parser for a model with these nouns. Every word ends where a word ends."""
    part = "|".join(re.escape(word) for word in nouns if not word.isdigit())

    def word(found: re.Match[str]) -> str:
        return "/" + found[1].replace("/", r"\/").replace(" ", rf"\s+(?:(?:{_ARTICLES})\s+)*") + r"\b/"

    text = re.sub(r'"([^"]+)"', word, re.sub(r"//.*", "", _GRAMMAR))
    begin, way, after = re.split(r"(?=\nWAY:|\nCIRCLE:)", text)
    around = r"the|front|rear|hind|and\\s+left|and\\s+right"  # "left" before a part is its side
    no_part = rf"(?!\\s+(?:(?:{around})\\s+)*(?:{part})\\b)"
    way = re.sub(r"/(left|right|back)\\b/", rf"/\1\\b{no_part}/", way)
    grammar = f"{begin}{way}{after}\nNOUN: /(?:{'|'.join(map(re.escape, nouns))})\\b/\n"
    return lark.Lark(
        grammar, parser="earley", ambiguity="explicit", propagate_positions=True, maybe_placeholders=False
    )


def normalised(text: str, known: set[str]) -> str:
    """Return a text in lower case, with units apart from their numbers and words in the form that the grammar has."""
    text = text.replace("’", "'")
    for said, same in _SAME:
        text = re.sub(said, same, text, flags=re.I)
    words: list[str] = []
    for piece in re.findall(r"[,;]|\.(?!\d)|[^\s,;]+?(?=[,;]|\.(?:\s|$)|\s|$)", text):
        number = re.fullmatch(_NUMBER, piece)
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


def _near(text: str, scene: Scene, known: set[str], left: NotRead) -> list[str]:
    """Return at most three sentences near to a normalised text that are understood."""
    tries = [
        re.sub(rf"\s*\b{re.escape(left.word)}\b", "", text),
        text[: left.at],
        *re.split(rf"\s*(?:[,;]|\b(?:{_JOIN})\b)\s*", text),
        *difflib.get_close_matches(text, _EXAMPLES, 3, 0.3),
    ]
    found: list[str] = []
    for near in dict.fromkeys(
        re.sub(rf"(?:\s*\b(?:{_ARTICLES}|to|by|at|with|around))+$", "", t.strip(" ,")) for t in tries
    ):
        if re.search(_NO_NOUN, near):
            continue
        with contextlib.suppress(NotRead):
            _whole(near, scene, known)
            found.append(near)
    return found[:3]


def _in_part(text: str, scene: Scene, known: set[str]) -> tuple[Sentence | None, tuple[str, ...]]:
    """Return the reading of a normalised text without the words that cannot be read, and these words."""
    words, unread = text, list[str]()
    for _ in range(_MOST_UNREAD):
        try:
            return _whole(words, scene, known), tuple(unread)
        except NotRead as error:
            at = max(words.find(error.word, max(error.at, 0)), words.find(error.word))
            if not error.word or at < 0 or error.word == words:
                break
            unread.append(error.word)
            words = f"{words[:at]} {words[at + len(error.word) :]}"
            words = re.sub(rf"^(?:[,;]|(?:{_JOIN})\b|\s)+|(?:[,;]|\b(?:{_JOIN}|to|on|the|by)|\s)+$", "", words)
            words = re.sub(r"\b(and|then|,)(?:\s+(?:and|then|,))+", r"\1", words)
    for piece in filter(None, re.split(rf"\s*(?:[,;]|\b(?:{_JOIN})\b)\s*", text)):
        with contextlib.suppress(NotRead):
            return _whole(piece, scene, known), (text,)
    return None, ()
