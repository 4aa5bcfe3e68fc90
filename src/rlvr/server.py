"""Requests to a server that speaks OpenAI's protocol: judges and teachers live behind one.

A request has a deadline in all, a reply a largest size, redirects are not followed (they would carry the key to another
host), and what may pass (busy, too late, an unreadable reply) is asked again after a pause.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

LONGEST_REPLY = 4 << 20  # bytes; ours
LONGEST_PAUSE = 30.0  # seconds that a server may ask us to wait
ADDRESS = re.compile(r"https?://[^/]")

T = TypeVar("T")


class ServerFailed(RuntimeError):
    """No usable reply could be had; the text says why. tokens: what the tries took, as the server counted."""

    tokens = 0


class ServerAbsent(ServerFailed):
    """Nobody answered: too late, or not there at all."""


class ServerRefuses(RuntimeError):
    """No request can succeed: the address, the model or the key is not accepted."""


USUAL_KEY = "OPENAI_API_KEY"  # where nobody names another; servers of one's own need none


def unset_key(table: str, key: str) -> str:
    """Why a key that somebody has named cannot be used, "" where it can."""
    if key == USUAL_KEY or os.environ.get(key):
        return ""
    return (
        f"{table}.key names the environment variable {key}, which is not set; export it, or leave {table}.key out "
        "where the server wants none"
    )


def retried(once: Callable[[], T], retries: int) -> T:
    """What `once` returns, asked again where it raises ServerFailed, or ValueError for a reply of the wrong form.

    Raises the last failure as ServerFailed.
    """
    failed = ServerFailed("")
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(min(_pause(attempt, str(failed)), LONGEST_PAUSE))
        try:
            return once()
        except (ServerFailed, ValueError) as error:
            failed = error if isinstance(error, ServerFailed) else ServerFailed(str(error))
    raise failed


def _pause(attempt: int, why: str) -> float:
    asked = re.search(r"retry after (\d{1,3})", why)
    return float(asked[1]) if asked else 0.25 * 2**attempt


@dataclass(frozen=True, slots=True)
class Server:
    """An address. key: the environment variable that holds the key; seconds: for one request, in all."""

    url: str
    key: str
    seconds: float

    def post(self, path: str, question: Mapping[str, Any], longest: int = LONGEST_REPLY) -> bytes:
        """The reply to a question at `url`/`path`. Raises ServerFailed, ServerAbsent and ServerRefuses."""
        headers = {"Content-Type": "application/json"}
        if os.environ.get(self.key):
            headers["Authorization"] = f"Bearer {os.environ[self.key]}"
        address = f"{self.url.rstrip('/')}/{path}"
        request = urllib.request.Request(address, json.dumps(question).encode(), headers)
        sockets: list[socket.socket] = []
        opener = urllib.request.build_opener(_NoRedirect, _Http(sockets), _Https(sockets))
        late = threading.Event()
        # A timeout of the socket's own begins anew with every byte, so a server that drips would have for ever.
        watch = threading.Timer(self.seconds, _cut, (sockets, late))
        watch.daemon = True
        watch.start()
        try:
            with opener.open(request, timeout=self.seconds) as response:
                reply = response.read(longest + 1)
            if late.is_set():
                raise TimeoutError
            if len(reply) > longest:
                raise ServerFailed("the server's reply is too long")
            return bytes(reply)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in (401, 403, 404):
                raise ServerRefuses(
                    f"{address} refuses: {error.code} {error.reason}; check url, model and the key in the environment"
                    f" variable {self.key}"
                ) from None
            pause = error.headers.get("Retry-After", "")
            wait = f", retry after {pause}" if pause.isdigit() else ""
            raise ServerFailed(f"the server said {error.code} {error.reason}{wait}") from None
        except TimeoutError:
            raise ServerAbsent(f"no reply within {self.seconds:g} s") from None
        except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
            if late.is_set() or isinstance(getattr(error, "reason", None), TimeoutError):
                raise ServerAbsent(f"no reply within {self.seconds:g} s") from None
            raise ServerAbsent(f"the server cannot be reached: {error}") from None
        finally:
            watch.cancel()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *args: Any) -> None:
        return None


class _Http(urllib.request.HTTPHandler):
    """Keeps the sockets that it opens, so that another thread can cut them."""

    def __init__(self, sockets: list[socket.socket]):
        super().__init__()
        self.sockets = sockets

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_kept(http.client.HTTPConnection, self.sockets), request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, sockets: list[socket.socket]):
        super().__init__()
        self.sockets = sockets

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_kept(http.client.HTTPSConnection, self.sockets), request)


def _kept(kind: type[http.client.HTTPConnection], sockets: list[socket.socket]) -> Any:
    class Kept(kind):  # type: ignore[valid-type,misc]
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock)

    return Kept


def _cut(sockets: Sequence[socket.socket], late: threading.Event) -> None:
    late.set()
    for opened in sockets:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(opened, socket.SHUT_RDWR)  # below TLS, which would wait for the other side
