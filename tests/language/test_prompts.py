"""The full text of every message for one task, compared with tests/golden/; MOVLR_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from grasping import built
from scipy.spatial.transform import Rotation

from movlr_jax._util.resources import resource_dir
from movlr_jax.evolution.scripted.metrics import ReflectionCritic
from movlr_jax.language import critic as critics
from movlr_jax.language import judge as judges
from movlr_jax.language import prompts
from movlr_jax.language import proposer as writers
from movlr_jax.language.base import Critique, Evaluation, Loss, ProposalRequest, TermAdvice
from movlr_jax.language.clients.answers import CritiqueForm, Descriptor, Descriptors
from movlr_jax.language.clients.call import Media, Message
from movlr_jax.language.media import Seen
from movlr_jax.language.settings import ShownConfig
from movlr_jax.rewards import shaping
from movlr_jax.rewards.state import state_table
from movlr_jax.sandbox import facade, graph, limits
from movlr_jax.sandbox.source import parse
from movlr_jax.tasks import Task
from movlr_jax.tasks.instruction import with_instruction

GOLDEN = Path(__file__).parent / "golden" / "bottle_pour"
SOURCE = '''"""Bring the bottle."""

WEIGHTS = {"position": 100.0}


def reward(state, action):
    return {"position": -state.pos("bottle")[2]}
'''
CURVE = [round(-5 + 0.02 * i, 3) for i in range(200)]
BEST = Evaluation(
    1, 2, SOURCE, weights={"position": 100.0}, metrics={"success": 0.0, "object_position_error_m": 0.07,
    "object_orientation_error_rad": 0.5, "effort": 0.01}, terms={"position": {"mean": -0.05, "curve": CURVE}},
    curve_time=[round(0.015 * i, 3) for i in range(200)],
)  # fmt: skip
CRITIQUE = Critique(
    False,
    ["the bottle is not lifted", "the wrist is bent to the little finger's side"],
    [
        TermAdvice("strengthen", "position", "the bottle stays low", 150.0),
        TermAdvice("add", "grip", "closed fingers"),
    ],
    "gemini gemini-3.8-flash",
    observation="The hand closes beside the bottle and moves up without it.",
)
POOREST, RICHEST = (
    replace(BEST, series={"object_tilt_deg": [-level * value for value in CURVE]}) for level in (9.0, 3.0)
)
FIRST = Evaluation(0, 0, SOURCE, weights={"position": 40.0})
RESULT = "4 trials: 1 of 4 succeed, 6.0 cm off; the poorest: does not succeed, 11.0 cm off"
LOSSES = (
    Loss(
        Evaluation(1, 0, SOURCE, weights={"position": 90.0}),
        "lost as the first motion: it drops it",
        "Pulls\nless, so that the grip holds.",
    ),
    Loss(Evaluation(1, 1, "def", reason="line 1: invalid syntax"), "line 1: invalid syntax"),
)  # fmt: skip


class MotionMedia:
    """What is seen, without a renderer."""

    def __init__(self, mode: str, **settings):
        self.mode, self.config = mode, ShownConfig(**settings)

    def see(self, candidate: Evaluation) -> Seen:
        seconds = 1.5 if candidate.candidate == 3 else 3.0  # one motion ends early
        if self.mode == "video":
            return Seen([Media("video/mp4", candidate.name.encode(), 8.0)], seconds)
        names = [f"{candidate.name} {i}" for i in range(self.config.frames)]
        times = tuple(np.linspace(0.0, seconds, len(names)).tolist())
        return Seen([Media("image/jpeg", name.encode()) for name in names], seconds, times)


class ModelClient:
    """Keeps the questions, answers with descriptors."""

    name = "gemini gemini-3.8-flash"

    def __init__(self):
        self.questions = []

    def ask(self, questions):
        self.questions += questions
        seen = [Descriptor(region="hands", label="thumb and index close at 0.4 s", confidence=0.7)]
        described = Descriptors(descriptors=seen, success=False, alignment=0.45)
        critique = CritiqueForm(observation="", success=False, problems=[], advice=[])
        return [
            SimpleNamespace(value=described if q.schema is Descriptors else critique, problem=None) for q in questions
        ]


@pytest.fixture(scope="module")
def task() -> Task:
    return built("bottle_pour", "myoarm_r")


@pytest.fixture(scope="module")
def messages(task: Task) -> dict[str, str]:
    """Every conversation, by its purpose."""
    film, frames = MotionMedia("video", slow=2.0, views=2), MotionMedia("frames", frames=4)
    first = ProposalRequest(0, task, None, None, (), 0, looks_ahead_s=0.4, control_s=0.016)
    best = replace(POOREST, parent=FIRST.name)
    later = ProposalRequest(
        2, task, best, CRITIQUE, (FIRST, best), 0, losses=LOSSES, result=RESULT, trials=(POOREST, RICHEST)
    )
    broken = writers._Slot(SOURCE, "", "line 6: there is no body 'bottel'; did you mean 'bottle'?")
    client = ModelClient()
    describing = critics.DescriptorCritic(client, frames)  # pyright: ignore
    described = describing.criticise(task, BEST)
    seen = replace(LOSSES[0].candidate, description=describing.describe(task, [FIRST])[0])
    critics.ModelCritic(client, film).criticise(task, BEST)  # pyright: ignore
    reflection = ReflectionCritic().criticise(task, BEST)
    words = with_instruction(task, "raise the arm by 10 cm, then whistle")
    conversations = {
        "measures": [Message("user", [prompts.measures_text(words)])],
        "propose_first": writers.edit_talk(first),
        "propose_first_tried": writers.edit_talk(replace(first, result=RESULT, trials=(POOREST, BEST, RICHEST)))[1:],
        "propose_edit": writers.edit_talk(later)[1:],
        "repair": writers._repair_request(broken),
        "judge_film": judges.judge_question(film, task, BEST, replace(BEST, candidate=3)).messages,  # pyright: ignore
        "judge_frames": judges.judge_question(frames, task, BEST, replace(BEST, candidate=3)).messages,  # pyright: ignore
        "describe": client.questions[0].messages,
        "critique": client.questions[2].messages,
        "eureka_first": writers.eureka_talk(first)[1:],
        "eureka_later": writers.eureka_talk(replace(later, critique=reflection))[1:],
        "eureka_failed": [Message("user", [prompts.reflection(task, replace(BEST, reason="it diverged"))])],
        "motionvl": writers.motionvl_talk(
            replace(later, critique=described, losses=(replace(LOSSES[0], candidate=seen), LOSSES[1]))
        )[1:],
        "weight_range": [Message("user", [prompts.weight_range(0.0, 1.0)])],
        "direction": [Message("user", [prompts.direction(g, i, 3) for g in (0, 1) for i in range(3)])],
        "vlm_only": writers.watching_talk(film)(later)[1:],  # pyright: ignore
        "ready": [Message("user", [prompts.fill("ready")])],
    }
    return {name: text_of(conversation) for name, conversation in conversations.items()}


def text_of(conversation) -> str:
    lines = []
    for message in conversation:
        lines.append(f"=== {message.role}")
        lines += [part if isinstance(part, str) else f"[{part.mime}]" for part in message.parts]
    return "\n".join(lines) + "\n"


def test_critique_by_numbers_says_nothing_of_success_where_none_is_measured():
    critique = replace(CRITIQUE, observation="")
    assert "not completed" in prompts.critique_text(critique, BEST)
    assert "completed" not in prompts.critique_text(critique, replace(BEST, metrics={"return": 490.0}))


def test_messages_are_the_golden_ones(messages: dict[str, str]):
    if os.environ.get("MOVLR_GOLDEN"):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for name, text in messages.items():
            (GOLDEN / f"{name}.txt").write_text(text)
    assert {p.stem for p in GOLDEN.glob("*.txt")} == set(messages)
    for name, text in messages.items():
        assert text == (GOLDEN / f"{name}.txt").read_text(), name


def test_templates_are_all_used(task: Task, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    templates = {p.stem: p.read_text() for p in resource_dir("prompts").glob("*.md") if p.stem != "README"}
    code = "".join(p.read_text() for p in (Path(prompts.__file__).parent.parent).rglob("*.py"))
    included = "".join(templates.values())
    assert [n for n in templates if f'"{n}"' not in code and f'{{% include "{n}.md" %}}' not in included] == []


def test_system_message_lists_the_state_calls_of_the_task(task: Task, messages: dict[str, str]):
    said = messages["propose_first"]
    # without use for an arm with z up: there is no recorded motion, gait, heading or sensor
    useless = ("up", "reference(joint)", "gait_phase", "goal_heading", "capture_point", "sensor(name)")
    for call, _, _ in state_table():
        assert (f"`{call}`" in said) == (call.removeprefix("state.") not in useless), call
    for name in (
        "`bottle`",
        "`palm`" if "palm" in task.layout.sites else "`bottle`",
        "`object_pos`",
        "shaping.smooth_abs(x, p=0.1)",
    ):
        assert name in said
    parse(prompts.EXAMPLE)  # the worked example is a program
    parse(re.findall(r"```python\n(.*?)```", said, flags=re.DOTALL)[0])


def test_system_message_lists_all_names_in_scope(messages: dict[str, str]):
    said = messages["propose_first"]
    for module, names in facade.offered():
        assert f"\n- `{module}`: {', '.join(names)}.\n" in said
    for names in (facade.BUILTINS, *facade.ATTRIBUTES.values()):
        assert ", ".join(names) in said
    listed = {name for _, names in facade.offered() for name in names}
    parts = {path.rpartition(".")[2] for path in facade.MODULES}
    left = {
        name
        for path, names in facade.MODULES.items()
        if path not in ("shaping", "typing", "enum", "types")
        for name in names
    }
    assert left - listed - parts == set()
    for limit in (graph.MAX_EQUATIONS, graph.MAX_TURNS, graph.MAX_ELEMENTS, limits.MAX_ENTRIES):
        assert f" {limit:,} " in said


def test_system_message_rotations_compute_what_they_say(messages: dict[str, str]):
    """Each expression of the section, in the functions of a program, against scipy's rotations."""
    said = messages["propose_first"].partition("## Vectors and rotations")[2].partition("=== ")[0]
    rng = np.random.default_rng(0)
    turned, begun = Rotation.from_euler("ZYX", [0.9, 0.4, -0.3]), Rotation.random(rng=rng)
    u, v = rng.standard_normal((2, 3))
    a, b = u / np.linalg.norm(u), v / np.linalg.norm(v)
    given = {"rot": turned.as_matrix(), "start": begun.as_matrix(), "u": u, "v": v, "a": a, "b": b}
    given = {name: jnp.asarray(value) for name, value in given.items()}
    expected = {
        "rot[:, 0]": turned.apply([1, 0, 0]),
        "rot[:, 1]": turned.apply([0, 1, 0]),
        "rot[:, 2]": turned.apply([0, 0, 1]),
        "rot[2, 2]": np.cos(np.arccos(turned.apply([0, 0, 1])[2])),
        "rot @ v": turned.apply(v),
        "rot.T @ v": turned.inv().apply(v),
        "jnp.dot(u, v)": sum(u * v),
        "jnp.cross(u, v)": [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]],
        "jnp.linalg.norm(v)": np.sqrt(sum(v * v)),
        "v / (jnp.linalg.norm(v) + 1e-6)": b,
        "jnp.arctan2(jnp.linalg.norm(jnp.cross(a, b)), jnp.dot(a, b))": np.arccos(a @ b),
        "jnp.arctan2(rot[1, 0], rot[0, 0])": 0.9,
        "rot @ start.T": (turned * begun.inv()).as_matrix(),
        "shaping.rotation_error(rot, start)": (turned * begun.inv()).magnitude(),
    }
    for text, value in expected.items():
        assert f"`{text}`" in said, text
        found = eval(text, {"jnp": jnp, "shaping": shaping}, given)
        np.testing.assert_allclose(found, value, atol=1e-5, err_msg=text)
    names = 'rot, start = state.rot("bottle"), state.initial.rot("bottle"); u = v = a = b = rot[0]'
    parse(SOURCE.replace("    return", f"    {names}; _ = [{', '.join(expected)}]\n    return"))


