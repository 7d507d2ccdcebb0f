"""From a parse to the clauses of its phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import lark
import numpy as np

from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.said import NotRead, Slots, Tree, span
from movlr_jax.tasks.words.scene import floats
from movlr_jax.tasks.words.sentence import Sentence
from movlr_jax.tasks.words.verbs_body import BodyVerbs

_OF_LEGS = ("knee", "foot", "leg", "thigh", "paw", "toe")


class Interpreter(BodyVerbs):
    """Makes clauses of one parse, each by the method that is named after the verb in the grammar."""

    def sentence(self, tree: Tree) -> Sentence:
        phases: list[list[c.Clause]] = []
        for phase in tree.children:
            for found in self._phase(phase):
                if self._merged(phases, found):
                    continue
                phases.append(found)
        if len(phases) > 1:
            phases = [self._with_amounts(phase) for phase in phases]
        balance = self.scene.stands if self.balance is None else self.balance and self.scene.rises
        every = [clause for phase in phases for clause in phase]
        goes = any(
            cl.touches in ("place", "heading")
            or isinstance(cl, c.Jump | c.Shifted)
            or (isinstance(cl, c.Near) and not all(map(self.scene.own, cl.parts)))  # it may go to the object
            for cl in every
        )
        if (
            balance
            and every
            and not goes
            and not any(isinstance(cl, c.Never) for cl in every)
            and self.scene.stands
        ):
            phases[-1].append(c.Stay(self.scene.of))
        if not every and not balance:
            raise NotRead(self.text, "asks for nothing that can be measured")
        return Sentence(
            self.text,
            self.scene.of,
            tuple(tuple(dict.fromkeys(p)) for p in phases if p),
            balance,
            self.lowest,
        )

    def _merged(self, phases: list[list[c.Clause]], found: Sequence[c.Clause]) -> bool:
        """Add "then stand up" to a squat before it, which then comes up again."""
        before = phases[-1] if phases else []
        if [type(cl) for cl in found] == [c.Stay] and any(isinstance(cl, c.Squat) for cl in before):
            phases[-1] = [replace(cl, returns=True) if isinstance(cl, c.Squat) else cl for cl in before]
            return True
        return False

    def _with_amounts(self, phase: list[c.Clause]) -> list[c.Clause]:
        """Give a travel without an amount one: what comes before or after another phase has an end."""
        return [
            replace(cl, distance=float(f"{1.5 * cl.speed:.2g}"))
            if isinstance(cl, c.Travel)
            and cl.distance is None
            and not any(isinstance(o, c.Lasts) for o in phase)
            else cl
            for cl in phase
        ]

    def _phase(self, tree: Tree) -> list[list[c.Clause]]:
        """Return the clauses of a phase; as two phases where something is picked up and then put down."""
        self.stops = ""
        groups: list[list[c.Clause]] = [[]]
        for clause in tree.children:
            picked = self.verb == "pick up" and groups[-1]
            made = self._clause(clause)
            if picked and any(isinstance(cl, c.Near) and cl.must for cl in made):
                groups.append([])
            groups[-1] += made
        for i, group in enumerate(groups):
            groups[i] = self._placed(self._consistent(group))
        return groups

    def _consistent(self, phase: list[c.Clause]) -> list[c.Clause]:
        """Return the clauses of a phase, if they can hold together. Raises NotRead."""
        for kind in (c.Turn, c.Travel, c.Face):
            found = [cl for cl in phase if isinstance(cl, kind)]
            if len(found) > 1:
                one, two = found[:2]
                word = c.side(two.sign) if isinstance(two, c.Turn) else two.word
                why = f"contradicts {one.text()!r} at the same time; say which is first, with 'then'"
                raise NotRead(word, why)
        if any(isinstance(cl, c.Travel | c.Jump) and cl.touches == "place" for cl in phase):
            if self.stops:
                raise NotRead(
                    self.stops, "contradicts a travel at the same time; say which is first, with 'then'"
                )
            phase = [cl for cl in phase if not isinstance(cl, c.Stay)]
        ups = {(cl.part, cl.sign) for cl in phase if isinstance(cl, c.Raised)}
        if both := [part for part, sign in ups if (part, -sign) in ups]:
            raise NotRead(both[0].words, "cannot go up and down at once")
        if any(isinstance(cl, c.Stepping) for cl in phase):  # "lifting the knees high" is how it steps
            lifted = [
                cl for cl in phase if isinstance(cl, c.Raised) and cl.part.words.split()[-1] in _OF_LEGS
            ]
            phase = [
                replace(cl, high=0.1) if isinstance(cl, c.Stepping) and lifted else cl
                for cl in phase
                if cl not in lifted
            ]
        if any(isinstance(cl, c.Squat) for cl in phase) and any(isinstance(cl, c.Stay) for cl in phase):
            phase = [
                replace(cl, returns=True) if isinstance(cl, c.Squat) else cl
                for cl in phase
                if not isinstance(cl, c.Stay)
            ]
        bends = [cl for cl in phase if isinstance(cl, c.Bent)]
        alone = len(bends) == len(phase)
        return [replace(cl, still=cl.still and alone) if isinstance(cl, c.Bent) else cl for cl in phase]

    def _placed(self, phase: list[c.Clause]) -> list[c.Clause]:
        """Turn the ways of a phase into the world, from where and how the body should be when it begins."""
        turns = next((cl for cl in phase if isinstance(cl, c.Turn)), None)
        placed: list[c.Clause] = []
        for cl in phase:
            if isinstance(cl, c.Travel) and not cl.word.startswith(("to ", "along ")):
                seen = bool(turns) or self.yaw is None
                way = np.asarray(cl.way) if seen else self.scene.turned(np.asarray(cl.way), self.yaw or 0.0)
                cl = replace(
                    cl, way=floats(way), turns=seen and abs(float(way @ np.asarray(self.scene.of.up))) < 0.7
                )
            if isinstance(cl, c.Travel):
                cl = replace(cl, begun=floats(self.travelled), leads=self.leads)
                self.leads = False
            if isinstance(cl, c.Turn) and self.yaw is not None:
                cl = replace(cl, begun=self.yaw)
            placed.append(cl)
        for cl in placed:
            if isinstance(cl, c.Travel):
                distance = cl.distance if cl.distance is not None else 1.5 * cl.speed
                self.travelled = self.travelled + distance * np.asarray(cl.way)
                self.risen = (self.risen or 0.0) + distance * float(np.dot(cl.way, self.scene.of.up))
            if isinstance(cl, c.Turn):
                self.yaw = None if cl.angle is None or self.yaw is None else self.yaw + cl.sign * cl.angle
        return placed

    def _clause(self, tree: Tree) -> list[c.Clause]:
        if tree.data == "posture":
            return self._posture(tree)
        children = list(tree.children)
        negated = isinstance(children[0], lark.Token) and children[0].type in ("NOT", "WITHOUT")
        children = children[1:] if negated else children
        if tree.data == "elided":
            if self.verb is None or self.verb.type not in (
                "TRAVEL",
                "TURN",
                "STEP",
                "RAISE",
                "LOWER",
                "BEND",
                "STRAIGHTEN",
                "WAVE",
                "TOUCH",
                "POINT",
                "KEEP",
                "JUMP",
            ):
                raise NotRead(self._span(tree), "has no verb", span(tree, self.text)[1])
        elif isinstance(children[0], lark.Tree):  # posture
            return self._posture(children[0])
        else:
            self.verb, *children = children
        verb = self.verb
        assert verb is not None
        slots = Slots(
            self.text, str(verb), [s for s in children if isinstance(s, lark.Tree) and s.data != "extent"]
        )
        seconds = slots.one("duration")
        make: Callable[[Slots, str], list[c.Clause]] = getattr(self, f"_{verb.type.lower()}")
        balance, lowest = self.balance, self.lowest
        made = make(slots, str(verb))
        slots.done()
        if negated:
            self.balance, self.lowest = (True if verb.type == "FALL" else balance), lowest
            return self._never(made, verb)
        if seconds:
            made = [*made, c.Lasts(self._number(seconds))]
        if not made and verb.type not in ("STAY", "KEEP", "STAND"):
            raise NotRead(str(verb), "asks for nothing that can be measured here", verb.start_pos or 0)
        return made

    def _never(self, made: Sequence[c.Clause], verb: lark.Token) -> list[c.Clause]:
        found: list[c.Clause] = []
        for cl in made:
            if verb.type == "FALL":
                continue
            if isinstance(cl, c.Travel):
                found.append(c.Stay(self.scene.of))
            elif isinstance(cl, c.Turn | c.Jump | c.Bent | c.Raised | c.Waved | c.Near | c.Joint | c.Squat):
                found.append(c.Never(cl))
            else:
                raise NotRead(str(verb), "cannot be excluded", verb.start_pos or 0)
        return found
