"""Arguments of generate() and stream() to a GenerateRequest."""

from __future__ import annotations

import secrets
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from . import _messages

if TYPE_CHECKING:
    from typing_extensions import TypedDict

    class _Sampling(TypedDict, total=False):
        temperature: Optional[float]
        top_k: Optional[int]
        top_p: Optional[float]
        min_p: Optional[float]
        repetition_penalty: Optional[float]
        frequency_penalty: Optional[float]
        presence_penalty: Optional[float]
        logit_bias: Optional[Mapping[int, float]]
        seed: Optional[int]  # drawn by the client where left out

    class _Speculation(TypedDict, total=False):
        method: Optional[str]  # "ar", "sd", "pearl", "async"
        window: Optional[int]
        suffixes: Optional[bool]
        policy: Optional[str]
        tree: Optional[str]  # "chain", "best", ...: docs/trees.md
        verification: Optional[str]  # "exact", "ratio"
        spec_stats: Optional[bool]  # True: a value for each round

    class Options(_Sampling, _Speculation, total=False):
        """What may be said of a request; None and left out are the same.

        Ranges and defaults: proto/inference.proto, proto/types.proto.
        """

        max_tokens: Optional[int]
        min_tokens: Optional[int]
        stop: Union[str, Sequence[str], None]
        stop_token_ids: Optional[Sequence[int]]
        ignore_eos: Optional[bool]
        include_stop_str_in_output: Optional[bool]
        skip_special_tokens: Optional[bool]
        logprobs: Optional[int]
        prompt_logprobs: Optional[int]  # of the prompt's tokens but the first
        n: Optional[int]
        model: Optional[str]
        request_id: Optional[str]
        numerics_id: Optional[str]


Prompt = Union[str, Sequence[int]]

# Option to the message of the request that has the field; "": itself.
_FIELDS = {
    **dict.fromkeys(("model", "request_id", "numerics_id", "n"), ""),
    **dict.fromkeys(
        ("temperature", "top_k", "top_p", "min_p", "repetition_penalty",
         "frequency_penalty", "presence_penalty", "logit_bias", "seed"),
        "sampling"),
    **dict.fromkeys(
        ("max_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos",
         "include_stop_str_in_output"),
        "stop"),
    **dict.fromkeys(
        ("skip_special_tokens", "logprobs", "prompt_logprobs", "spec_stats"),
        "output"),
    **dict.fromkeys(
        ("method", "window", "policy", "tree", "verification", "suffixes"),
        "speculation"),
}


def build_request(prompt: Prompt, options: Dict[str, Any]) -> Any:
    """A streamed request with a seed. TypeError, ValueError: a bad argument."""
    unknown = sorted(set(options) - set(_FIELDS))
    if unknown:
        raise TypeError(f"unknown option {', '.join(unknown)}")
    request = _messages.GenerateRequest()
    _set_prompt(request, prompt)
    for name, value in options.items():
        if value is None:
            continue
        part = _FIELDS[name]
        _set(getattr(request, part) if part else request, name, value)
    request.output.stream = True
    request.output.omit_streamed = True
    # The client's own: a repeated call gives the same tokens.
    if not request.sampling.HasField("seed"):
        request.sampling.seed = secrets.randbits(64)
    return request


_KEPT_ID_BYTES = 224


def retry_request(request: Any, number: int) -> Any:
    """The request once more, of which nothing came. The call before may still be
    known where it ran, by its request_id."""
    if not request.request_id:
        return request
    retried = _messages.GenerateRequest()
    retried.CopyFrom(request)
    # A service takes 256 bytes.
    kept = request.request_id.encode()[:_KEPT_ID_BYTES].decode(errors="ignore")
    retried.request_id = f"{kept}-retry-{number}"
    return retried


def resume_request(
    request: Any, start: Any, choices: Sequence[Tuple[Sequence[int], bool]]
) -> Optional[Any]:
    """The request that goes on with an answer (docs/operations.md, "Resuming an
    answer"); None where the service cannot. `choices`: the token ids that came
    of each, and whether its end did."""
    speculation = request.speculation
    ratio = _messages.enum_number("Verification", "VERIFICATION_", "ratio")
    if speculation.verification == ratio and request.sampling.temperature != 0:
        return None
    if speculation.policy.partition(":")[0] == "oracle":
        return None
    resumed = _messages.GenerateRequest()
    resumed.CopyFrom(request)
    resumed.request_id = ""  # the old call may still run
    resumed.token_ids.ids[:] = start.prompt_token_ids
    resumed.sampling.seed = start.seed
    resumed.resume.model_fingerprint = start.model_fingerprint
    resumed.resume.numerics_id = start.numerics_id
    for token_ids, done in choices:
        resumed.resume.choices.add(token_ids=() if done else token_ids, done=done)
    # What is said of the prompt came with the first tokens.
    if all(done or token_ids for token_ids, done in choices):
        resumed.output.ClearField("prompt_logprobs")
    return resumed


def _set_prompt(request: Any, prompt: Prompt) -> None:
    if isinstance(prompt, str):
        request.text = prompt
    elif isinstance(prompt, (bytes, bytearray)):
        raise TypeError("the prompt is bytes, not a text or token ids")
    else:
        request.token_ids.SetInParent()
        request.token_ids.ids.extend(prompt)


def _set(message: Any, name: str, value: Any) -> None:
    if name == "logit_bias":
        for token, bias in value.items():
            message.logit_bias[token] = bias
    elif name == "stop":
        message.stop.extend([value] if isinstance(value, str) else value)
    elif name == "stop_token_ids":
        message.stop_token_ids.extend(value)
    elif name == "spec_stats":
        level = "detailed" if value else "summary"
        message.spec_stats = _messages.enum_number(
            "SpecStatsLevel", "SPEC_STATS_LEVEL_", level)
    elif name == "method":
        message.method = _messages.enum_number("Method", "METHOD_", value)
    elif name == "verification":
        message.verification = _messages.enum_number(
            "Verification", "VERIFICATION_", value)
    else:
        setattr(message, name, value)
