"""Messages between the main and the warm process: length-prefixed JSON with file descriptors, over a socket."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("!I")
_LARGEST = 16 << 20  # bytes


def send(to: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message. Raises OSError if the other side is gone."""
    body = json.dumps(message).encode()
    header = _LENGTH.pack(len(body))
    sent = socket.send_fds(to, [header], descriptors)  # the descriptors arrive with the first byte
    to.sendall(header[sent:] + body)


def receive(sender: socket.socket, descriptors: int = 0) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message (None if the other side is gone) and at most `descriptors` descriptors.

    Raises OSError.
    """
    first, found, _, _ = socket.recv_fds(sender, _LENGTH.size, descriptors)
    header = first + _exactly(sender, _LENGTH.size - len(first)) if first else b""
    if len(header) < _LENGTH.size:
        return None, found
    (length,) = _LENGTH.unpack(header)
    if length > _LARGEST:
        raise OSError(f"a message has {length:,} bytes, the limit is {_LARGEST:,}")
    body = _exactly(sender, length)
    return (json.loads(body) if len(body) == length else None), found


def _exactly(sender: socket.socket, count: int) -> bytes:
    """Read `count` bytes, or fewer if the other side closes the connection."""
    data = bytearray()
    while len(data) < count:
        part = sender.recv(min(count - len(data), 1 << 16))
        if not part:
            break
        data += part
    return bytes(data)
