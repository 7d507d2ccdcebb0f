"""The server of the page: files, state, votes. It serves this machine, or other machines that know its token.

A page of another site cannot vote, read or claim a pair: the Host header must name this machine (a name that an
attacker rebinds to 127.0.0.1 does not), every call must be from the same origin, and a post must be JSON.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from movlr_jax._util.resources import resource_dir
from movlr_jax.errors import UserError
from movlr_jax.voting.questions import Questions
from movlr_jax.voting.votes import chosen, critique_form, rater_name, sentence

LOCAL = ("127.0.0.1", "localhost")
_MOST_BYTES = 128 * 1024  # of a post
_CONNECTIONS, _IDLE_S = 64, 10  # further ones are refused; an idle one is closed after so many seconds
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; media-src blob:; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server:
    """Serves questions at `address`. Raises UserError if `host` cannot be used."""

    def __init__(self, questions: Questions, host: str, port: int):
        self._socket = _listen(host, port)
        token = None if host in LOCAL else secrets.token_urlsafe(24)
        port = self._socket.getsockname()[1]
        shown = socket.gethostname() if host in ("0.0.0.0", "") else host
        self.address = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
        config = uvicorn.Config(
            application(questions, token, port),
            loop="asyncio",
            http="h11",
            ws="none",
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=_IDLE_S,
            log_config=None,  # the logging of the program stays as it is
            log_level="error",  # malformed requests are not worth a warning
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Serve from a thread until `stop`."""
        self._thread = threading.Thread(target=self.run, name="vote", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Serve in this thread until `stop` or Ctrl-C."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread:
            self._thread.join(5)


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket on `port`, or on a free one if another program has it. Raises UserError."""
    problem: OSError | None = None
    for choice in (port, 0):
        try:
            return socket.create_server((host, choice))
        except OSError as error:
            problem = error
    raise UserError(
        f"cannot serve the page at host={host} port={port}: {problem}; give host=127.0.0.1, or the address of one of "
        "this machine's networks"
    )


def application(questions: Questions, token: str | None, port: int) -> ASGIApp:
    """Return the web application. token: what every request must know; None: only requests to this machine."""

    async def state(request: Request) -> Response:
        rater = rater_name(request.query_params.get("rater"))
        return JSONResponse(questions.state(rater, request.query_params.get("further") == "1"))

    async def film(request: Request) -> Response:
        data = questions.film(request.path_params["name"])
        if data is None:
            return PlainTextResponse("there is no such film", 404)
        return Response(data, media_type="video/mp4")

    def post(act: Callable[[str, dict[str, Any]], None]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            values = await request.json()
            if not isinstance(values, dict):
                raise UserError("expected a JSON object")
            rater = rater_name(values.get("rater"))
            act(rater, values)
            return JSONResponse(questions.state(rater, values.get("further") is True))

        return endpoint

    def vote(rater: str, values: dict[str, Any]) -> None:
        winner, reason = chosen(values.get("winner")), sentence(values.get("reason", ""))
        questions.vote(rater, str(values.get("question")), winner, reason)

    def criticise(rater: str, values: dict[str, Any]) -> None:
        questions.criticise(rater, str(values.get("question")), critique_form(values))

    async def refused(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 409)

    async def unreadable(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "the request is not JSON"}, 400)

    app = Starlette(
        routes=[
            Route("/api/state", state),
            Route("/film/{name}", film),
            Route("/api/vote", post(vote), methods=["POST"]),
            Route("/api/critique", post(criticise), methods=["POST"]),
            Route("/api/undo", post(lambda rater, values: questions.undo(rater)), methods=["POST"]),
            Mount("/", StaticFiles(directory=resource_dir("assets") / "vote", html=True)),
        ],
        exception_handlers={
            UserError: refused,
            **dict.fromkeys((ValueError, RecursionError, ClientDisconnect), unreadable),
        },
    )
    return Guard(app, token, port)


class Guard:
    """Refuses requests from elsewhere, and adds the headers that keep the page to itself."""

    def __init__(self, app: ASGIApp, token: str | None, port: int):
        self._app, self._token = app, token
        self._cookie = f"vote_{port}"  # cookies do not distinguish ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._entrance(scope)
        if answer is None and scope["path"].startswith("/api/"):
            answer = _not_from_the_page(scope)
        await (answer or self._app)(scope, receive, guarded)

    def _entrance(self, scope: Scope) -> Response | None:
        """Return the answer to a request that does not know the token; the address with it sets a cookie.

        Without a token, it is the answer to a request that names another host.
        """
        request = Request(scope)
        if self._token is None:
            host, _, port = request.headers.get("host", "").partition(":")
            if host in LOCAL and port.isdecimal():
                return None
            return PlainTextResponse("this page is only served as http://127.0.0.1 or http://localhost", 421)
        if self._same(request.cookies.get(self._cookie)):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and self._same(given):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return answer
        return PlainTextResponse("open the address that the terminal shows; it has a token", 401)

    def _same(self, given: str | None) -> bool:
        return hmac.compare_digest((given or "").encode(), (self._token or "").encode())


def _not_from_the_page(scope: Scope) -> Response | None:
    """Return the answer to a call that this page did not send, or to a post that is no vote."""
    headers = Headers(scope=scope)
    origin, length = headers.get("origin"), headers.get("content-length", "")
    if headers.get("sec-fetch-site", "same-origin") != "same-origin" or (
        origin is not None and urlsplit(origin).netloc != headers.get("host")
    ):
        return PlainTextResponse("votes are only taken from this page", 403)
    if scope["method"] != "POST":
        return None
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return PlainTextResponse("votes are JSON", 415)
    if not length.isdecimal() or int(length) > _MOST_BYTES:
        return PlainTextResponse(f"a vote has at most {_MOST_BYTES} bytes", 413)
    return None
