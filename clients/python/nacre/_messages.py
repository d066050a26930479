"""The message classes of nacre.v1, made from nacre.desc at import.

A descriptor pool of our own: another version of the same messages in the
process does no harm.
"""

from __future__ import annotations

import pathlib
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "/nacre.v1.Inference/"


def _load_pool() -> Any:
    data = pathlib.Path(__file__).with_name("nacre.desc").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    # Imports come before what imports them.
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _load_pool()


def message_class(pool: Any, name: str) -> Any:
    descriptor = pool.FindMessageTypeByName(name)
    factory: Any = message_factory
    if hasattr(factory, "GetMessageClass"):
        return factory.GetMessageClass(descriptor)
    # Before protobuf 4.22.
    return factory.MessageFactory(pool).GetPrototype(descriptor)


def _message(name: str) -> Any:
    return message_class(_POOL, "nacre.v1." + name)


def enum_name(enum: str, prefix: str, number: int) -> str:
    """"eos" for FINISH_REASON_EOS; the number where a newer server has more."""
    values = _POOL.FindEnumTypeByName("nacre.v1." + enum).values_by_number
    if number not in values:
        return str(number)
    return str(values[number].name[len(prefix) :].lower())


def enum_number(enum: str, prefix: str, name: str) -> int:
    """The reverse; ValueError names what there is."""
    values = _POOL.FindEnumTypeByName("nacre.v1." + enum).values
    numbers = {value.name[len(prefix) :].lower(): value.number for value in values}
    numbers.pop("unspecified")
    if name not in numbers:
        raise ValueError(f"{enum.lower()} is {name!r}, not one of {', '.join(numbers)}")
    return int(numbers[name])


GenerateRequest = _message("GenerateRequest")
GenerateResponse = _message("GenerateResponse")
TokenizeRequest = _message("TokenizeRequest")
TokenizeResponse = _message("TokenizeResponse")
GetModelRequest = _message("GetModelRequest")
Model = _message("Model")
