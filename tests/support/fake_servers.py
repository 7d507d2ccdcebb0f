"""Local servers that speak the Gemini and the OpenAI protocols over real HTTP, and break on purpose.

A scripted "model" answers: it sees the request as it came over the wire, and nothing of our code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = ("429", "500", "503", "stall", "cut", "half_body", "truncated", "schema", "empty", "blocked")


@dataclass(frozen=True)
class Asked:
    """A request as any model would see it."""

    model: str
    system: str
    texts: list[str]
    turns: list[str]  # roles, system left out
    media: list[tuple[str, bytes]]
    schema: dict[str, Any]
    settings: dict[str, Any]
    seed: str  # what makes one sample differ from the next

    @property
    def said(self) -> str:
        return "\n".join(self.texts)

    @property
    def wants(self) -> str:
        """program, winner, advice, descriptors or ready: the property that tells the form."""
        known = ("program", "winner", "advice", "descriptors", "ready")
        return next(name for name in known if name in self.schema["properties"])


Brain = Callable[[Asked], dict[str, Any]]


def draw(asked: Asked, *more: str) -> random.Random:
    """Chance that depends on the request alone."""
    text = "|".join([asked.system, asked.said, asked.seed, *more])
    return random.Random(hashlib.sha256(text.encode()).hexdigest())


def from_nothing(asked: Asked) -> str:
    """A first program, of a body and a joint that the message names."""
    body, joint = (re.findall(rf"{kind}[^`]*`(\w+)`", asked.system)[0] for kind in ("- Bodies:", "- Joints"))
    return (
        'WEIGHTS = {"height": 2.0, "bend": 1.0}\n\n\ndef reward(state, action):\n    return {\n'
        f'        "height": state.pos("{body}")[2],\n        "bend": -jnp.abs(state.q("{joint}")),\n    }}'
    )


def scripted_model(asked: Asked) -> dict[str, Any]:
    """Writes small edits of the program it is shown, now and then a broken one; judges by what the film weighs."""
    chance = draw(asked)
    if asked.wants == "program":
        shown = re.findall(r"```python\n(.*?)```", asked.said, flags=re.DOTALL)
        source = shown[0].strip() if shown else from_nothing(asked)
        if "cannot be used" not in asked.said and chance.random() < 0.25:
            return {
                "changes": "broken",
                "program": source.replace("return {", 'x = state.pos("no_such_body")\n    return {', 1),
            }
        source = source.replace('state.pos("no_such_body")', "state.time")
        if '"effort"' not in source:  # weights alone may leave the motion as it was
            source = source.replace("WEIGHTS = {", 'WEIGHTS = {\n    "effort": 100.0,', 1)
            source = source.replace("return {", 'return {\n        "effort": jnp.mean(action),', 1)

        def other(match: re.Match[str]) -> str:
            return f'": {float(match.group(1)) * chance.choice([0.5, 0.8, 1.25, 2.0]):.4g}'

        head, _, rest = source.partition("}")
        head = re.sub(r'": ([0-9.]+)', other, head)
        if "between 0 and 1" in asked.said:
            head = re.sub(r'": ([0-9.]+)', lambda m: f'": {min(float(m.group(1)), 1.0):g}', head)
        return {"changes": "other weights", "program": head + "}" + rest}
    if asked.wants == "winner":
        half = len(asked.media) // 2
        first, second = (
            hashlib.sha256(b"".join(data for _, data in part)).hexdigest()
            for part in (asked.media[:half], asked.media[half:])
        )
        winner = "tie" if first == second else "first" if first > second else "second"
        return {
            "first_motion": "it moves",
            "second_motion": "it moves too",
            "winner": winner,
            "reason": "it looks better",
        }
    if asked.wants == "advice":
        term = (re.findall(r"- `(\w+)`: weight", asked.said) or ["reach"])[0]
        advice = [{"action": "strengthen", "term": term, "reason": "it is too weak", "weight": None}]
        return {"observation": "it moves", "success": False, "problems": ["it is far off"], "advice": advice}
    if asked.wants == "descriptors":
        seen = [{"region": "knees", "label": "left knee bent by 30 degrees", "confidence": 0.8}]
        return {"descriptors": seen, "success": False, "alignment": 0.4}
    return {"ready": True}


@dataclass
class FakeServer:
    """One provider on a port of this machine. Use as a context; `requests` is all that was asked."""

    kind: str  # gemini, openai
    brain: Brain = scripted_model
    fault_rate: float = 0.0
    faults: tuple[str, ...] = FAULTS
    script: list[str] = field(default_factory=list)  # faults of the next requests, "" for none; goes first
    write: Callable[[Asked, str], str] | None = None  # what becomes of the text of a good answer
    # status and body, by the request
    refuse: Callable[[dict[str, Any]], tuple[int, Any] | None] | None = None
    shape: Callable[[dict[str, Any]], Any] | None = None  # and of all around it; bytes are sent as they are
    logprob: Callable[[str], Any] | None = None  # of a token, where a request wants them; None: not reported
    status: int = 200  # of good answers
    headers: dict[str, str] = field(default_factory=dict)  # more of them, with good answers
    error_text: str = "something is wrong here"
    stall_s: float = 3.0
    delay_s: float = 0.0
    key: str | None = None  # the only one that is let in
    requests: list[dict[str, Any]] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)  # good answers delivered, by request
    files: dict[str, bytes] = field(default_factory=dict)
    under_way: int = 0
    most_under_way: int = 0

    def __enter__(self) -> FakeServer:
        self._chance, self._lock = random.Random(1), threading.Lock()
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        host = f"http://127.0.0.1:{self._server.server_address[1]}"
        return host if self.kind == "gemini" else f"{host}/v1"

    def fault(self) -> str:
        with self._lock:
            if self.script:
                return self.script.pop(0)
            return self._chance.choice(self.faults) if self._chance.random() < self.fault_rate else ""

    def good(self) -> list[dict[str, Any]]:
        return [r for r in self.requests if not r["fault"]]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked was killed: no news here."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[-1].split("?")[0]
        self._json(200, self._file(name, "ACTIVE"))

    def do_POST(self) -> None:
        fake, length = self.fake, int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # whoever asked is gone
            self.close_connection = True
            return None
        sent = self.headers.get("x-goog-api-key") or (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if fake.key is not None and sent != fake.key:
            fake.requests.append({"fault": "expired", "path": self.path})
            # as some servers do, with the key in the message
            said = f"API key not valid or expired: {sent}"
            return self._error(401, said, "UNAUTHENTICATED")
        if self.path.startswith("/upload/") or "upload_id=" in self.path:
            return self._upload(body)
        with fake._lock:
            fake.under_way += 1
            fake.most_under_way = max(fake.most_under_way, fake.under_way)
        try:
            self._answer(
                json.loads(body),
                hashlib.sha256(body + (self.headers.get("Idempotency-Key") or "").encode()).hexdigest(),
            )
        finally:
            with fake._lock:
                fake.under_way -= 1

    def _answer(self, request: dict[str, Any], identity: str) -> None:
        fake, fault = self.fake, self.fake.fault()
        asked = self._asked(request)
        fake.requests.append({"fault": fault, "path": self.path, "asked": asked, "body": request, "id": identity})
        time.sleep(fake.delay_s)
        if refusal := fake.refuse and fake.refuse(request):
            return self._json(*refusal)
        if fault == "429":
            return self._error(429, "slow down", "RESOURCE_EXHAUSTED", {"Retry-After": "0.05"})
        if fault in ("500", "503", "404", "400"):
            return self._error(int(fault), fake.error_text, "INTERNAL")
        if fault == "stall":
            time.sleep(fake.stall_s)
        if fault == "cut":
            self.close_connection = True
            return self.connection.close()
        content = json.dumps(fake.brain(asked))
        if fault == "truncated":
            content = content[: len(content) // 2]
        if fault == "schema":
            content = json.dumps({"verdict": "the first one, I think"})
        if fake.write and not fault:
            content = fake.write(asked, content)
        answer = self._openai(asked, content, fault) if fake.kind == "openai" else self._gemini(asked, content, fault)
        if fault:
            return self._json(200, answer, half=fault == "half_body")
        shaped = fake.shape(answer) if fake.shape else answer
        if request.get("stream"):
            return self._json(200, in_pieces(shaped), {"Content-Type": "text/event-stream"})
        self._json(fake.status, shaped, fake.headers)
        fake.answered[identity] += 1

    def _openai(self, asked: Asked, content: str, fault: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": content}
        reason = "stop"
        if fault == "blocked":
            message, reason = ({"role": "assistant", "content": None, "refusal": "I cannot help with that"}, "stop")
        if fault == "length":
            reason = "length"
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "message": message}
        if asked.settings.get("logprobs") and self.fake.logprob:
            tokens = re.findall(r"\W*\w+|\W+", content)
            choice["logprobs"] = {"content": [{"token": t, "logprob": self.fake.logprob(t)} for t in tokens]}
        choices = [] if fault == "empty" else [choice]
        usage = {"prompt_tokens": 6500, "completion_tokens": 1500, "total_tokens": 8000}
        version = f"{asked.model}-2026-10-01"
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": version,
            "choices": choices,
            "usage": usage,
        }

    def _gemini(self, asked: Asked, content: str, fault: str) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "modelVersion": f"{asked.model}-002",
            "usageMetadata": {"promptTokenCount": 6500, "candidatesTokenCount": 1200, "thoughtsTokenCount": 300},
        }
        if fault == "blocked":
            return {**answer, "promptFeedback": {"blockReason": "SAFETY"}}
        if fault == "empty":
            return {**answer, "candidates": []}
        parts = [{"text": "thinking", "thought": True}, {"text": content}]
        reason = "MAX_TOKENS" if fault == "length" else "STOP"
        return {**answer, "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason}]}

    def _asked(self, request: dict[str, Any]) -> Asked:
        if self.fake.kind == "openai":
            return _asked_openai(request, self.headers.get("Idempotency-Key") or "")
        model = re.search(r"models/([^:]+):", self.path)
        return _asked_gemini(
            request, model.group(1) if model else "", self.fake.files, self.headers.get("Idempotency-Key") or ""
        )

    def _upload(self, body: bytes) -> None:
        """The resumable protocol: start gives an address, then the bytes come, then the file is processed."""
        if self.headers.get("X-Goog-Upload-Command") == "start":
            name = f"film{len(self.fake.files)}"
            self.fake.files[name] = b""
            host = f"http://127.0.0.1:{self.server.server_address[1]}"
            return self._json(
                200,
                {},
                {
                    "X-Goog-Upload-URL": f"{host}/upload/v1beta/files?upload_id={name}",
                    "X-Goog-Upload-Status": "active",
                },
            )
        name = self.path.rsplit("upload_id=", 1)[-1]
        self.fake.files[name] += body
        final = "finalize" in (self.headers.get("X-Goog-Upload-Command") or "")
        self.fake.requests.append({"fault": "", "path": self.path, "bytes": len(body)})
        self._json(
            200, {"file": self._file(name, "PROCESSING")}, {"X-Goog-Upload-Status": "final" if final else "active"}
        )

    def _file(self, name: str, state: str) -> dict[str, Any]:
        host = f"http://127.0.0.1:{self.server.server_address[1]}"
        return {
            "name": f"files/{name}",
            "uri": f"{host}/v1beta/files/{name}",
            "mimeType": "video/mp4",
            "state": state,
        }

    def _error(self, code: int, message: str, status: str, headers: dict[str, str] | None = None) -> None:
        self._json(code, {"error": {"code": code, "message": message, "status": status}}, headers)

    def _json(self, code: int, value: Any, headers: dict[str, str] | None = None, half: bool = False) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        sent = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
        try:
            self.send_response(code)
            for name, text in sent.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if half else data)
            self.wfile.flush()
            if half:
                self.close_connection = True
                self.connection.close()
        except OSError:  # nobody waits any more
            self.close_connection = True


def _asked_openai(request: dict[str, Any], seed: str) -> Asked:
    texts, turns, media, system = [], [], [], ""
    for message in request["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        words = [p["text"] for p in parts if p["type"] == "text"]
        for part in parts:
            url = (part.get("video_url") or part.get("image_url") or {}).get("url")
            if url:
                kind, _, data = url.removeprefix("data:").partition(";base64,")
                media.append((kind, base64.b64decode(data)))
        if message["role"] == "system":
            system = "\n".join(words)
        else:
            texts += words
            turns.append(message["role"])
    form = request.get("response_format") or {}
    schema = form["json_schema"]["schema"] if "json_schema" in form else _described("\n".join(texts))
    settings = {k: v for k, v in request.items() if k not in ("messages", "response_format")}
    return Asked(request["model"], system, texts, turns, media, schema, settings, seed)


def _described(text: str) -> dict[str, Any]:
    """The schema in the words of the request, where no parameter has it."""
    return next(
        value
        for match in re.finditer(r'\{"', text)
        if "properties" in (value := json.JSONDecoder().raw_decode(text, match.start())[0])
    )


def in_pieces(answer: dict[str, Any]) -> bytes:
    """A chat completion as server-sent events, a few characters each."""
    (choice,) = answer["choices"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for name, value in choice["message"].items():
        if name != "role" and value:
            deltas += [{name: piece} for piece in re.findall("(?s).{1,7}", value)]
    ends = [{"delta": {}, "finish_reason": choice["finish_reason"]}]
    chunks = [
        {"model": answer["model"], "choices": [{"index": 0, **c}]} for c in [*({"delta": d} for d in deltas), *ends]
    ]
    chunks.append({"model": answer["model"], "choices": [], "usage": answer["usage"]})
    lines = [f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks]
    return f": PROCESSING\n\n{''.join(lines)}data: [DONE]\n\n".encode()


def _camel(value: Any) -> Any:
    """The API takes names in both spellings, mime_type and mimeType."""
    if isinstance(value, list):
        return [_camel(v) for v in value]
    if not isinstance(value, dict):
        return value
    return {
        re.sub(r"_([a-z])", lambda m: m.group(1).upper(), k): v if "chema" in k else _camel(v)
        for k, v in value.items()
    }


def _asked_gemini(request: dict[str, Any], model: str, files: dict[str, bytes], seed: str) -> Asked:
    request = _camel(request)
    texts, turns, media = [], [], []
    for content in request["contents"]:
        turns.append(content["role"])
        for part in content["parts"]:
            if "text" in part:
                texts.append(part["text"])
            elif "inlineData" in part:
                media.append((part["inlineData"]["mimeType"], base64.urlsafe_b64decode(part["inlineData"]["data"])))
            elif "fileData" in part:
                media.append((part["fileData"]["mimeType"], files[part["fileData"]["fileUri"].rsplit("/", 1)[-1]]))
    system = "\n".join(p["text"] for p in (request.get("systemInstruction") or {}).get("parts", []))
    config = request["generationConfig"]
    schema = config.get("responseJsonSchema") or config["responseSchema"]
    return Asked(model, system, texts, turns, media, schema, config, seed)
