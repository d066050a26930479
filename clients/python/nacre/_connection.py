"""How to reach coordinators: addresses, TLS, tokens."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import grpc

from . import _messages
from ._retry import Retry
from .answers import ModelInfo
from .errors import Closed

Token = Union[str, Callable[[], str], None]
Path = Union[str, "os.PathLike[str]"]

_MAX_MESSAGE_BYTES = 64 << 20

# A vanished host ends its streams after 30 s; a coordinator that is back is
# found within seconds; one connection for each client.
CHANNEL_OPTIONS: Tuple[Tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclasses.dataclass(frozen=True)
class Tls:
    """PEM files. Without `ca`: the authorities that come with grpcio."""

    ca: Optional[Path] = None
    cert: Optional[Path] = None  # with key: where the server asks for one
    key: Optional[Path] = None
    server_name: Optional[str] = None  # in the certificate, if not the address

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together")

    def credentials(self) -> Any:
        def read(path: Optional[Path]) -> Optional[bytes]:
            return None if path is None else pathlib.Path(path).read_bytes()

        return grpc.ssl_channel_credentials(
            read(self.ca), read(self.key), read(self.cert)
        )


class Stubs:
    """The methods of the service on one channel."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        m = _messages
        self.generate = channel.unary_stream(
            m.SERVICE + "Generate",
            request_serializer=m.GenerateRequest.SerializeToString,
            response_deserializer=m.GenerateResponse.FromString,
        )
        self.tokenize = channel.unary_unary(
            m.SERVICE + "Tokenize",
            request_serializer=m.TokenizeRequest.SerializeToString,
            response_deserializer=m.TokenizeResponse.FromString,
        )
        self.get_model = channel.unary_unary(
            m.SERVICE + "GetModel",
            request_serializer=m.GetModelRequest.SerializeToString,
            response_deserializer=m.Model.FromString,
        )


class Connections:
    """One channel for each address; every attempt takes the next one."""

    def __init__(
        self,
        grpc_api: Any,  # grpc or grpc.aio
        addresses: Union[str, Sequence[str]],
        tls: Union[bool, Tls],
        token: Token,
        retry: Optional[Retry],
    ) -> None:
        names = [addresses] if isinstance(addresses, str) else list(addresses)
        if not names or not all(names):
            raise ValueError("an address is HOST:PORT, and there is at least one")
        self.retry = retry or Retry()
        self.closed = False
        self._token = token
        security = Tls() if tls is True else tls
        options: List[Tuple[str, Any]] = list(CHANNEL_OPTIONS)
        credentials = None
        if isinstance(security, Tls):
            credentials = security.credentials()
            if security.server_name:
                options.append(
                    ("grpc.ssl_target_name_override", security.server_name)
                )
        self.stubs = [
            Stubs(
                grpc_api.secure_channel(name, credentials, options=options)
                if credentials is not None
                else grpc_api.insecure_channel(name, options=options)
            )
            for name in names
        ]
        self._turns = itertools.count()

    def next(self) -> Stubs:
        if self.closed:
            raise Closed("the client is closed")
        return self.stubs[next(self._turns) % len(self.stubs)]

    def metadata(self) -> Optional[Tuple[Tuple[str, str], ...]]:
        token = self._token() if callable(self._token) else self._token
        if token is None:
            return None
        if not token or not token.isascii() or not token.isprintable():
            raise ValueError("the token is empty or has other than printable ASCII")
        return (("authorization", "Bearer " + token),)


def tokenize_request(text: str, special_tokens: bool) -> Any:
    return _messages.TokenizeRequest(text=text, no_special_tokens=not special_tokens)


def model_info(proto: Any) -> ModelInfo:
    return ModelInfo(
        name=proto.name,
        vocab_size=proto.vocab_size,
        context_length=proto.context_length,
        fingerprint=proto.fingerprint,
        numerics_id=proto.numerics_id,
        eos_token_ids=tuple(proto.eos_token_ids),
    )
