"""One Generate call without its transport: requests, answers, errors.

The same for the blocking client and the asynchronous one.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import grpc

from . import _messages
from ._connection import Connections, Stubs
from ._refusal import Refusal, refusal_of
from ._request import resume_request, retry_request
from ._retry import Attempts
from .answers import (
    Choice,
    Chunk,
    Completion,
    Partial,
    PartialChoice,
    Speculation,
    Timing,
    TokenLogprob,
    Usage,
)
from .errors import (
    Closed,
    DeadlineExceeded,
    ProtocolError,
    StatusError,
    Unavailable,
    status_error,
)

_SEEDS = 2**64


class _Answer:
    """What has come of one choice."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.texts: List[str] = []
        self.token_ids: List[int] = []
        self.logprobs: List[TokenLogprob] = []
        self.prompt_logprobs: Tuple[TokenLogprob, ...] = ()
        self.numerics_id = ""
        self.complete: Optional[Any] = None


class Generation:
    """State of a call from its first attempt to its end. One user at a time."""

    def __init__(self, request: Any, attempts: Attempts) -> None:
        self.request = request  # of the next attempt
        self.attempts = attempts
        self._original = request
        self._start: Optional[Any] = None  # what a resume needs, once it came
        self._choices = request.n if request.HasField("n") else 1
        self._answers: Dict[int, _Answer] = {}
        self._request_id = request.request_id
        self._cut: Optional[StatusError] = None  # that the next attempt mends
        self._retries = 0  # attempts after the first, without a token yet

    def take(self, response: Any) -> Optional[Chunk]:
        """The chunk of a response, None for the end of a choice."""
        if not self._answers:
            self._request_id = response.request_id
        if self._start is None and response.HasField("start"):
            self._start = response.start
        index = response.index
        if index >= self._choices:
            raise self._wrong(f"choice {index} of {self._choices}")
        if index not in self._answers:
            seed = (self._original.sampling.seed + index) % _SEEDS
            self._answers[index] = _Answer(seed)
        answer = self._answers[index]
        if answer.complete is not None:
            raise self._wrong(f"more of choice {index} after its end")
        kind = response.WhichOneof("event")
        if kind == "complete":
            self._finish(answer, response.complete)
            return None
        if kind != "chunk":
            raise self._wrong("a response without a chunk or an end")
        return self._extend(answer, index, response.chunk)

    def fail(
        self,
        code: grpc.StatusCode,
        message: Optional[str],
        refusal: Refusal = Refusal(),
    ) -> Optional[float]:
        """Seconds until the next attempt; raises where there is none. None: all
        had come already, end() has it."""
        if len(self._answers) == self._choices and all(
            answer.complete is not None for answer in self._answers.values()
        ):
            return None
        error = status_error(
            code, message or "", self.attempts.made, self.partial(), refusal
        )
        if not self._answers:
            delay = self.attempts.delay_after(error)
            self._retries += 1
            self.request = retry_request(self._original, self._retries)
            return delay
        # Tokens must not come twice: the caller has them already.
        if self._start is None:
            raise error
        came = [self._answers.get(i, _Answer(0)) for i in range(self._choices)]
        resumed = resume_request(
            self._original,
            self._start,
            [(answer.token_ids, answer.complete is not None) for answer in came],
        )
        if resumed is None:
            raise error
        delay = self.attempts.delay_after(error, resumes=True)
        self.request = resumed
        self._cut = error
        return delay

    @property
    def is_cut(self) -> bool:
        """Whether the next attempt goes on with an answer."""
        return self._cut is not None

    def delay_of_silence(self, code: grpc.StatusCode, message: str) -> Optional[float]:
        """After a coordinator failed to say that it is there: seconds until the
        next one is asked; raises what cut the answer off where that takes too
        long. None: it is there, whatever it says."""
        error = status_error(code, message, self.attempts.made, self.partial())
        if self._cut is None or not isinstance(error, (Unavailable, DeadlineExceeded)):
            return None
        return self.attempts.delay_of_silence(self._cut)

    def end(self) -> Completion:
        """The whole, after the last response of a call that ended OK."""
        choices = []
        for index in range(self._choices):
            answer = self._answers.get(index)
            if answer is None or answer.complete is None:
                raise self._wrong(f"the call ended before choice {index} did")
            choices.append(_choice(index, answer))
        return Completion(self._request_id, tuple(choices))

    def partial(self) -> Partial:
        choices = tuple(
            PartialChoice(
                index=index,
                text="".join(answer.texts),
                token_ids=tuple(answer.token_ids),
                logprobs=tuple(answer.logprobs),
                seed=answer.seed,
                numerics_id=answer.numerics_id,
                finished=answer.complete is not None,
            )
            for index, answer in sorted(self._answers.items())
        )
        return Partial(self._request_id, choices)

    def _extend(self, answer: _Answer, index: int, proto: Any) -> Chunk:
        if proto.first_index != len(answer.token_ids):
            raise self._wrong(
                f"token {proto.first_index} of choice {index} after "
                f"{len(answer.token_ids)}"
            )
        chunk = Chunk(
            index=index,
            first_index=proto.first_index,
            token_ids=tuple(proto.token_ids),
            text=proto.text,
            logprobs=_logprobs(proto.logprobs),
        )
        if chunk.token_ids:
            self.attempts.progress()
        answer.texts.append(chunk.text)
        answer.token_ids.extend(chunk.token_ids)
        answer.logprobs.extend(chunk.logprobs)
        # A resumed call tells them once more.
        if not answer.prompt_logprobs:
            answer.prompt_logprobs = _logprobs(proto.prompt_logprobs)
        answer.numerics_id = answer.numerics_id or proto.numerics_id
        return chunk

    def _finish(self, answer: _Answer, proto: Any) -> None:
        told = proto.usage.completion_tokens
        if told != len(answer.token_ids):
            raise self._wrong(f"{len(answer.token_ids)} tokens came of {told}")
        answer.complete = proto

    def _wrong(self, message: str) -> ProtocolError:
        return ProtocolError(message, self.partial())


