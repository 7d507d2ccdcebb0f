"""Servers as people run them, and worse: whatever comes over the wire, the search gets an answer or a sentence."""

from __future__ import annotations

import base64
import json
import time
import unicodedata
from typing import Any
from urllib.parse import quote

import pytest
from fake_servers import Asked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_calls import KEY, KINDS, Asking, judging, question, writing
from odd_answers import ANSWER, PROGRAM, READY, openai, written

from movlr_jax._util.keys import redact
from movlr_jax._util.progress import Reporter
from movlr_jax.cli import outcome
from movlr_jax.errors import BudgetSpent, UserError
from movlr_jax.language.base import ProposalRequest
from movlr_jax.language.clients.call import Message
from movlr_jax.language.proposer import ModelProposer
from movlr_jax.storage.archive import Archive

both_kinds = pytest.mark.parametrize("kind", KINDS)


def codes(text: str) -> list[str]:
    """What a terminal may obey."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c != "\n"]


READABLE = {
    "parts": openai([{"type": "text", "text": '{"ready":'}, {"type": "text", "text": " true}"}]),
    "thoughts": openai([{"type": "thinking", "thinking": "{"}, {"type": "text", "text": READY}]),
    "no usage": openai(usage=None),
    "a lone surrogate": openai(READY + "\ud800"),
}


@pytest.mark.parametrize("name", READABLE)
def test_answer_of_an_odd_shape_is_read(name: str, serve):
    asking = serve(shape=READABLE[name])
    assert asking.one().value.ready
    assert len(asking.requests) == 1


UNREADABLE = {
    "content is a number": ("openai", openai(7), "the response is not a chat completion"),
    "content is null": ("openai", openai(None), "the answer is empty"),
    "no choices": ("openai", openai(choices=[]), "the answer has no choices"),
    "choices hold text": ("openai", openai(choices=["yes"]), "the response is not a chat completion"),
    "an error for an answer": (
        "openai", lambda a: {"error": {"message": "out of memory", "code": "oom"}}, "answers with an error",
    ),
    "the response is a page": ("openai", lambda a: b"<!doctype html><p>Sign in</p>", "JSONDecodeError"),
    "the response is nothing": ("gemini", lambda a: b"", "the answer has no candidates"),
    "the response is a page of Gemini": ("gemini", lambda a: b"<!doctype html>", "JSON"),
    "text that is nested": ("openai", openai('{"ready":' * 100_000), "does not match the schema Ready"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_answer_that_cannot_be_read_is_reported_and_requested_again(name: str, serve):
    kind, shape, sentence = UNREADABLE[name]
    asking = serve(kind, shape=shape, attempts=2)
    try:
        answer = asking.one()
        assert answer.value is None
        told = str(answer.problem)
    except UserError as error:
        told = str(error)
    assert sentence in told
    assert sentence in asking.said[0]
    assert len(asking.requests) == 2


# What calls cost.


@pytest.mark.parametrize(
    ("kind", "count"),
    [("openai", -1_000_000), ("openai", "a lot"), ("openai", True), ("openai", 10**400), ("gemini", None)],
)
def test_token_counts_that_are_invalid_cost_the_maximum(kind: str, count: Any, serve, archive: Archive):
    names = {
        "openai": ("usage", "prompt_tokens", "completion_tokens"),
        "gemini": ("usageMetadata", "promptTokenCount", "candidatesTokenCount"),
    }
    usage, *counts = names[kind]
    shape = lambda answer: {**answer, usage: dict.fromkeys(counts, count)}  # noqa: E731
    asking = serve(kind, shape=shape, price=(1.0, 10.0), max_tokens=2000, max_cost_usd=0.09)
    with pytest.raises(BudgetSpent, match=r"max_cost_usd=0.09 is used up"):
        asking.ask([question(sample=i) for i in range(20)])
    calls, cost = archive.spent()
    assert 3 <= calls <= 5
    assert 0.06 < cost <= 0.09
    (told,) = (line for line in asking.said if "token counts" in line)
    assert "is charged with its maximum cost" in told
    assert all((c["tokens_in"], c["tokens_out"]) == (None, None) for c in archive.calls())


def propose(asking: Asking) -> list[str]:
    """One program by way of a proposer whose programs may have 32768 characters."""

    def vet(source: str) -> str | None:
        return "the program is longer than 32768 bytes" if len(source) > 32768 else None

    nothing: Any = None  # a task, which is not read here
    proposer = ModelProposer(asking.client, lambda request: [Message("user", ["write"])], 1.0, 1)
    return proposer.propose(ProposalRequest(0, nothing, None, None, (), 0, vet), 1)


def test_program_that_is_far_too_long_is_not_sent_back_whole(serve):
    def brain(asked: Asked) -> dict[str, Any]:
        mended = "cannot be used" in asked.said
        return {"changes": "a" * 5000, "program": PROGRAM if mended else PROGRAM + "\n# more" * 400_000}

    asking = serve(brain=brain, attempts=2)
    assert propose(asking) == [PROGRAM + "\n"]
    repair = asking.requests[-1]["asked"].said
    assert len(repair) < 8000
    assert "longer than 32768 bytes" in repair


def test_answers_that_cannot_be_read_end_the_search_with_their_text(serve):
    asking = serve(write=lambda asked, content: "I would rather not.", brain=written, attempts=2)
    sentence = "no program for generation 0 could be read from the answers of openai_compatible m-1"
    with pytest.raises(UserError, match=f"{sentence}.*it begins 'I would rather not.'"):
        propose(asking)


# What must not come back.

FORMS = {
    "plain": KEY,
    "escaped": "".join(f"\\u{ord(c):04x}" for c in KEY),
    "escaped twice": "".join(f"\\\\u{ord(c):04x}" for c in KEY),
    "one letter escaped": f"\\u{ord(KEY[0]):04x}{KEY[1:]}",
    "hexadecimal escapes": "".join(f"\\x{ord(c):02x}" for c in KEY),
    "in a URL": quote(KEY, safe=""),
    "in a URL, every letter": "".join(f"%{ord(c):02X}" for c in KEY),
    "in HTML": "".join(f"&#{ord(c)};" for c in KEY),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64, after a name": base64.b64encode(f"user:{KEY}".encode()).decode(),
    "hexadecimal": KEY.encode().hex(),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("within", ["a value", "JSON itself"])
def test_key_in_any_spelling_is_redacted(name: str, within: str, serve, archive: Archive):
    """In an error and in an answer, there as text of a value or as escapes of the JSON itself."""
    written = FORMS[name]
    said = json.dumps({**ANSWER, "reason": "it is MARK"})
    mark = json.dumps(written)[1:-1] if within == "a value" or "\\x" in written else written
    asking = serve(
        script=["", "400"], error_text=f"key {written}.", attempts=2,
        write=lambda asked, content: said.replace("MARK", mark),
    )  # fmt: skip
    answer = asking.one(judging())
    with pytest.raises(UserError) as told:
        asking.one()
    everything = b"".join(p.read_bytes() for p in archive.root.rglob("*") if p.is_file()).decode("latin-1")
    for text in (str(told.value), answer.value.reason, *asking.said, everything):
        assert not [secret for secret in (written, KEY, KEY.split("-")[2]) if secret in text]
    assert "[key]" in answer.value.reason
    assert "[key]" in str(told.value)


def test_text_without_a_key_is_left_as_it_is():
    text = '{"a": "\\u0041 %41 &#65; \\\\n", "b": [1, 2]} ' + "\\" * 200_000 + "%25" * 100_000
    begun = time.monotonic()
    assert redact(text) == text
    assert time.monotonic() - begun < 5.0


CONTROL = "red \x1b[31malert\x1b]0;title\x07 \u202egnp.exe\u2066 \x9b2J \r over\x08 \u200f \u2028 \x00 \x7f \ud800"


def test_control_codes_of_a_server_do_not_reach_the_terminal(serve, capfd: pytest.CaptureFixture[str]):
    def refuse(_: None) -> int:
        raise UserError(CONTROL)

    asking = serve(
        script=["", "400"], error_text=CONTROL, attempts=2, brain=lambda asked: {**ANSWER, "reason": CONTROL}
    )
    asking.client.say = Reporter().say
    answer = asking.one(judging())
    assert not codes(answer.value.reason)
    assert "\\x1b[31malert" in answer.value.reason
    assert outcome.run_one(lambda _: asking.ask([question()]), None) == 2
    Reporter().say(CONTROL)
    assert outcome.run_one(refuse, None) == 2
    out, err = capfd.readouterr()
    assert not codes(out + err)
    assert err.count("\\x1b[31malert") == 3
    assert err.count("\\u202egnp.exe") == 3


def test_request_describes_the_answer_unless_the_server_has_a_schema(serve, archive: Archive):
    for kind, said in (("openai", True), ("gemini", False)):
        asking = serve(kind, brain=written)
        asking.one(judging("which", "one"))
        asking.one(writing())
        judge, writer = (r["asked"].said for r in asking.requests)
        assert ("one JSON object" in judge) == ('"winner"' in judge) == said
        assert ("```python" in writer) == said
    recorded = [c["parameters"].get("instruction", "") for c in archive.calls()]
    assert ['"winner"' in text for text in recorded] == [True, False, False, False]


# Anything at all.

NAMES = st.sampled_from(["text", "content", "message", "choices", "error", "code", "parts", "usage"])
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
GOOD = {
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
}  # fmt: skip


@st.composite
def envelopes(draw: st.DrawFn, kind: str) -> Any:
    """A good envelope with something else in one or two of its places; or anything."""
    if draw(st.integers(0, 9)) == 0:
        return draw(JSONS)
    whole: Any = json.loads(json.dumps(GOOD[kind]))
    for _ in range(draw(st.integers(1, 2))):
        node = whole
        while keys := list(node) if isinstance(node, dict) else list(range(len(node))):
            at = draw(st.sampled_from(keys))
            if not isinstance(node[at], dict | list) or draw(st.booleans()):
                node[at] = draw(JSONS)
                break
            node = node[at]
    return whole


BODIES = st.binary(max_size=40) | st.text(max_size=40).map(lambda t: t.encode("utf-8", "surrogatepass"))
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "Content-Type", "Content-Encoding", "Location", "X-Goog-Upload-Status"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
    | st.sampled_from(["gzip", "deflate", "gzip, gzip", "/", "http://[", "application/json; charset=hex", "-1"]),
    max_size=2,
)
TEXTS = st.text(max_size=60) | st.sampled_from([READY, "{", "```", '{"ready": 1e999}', '{"ready": "\\ud800"}'])


@both_kinds
def test_response_of_any_content_ends_in_an_answer_or_a_sentence(kind: str, serve, archive: Archive):
    asking = serve(kind, attempts=1, timeout_s=3.0, price=(1.0, 1.0))
    server, count = asking.server, 0

    def ask() -> None:
        nonlocal count
        count += 1
        try:
            answer = asking.one(question(sample=count))
            assert (answer.value is None) == bool(answer.problem)
            told = answer.problem or ""
        except UserError as error:
            told = str(error)
        assert not codes(told), told

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
