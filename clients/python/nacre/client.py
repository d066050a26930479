"""The blocking client. Threads may share it; a Stream has one reader."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Sequence, Union

import grpc

from . import _messages
from ._closing import Closing
from ._connection import Connections, Tls, Token, model_info, tokenize_request
from ._generation import Generation, StreamBase
from ._request import Prompt, build_request
from ._retry import Attempts, Retry
from .answers import Chunk, Completion, ModelInfo
from .errors import Closed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._request import Options


class Stream(Closing, StreamBase, Iterator[Chunk]):
    """The chunks of a request. close(), the end of a `with` and the last
    reference to it cancel what still runs; any thread may close."""

    def __init__(self, connections: Connections, generation: Generation) -> None:
        super().__init__(connections, generation)
        self._lock = threading.Lock()  # for _call against close()
        self._closed = threading.Event()

    def __next__(self) -> Chunk:
        while not self._closed.is_set():
            try:
                chunk = self._receive()
            except BaseException:
                self.close()
                raise
            if chunk is not None:
                return chunk
        raise StopIteration

    def close(self) -> None:
        """Cancels the call; the iteration ends."""
        self._cancel()

    def _cancel(self) -> None:
        self._closed.set()
        with self._lock:
            call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def __enter__(self) -> Stream:
        return self

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()

    def _receive(self) -> Optional[Chunk]:
        """The next chunk; None: ask again, unless it is closed now."""
        if self._must_ask:
            self._ask()
            return None
        call = self._current_call()
        if call is None:
            return None
        try:
            response = next(call)
        except StopIteration:
            self._end()
            return None
        except grpc.RpcError as error:
            if not self._closed.is_set():
                with self._lock:
                    self._call = None
                self._closed.wait(self._delay_after(error))
            return None
        return self._generation.take(response)

    def _ask(self) -> None:
        """Whether the next coordinator is there; waits a little if not."""
        stubs = self._connections.next()
        with self._lock:
            if self._closed.is_set():
                return
            call = self._call = stubs.get_model.future(**self._question())
        delay = None
        try:
            call.result()
        except grpc.FutureCancelledError:
            return  # closed
        except grpc.RpcError as error:
            # The next round says that the client is closed.
            if self._closed.is_set() or self._connections.closed:
                return
            delay = self._generation.delay_of_silence(
                error.code(), error.details() or ""
            )
        finally:
            with self._lock:
                self._call = None
        if delay is None:
            self._found = stubs
        else:
            self._closed.wait(delay)

    def _current_call(self) -> Any:
        with self._lock:
            if self._call is None and not self._closed.is_set():
                self._call = self._new_call()
            return self._call


class Client(Closing):
    """Calls one coordinator, or several in turn.

    `address`: HOST:PORT or a list of them. `tls`: True, or Tls with files;
    False is plaintext. `token`: for services with --auth-tokens-file, or a
    function that returns it, asked before each attempt. `retry`: of calls that
    failed before their first answer, and of answers that were cut off.
    """

    def __init__(
        self,
        address: Union[str, Sequence[str]] = "127.0.0.1:50050",
        *,
        tls: Union[bool, Tls] = False,
        token: Token = None,
        retry: Optional[Retry] = None,
    ) -> None:
        self._connections = Connections(grpc, address, tls, token, retry)

    def stream(
        self,
        prompt: Prompt,
        *,
        timeout: Optional[float] = None,
        **options: Unpack[Options],
    ) -> Stream:
        """The continuation of a text or of token ids, as it is verified."""
        request = build_request(prompt, dict(options))
        attempts = Attempts(self._connections.retry, timeout)
        return Stream(self._connections, Generation(request, attempts))

    def generate(
        self,
        prompt: Prompt,
        *,
        timeout: Optional[float] = None,
        **options: Unpack[Options],
    ) -> Completion:
        """The same as a whole."""
        with self.stream(prompt, timeout=timeout, **options) as stream:
            for _ in stream:
                pass
            return stream.completion

    def tokenize(
        self,
        text: str,
        *,
        special_tokens: bool = True,
        timeout: Optional[float] = None,
    ) -> List[int]:
        """Token ids as generate() would see them."""
        answer = self._unary(
            "tokenize", tokenize_request(text, special_tokens), timeout
        )
        return list(answer.token_ids)

    def model(self, *, timeout: Optional[float] = None) -> ModelInfo:
        """What is served."""
        request = _messages.GetModelRequest()
        return model_info(self._unary("get_model", request, timeout))

    def close(self) -> None:
        """Ends all connections; running streams end with Cancelled, those that wait
        for a coordinator with Closed."""
        self._connections.closed = True
        for stubs in self._connections.stubs:
            stubs.channel.close()

    def __enter__(self) -> Client:
        return self

    def _unary(self, method: str, request: Any, timeout: Optional[float]) -> Any:
        attempts = Attempts(self._connections.retry, timeout)
        while True:
            call = getattr(self._connections.next(), method)
            left = attempts.begin()
            try:
                return call(
                    request, timeout=left, metadata=self._connections.metadata()
                )
            except grpc.RpcError as error:
                delay = attempts.delay_of(error)
            time.sleep(delay)
