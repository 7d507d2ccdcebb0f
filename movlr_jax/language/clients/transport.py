"""The HTTP client used by both SDKs. It limits the size of every response."""

from __future__ import annotations

from typing import Any

import httpx2

from movlr_jax.language.clients.call import BadAnswer, Reply

MOST_MIB = 4  # of a response after decompression; valid answers are far smaller
_MOST_STREAMED_MIB = 32  # of one in pieces of a few characters, each in an object of its own
_REDIRECTS = 5
_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding", "content-type")


class Client(httpx2.AsyncClient):
    """Reads every response completely, and labels it as UTF-8 JSON, whatever its headers claim."""

    async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:
        """Send a request. Raises BadAnswer if the response is too large, and the errors of httpx2."""
        for _ in range(_REDIRECTS):
            # redirects are followed here, since the base class would read their bodies without a limit
            response = await super().send(request, **{**settings, "stream": True, "follow_redirects": False})
            body = await _read(response)
            if response.next_request is None:
                headers = [(k, v) for k, v in response.headers.multi_items() if k.lower() not in _OF_THE_BODY]
                return httpx2.Response(
                    response.status_code,
                    headers=[*headers, ("content-type", "application/json; charset=utf-8")],
                    content=body,
                    request=response.request,
                    extensions=response.extensions,
                )
            request = response.next_request
        raise httpx2.TooManyRedirects(f"the server redirects more than {_REDIRECTS} times", request=request)


async def _read(response: httpx2.Response) -> bytes:
    body = bytearray()
    streamed = response.headers.get("content-type", "").startswith("text/event-stream")
    most = _MOST_STREAMED_MIB if streamed else MOST_MIB
    try:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > most << 20:
                raise BadAnswer(
                    f"the response is larger than {most} MiB, more than any valid answer; the rest was not read",
                    Reply("", "", None, None),
                )
    finally:
        await response.aclose()
    return bytes(body)
