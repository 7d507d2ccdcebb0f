"""The page of `vote RUN_DIR`: which candidates of a finished run people compare next, and what came out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from movlr_jax.errors import UserError
from movlr_jax.evolution.calibration import agreed, judged_pairs, recorded_verdicts
from movlr_jax.evolution.pairwise import BUDGET, ENOUGH, REPEATS, Presentation, RankingProgress, next_pair, sided
from movlr_jax.film.captions import STRIP
from movlr_jax.language.clients.person import program_card
from movlr_jax.records import Comparison, Evaluation, Preference
from movlr_jax.report.data import Run
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.events import written
from movlr_jax.storage.layout import candidate_path
from movlr_jax.voting.questions import cameras, film_name, people
from movlr_jax.voting.votes import MODEL, PROVIDER, Vote, Winner, votes_of

KIND = "voted"  # event with the ranking by people
_SHARED = 3  # one of so many votes of a rater is on a pair that another one voted on, to measure agreement


@dataclass(frozen=True)
class Film:
    """A film in the run directory."""

    path: str
    views: int | None  # cameras side by side; None: to be seen from its shape
    strip: float  # height of the captions above and below, as a share of the film


class RunQuestions:
    """Pools the votes of all raters in one active ranking. Not safe for several threads."""

    def __init__(self, archive: Archive, run: Run):
        self._archive, self._run = archive, run
        films = {c.name: _film(archive, run, c) for c in run.candidates.values() if not c.failed}
        self._films = {name: film for name, film in films.items() if film}
        self._names = list(self._films)
        if len(self._names) < 2:
            raise UserError(
                f"{archive.root} has {len(self._names)} candidates with a film, and a comparison needs 2; films are "
                "made unless films=false"
            )
        self._ids = {film_name(f"{archive.root} {name}".encode()): name for name in self._names}
        calls = archive.calls()
        # an undo raises the number too, so there may be fewer calls; a number used again would repeat a key
        numbers = [call.get("sample") for call in calls if call.get("provider") == PROVIDER]
        self._number = 1 + max((n for n in numbers if isinstance(n, int)), default=-1)
        self.votes = [v for v in votes_of(calls) if {v.first, v.second} <= {*self._names}]
        self._kept: tuple[tuple[Vote, ...], RankingProgress] | None = None
        self._shown: dict[str, tuple[str, tuple[str, str]]] = {}  # rater -> id of the question, pair

    def state(self, rater: str, further: bool) -> dict[str, Any]:
        standing = self.standing
        pair = self._pair_for(rater, further)
        if pair:
            question = self._compare_card(rater, pair)
        else:
            question = {"kind": "results", "id": "results", **self._task(), **self.results()}
        return {
            "mode": "run",
            "question": question,
            "waiting_for": "",
            "needs_raters": 1,
            "standing": standing.record(),
            "undo": any(vote.rater == rater for vote in self.votes),
            **people(self.votes),
        }

    @property
    def standing(self) -> RankingProgress:
        """The ranking by the votes so far. It is kept until they change, since it simulates its ending."""
        votes = tuple(self.votes)
        if self._kept is None or self._kept[0] != votes:
            self._kept = votes, self._ranked()
        return self._kept[1]

    def _ranked(self) -> RankingProgress:
        raters = len({vote.rater for vote in self.votes}) or 1
        presentation = Presentation(1, REPEATS * raters)
        budget = BUDGET * len(self._names)
        return RankingProgress(self._names, (), self._comparisons(), budget, presentation)

    def film(self, name: str) -> bytes | None:
        candidate = self._ids.get(name)
        return self._archive.read(self._films[candidate].path) if candidate else None

    def vote(self, rater: str, question: str, winner: Winner, reason: str) -> None:
        shown, (first, second) = self._shown.get(rater, ("", ("", "")))
        if shown != question:
            raise UserError("this pair is no longer shown to you; here is the next one")
        key = self._log(rater, "judge", f"{first} {second}", Vote("", rater, first, second, winner, reason).answer)
        self.votes.append(Vote(key, rater, first, second, winner, reason))
        del self._shown[rater]
        self.record()

    def criticise(self, rater: str, question: str, form: Mapping[str, Any]) -> None:
        best = self.results()["best"]["name"]
        self._log(rater, "criticise", best, json.dumps(form))

    def undo(self, rater: str) -> None:
        vote = next((vote for vote in reversed(self.votes) if vote.rater == rater), None)
        if vote is None:
            raise UserError("you have no vote to take back")
        self._archive.retract_call(vote.key)
        self.votes.remove(vote)
        self._number += 1
        self._shown[rater] = (self._id(rater), (vote.first, vote.second))  # the same pair again
        self.record()

    def record(self) -> None:
        """Record the ranking by people, in the form of every ranking."""
        if not self.votes:  # the last one has been taken back
            self._archive.forget(KIND, -1)
            return
        ranking = self.standing.ranking
        votes = [{n: getattr(v, n) for n in ("first", "second", "winner", "reason", "rater")} for v in self.votes]
        kept = {"names": list(self._names), "best": ranking.order[0]} | {
            key: [
                None if name in ranking.unranked else float(v)
                for name, v in zip(self._names, getattr(ranking, key), strict=True)
            ]
            for key in ("strengths", "deviation", "p_best")
        }
        self._archive.record(KIND, {**kept, "comparisons": votes, "agreement": people(self.votes)["agreement"]})

    def results(self) -> dict[str, Any]:
        """Return the ranking by people next to the judge's."""
        ranking = self.standing.ranking
        p_best = dict(zip(self._names, ranking.p_best, strict=True))
        rows = [
            {
                "name": name,
                "p_best": None if name in ranking.unranked else float(p_best[name]),
                "votes": sum(name in vote.pair for vote in self.votes),
                "film": self._card(name),
            }
            for name in ranking.order
        ]
        judge = str((self._run.about.get("backends") or {}).get("judge") or "the judge of the run")
        said = recorded_verdicts(g.ranking for g in self._run.generations if g.ranking)
        pairs = judged_pairs(self.votes, {judge: said})
        best = self._run.candidates[ranking.order[0]]
        same, both = agreed(pairs, judge)
        return {
            "rows": rows,
            "best": {"name": best.name, "films": [self._card(best.name)], **program_card(written(best))},
            "judge": {
                "name": judge,
                "best": self._run.best.name if self._run.best else None,
                "same": same,
                "both": both,
            },
        }

    def _pair_for(self, rater: str, further: bool) -> tuple[str, str] | None:
        """Return the pair that this rater sees, (left, right): the one shown before, or the next one."""
        if rater in self._shown:
            return self._shown[rater][1]
        pair = self._next(rater, further)
        if pair is None:
            return None
        shown = sided(pair, [(c.first, c.second) for c in self._comparisons()])
        self._shown[rater] = (self._id(rater), shown)
        return self._shown[rater][1]

    def _next(self, rater: str, further: bool) -> tuple[str, str] | None:
        mine = [vote.pair for vote in self.votes if vote.rater == rater]
        others = [vote.pair for vote in self.votes if vote.rater != rater]
        if sum(pair in others for pair in mine) * _SHARED < len(mine):
            for pair in others:
                if pair not in mine:
                    first, second = sorted(pair, key=self._names.index)
                    return first, second
        standing = self.standing
        if not further and not standing.at_most:
            return None
        most = None if further else standing.presentation.most
        pair = next_pair(self._names, self._names, (), standing.new, 2.0 if further else ENOUGH, most)
        often = pair is not None and mine.count(frozenset(pair)) >= REPEATS
        return None if often and not further else pair

    def _comparisons(self) -> list[Comparison]:
        return [Comparison.of(v.first, v.second, Preference(v.winner, v.reason)) for v in self.votes]

    def _id(self, rater: str) -> str:
        return hashlib.sha256(json.dumps([rater, self._number]).encode()).hexdigest()[:24]

    def _log(self, rater: str, purpose: str, about: str, answer: str) -> str:
        """Record an answer as the call of a judge or a critic. Return its key."""
        key = hashlib.sha256(json.dumps([rater, purpose, about, self._number]).encode()).hexdigest()
        data = {
            "purpose": purpose, "provider": PROVIDER, "model": MODEL, "model_version": rater, "about": about,
            "sample": self._number, "answer": answer, "sent": False, "tokens_in": 0, "tokens_out": 0, "cost_usd": 0.0,
        }  # fmt: skip
        self._archive.log_call(key, "answered", data)
        self._number += 1
        return key

    def _compare_card(self, rater: str, pair: tuple[str, str]) -> dict[str, Any]:
        films = [self._card(name) for name in pair]
        return {**self._task(), "kind": "compare", "id": self._shown[rater][0], "films": films}

    def _card(self, name: str) -> dict[str, Any]:
        film = self._films[name]
        (ident,) = (ident for ident, known in self._ids.items() if known == name)
        return {"id": ident, "views": film.views, "strip": film.strip}

    def _task(self) -> dict[str, Any]:
        about = self._run.about
        task = str(about.get("description") or about.get("task") or "")
        return {"task": task, "details": "", "slow": 1.0, "cameras": cameras(about)}


def _film(archive: Archive, run: Run, candidate: Evaluation) -> Film | None:
    """Return the film without captions that was made for a judge, or else the film with captions, or None."""
    seen = candidate_path(candidate.generation, candidate.candidate, "_seen.mp4")
    if archive.has(seen):
        views = (run.about.get("settings") or {}).get("vlm.views")
        return Film(seen, views if isinstance(views, int) else None, 0.0)
    path = candidate_path(candidate.generation, candidate.candidate, ".mp4")
    return Film(path, None, STRIP) if archive.has(path) else None
