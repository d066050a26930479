"""The asynchronous client, for one event loop."""

from __future__ import annotations

import asyncio
import functools
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Coroutine, List, Optional, Type

import grpc
import grpc.aio

from ._calls import Calls, Unary
from ._connection import Connections
from ._generation import Generation, StreamBase
from .answers import Chunk, Completion, ModelInfo
from .errors import Closed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._request import Options, Prompt

_CLIENT_CLOSED = "the client is closed"


class AsyncStream(StreamBase, AsyncIterator[Chunk]):
    """The chunks of a request. aclose(), the end of an `async with`, the
    cancellation of the task that reads and the last reference to it cancel
    what still runs."""

    def __init__(self, connections: Connections, generation: Generation) -> None:
        super().__init__(connections, generation)
        self._loop: Optional[asyncio.AbstractEventLoop] = None  # of _call
        self._closed = asyncio.Event()

    async def __anext__(self) -> Chunk:
        while not self._closed.is_set():
            try:
                chunk = await self._receive()
            except BaseException:
                self._cancel()
                raise
            if chunk is not None:
                return chunk
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancels the call; the iteration ends."""
        self._cancel()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._cancel()

    def __del__(self) -> None:
        call, loop = getattr(self, "_call", None), getattr(self, "_loop", None)
        if call is None or loop is None:
            return
        try:
            # The garbage collector may run in any thread.
            loop.call_soon_threadsafe(call.cancel)
        except RuntimeError:
            pass  # the loop is closed, and with it the call

    def _cancel(self) -> None:
        self._closed.set()
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _cancel_call(self) -> None:
        """What reads hears of it."""
        if self._call is not None:
            self._call.cancel()

    async def _receive(self) -> Optional[Chunk]:
        """The next chunk; None: ask again, unless it is closed now."""
        if self._must_ask:
            await self._ask()
            return None
        if self._call is None:
            self._loop = asyncio.get_running_loop()
            self._call = self._new_call()
        try:
            response = await self._call.read()
        except asyncio.CancelledError:
            # Of this task, or of the call: by another task's aclose() of the
            # stream or of the client.
            if _is_cancelled_task():
                raise
            if self._closed.is_set():
                return None
            if not self._connections.closed:
                raise
            self._call = None
            if self._generation.fail(grpc.StatusCode.CANCELLED, _CLIENT_CLOSED) is None:
                self._end()
            return None
        except grpc.RpcError as error:
            if not self._closed.is_set():
                self._call = None
                await self._pause(self._delay_after(error))
            return None
        if response is grpc.aio.EOF:
            self._end()
            return None
        return self._generation.take(response)

    async def _ask(self) -> None:
        """Whether the next coordinator is there; waits a little if not."""
        stubs = self._connections.next()
        self._loop = asyncio.get_running_loop()
        self._call = stubs.get_model(**self._question())
        delay = None
        try:
            await self._call
        except asyncio.CancelledError:
            # As of a read. The next round says that the client is closed.
            if _is_cancelled_task():
                raise
            if not (self._closed.is_set() or self._connections.closed):
                raise
            return
        except grpc.RpcError as error:
            if self._closed.is_set():
                return
            delay = self._delay_of_silence(error)
        finally:
            self._call = None
        await self._pause(self._asked(stubs, delay))

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closed.wait(), seconds)
        except asyncio.TimeoutError:
            pass


def _is_cancelled_task() -> bool:
    """Whether the current task was cancelled. Python before 3.11 does not tell:
    False."""
    task: Any = asyncio.current_task()
    cancelling = getattr(task, "cancelling", None)
    return cancelling is not None and cancelling() > 0


class AsyncClient(
    Calls[
        AsyncStream,
        Coroutine[Any, Any, Completion],
        Coroutine[Any, Any, List[int]],
        Coroutine[Any, Any, ModelInfo],
    ]
):
    """As Client. Make and use it in one event loop. All calls but stream() are
    to be awaited."""

    _api = grpc.aio

    @functools.cached_property
    def _streams(self) -> weakref.WeakSet[AsyncStream]:
        """Those that may still run."""
        return weakref.WeakSet()

    # As functions that are coroutines: nothing is checked, and no time runs, before
    # they are awaited.
    async def generate(
        self, prompt: Prompt, *, timeout: Optional[float] = None, **options: Unpack[Options]
    ) -> Completion:
        return await super().generate(prompt, timeout=timeout, **options)

    async def tokenize(
        self, text: str, *, special_tokens: bool = True, timeout: Optional[float] = None
    ) -> List[int]:
        return await super().tokenize(
            text, special_tokens=special_tokens, timeout=timeout
        )

    async def model(self, *, timeout: Optional[float] = None) -> ModelInfo:
        return await super().model(timeout=timeout)

    async def aclose(self) -> None:
        """Ends all connections; running streams end with Cancelled, those that wait
        for a coordinator with Closed."""
        self._connections.closed = True
        # Closing a channel of grpcio 1.51 leaves some that wait for a response.
        for stream in list(self._streams):
            stream._cancel_call()
        for stubs in self._connections.stubs:
            await stubs.channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()

    def _new_stream(self, generation: Generation) -> AsyncStream:
        stream = AsyncStream(self._connections, generation)
        self._streams.add(stream)
        return stream

    async def _whole(self, stream: AsyncStream) -> Completion:
        async with stream:
            async for _ in stream:
                pass
            return stream.completion

    async def _answer(self, call: Unary) -> Any:
        while True:
            try:
                return call.read(await call.begin())
            except asyncio.CancelledError:
                if _is_cancelled_task() or not self._connections.closed:
                    raise
                raise Closed(_CLIENT_CLOSED) from None
            except grpc.RpcError as error:
                delay = call.attempts.delay_of(error)
            await asyncio.sleep(delay)
