"""What goes wrong: one class for each status of the service.

Every StatusError has `partial`: what had come of the answer before it. Those
tokens are good and stay so.
"""

from __future__ import annotations

from typing import Dict, Type

import grpc

from ._refusal import NEVER_FITS, Refusal
from .answers import Partial


class NacreError(Exception):
    """Base of all errors of this package but ValueError and TypeError."""


class ProtocolError(NacreError):
    """The server said what no server of this version says."""

    def __init__(self, message: str, partial: Partial) -> None:
        super().__init__(message)
        self.partial = partial


class Closed(NacreError):
    """The client or the stream was closed by the caller."""


class StatusError(NacreError):
    """The call ended with a status that is not OK."""

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        attempts: int,
        partial: Partial,
        refusal: Refusal = Refusal(),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        # For programs: "QUEUE_FULL"; empty: none was given.
        self.reason = refusal.reason
        # Of the request, as GenerateRequest names it: "sampling.top_p"; likewise.
        self.field = refusal.field
        self.attempts = attempts  # calls made, this one included
        self.partial = partial

    def __str__(self) -> str:
        text = f"{self.code.name}: {self.message}"
        if self.attempts > 1:
            text += f" (attempt {self.attempts})"
        if self.partial.tokens:
            text += f" (after {self.partial.tokens} tokens)"
        return text


class InvalidArgument(StatusError):
    """A field is out of range: `field`; the message has the value and the limit."""


class ContextLengthExceeded(InvalidArgument):
    """Prompt and max_tokens exceed the context."""


class NotFound(StatusError):
    """Another model's name."""


class AlreadyExists(StatusError):
    """A request with this request_id runs or waits."""


class ResourceExhausted(StatusError):
    """No room. `may_retry` is False where waiting does not help."""

    @property
    def may_retry(self) -> bool:
        return self.reason != NEVER_FITS and _OVER_LIMIT not in self.message


class FailedPrecondition(StatusError):
    """No target of this numerics_id; no calibration for this policy."""


class Unavailable(StatusError):
    """No server or no target is there, or it was lost."""


class DeadlineExceeded(StatusError):
    """The caller's timeout, or the server's --max-request-duration."""


class Cancelled(StatusError):
    """The server cut off a client that took nothing for --client-timeout."""


class Unauthenticated(StatusError):
    """Tokens are in use, and none was shown or an unknown one."""


class PermissionDenied(StatusError):
    """The token is not for this port."""


class Unimplemented(StatusError):
    """Another service's port."""


class Internal(StatusError):
    """The target's device failed, and there is no other target."""


# gRPC says so of a message over the server's or our own limit.
_OVER_LIMIT = "larger than max"
# A server's gRPC says so of a call that comes while it closes. The coordinator's own
# words for CANCELLED are a sentence.
_OF_CLOSING_SERVER = "CANCELLED"
# gRPC says so, as INTERNAL, of a call that a proxy ended: it has lost the server. Where
# grpcio is new (1.85), other words stand around these.
_OF_PROXY = "Received RST_STREAM with error code"
_CONTEXT_MARK = "CONTEXT_LENGTH_EXCEEDED: "

_CLASSES: Dict[grpc.StatusCode, Type[StatusError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.INTERNAL: Internal,
}


def status_error(
    code: grpc.StatusCode,
    message: str,
    attempts: int,
    partial: Partial,
    refusal: Refusal = Refusal(),
) -> StatusError:
    """The error of a status."""
    if code is grpc.StatusCode.CANCELLED and message == _OF_CLOSING_SERVER:
        code, message = grpc.StatusCode.UNAVAILABLE, "the server has stopped"
    if code is grpc.StatusCode.INTERNAL and _OF_PROXY in message:
        code, message = grpc.StatusCode.UNAVAILABLE, f"the call was cut off: {message}"
    kind = _CLASSES.get(code, StatusError)
    if kind is InvalidArgument and message.startswith(_CONTEXT_MARK):
        kind, message = ContextLengthExceeded, message[len(_CONTEXT_MARK) :]
    return kind(code, message, attempts, partial, refusal)


def may_find_room(error: StatusError) -> bool:
    """Whether an answer that was cut off may go on later: there was no room. It
    had room once, so what never fits now may fit again. A coordinator that has
    just started has yet to hear of some of its targets."""
    if isinstance(error, FailedPrecondition):
        return error.field == "resume.numerics_id"
    return isinstance(error, ResourceExhausted) and _OVER_LIMIT not in error.message


def may_retry(error: StatusError) -> bool:
    """Whether the same call may succeed later, by docs/operations.md."""
    if isinstance(error, ResourceExhausted):
        return error.may_retry
    return isinstance(error, Unavailable)
