"""A coordinator of which each call does what the test says."""

import concurrent.futures
import threading

import grpc

from nacre import _messages as m


class FakeServer:
    """Listens on a free port of the loopback address.

    `script`: one function (request, context) for each call, the last one for
    all later calls too. A Generate's yields responses. `seen` has the requests,
    `metadata` and `deadlines` what came with them. GetModel asks whether the
    server is there: it is no call of the script, but `model` answers it.
    """

    def __init__(self, *script, credentials=None, model=None):
        self.script = list(script)
        self._model = model or (lambda request, context: m.Model())
        self.seen, self.metadata, self.deadlines = [], [], []
        self.ended = threading.Event()  # a call has ended, however
        self._lock = threading.Lock()
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((self._handlers(),))
        if credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()

    def _handlers(self):
        return grpc.method_handlers_generic_handler("nacre.v1.Inference", {
            "Generate": grpc.unary_stream_rpc_method_handler(
                self._call, m.GenerateRequest.FromString,
                m.GenerateResponse.SerializeToString),
            "Tokenize": grpc.unary_unary_rpc_method_handler(
                self._call, m.TokenizeRequest.FromString,
                m.TokenizeResponse.SerializeToString),
            "GetModel": grpc.unary_unary_rpc_method_handler(
                self._model, m.GetModelRequest.FromString,
                m.Model.SerializeToString),
        })

    def _call(self, request, context):
        if not context.add_callback(self.ended.set):
            self.ended.set()
        with self._lock:
            self.seen.append(request)
            self.metadata.append(dict(context.invocation_metadata()))
            self.deadlines.append(context.time_remaining())
            act = self.script[min(len(self.seen), len(self.script)) - 1]
        return act(request, context)


def refuse(code, message="no", details=b""):
    """An act: the status, before any answer. `details`: a google.rpc.Status."""

    def act(request, context):
        if details:
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(code, message)

    return act


def field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value


def violation_of(name):
    """As the coordinator names the field at fault."""
    violation = field(1, name.encode()) + field(2, b"words")
    return (bytes([1 << 3, 3]) + field(2, b"words")
            + field(3, field(1, b"type.googleapis.com/google.rpc.BadRequest")
                    + field(2, field(1, violation))))


def broken_violation():
    """A detail that says what it is, and is not that."""
    return field(3, field(1, b"type.googleapis.com/google.rpc.BadRequest")
                 + field(2, b"\xff"))


def details_of(reason, domain="nacre"):
    """As the coordinator has them, beside a RetryInfo."""
    info = field(1, reason.encode()) + field(2, domain.encode())
    kind = b"type.googleapis.com/google.rpc."
    return (bytes([1 << 3, 8]) + field(2, b"words")
            + field(3, field(1, kind + b"RetryInfo") + field(2, field(1, b"\x08\x07")))
            + field(3, field(1, kind + b"ErrorInfo") + field(2, info)))


def chunk(first, ids, text, index=0):
    response = m.GenerateResponse(request_id="r1", index=index)
    response.chunk.first_index = first
    response.chunk.token_ids.extend(ids)
    response.chunk.text = text
    if first == 0:
        response.chunk.numerics_id = "kind-1"
    return response


def complete(tokens, seed=0, index=0):
    response = m.GenerateResponse(request_id="r1", index=index)
    done = response.complete
    done.finish_reason = 3
    done.seed = seed
    done.numerics_id = "kind-1"
    done.usage.prompt_tokens, done.usage.completion_tokens = 5, tokens
    done.timing.total.seconds, done.timing.total.nanos = 1, 500_000_000
    report = done.speculation
    report.method, report.rounds, report.committed = 4, 2, 3
    report.verified, report.accepted = 4, 1
    return response


def begin(response, seed):
    """The response, as the first one of a call."""
    response.start.seed = seed
    response.start.model_fingerprint = "print-1"
    response.start.numerics_id = "kind-1"
    response.start.prompt_token_ids.extend([3, 4])
    return response


def answer(request, context):
    """An act: three tokens of each choice in two chunks."""
    for index in range(request.n if request.HasField("n") else 1):
        yield chunk(0, [7, 8], "ab", index)
        yield chunk(2, [9], "c", index)
        yield complete(3, (request.sampling.seed + index) % 2**64, index)
