"""Requests to a server that speaks OpenAI's protocol: judges and teachers live behind one.

A request has a deadline in all, a reply a largest size, redirects are not followed (they would carry the key to another
host), and what may pass (busy, too late, an unreadable reply) is asked again after a pause. Nobody who stops waiting is
held by requests that are still under way.
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
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

LONGEST_REPLY = 4 << 20  # bytes; ours
LONGEST_PAUSE = 30.0  # seconds that a server may ask us to wait
ADDRESS = re.compile(r"https?://[^/@\s]+(?:/[!-~]*)?\Z")  # a name and password would be shown with it, and not be used
KEY = re.compile(r"[!-~]+")  # what a header takes

S = TypeVar("S")
T = TypeVar("T")


class ServerFailed(RuntimeError):
    """No usable reply could be had; the text says why. tokens: what the tries took, as the server counted; pause: the
    seconds that it asked to be left alone."""

    tokens = 0
    pause: float | None = None


class ServerAbsent(ServerFailed):
    """Nobody answered: too late, or not there at all."""


class ServerRefuses(RuntimeError):
    """No request can succeed: the address, the model or the key is not accepted."""


USUAL_KEY = "OPENAI_API_KEY"  # where nobody names another; servers of one's own need none


def unset_key(table: str, key: str) -> str:
    """Why a key that somebody has named cannot be used, "" where it can."""
    if key == USUAL_KEY or os.environ.get(key, "").strip():
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
            time.sleep(min(0.25 * 2**attempt if failed.pause is None else failed.pause, LONGEST_PAUSE))
        try:
            return once()
        except (ServerFailed, ValueError) as error:
            failed = error if isinstance(error, ServerFailed) else ServerFailed(str(error))
    raise failed


@dataclass
class Threads:
    """Calls that wait for a server, at most `parallel` at once.

    The threads of concurrent.futures are waited for when a program ends, so that a run which was stopped would stand
    there until the last request and its further tries are too late. These end with the program.
    """

    parallel: int
    _running: int = field(default=0, init=False)
    _waiting: deque[tuple[Future[Any], Callable[[], Any]]] = field(default_factory=deque, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._waiting.append((future, call))
            if self._running < self.parallel:
                self._running += 1
                threading.Thread(target=self._work, name="asks a server", daemon=True).start()
        return future

    def map(self, call: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """What the call returns for each item, in order. Raises what one of them raised, without waiting for others."""
        futures = [self.submit(partial(call, item)) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # whoever waits for it is told
                future.set_exception(error)


@dataclass(frozen=True, slots=True)
class Server:
    """An address. key: the environment variable that holds the key; seconds: for one request, in all."""

    url: str
    key: str
    seconds: float

    def post(self, path: str, question: Mapping[str, Any], longest: int = LONGEST_REPLY) -> bytes:
        """The reply to a question at `url`/`path`. Raises ServerFailed, ServerAbsent and ServerRefuses."""
        headers = {"Content-Type": "application/json"}
        address = f"{self.url.rstrip('/')}/{path}"
        if key := os.environ.get(self.key, "").strip():
            if not KEY.fullmatch(key):  # http.client would say so too, and show it
                raise ServerRefuses(
                    f"{address} is not asked: the environment variable {self.key} holds a space, a line end or "
                    "a letter that no key has; set it to the key alone"
                )
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(address, json.dumps(question).encode(), headers)
        sockets: list[socket.socket] = []
        late = threading.Event()
        opener = urllib.request.build_opener(_NoRedirect, _Http(sockets, late), _Https(sockets, late))
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
            busy = ServerFailed(f"the server said {error.code} {error.reason}")
            if re.fullmatch(r"[0-9]{1,9}", pause := error.headers.get("Retry-After", "")):
                busy.pause = float(pause)
            raise busy from None
        except TimeoutError:
            raise ServerAbsent(f"no reply within {self.seconds:g} s") from None
        except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
            if late.is_set() or isinstance(getattr(error, "reason", None), TimeoutError):
                raise ServerAbsent(f"no reply within {self.seconds:g} s") from None
            raise ServerAbsent(f"the server cannot be reached: {error}") from None
        finally:
            watch.cancel()
            for opened in sockets:
                opened.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *args: Any) -> None:
        return None


class _Http(urllib.request.HTTPHandler):
    """Keeps the sockets that it opens, so that another thread can cut them."""

    def __init__(self, sockets: list[socket.socket], late: threading.Event):
        super().__init__()
        self.kept = _kept(http.client.HTTPConnection, sockets, late)

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self.kept, request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, sockets: list[socket.socket], late: threading.Event):
        super().__init__()
        self.kept = _kept(http.client.HTTPSConnection, sockets, late)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self.kept, request)


def _kept(kind: type[http.client.HTTPConnection], sockets: list[socket.socket], late: threading.Event) -> Any:
    class Kept(kind):  # type: ignore[valid-type,misc]
        def __setattr__(self, name: str, value: Any) -> None:
            # Another name for the bare connection, before a proxy, which may drip as well, and TLS take it over.
            if name == "sock" and type(value) is socket.socket:
                sockets.append(value.dup())
                if late.is_set():  # finding the address has taken all the time
                    raise TimeoutError
            super().__setattr__(name, value)

    return Kept


def _cut(sockets: Sequence[socket.socket], late: threading.Event) -> None:
    late.set()
    for opened in sockets:
        with contextlib.suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)
