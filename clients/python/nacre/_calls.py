"""What both clients have, but for how they wait."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generic,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from . import _messages
from ._connection import Connections, Tls, Token, model_info, tokenize_request
from ._generation import Generation
from ._request import Prompt, build_request
from ._retry import Attempts, Retry

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._request import Options

# What the calls return: of the asynchronous client something to await.
StreamT = TypeVar("StreamT")
CompletionT = TypeVar("CompletionT")
IdsT = TypeVar("IdsT")
ModelT = TypeVar("ModelT")


class Unary:
    """A call with one answer, which `read` makes a value of."""

    def __init__(
        self,
        connections: Connections,
        attempts: Attempts,
        method: str,
        request: Any,
        read: Callable[[Any], Any],
    ) -> None:
        self._connections = connections
        self.attempts = attempts
        self._method = method
        self._request = request
        self.read = read

    def begin(self) -> Any:
        """The next attempt, at the next coordinator."""
        call = getattr(self._connections.next(), self._method)
        return call(
            self._request,
            timeout=self.attempts.begin(),
            metadata=self._connections.metadata(),
        )


class Calls(Generic[StreamT, CompletionT, IdsT, ModelT]):
    """The calls of a client."""

    _api: Any  # grpc or grpc.aio

    def __init__(
        self,
        address: Union[str, Sequence[str]] = "127.0.0.1:50050",
        *,
        tls: Union[bool, Tls] = False,
        token: Token = None,
        retry: Optional[Retry] = None,
    ) -> None:
        self._connections = Connections(self._api, address, tls, token, retry)

    def stream(
        self,
        prompt: Prompt,
        *,
        timeout: Optional[float] = None,
        **options: Unpack[Options],
    ) -> StreamT:
        """The continuation of a text or of token ids, as it is verified."""
        request = build_request(prompt, dict(options))
        attempts = Attempts(self._connections.retry, timeout)
        return self._new_stream(Generation(request, attempts))

    def generate(
        self,
        prompt: Prompt,
        *,
        timeout: Optional[float] = None,
        **options: Unpack[Options],
    ) -> CompletionT:
        """The same as a whole."""
        return self._whole(self.stream(prompt, timeout=timeout, **options))

    def tokenize(
        self,
        text: str,
        *,
        special_tokens: bool = True,
        timeout: Optional[float] = None,
    ) -> IdsT:
        """Token ids as generate() would see them."""
        request = tokenize_request(text, special_tokens)
        ids: IdsT = self._unary(
            "tokenize", request, timeout, lambda answer: list(answer.token_ids)
        )
        return ids

    def model(self, *, timeout: Optional[float] = None) -> ModelT:
        """What is served."""
        request = _messages.GetModelRequest()
        info: ModelT = self._unary("get_model", request, timeout, model_info)
        return info

    def _new_stream(self, generation: Generation) -> StreamT:
        raise NotImplementedError

    def _whole(self, stream: StreamT) -> CompletionT:
        """The stream to its end."""
        raise NotImplementedError

    def _unary(
        self,
        method: str,
        request: Any,
        timeout: Optional[float],
        read: Callable[[Any], Any],
    ) -> Any:
        attempts = Attempts(self._connections.retry, timeout)
        return self._answer(Unary(self._connections, attempts, method, request, read))

    def _answer(self, call: Unary) -> Any:
        """What is read of its answer, after as many attempts as may be."""
        raise NotImplementedError