def test_success_measure_stays_hidden_from_writers_and_judges(messages: dict[str, str]):
    for name, text in messages.items():
        if not name.startswith("eureka_later"):  # Eureka's feedback is the task's score
            assert "object_position_error" not in text
            assert "0.07" not in text, name


def test_requests_made_together_differ_with_directions_and_show_the_model_with_mjcf(task: Task):
    sent = []

    class Client(ModelClient):
        def ask(self, questions):
            sent.append([text_of(q.messages) for q in questions])
            program = SimpleNamespace(program=SOURCE, changes="")
            return [SimpleNamespace(value=program, problem=None) for _ in questions]

    for directed in (True, False):
        proposer = writers.ModelProposer(Client(), directed=directed, mjcf=directed)  # pyright: ignore
        for generation in (0, 2):
            proposer.propose(ProposalRequest(generation, task, BEST, CRITIQUE, (BEST,), 0), 4)
    assert [len(set(texts)) for texts in sent] == [4, 4, 1, 1]
    assert ["<worldbody>" in texts[0] for texts in sent] == [True, True, False, False]


def test_measures_of_a_motion_from_words_are_told_when_a_program_is_edited_too(task: Task):
    wave = with_instruction(task, "raise the right hand by 10 cm")
    first, edit = (
        text_of(writers.edit_talk(ProposalRequest(0, wave, parent, None, (), 0))) for parent in (None, BEST)
    )
    assert "Measures of an episode for what the words ask:" in first
    assert "Measures of an episode for what the words ask:" in edit


