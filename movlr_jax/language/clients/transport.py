"""The HTTP client that both SDKs speak through: whatever a server sends, no more than a set size is read."""

from __future__ import annotations

from typing import Any

import httpx2

from movlr_jax.language.clients.call import BadAnswer, Reply

MOST_MIB = 4  # of a response, unpacked; an answer is far smaller
_REDIRECTS = 5
_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding", "content-type")


class Client(httpx2.AsyncClient):
    """Reads every response to its end, as JSON in UTF-8 whatever its headers say."""

    async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:
        """Raises BadAnswer when a response is too large, and httpx2's errors."""
        for _ in range(_REDIRECTS):
            # redirects are followed here: the client would read the bodies between without a limit
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
    try:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > MOST_MIB << 20:
                raise BadAnswer(
                    f"the response is larger than {MOST_MIB} MiB, far larger than an answer; the rest was not read",
                    Reply("", "", None, None),
                )
    finally:
        await response.aclose()
    return bytes(body)