class StreamBase:
    """What a stream of either client knows of its answer."""

    def __init__(self, connections: Connections, generation: Generation) -> None:
        self._connections = connections
        self._generation = generation
        self._call: Any = None
        self._found: Optional[Stubs] = None  # of a coordinator that has answered
        self._completion: Optional[Completion] = None

    @property
    def completion(self) -> Completion:
        """The whole, once the iteration has ended by itself."""
        if self._completion is None:
            raise Closed("the answer is not complete")
        return self._completion

    @property
    def partial(self) -> Partial:
        """What has come so far."""
        return self._generation.partial()

    @property
    def attempts(self) -> int:
        """Calls made so far: over 1 where it was made again or went on."""
        return self._generation.attempts.made

    @property
    def _must_ask(self) -> bool:
        """Whether a coordinator that answers is to be found before the next call: one
        that is gone must not count as one that the request has ended."""
        return self._call is None and self._found is None and self._generation.is_cut

    def _cancel(self) -> None:
        """Cancels the call; the iteration ends."""
        raise NotImplementedError

    def _end(self) -> None:
        self._completion = self._generation.end()
        self._cancel()

    def _delay_after(self, error: Any) -> float:
        """How long to wait before the answer goes on; 0 also if it has ended."""
        # Without the cause: the status is all that it says.
        refusal = refusal_of(error)
        delay = self._generation.fail(error.code(), error.details(), refusal)
        if delay is None:
            self._end()
        return delay or 0

    def _question(self) -> Dict[str, Any]:
        """Arguments of get_model, which asks whether a coordinator is there."""
        return {
            "request": _messages.GetModelRequest(),
            "timeout": self._generation.attempts.ask_timeout(),
            "metadata": self._connections.metadata(),
        }

    def _delay_of_silence(self, error: Any) -> Optional[float]:
        """After _question failed: Generation.delay_of_silence()."""
        return self._generation.delay_of_silence(error.code(), error.details() or "")

    def _asked(self, stubs: Stubs, delay: Optional[float]) -> float:
        """After _question: seconds until the next one. With a delay of None the
        coordinator is there, and called next."""
        if delay is None:
            self._found = stubs
        return delay or 0

    def _new_call(self) -> Any:
        stubs, self._found = self._found, None
        if stubs is None or self._connections.closed:
            stubs = self._connections.next()
        return stubs.generate(
            self._generation.request,
            timeout=self._generation.attempts.begin(),
            metadata=self._connections.metadata(),
        )


def _choice(index: int, answer: _Answer) -> Choice:
    proto: Any = answer.complete
    return Choice(
        index=index,
        text="".join(answer.texts),
        token_ids=tuple(answer.token_ids),
        logprobs=tuple(answer.logprobs),
        finish_reason=_messages.enum_name(
            "FinishReason", "FINISH_REASON_", proto.finish_reason
        ),
        stop_match=proto.stop_match,
        seed=proto.seed,
        numerics_id=proto.numerics_id,
        usage=Usage(
            proto.usage.prompt_tokens,
            proto.usage.completion_tokens,
            proto.usage.cached_tokens,
        ),
        timing=_timing(proto.timing),
        speculation=_speculation(proto.speculation),
        prompt_logprobs=answer.prompt_logprobs,
    )


def _logprobs(protos: Any) -> Tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(
            proto.token_id, proto.logprob, tuple(zip(proto.top_ids, proto.top_logprobs))
        )
        for proto in protos
    )


def _seconds(duration: Any) -> float:
    return float(duration.seconds + duration.nanos / 1e9)


def _timing(proto: Any) -> Timing:
    return Timing(
        total=_seconds(proto.total),
        time_to_first_token=_seconds(proto.time_to_first_token),
        queue=_seconds(proto.queue),
        draft_busy=_seconds(proto.draft_busy),
        draft_wait=_seconds(proto.draft_wait),
        target_busy=_seconds(proto.target_busy),
        target_wait=_seconds(proto.target_wait),
        target_wait_after_miss=_seconds(proto.target_wait_after_miss),
    )


def _speculation(proto: Any) -> Speculation:
    return Speculation(
        method=_messages.enum_name("Method", "METHOD_", proto.method),
        verification=_messages.enum_name(
            "Verification", "VERIFICATION_", proto.verification
        ),
        window=proto.window,
        policy=proto.policy,
        rounds=proto.rounds,
        drafted=proto.drafted,
        verified=proto.verified,
        accepted=proto.accepted,
        committed=proto.committed,
        degraded_rounds=proto.degraded_rounds,
        alpha=proto.alpha,
        cost_ratio=proto.cost_ratio,
        acceptance_histogram=tuple(proto.acceptance_histogram),
        ranks=tuple(proto.ranks),
        prepared=proto.prepared,
        per_round_drafted=tuple(proto.per_round_drafted),
        per_round_accepted=tuple(proto.per_round_accepted),
        suffix_proposed=proto.suffix_proposed,
        suffix_accepted=proto.suffix_accepted,
    )