def test_motions_that_their_environment_ended_are_told_until_then():
    times = [round(0.01 * i, 2) for i in range(200)]

    def trial(end: float | None) -> Evaluation:
        ended = {} if end is None else {"terminated": 1.0, "terminated_s": end}
        return replace(BEST, metrics={"return": 10.0, **ended}, curve_time=times, series={"height_m": times})

    def told(*ends: float | None) -> dict[str, Any]:
        trials = [trial(end) for end in ends]
        return prompts.trials(ProposalRequest(1, None, trials[0], None, (), 0, trials=trials))  # pyright: ignore

    found = told(0.5, 1.0, None)
    poorest, best = found["motions"]
    assert (poorest["early"], best["early"]) == (["was ended by the environment at 0.5 s"], [])
    assert (poorest["times"][-1], best["times"][-1]) == ("0.5", "2")
    assert poorest["measured"] == [("height_m", "0, 0.12, 0.25, 0.38, 0.5 (0, 0.25, 0.5)")]
    assert found["ends"] == [("time_s", "0.5 to 1"), ("height_m", "0.5 to 1")]
    assert len(told(None)["motions"]) == 1


def test_a_critic_that_found_nothing_is_not_quoted():
    nothing = Critique(False, [])
    assert prompts.critique_text(nothing, replace(BEST, metrics={"return": 1.0})) == ""
    assert "not completed" in prompts.critique_text(nothing, BEST)
