"""Servers with habits that users report: refused parameters, reasoning in answers, answers in other places."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from fake_servers import in_pieces
from model_calls import judging, question, writing
from odd_answers import ANSWER, PROGRAM, openai, written

from movlr_jax.errors import UserError
from movlr_jax.language.clients.answers import Judgement, Program, program_in, read
from movlr_jax.language.clients.call import BadAnswer, Reply
from movlr_jax.storage.archive import Archive

DRAFT = PROGRAM.replace("near", "draft")
FINAL_JSON = json.dumps({"changes": "a", "program": PROGRAM})
DRAFT_JSON = json.dumps({"changes": "first idea", "program": DRAFT})
FINAL, OLD = f"```python\n{PROGRAM}\n```", f"```python\n{DRAFT}\n```"
FIRST, SECOND = (json.dumps({**ANSWER, "winner": winner}) for winner in ("first", "second"))
DOUBT = "no, that turns the shoulder."
ANALYSIS, MESSAGE = "<|channel|>analysis<|message|>", "<|message|>"
CHANNEL = "<|start|>assistant<|channel|>final"

NOT_BEGUN = ("only the end", "tag of the answer", "after a sentence", "two kinds")
# what a model thinks, around a draft, and what comes between it and the answer
REASONING = {
    "think": ("<think>", "</think>"),
    "thought with attributes": ('<thought time="3 s">', "</thought>"),
    "after a sentence": ("Let me see. <think>", "</think>"),
    "only the end": ("", "</think>"),
    "begun twice": ("<think>one <think>two ", "</think> three </think>"),
    "two kinds": ("<think>so</think><reasoning>", "</reasoning>"),
    "square brackets": ("[THINK]", "[/THINK]"),
    "another namespace": ("<seed:think>", "</seed:think>"),
    "tokens of Cohere": ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    "triangles": ("◁think▷", "◁/think▷"),
    "harmony": (ANALYSIS, f"<|end|>{CHANNEL}{MESSAGE}"),
    "harmony with a format": (ANALYSIS, f"<|end|>{CHANNEL} <|constrain|>json{MESSAGE}"),
    "harmony without tokens": ("analysisWe need ", "assistantfinal"),
    "channels of Gemma": ("<|channel>thought\n", "<channel|>"),
    "tag of the answer": ("Let me think. ", "<answer>"),
    "a details element": ('<details type="reasoning" done="true"><summary>Thought</summary>', "</details>"),
    "phrases": ("Here is my thought process: ", "Here is my response:"),
}


@pytest.mark.parametrize("name", REASONING)
@pytest.mark.parametrize("draft", [DRAFT_JSON, f"\n{OLD}\n", DRAFT], ids=["JSON", "fence", "bare"])
@pytest.mark.parametrize("final", [FINAL_JSON, FINAL, PROGRAM], ids=["JSON", "fence", "bare"])
def test_draft_in_the_reasoning_is_not_the_program(name: str, draft: str, final: str):
    begin, end = REASONING[name]
    if final == PROGRAM:
        begin = begin.removeprefix("Let me see. ")  # a bare program stands alone
    form: Any = read(Program, Reply(f"{begin}Maybe {draft} - {DOUBT}{end}\n{final}", "m"))
    assert program_in(form.program) == PROGRAM


@pytest.mark.parametrize("name", REASONING)
@pytest.mark.parametrize(
    "final",
    [
        "winner: second",
        SECOND[:-8],
        SECOND.replace('"second"', '"second motion"'),
        f"{SECOND}\nor\n{SECOND[:-4]}",
        "",
    ],
)
def test_judgement_in_the_reasoning_is_not_the_answer(name: str, final: str):
    begin, end = REASONING[name]
    with pytest.raises(BadAnswer):
        read(Judgement, Reply(f"{begin}{FIRST} no, wait.{end}\n{final}", "m"))
    said = json.dumps({**ANSWER, "reason": "the <think> tag and </think>"})
    form: Any = read(Judgement, Reply(said if name == "think" else f"{begin}{FIRST} no, wait.{end}\n{SECOND}", "m"))
    assert form.winner == "second"


@pytest.mark.parametrize("name", [n for n in REASONING if n not in NOT_BEGUN])
def test_reasoning_that_does_not_end_is_an_empty_answer(name: str):
    with pytest.raises(BadAnswer, match=r"the answer is empty: its \d+ characters are reasoning, which does not end"):
        read(Judgement, Reply(f"{REASONING[name][0]}{FIRST} no, wa", "m"))


@pytest.mark.parametrize(
    "mark",
    ["<think>", "</think>", "<details ", "<|channel|>commentary ", "~~~~\n", '{"a":', "{", "```\n", '{"a', "{}"],
)
def test_text_that_is_hard_to_search_is_read_in_time(mark: str):
    begun = time.process_time()
    with pytest.raises(BadAnswer):
        read(Program, Reply(f"a {mark * (1_000_000 // len(mark))}", "m"))
    assert time.process_time() - begun < 6.0


RAW = '{"changes": "a", "program": "' + PROGRAM.replace('"', '\\"') + '"}'  # with line ends as they are
PROGRAMS = {
    "JSON": FINAL_JSON,
    "a JSON fence": f"```json\n{FINAL_JSON}\n```",
    "prose around JSON": f"Sure! Here is {{the}} answer:\n\n{FINAL_JSON}\n\nTell me what {{you}} think.",
    "JSON with line ends": RAW,
    "a fence that is not closed": f"```python\n{PROGRAM}\n",
    "a bare program": PROGRAM,
    "a fence in JSON": json.dumps({"changes": "a", "program": f"Here:\n{FINAL}"}),
    "line ends of Windows": PROGRAM.replace("\n", "\r\n"),
    "a byte order mark": f"\ufeff{FINAL_JSON}",
    "the old one first": f"The original:\n{OLD}\nIt becomes:\n{FINAL}",
    "part of a program last": f"{FINAL}\nThe part that changed:\n```\ndef reward(state, action):\n    return 1\n```",
    "a draft as JSON, then a fence": f"{DRAFT_JSON}\nOn second thoughts:\n{FINAL}",
    "tildes": f"~~~py\n{PROGRAM}\n~~~\nLet me know!",
    "four ticks": f"````python\n{PROGRAM}\n````",
    "in a list": "1. Program:\n\n" + "\n".join(f"   {line}" if line else "" for line in FINAL.split("\n")),
    "a signature of several lines": FINAL.replace("(state, action):", "(\n    state,\n    action,\n) -> dict:"),
    "a tool call as text": f'<tool_call>{{"name": "Program", "arguments": {FINAL_JSON}}}</tool_call>',
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_the_last_complete_one_of_an_answer(name: str):
    form: Any = read(Program, Reply(PROGRAMS[name], "m"))
    assert '"near"' in str(program_in(form.program))
    assert "draft" not in form.program


def test_text_of_an_answer_in_parts_is_read_without_its_reasoning(serve):
    parts = [{"type": "reasoning", "text": OLD}, {"type": "text", "text": "Here:\n"}, {"type": "text", "text": FINAL}]
    shape = openai(choices=[{"message": {"content": parts}, "finish_reason": "stop"}])
    answer = serve(shape=shape, brain=written, attempts=1).one(writing())
    assert program_in(answer.value.program) == PROGRAM


NOTHING = {
    "reasoning alone": ({"content": None, "reasoning_content": FIRST}, "stop", "the server sent only reasoning"),
    "cut off": ({"content": ""}, "length", "the answer was cut off at max_tokens"),
    "filtered": ({"content": None}, "content_filter", "blocked by a content filter"),
    "refused": ({"content": None, "refusal": "I cannot"}, "stop", "the model refused: I cannot"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_answer_without_content_says_what_came_instead(name: str, serve):
    message, reason, sentence = NOTHING[name]
    shape = openai(choices=[{"message": message, "finish_reason": reason}])
    answer = serve(shape=shape, attempts=1).one(judging())
    assert answer.value is None
    assert sentence in answer.problem


def error(message: str, status: int = 400, **more: Any) -> tuple[int, Any]:
    return status, {"error": {"message": message, "type": "invalid_request_error", **more}}


def extra(name: str) -> tuple[int, Any]:
    """As FastAPI says it, with the whole request in the message."""
    given = {"temperature": 1, "max_tokens": 2}
    return 422, {"detail": [{"loc": ["body", name], "msg": "Extra inputs are not permitted", "input": given}]}


def form(request: dict[str, Any]) -> Any:
    return (request.get("response_format") or {}).get("type")


# the refusal, if the request is like this, and what is sent in the end
REFUSALS = {
    "a temperature": (
        lambda r: "temperature" in r and error("Unsupported value: 'temperature' does not support 0.7 with this model"
                                               ". Only the default (1) value is supported.", param="temperature"),
        {"temperature": None},
    ),
    "a temperature, as pydantic": (lambda r: "temperature" in r and extra("temperature"), {"temperature": None}),
    "a schema": (
        lambda r: form(r) == "json_schema" and error("This response_format type is unavailable now"),
        {"response_format": {"type": "json_object"}},
    ),
    "every format": (
        lambda r: form(r) and error("structured outputs are not supported"), {"response_format": None},
    ),
    "max_tokens": (
        lambda r: "max_tokens" in r and error("Unsupported parameter: 'max_tokens' is not supported with this model. "
                                              "Use 'max_completion_tokens' instead.", param="max_tokens"),
        {"max_tokens": None, "max_completion_tokens": 8192},
    ),
    "one piece": (
        lambda r: not r.get("stream") and error("This model only support stream mode, please enable the stream "
                                                "parameter to access the model."), {"stream": True},
    ),
    "one thing after the other": (
        lambda r: ("temperature" in r and error("temperature: unexpected")) or (form(r) and extra("response_format"))
        or ("max_tokens" in r and error("max_tokens: unsupported")),
        {"temperature": None, "response_format": None, "max_tokens": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_parameter_is_changed_for_the_rest_of_the_run(name: str, serve, archive: Archive):
    refuse, changed = REFUSALS[name]
    asking = serve(refuse=lambda request: refuse(request) or None, attempts=1)
    assert asking.one().value.ready
    tried = len(asking.requests)
    assert 2 <= tried <= 6
    assert asking.one(question("more")).value.ready
    assert len(asking.requests) == tried + 1, "it is remembered"
    assert len(asking.said) == tried - 1
    assert all("the server refuses" in said and "llm.parameters" in said for said in asking.said)
    sent = asking.requests[-1]["body"]
    assert all(sent.get(name) == value for name, value in changed.items())
    for call in archive.calls():
        assert call["changed"] == changed
        assert call["parameters"]["max_tokens"] == 8192, "what was wanted is recorded, too"
        assert (call["tokens_in"], call["tokens_out"]) == (6500, 1500)
    assert archive.spent()[0] == 2, "a refused request is no answer that is paid"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 4096 tokens. However, you requested 21000 tokens (4808 in the "
              "messages, 16192 in the completion). Please reduce the length of the messages or completion."),
        (404, "no model m-1; see upstream"),
        (401, "temperature: the key is wrong"),
    ],
)  # fmt: skip
def test_other_refusal_is_an_error(status: int, message: str, serve):
    asking = serve(refuse=lambda request: error(message, status))
    with pytest.raises(UserError, match=message[:30]):
        asking.one()
    assert len(asking.requests) == 1


def test_parameters_of_the_settings_are_sent_or_left_out(serve, archive: Archive):
    more = {"top_p": 0.9, "chat_template_kwargs": {"enable_thinking": False}}
    asking = serve(parameters={"temperature": None, "response_format": None, **more})
    assert asking.one().value.ready
    body = asking.requests[0]["body"]
    assert not {"temperature", "response_format"} & body.keys()
    assert {name: body[name] for name in more} == more
    (call,) = archive.calls()
    assert call["parameters"]["top_p"] == 0.9


def test_stream_that_was_not_asked_for_is_read(serve):
    asking = serve(shape=in_pieces, headers={"Content-Type": "text/event-stream"}, brain=written)
    assert asking.one(writing()).value.program == PROGRAM
    assert not asking.requests[0]["body"].get("stream")


def test_stream_that_breaks_off_is_no_answer(serve):
    def broken(answer: dict[str, Any]) -> bytes:
        return in_pieces(answer)[:400]

    asking = serve(shape=broken, headers={"Content-Type": "text/event-stream"}, attempts=1)
    with pytest.raises(UserError, match="the stream ended before its last event"):
        asking.one()


@pytest.mark.parametrize("streams", [False, True])
def test_answer_in_a_tool_call_is_read(streams: bool, serve):
    tool = {"id": "t", "type": "function", "function": {"name": "Program", "arguments": FINAL_JSON}}

    def called(answer: dict[str, Any]) -> Any:
        message = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **tool}]}
        choice = {"index": 0, "finish_reason": "tool_calls", "delta" if streams else "message": message}
        whole = {**answer, "choices": [choice]}
        return f"data: {json.dumps(whole)}\n\ndata: [DONE]\n\n".encode() if streams else whole

    headers = {"Content-Type": "text/event-stream"} if streams else {}
    asking = serve(shape=called, headers=headers, brain=written, attempts=1)
    assert asking.one(writing()).value.program == PROGRAM


def test_answer_that_is_streamed_is_put_together(serve, archive: Archive):
    asking = serve(parameters={"stream": True, "stream_options": {"include_usage": True}})
    assert asking.one().value.ready
    assert asking.requests[0]["body"]["stream"] is True
    (call,) = archive.calls()
    assert (call["tokens_in"], call["tokens_out"]) == (6500, 1500)
