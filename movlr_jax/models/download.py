"""The download of a model's files at its first use: whether it is allowed and possible, and what to do where not."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
from collections.abc import Iterator
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from movlr_jax.errors import MissingModel

SWITCH = "MOVLR_DOWNLOADS"  # environment variable; off: nothing is downloaded


def unreachable(url: str, seconds: float = 10.0) -> str:
    """Return why nothing can be downloaded from `url`; an empty string if its server answers within `seconds`.

    A server that answers with an error is reachable: the download itself fails with a better message.
    """
    if os.environ.get(SWITCH) == "off":
        return f"{SWITCH}=off"
    found = [f"no answer within {seconds:g} s"]

    def look() -> None:
        try:
            with urlopen(Request(url, method="HEAD"), timeout=seconds):
                found.append("")
        except (OSError, HTTPException) as error:  # URLError is an OSError
            reason = getattr(error, "reason", error)
            answered = isinstance(error, HTTPError) or isinstance(reason, ssl.SSLError)
            found.append("" if answered else " ".join(str(getattr(reason, "strerror", None) or reason).split()))

    # a name server that does not answer holds up a lookup for longer than `seconds`
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[-1]


@contextlib.contextmanager
def downloading(what: str, url: str, fix: str, *failures: type[Exception]) -> Iterator[None]:
    """Wrap the download of `what` from `url`. Raises MissingModel, which ends with `fix`, if it is not possible.

    failures: Further exceptions of the library that downloads.
    """
    failed = f"{what} cannot be downloaded from {urlsplit(url).hostname or url}"
    if why := unreachable(url):
        raise MissingModel(f"{failed}: {why}; {fix}")
    try:
        yield
    except (OSError, ValueError, *failures) as error:  # no network or file; a wrong hash
        raise MissingModel(f"{failed}: {' '.join(str(error).split())}; {fix}") from None
