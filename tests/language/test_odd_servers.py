"""Servers as people run them, and worse: whatever comes over the wire, the search gets an answer or a sentence."""
# ruff: noqa: F811

from __future__ import annotations

import base64
import email.utils
import gzip
import json
import resource
import time
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import quote

import pytest
from fake_servers import Asked, FakeServer, scripted_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_clients import KEY, KINDS, Asking, archive, key, question  # noqa: F401

from movlr_jax._util.keys import redact
from movlr_jax.errors import BudgetSpent, UserError
from movlr_jax.language.base import ProposalRequest
from movlr_jax.language.clients.answers import Judgement, Program
from movlr_jax.language.clients.call import Message, Question
from movlr_jax.language.proposer import ModelProposer
from movlr_jax.storage.archive import Archive

READY = '{"ready": true}'
ANSWER = {"first_motion": "a", "second_motion": "b", "winner": "second", "reason": "c"}
PROGRAM = """\"\"\"Kick.\"\"\"

WEIGHTS = {"near": 1.0}


def reward(state, action):
    return {"near": -state.time}"""
Shape = Callable[[dict[str, Any]], Any]


def openai(content: Any = READY, **more: Any) -> Shape:
    """The envelope with another content, or with other things around it."""

    def shape(answer: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": content}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        return {**answer, "choices": choices, **more}

    return shape


def gemini(parts: Any = (), **more: Any) -> Shape:
    def shape(answer: dict[str, Any]) -> dict[str, Any]:
        content = {"role": "model", "parts": parts}
        return {**answer, "candidates": [{"content": content, "finishReason": "STOP"}], **more}

    return shape


def nested(depth: int) -> Shape:
    def shape(answer: dict[str, Any]) -> bytes:
        whole = json.dumps({**answer, "extra": "HERE"})
        return whole.replace('"HERE"', "[" * depth + "]" * depth).encode()

    return shape


def codes(text: str) -> list[str]:
    """What a terminal may obey."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c != "\n"]


def written(asked: Asked) -> dict[str, Any]:
    return {"changes": "a", "program": PROGRAM} if asked.wants == "program" else scripted_model(asked)


def program(text: str = "write") -> Question:
    return Question("propose", [Message("user", [text])], Program, 1.0)


# The shape of answers.

READABLE = {
    "parts": ("openai", openai([{"type": "text", "text": '{"ready":'}, {"type": "text", "text": " true}"}])),
    "texts": ("openai", openai(['{"ready":', " true}"])),
    "thoughts": ("openai", openai([{"type": "thinking", "thinking": "{"}, {"type": "text", "text": READY}])),
    "one part": ("openai", openai({"type": "text", "text": READY})),
    "message is text": ("openai", openai(choices=[{"message": READY}])),
    "no usage": ("openai", openai(usage=None)),
    "model is a number": ("openai", openai(model=7)),
    "a lone surrogate": ("openai", openai(READY + "\ud800")),
    "parts of Gemini": ("gemini", gemini([{"text": '{"ready":'}, 3, {"text": None}, {"text": " true}"}])),
}


@pytest.mark.parametrize("name", READABLE)
def test_odd_answers_that_can_be_read(name: str, archive: Archive):
    kind, shape = READABLE[name]
    with FakeServer(kind, shape=shape) as server:
        asking = Asking(server, archive)
        assert asking.ask([question()])[0].value.ready
        assert len(server.requests) == 1
        asking.client.close()


UNREADABLE = {
    "content is a number": ("openai", openai(7), "the answer's content is a number, a string was expected"),
    "content is true": ("openai", openai(True), "the answer's content is a boolean, a string was expected"),
    "content is an object": ("openai", openai({"a": 1}), "the answer's content is an object, a string was expected"),
    "content is null": ("openai", openai(None), "the answer is empty"),
    "parts without text": ("openai", openai([{"type": "image"}, 3, None]), "the answer is empty"),
    "message is a number": ("openai", openai(choices=[{"message": 5}]), "the answer's message is a number"),
    "message is null": ("openai", openai(choices=[{"message": None}]), "the answer is empty"),
    "no choices": ("openai", openai(choices=[]), "the answer has no choices"),
    "choices are null": ("openai", openai(choices=None), "the answer has no choices"),
    "choices are missing": ("openai", lambda a: {"id": "x"}, "the answer has no choices"),
    "choices are an object": ("openai", openai(choices={"0": {}}), "the answer's choices are an object"),
    "choices are text": ("openai", openai(choices="yes"), "the answer's choices are a string"),
    "choices hold text": ("openai", openai(choices=["yes"]), "the answer's first choice is a string"),
    "an error for an answer": (
        "openai", lambda a: {"error": {"message": "out of memory", "code": "oom"}},
        "the server answers with an error: out of memory",
    ),
    "an error of a status": (
        "openai", lambda a: {"error": {"message": "slow down", "code": 429}}, "HTTP 429: slow down",
    ),
    "refusal is an object": ("openai", openai(choices=[{"message": {"refusal": {"a": 1}}}]), "the model refused"),
    "candidates are an object": ("gemini", gemini(candidates={"a": 1}), "the answer's candidates are an object"),
    "candidates hold text": ("gemini", gemini(candidates=["yes"]), "the answer's first candidate is a string"),
    "parts are text": ("gemini", gemini("yes"), "the answer's parts are a string, a list was expected"),
    "blocked by a number": ("gemini", gemini(promptFeedback={"blockReason": 3}), "the request was blocked: 3"),
    "the response is a list": ("openai", lambda a: [a], "the response is a list, an object was expected"),
    "the response is null": ("gemini", lambda a: None, "the response is null, an object was expected"),
    "the response is a page": ("openai", lambda a: b"<!doctype html><p>Sign in</p>", "not JSON; it begins '<!doc"),
    "the response is nothing": ("gemini", lambda a: b"", "the response is empty"),
    "the response is not UTF-8": ("gemini", lambda a: b"\xff\xfe{}", "is not JSON"),
    "JSON that is nested": ("openai", nested(100_000), "the response is nested too deeply"),
    "JSON that is nested, of Gemini": ("gemini", nested(100_000), "the response is nested too deeply"),
    "a number too long": ("openai", lambda a: b'{"choices": ' + b"9" * 9000 + b"}", "is not JSON"),
    "text that is nested": ("openai", openai('{"ready":' * 100_000), "does not match the schema Ready"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_odd_answers_end_in_a_sentence_and_are_asked_again(name: str, archive: Archive):
    kind, shape, sentence = UNREADABLE[name]
    with FakeServer(kind, shape=shape) as server:
        asking = Asking(server, archive, attempts=2)
        try:
            (answer,) = asking.ask([question()])
            assert answer.value is None
            told = str(answer.problem)
        except UserError as error:
            told = str(error)
        assert sentence in told
        assert sentence in asking.said[0]
        assert len(server.requests) == 2
        asking.client.close()


# What calls cost.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [-1_000_000, "a lot", None, [1], 1e300, True, 10**400])
def test_token_counts_that_cannot_be_used_count_as_the_most(kind: str, count: Any, archive: Archive):
    usage = {"openai": "usage", "gemini": "usageMetadata"}[kind]
    names = {
        "openai": ("prompt_tokens", "completion_tokens"),
        "gemini": ("promptTokenCount", "candidatesTokenCount"),
    }

    def shape(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, usage: dict.fromkeys(names[kind], count)}

    with FakeServer(kind, shape=shape) as server:
        asking = Asking(server, archive, price=(1.0, 10.0), max_tokens=2000, max_cost_usd=0.09)
        with pytest.raises(BudgetSpent, match=r"max_cost_usd=0.09 is used up"):
            asking.ask([question(sample=i) for i in range(20)])
        calls, cost = archive.spent()
        assert 3 <= calls <= 5
        assert 0.06 < cost <= 0.09
        told = [line for line in asking.said if "token counts" in line]
        assert len(told) == 1, "once is enough"
        assert "is charged with its maximum cost" in told[0]
        assert all((c["tokens_in"], c["tokens_out"]) == (None, None) for c in archive.calls())
        asking.client.close()


def test_token_counts_as_text_are_read(archive: Archive):
    usage = {"prompt_tokens": "6500", "completion_tokens": 1500.0}
    with FakeServer("openai", shape=openai(usage=usage)) as server:
        asking = Asking(server, archive, price=(1.0, 10.0))
        asking.ask([question()])
        (call,) = archive.calls()
        assert (call["tokens_in"], call["tokens_out"]) == (6500, 1500)
        assert call["cost_usd"] == pytest.approx(0.0215)
        assert not asking.said
        asking.client.close()


# How long to wait.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value", ["Wed, soon", "1,5", "soon", "", "-5", "0", "nan", "inf", "1e999", "Wed, 21 Oct 2015 07:28:00 GMT",
              "Mon, 01 Jan 0001 00:00:00 +2359", "Fri, 31 Dec 9999 23:59:59 -2359", "9" * 400]
)  # fmt: skip
def test_a_retry_after_that_says_nothing_leaves_our_own_wait(kind: str, value: str, archive: Archive):
    with FakeServer(kind, script=["429", "", "429"], retry_after=value) as server:
        asking = Asking(server, archive, backoff_s=0.2, patience_s=1e9)
        begun = time.monotonic()
        if value.startswith("Fri"):
            with pytest.raises(UserError, match=r"requests a wait of \d\.\d+e\+11 s"):
                asking.ask([question()])
            return
        assert asking.ask([question()])[0].value.ready
        assert 0.2 <= time.monotonic() - begun < 10.0
        assert "attempt 2 of 3 in 0.2 s" in asking.said[0]
        asking.client.close()


def test_a_retry_after_as_a_date_is_honoured(archive: Archive):
    with FakeServer("openai", script=["429"]) as server:
        asking = Asking(server, archive)
        soon = int(time.time()) + 2  # dates have whole seconds
        server.retry_after = email.utils.formatdate(soon, usegmt=True)
        assert asking.ask([question()])[0].value.ready
        assert soon - 0.01 < time.time() < soon + 10
        server.script, server.retry_after = ["429"], email.utils.formatdate(time.time() + 4000, usegmt=True)
        with pytest.raises(UserError, match=r"requests a wait of (3999|4000)\S* s .*resume="):
            asking.ask([question("more")])
        asking.client.close()


def test_an_attempt_that_follows_at_once_says_so(archive: Archive):
    with FakeServer("openai", script=["schema"]) as server:
        asking = Asking(server, archive)
        asking.ask([question()])
        assert asking.said[0].endswith("; attempt 2 of 3 now")
        asking.client.close()


def test_the_sentence_names_the_run_directory(archive: Archive):
    with FakeServer("openai", script=["503"] * 3 + ["404"]) as server:
        asking = Asking(server, archive)
        for _ in range(2):
            with pytest.raises(UserError) as told:
                asking.ask([question()])
            assert f"continue later with resume={archive.root}" in str(told.value)
        asking.client.close()


# How much.


@cache
def _bomb(size: int, layers: int) -> bytes:
    data = b'{"choices": "' + b"0" * size + b'"}'
    for _ in range(layers):
        data = gzip.compress(data)
    return data


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("status", [200, 500])
def test_a_small_response_that_unpacks_to_a_large_one_is_cut_off(
    kind: str,
    layers: int,
    status: int,
    archive: Archive,
):
    body = _bomb(400_000_000, layers)
    assert len(body) < 500_000
    headers = {"Content-Encoding": ", ".join(["gzip"] * layers)}
    with FakeServer(kind, shape=lambda a: body, headers=headers, status=status) as server:
        asking = Asking(server, archive, attempts=1)
        asking.ask([question()])  # whatever is loaded with the first call is not counted
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (answer,) = asking.ask([question("more")])
        assert "the response is larger than 4 MiB" in str(answer.problem)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "kB"
        asking.client.close()


def propose(asking: Asking) -> list[str]:
    """One program by way of a proposer whose programs may have 32768 characters."""

    def vet(source: str) -> str | None:
        return "the program is longer than 32768 bytes" if len(source) > 32768 else None

    nothing: Any = None  # a task, which is not read here
    proposer = ModelProposer(asking.client, lambda request: [Message("user", ["write"])], 1.0, 1)
    return proposer.propose(ProposalRequest(0, nothing, None, None, (), 0, vet), 1)


@pytest.mark.parametrize("size", [3_000_000, 5_000_000])
def test_a_program_that_is_far_too_long_is_not_sent_back_whole(size: int, archive: Archive):
    def brain(asked: Asked) -> dict[str, Any]:
        mended = "cannot be used" in asked.said
        return {"changes": "a" * 5000, "program": PROGRAM if mended else PROGRAM + "\n# more" * (size // 7)}

    with FakeServer("openai", brain=brain) as server:
        asking = Asking(server, archive, attempts=2)
        (source,) = propose(asking)
        assert source == PROGRAM + "\n"
        repair = server.requests[-1]["asked"].said
        assert len(repair) < 8000
        assert ("longer than 32768 bytes" in repair) == (size < 4_000_000)
        assert ("the response is larger than 4 MiB" in repair) == (size > 4_000_000)
        assert all(len(c["answer"] or "") <= 4 << 20 for c in archive.calls())
        asking.client.close()


def test_a_server_whose_answers_cannot_be_read_is_blamed_not_the_model(archive: Archive):
    with FakeServer("openai", write=lambda asked, content: "I would rather not.", brain=written) as server:
        asking = Asking(server, archive, attempts=2)
        with pytest.raises(UserError) as told:
            propose(asking)
        assert "no program for generation 0 could be read from the answers of openai_compatible m-1" in str(
            told.value
        )
        assert "it begins 'I would rather not.'" in str(told.value)
        assert "more able model" not in str(told.value)
        asking.client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_compressed_answer_is_read(kind: str, archive: Archive):
    def shape(answer: dict[str, Any]) -> bytes:
        return gzip.compress(json.dumps(answer).encode())

    with FakeServer(kind, shape=shape, headers={"Content-Encoding": "gzip"}) as server:
        asking = Asking(server, archive)
        assert asking.ask([question()])[0].value.ready
        asking.client.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/html; charset=zip"},
        {"Content-Type": "application/json; charset=utf-7"},
        {"Content-Type": ""},
        {"Content-Encoding": "identity, no-such"},
    ],
)
def test_odd_headers_change_nothing(kind: str, headers: dict[str, str], archive: Archive):
    with FakeServer(kind, headers=headers) as server:
        asking = Asking(server, archive)
        assert asking.ask([question()])[0].value.ready
        asking.client.close()


def test_a_compressed_answer_that_is_broken_is_asked_again(archive: Archive):
    with FakeServer("openai", headers={"Content-Encoding": "gzip"}) as server:
        asking = Asking(server, archive, attempts=2)
        with pytest.raises(UserError, match=r"no answer in 2 attempts: DecodingError"):
            asking.ask([question()])
        asking.client.close()


def test_a_redirect_is_followed_a_few_times(archive: Archive):
    with FakeServer("openai") as there, FakeServer("openai", status=307) as server:
        server.headers = {"Location": f"{there.url}/chat/completions"}
        asking = Asking(server, archive, attempts=1)
        assert asking.ask([question()])[0].value.ready
        server.headers = {"Location": f"{server.url}/chat/completions"}
        with pytest.raises(UserError, match="redirects more than"):
            asking.ask([question("more")])
        asking.client.close()


# What must not come back.

FORMS = {
    "plain": KEY,
    "escaped": "".join(f"\\u{ord(c):04x}" for c in KEY),
    "escaped, in capitals": "".join(f"\\u{ord(c):04X}" for c in KEY),
    "escaped twice": "".join(f"\\\\u{ord(c):04x}" for c in KEY),
    "one letter escaped": f"\\u{ord(KEY[0]):04x}{KEY[1:]}",
    "hexadecimal escapes": "".join(f"\\x{ord(c):02x}" for c in KEY),
    "in a URL": quote(KEY, safe=""),
    "in a URL, every letter": "".join(f"%{ord(c):02X}" for c in KEY),
    "in HTML": "".join(f"&#{ord(c)};" for c in KEY),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64, after a name": base64.b64encode(f"user:{KEY}".encode()).decode(),
    "base64, after two": base64.b64encode(f"ab:{KEY}!".encode()).decode(),
    "hexadecimal": KEY.encode().hex(),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("within", ["a value", "JSON itself"])
def test_a_key_is_found_however_it_is_written(name: str, within: str, archive: Archive):
    """In an error and in an answer, there as text of a value or as escapes of the JSON itself."""
    written = FORMS[name]
    said = {**ANSWER, "reason": "it is MARK"}
    mark = json.dumps(written)[1:-1] if within == "a value" or "\\x" in written else written
    with FakeServer("openai", script=["503", "", "400"], error_text=f"key {written}.") as server:
        server.write = lambda asked, content: json.dumps(said).replace("MARK", mark)
        asking = Asking(server, archive, attempts=2)
        (answer,) = asking.ask([Question("judge", [Message("user", ["which"])], Judgement)])
        with pytest.raises(UserError) as told:
            asking.ask([question()])
        asking.client.close()
    everything = b"".join(p.read_bytes() for p in archive.root.rglob("*") if p.is_file()).decode("latin-1")
    for text in (str(told.value), answer.value.reason, *asking.said, everything):
        assert written not in text
        assert KEY not in text
        assert KEY.split("-")[2] not in text
    assert "[key]" in answer.value.reason
    assert "[key]" in str(told.value)


def test_text_without_a_key_is_left_as_it_is():
    text = '{"a": "\\u0041 %41 &#65; \\\\n", "b": [1, 2]} ' + "\\" * 200_000 + "%25" * 100_000
    begun = time.monotonic()
    assert redact(text) == text
    assert time.monotonic() - begun < 5.0


CONTROL = (
    "red \x1b[31malert\x1b]0;title\x07 \u202egnp.exe\u2066 \x9b2J \r over\x08 \u200f \u2028 \x00 \x7f \ud800"
)


def test_control_codes_of_a_server_do_not_reach_the_terminal(
    archive: Archive, capfd: pytest.CaptureFixture[str]
):
    from movlr_jax._util.progress import Reporter
    from movlr_jax.cli import outcome

    with FakeServer("openai", script=["503", "", "400"], error_text=CONTROL) as server:
        asking = Asking(server, archive, attempts=2)
        server.brain = lambda asked: {**ANSWER, "reason": CONTROL}
        asking.client.say = Reporter().say
        (answer,) = asking.ask([Question("judge", [Message("user", ["which"])], Judgement)])
        assert not codes(answer.value.reason)
        assert "\\x1b[31malert" in answer.value.reason
        assert outcome.run_one(lambda given: asking.ask([question()]), None) == 2
        asking.client.close()
    Reporter().say(CONTROL)
    assert outcome.run_one(lambda given: _raise(UserError(CONTROL)), None) == 2
    out, err = capfd.readouterr()
    assert not codes(out + err)
    assert err.count("\\x1b[31malert") == 4
    assert err.count("\\u202egnp.exe") == 4


def _raise(error: Exception) -> int:
    raise error


# Answers of servers that know no response_format.

JSON = json.dumps({"changes": "a", "program": PROGRAM})
RAW = '{"changes": "a", "program": "' + PROGRAM.replace('"', '\\"') + '"}'  # with line ends as they are
PROGRAMS = {
    "JSON": JSON,
    "a JSON fence": f"```json\n{JSON}\n```",
    "a fence without a name": f"```\n{JSON}\n```",
    "prose around JSON": f"Sure! Here is {{the}} answer:\n\n{JSON}\n\nTell me what {{you}} think.",
    "prose around a JSON fence": f"Sure!\n```json\n{JSON}\n```\nDone.",
    "JSON with line ends": RAW,
    "a Python fence": f"```python\n{PROGRAM}\n```",
    "prose around a Python fence": f"I add a term.\n\n```python\n{PROGRAM}\n```\nIt may do better.",
    "a fence that is not closed": f"```python\n{PROGRAM}\n",
    "the last of two fences": f"Before:\n```python\nWEIGHTS = {{}}\n```\nAfter:\n```py\n{PROGRAM}\n```",
    "a bare program": PROGRAM,
    "thoughts before it": f"<think>Maybe {{this}} ```python\nx = 1\n``` or so</think>\n{PROGRAM}",
    "thoughts before JSON": f'<think>{{"changes": "no", "program": "x"}}</think>{JSON}',
    "a fence in JSON": json.dumps({"changes": "a", "program": f"Here:\n```python\n{PROGRAM}\n```"}),
    "line ends of Windows": PROGRAM.replace("\n", "\r\n"),
    "a byte order mark": f"\ufeff{JSON}",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_correct_program_is_taken_in_any_dress(name: str, archive: Archive):
    from movlr_jax.language.clients.answers import program_in

    with FakeServer("openai", brain=written, write=lambda asked, content: PROGRAMS[name]) as server:
        asking = Asking(server, archive)
        (answer,) = asking.ask([program()])
        assert answer.value is not None, answer.problem
        assert program_in(answer.value.program) == PROGRAM
        assert len(server.requests) == 1
        assert asking.ask([program()])[0] == answer, "from the record"
        asking.client.close()


@pytest.mark.parametrize(
    "text",
    [
        "```json\n{}\n```",
        "The answer, {{in short}}, is\n{}\nwhich {{I hope}} is right",
        "[{}]",
        "<think>{{}} \n{{\"winner\": 1}}</think>{}",
    ],
)  # fmt: skip
def test_a_correct_judgement_is_taken_in_any_dress(text: str, archive: Archive):
    with FakeServer(
        "openai", write=lambda asked, content: text.format(json.dumps(ANSWER, indent=1))
    ) as server:
        asking = Asking(server, archive)
        (answer,) = asking.ask([Question("judge", [Message("user", ["which"])], Judgement)])
        assert answer.value == Judgement(**ANSWER)
        asking.client.close()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("The second one is better.", "it contains no JSON object; it begins 'The second one is better.'"),
        (f"So it is {json.dumps({**ANSWER, 'winner': 'the left'})} I think.", "winner: Input should be 'first'"),
        (json.dumps(ANSWER)[:-5], "it contains no complete JSON object; it begins '{\"first_motion\""),
        (json.dumps({**ANSWER, "winner": float("nan")}), "winner: Input should be"),
        ("```python\nx = 1\n```", "it contains no JSON object"),
    ],
)  # fmt: skip
def test_what_is_no_judgement_says_why(text: str, sentence: str, archive: Archive):
    with FakeServer("openai", write=lambda asked, content: text) as server:
        asking = Asking(server, archive, attempts=1)
        (answer,) = asking.ask([Question("judge", [Message("user", ["which"])], Judgement)])
        assert answer.value is None
        assert "the answer does not match the schema Judgement" in answer.problem
        assert sentence in answer.problem
        asking.client.close()


def test_the_request_says_how_to_answer(archive: Archive):
    """Where the server ignores response_format, the model knows it from the text; Gemini knows it anyway."""
    for kind, said in (("openai", True), ("gemini", False)):
        with FakeServer(kind, brain=written) as server:
            asking = Asking(server, archive)
            asking.ask([Question("judge", [Message("user", ["which", "one"])], Judgement)])
            asking.ask([program()])
            judge, writer = (r["asked"].said for r in server.requests)
            assert ("one JSON object" in judge) == ('"winner"' in judge) == said
            assert ("```python" in writer) == said
            asking.client.close()
    recorded = [c["parameters"].get("instruction", "") for c in archive.calls()]
    assert ['"winner"' in text for text in recorded] == [True, False, False, False], "and it is in the record"


def test_texts_that_are_hard_to_search_do_not_take_long():
    from movlr_jax.language.clients.answers import read
    from movlr_jax.language.clients.call import BadAnswer, Reply

    for text in ('{"a":' * 500_000, "{" * 2_000_000, "```\n" * 500_000, '{"a' * 500_000, "{}" * 500_000):
        begun = time.monotonic()
        with pytest.raises(BadAnswer):
            read(Program, Reply(text, "m"))
        assert time.monotonic() - begun < 6.0, text[:8]


# Anything at all.

JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "content", "message", "choices", "error", "code", "parts", "usage"])
            | st.text(max_size=4),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@st.composite
def envelopes(draw: st.DrawFn, kind: str) -> Any:
    """A good envelope with something else in one or two of its places; or anything."""
    good: dict[str, Any] = {
        "openai": {
            "model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 1}, "error": None,
            "choices": [{"finish_reason": "stop", "error": None, "message": {"content": READY, "refusal": None}}],
        },
        "gemini": {
            "modelVersion": "m",
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "thoughtsTokenCount": 1},
            "promptFeedback": {"blockReason": None},
            "candidates": [{"finishReason": "STOP", "content": {"parts": [{"text": READY, "thought": False}]}}],
        },
    }[kind]  # fmt: skip
    if draw(st.integers(0, 9)) == 0:
        return draw(JSONS)
    whole = json.loads(json.dumps(good))
    for _ in range(draw(st.integers(1, 2))):
        node: Any = whole
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            at = draw(st.sampled_from(keys))
            if isinstance(node[at], dict | list) and draw(st.booleans()):
                node = node[at]
                continue
            if isinstance(node, dict) and draw(st.integers(0, 5)) == 0:
                del node[at]
            else:
                node[at] = draw(JSONS)
            break
    return whole


BODIES = st.binary(max_size=40) | st.text(max_size=40).map(lambda t: t.encode("utf-8", "surrogatepass"))
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "Content-Type", "Content-Encoding", "Location", "X-Goog-Upload-Status"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
    | st.sampled_from(
        ["gzip", "deflate", "gzip, gzip", "/", "http://[", "application/json; charset=hex", "-1"]
    ),
    max_size=2,
)
TEXTS = st.text(max_size=60) | st.sampled_from(
    [READY, "{", "```", '{"ready": 1e999}', '{"ready": "\\ud800"}']
)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_a_server_sends_ends_in_a_traceback(kind: str, archive: Archive):
    with FakeServer(kind) as server:
        asking = Asking(server, archive, attempts=1, timeout_s=3.0, price=(1.0, 1.0))
        count = 0

        def ask() -> None:
            nonlocal count
            count += 1
            before = archive.spent()[1]
            try:
                (answer,) = asking.ask([question(sample=count)])
                assert (answer.value is None) == bool(answer.problem)
                told = answer.problem or ""
            except UserError as error:
                told = str(error)
            assert not codes(told), told
            assert archive.spent()[1] >= before

        common = settings(
            max_examples=30, derandomize=True, deadline=None, database=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        )  # fmt: skip

        @common
        @given(envelopes(kind))
        def shapes(envelope: Any) -> None:
            server.shape = lambda answer: envelope
            ask()

        @common
        @given(st.integers(200, 599), HEADERS, BODIES | JSONS)
        def responses(status: int, headers: dict[str, str], body: Any) -> None:
            server.status, server.headers, server.shape = status, headers, lambda answer: body
            ask()

        @common
        @given(TEXTS)
        def texts(text: str) -> None:
            server.write = lambda asked, content: text
            ask()

        shapes()
        responses()
        server.status, server.headers, server.shape = 200, {}, None
        texts()
        asking.client.close()


def test_the_instruction_is_no_longer_than_it_must_be():
    from movlr_jax.language.clients.openai_compatible import instruction

    asked = Question("judge", [Message("user", ["which"])], Judgement)
    assert len(instruction(asked)) < 1200
