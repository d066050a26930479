"""Client of Nacre.

    import nacre

    with nacre.Client("host:50050") as client:
        for chunk in client.stream("Question: ...", max_tokens=100):
            print(chunk.text, end="", flush=True)
"""

from ._connection import Tls
from ._retry import Retry
from .aio import AsyncClient, AsyncStream
from .answers import (
    Choice,
    Chunk,
    Completion,
    ModelInfo,
    Partial,
    PartialChoice,
    Speculation,
    Timing,
    TokenLogprob,
    Usage,
)
from .client import Client, Stream
from .errors import (
    AlreadyExists,
    Cancelled,
    Closed,
    ContextLengthExceeded,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NacreError,
    NotFound,
    PermissionDenied,
    ProtocolError,
    ResourceExhausted,
    StatusError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)

__all__ = [
    "AlreadyExists", "AsyncClient", "AsyncStream", "Cancelled", "Choice", "Chunk",
    "Client", "Closed", "Completion", "ContextLengthExceeded", "DeadlineExceeded",
    "FailedPrecondition", "Internal", "InvalidArgument", "ModelInfo", "NacreError",
    "NotFound", "Partial", "PartialChoice", "PermissionDenied", "ProtocolError",
    "ResourceExhausted", "Retry", "Speculation", "StatusError", "Stream", "Timing",
    "Tls", "TokenLogprob", "Unauthenticated", "Unavailable", "Unimplemented", "Usage",
]
