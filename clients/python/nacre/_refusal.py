"""Why a call was refused and which field is at fault, for programs: out of the
details of its status, as google.rpc.Status has them (docs/load.md)."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from ._messages import message_class

# More KV is needed than any target has.
NEVER_FITS = "NEVER_FITS"

_DETAILS = "grpc-status-details-bin"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_DOMAIN = "nacre"


class Refusal(NamedTuple):
    reason: str = ""  # "QUEUE_FULL"; empty where the server gave none
    field: str = ""  # "sampling.top_p"; likewise


def _add_repeated(to: Any, name: str, number: int, type_name: str) -> None:
    to.field.add(
        name=name,
        number=number,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=type_name,
        label=FieldDescriptorProto.LABEL_REPEATED,
    )


def _pool() -> Any:
    """Of google/rpc/status.proto and error_details.proto what is read here."""
    file = descriptor_pb2.FileDescriptorProto(
        name="refusal.proto", package="nacre", syntax="proto3"
    )
    detail = file.message_type.add(name="Detail")  # google.protobuf.Any
    detail.field.add(name="type_url", number=1, type=FieldDescriptorProto.TYPE_STRING)
    detail.field.add(name="value", number=2, type=FieldDescriptorProto.TYPE_BYTES)
    status = file.message_type.add(name="Status")
    _add_repeated(status, "details", 3, ".nacre.Detail")
    info = file.message_type.add(name="ErrorInfo")
    info.field.add(name="reason", number=1, type=FieldDescriptorProto.TYPE_STRING)
    info.field.add(name="domain", number=2, type=FieldDescriptorProto.TYPE_STRING)
    violation = file.message_type.add(name="FieldViolation")
    violation.field.add(name="field", number=1, type=FieldDescriptorProto.TYPE_STRING)
    bad = file.message_type.add(name="BadRequest")
    _add_repeated(bad, "field_violations", 1, ".nacre.FieldViolation")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _pool()
Status = message_class(_POOL, "nacre.Status")
ErrorInfo = message_class(_POOL, "nacre.ErrorInfo")
BadRequest = message_class(_POOL, "nacre.BadRequest")


def refusal_of(error: grpc.RpcError) -> Refusal:
    """What the server says of it besides words."""
    call: Any = error
    refusal = Refusal()
    for key, value in call.trailing_metadata() or ():
        if key != _DETAILS:
            continue
        for detail in _details_in(value):
            # What else it says counts.
            with contextlib.suppress(message.DecodeError, ValueError):
                refusal = _with_detail(refusal, detail)
    return refusal


def _details_in(value: bytes) -> list[Any]:
    try:
        return list(Status.FromString(value).details)
    except (message.DecodeError, ValueError):
        return []


def _with_detail(refusal: Refusal, detail: Any) -> Refusal:
    if detail.type_url == _ERROR_INFO:
        info = ErrorInfo.FromString(detail.value)
        if info.domain == _DOMAIN:
            return refusal._replace(reason=str(info.reason))
    if detail.type_url == _BAD_REQUEST:
        for violation in BadRequest.FromString(detail.value).field_violations:
            return refusal._replace(field=str(violation.field))
    return refusal
