"""Why a call was refused, for programs: out of the details of its status, as
google.rpc.Status has them (docs/load.md)."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from ._messages import message_class

# More KV is needed than any target has.
NEVER_FITS = "NEVER_FITS"

_DETAILS = "grpc-status-details-bin"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_DOMAIN = "nacre"


def _pool() -> Any:
    """Of google/rpc/status.proto and error_details.proto what is read here."""
    file = descriptor_pb2.FileDescriptorProto(
        name="refusal.proto", package="nacre", syntax="proto3"
    )
    detail = file.message_type.add(name="Detail")  # google.protobuf.Any
    detail.field.add(name="type_url", number=1, type=FieldDescriptorProto.TYPE_STRING)
    detail.field.add(name="value", number=2, type=FieldDescriptorProto.TYPE_BYTES)
    status = file.message_type.add(name="Status")
    status.field.add(
        name="details",
        number=3,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=".nacre.Detail",
        label=FieldDescriptorProto.LABEL_REPEATED,
    )
    info = file.message_type.add(name="ErrorInfo")
    info.field.add(name="reason", number=1, type=FieldDescriptorProto.TYPE_STRING)
    info.field.add(name="domain", number=2, type=FieldDescriptorProto.TYPE_STRING)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _pool()
Status = message_class(_POOL, "nacre.Status")
ErrorInfo = message_class(_POOL, "nacre.ErrorInfo")


def reason_of(error: grpc.RpcError) -> str:
    """"QUEUE_FULL"; empty where the server gave none."""
    call: Any = error
    for key, value in call.trailing_metadata() or ():
        if key != _DETAILS:
            continue
        try:
            for detail in Status.FromString(value).details:
                if detail.type_url != _ERROR_INFO:
                    continue
                info = ErrorInfo.FromString(detail.value)
                if info.domain == _DOMAIN:
                    return str(info.reason)
        except message.DecodeError:
            pass
    return ""
