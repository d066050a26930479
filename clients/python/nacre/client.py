"""The blocking client. Threads may share it; a Stream has one reader."""

from __future__ import annotations

import threading
import time
from typing import Any, Iterator, List, Optional

import grpc

from ._calls import Calls, Unary
from ._closing import Closing
from ._connection import Connections
from ._generation import Generation, StreamBase
from .answers import Chunk, Completion, ModelInfo


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
            delay = self._delay_of_silence(error)
        finally:
            with self._lock:
                self._call = None
        self._closed.wait(self._asked(stubs, delay))

    def _current_call(self) -> Any:
        with self._lock:
            if self._call is None and not self._closed.is_set():
                self._call = self._new_call()
            return self._call


class Client(Closing, Calls[Stream, Completion, List[int], ModelInfo]):
    """Calls one coordinator, or several in turn.

    `address`: HOST:PORT or a list of them. `tls`: True, or Tls with files;
    False is plaintext. `token`: for services with --auth-tokens-file, or a
    function that returns it, asked before each attempt. `retry`: of calls that
    failed before their first answer, and of answers that were cut off.
    """

    _api = grpc

    def close(self) -> None:
        """Ends all connections; running streams end with Cancelled, those that wait
        for a coordinator with Closed."""
        self._connections.closed = True
        for stubs in self._connections.stubs:
            stubs.channel.close()

    def __enter__(self) -> Client:
        return self

    def _new_stream(self, generation: Generation) -> Stream:
        return Stream(self._connections, generation)

    def _whole(self, stream: Stream) -> Completion:
        with stream:
            for _ in stream:
                pass
            return stream.completion

    def _answer(self, call: Unary) -> Any:
        while True:
            try:
                return call.read(call.begin())
            except grpc.RpcError as error:
                delay = call.attempts.delay_of(error)
            time.sleep(delay)
