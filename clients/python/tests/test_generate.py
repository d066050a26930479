"""Generate of both clients against a fake coordinator: answers, errors, retries."""

import asyncio
import unittest

import grpc

import nacre
from fake_server import (
    FakeServer, answer, broken_violation, chunk, complete, details_of, refuse, violation_of)

QUICK = nacre.Retry(attempts=4, initial=0.001, maximum=0.002)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


def blocking(server, prompt="hi", *, retry=QUICK, token=None, **options):
    with nacre.Client(server.address, retry=retry, token=token) as client:
        return client.generate(prompt, **options)


def asynchronous(server, prompt="hi", *, retry=QUICK, token=None, **options):
    async def run():
        async with nacre.AsyncClient(
                server.address, retry=retry, token=token) as client:
            return await client.generate(prompt, **options)

    return asyncio.run(run())


class Cases:
    """Run by both clients below."""

    def generate(self, server, *args, **options):
        raise NotImplementedError

    def fails(self, kind, *script, **options):
        """The error of a call, and how many calls the server saw."""
        with FakeServer(*script) as server:
            with self.assertRaises(kind) as caught:
                self.generate(server, **options)
            return caught.exception, len(server.seen)

    def test_whole_answer(self):
        with FakeServer(answer) as server:
            completion = self.generate(server, seed=2**64 - 1, n=2)
        first, second = completion.choices
        self.assertEqual(completion.request_id, "r1")
        self.assertEqual((first.text, first.token_ids), ("abc", (7, 8, 9)))
        self.assertEqual((first.seed, second.seed), (2**64 - 1, 0))
        self.assertEqual((first.finish_reason, first.numerics_id), ("length", "kind-1"))
        self.assertEqual((first.usage.prompt_tokens, first.timing.total), (5, 1.5))
        self.assertEqual(first.speculation.method, "async")
        self.assertEqual(first.speculation.acceptance_rate, 0.25)
        self.assertEqual(first.speculation.mean_accepted_length, 1.5)

    def test_seed_is_drawn_once(self):
        with FakeServer(refuse(UNAVAILABLE), answer) as server:
            completion = self.generate(server)
        first, second = server.seen
        self.assertTrue(first.sampling.HasField("seed"))
        self.assertEqual(first.sampling.seed, second.sampling.seed)
        self.assertEqual(completion.seed, first.sampling.seed)

    def test_retries_before_first_token(self):
        waits = refuse(EXHAUSTED, "the queue is full: 3 requests wait")
        with FakeServer(refuse(UNAVAILABLE), waits, answer) as server:
            self.assertEqual(self.generate(server).text, "abc")
            self.assertEqual(len(server.seen), 3)

    def test_a_retry_has_a_request_id_of_its_own(self):
        with FakeServer(refuse(UNAVAILABLE), refuse(UNAVAILABLE), answer) as server:
            self.generate(server, request_id="mine")
            ids = [request.request_id for request in server.seen]
        self.assertEqual(ids, ["mine", "mine-retry-1", "mine-retry-2"])
        longest = "ä" * 128
        with FakeServer(refuse(UNAVAILABLE), answer) as server:
            self.generate(server, request_id=longest)
            self.assertEqual(server.seen[1].request_id, "ä" * 112 + "-retry-1")
        with FakeServer(refuse(UNAVAILABLE), answer) as server:
            self.generate(server)
            self.assertEqual(server.seen[1].request_id, "")

    def test_a_server_that_closes_is_one_that_has_gone(self):
        closes = refuse(grpc.StatusCode.CANCELLED, "CANCELLED")
        with FakeServer(closes, answer) as server:
            self.assertEqual(self.generate(server).text, "abc")
        slow = "the client took nothing for 60s"
        _, calls = self.fails(nacre.Cancelled, refuse(grpc.StatusCode.CANCELLED, slow))
        self.assertEqual(calls, 1)

    def test_gives_up_after_all_attempts(self):
        error, calls = self.fails(nacre.Unavailable, refuse(UNAVAILABLE, "gone"))
        self.assertEqual((calls, error.attempts, error.message), (4, 4, "gone"))
        self.assertEqual(error.partial.tokens, 0)

    def test_one_attempt_never_retries(self):
        _, calls = self.fails(nacre.Unavailable, refuse(UNAVAILABLE),
                              retry=nacre.Retry(attempts=1))
        self.assertEqual(calls, 1)

    def test_no_wait_beyond_the_timeout(self):
        error, calls = self.fails(
            nacre.Unavailable, refuse(UNAVAILABLE), timeout=60,
            retry=nacre.Retry(attempts=4, initial=1000, maximum=1000))
        self.assertEqual((calls, error.attempts), (1, 1))

    def test_what_never_fits_is_not_retried(self):
        for text, details in (("need KV", details_of("NEVER_FITS")),
                              ("Received message larger than max (9 vs. 8)", b"")):
            error, calls = self.fails(
                nacre.ResourceExhausted, refuse(EXHAUSTED, text, details))
            self.assertEqual((calls, error.may_retry), (1, False), text)

    def test_the_reason_is_of_the_details_and_not_of_words(self):
        for details, reason in ((details_of("QUEUE_FULL"), "QUEUE_FULL"),
                                (details_of("NEVER_FITS", "other.com"), ""),
                                (b"\xff\xff", ""),  # no message
                                # A detail that is none, after one that is.
                                (details_of("QUEUE_FULL") + broken_violation(),
                                 "QUEUE_FULL"),
                                (b"", "")):
            error, calls = self.fails(
                nacre.ResourceExhausted, refuse(EXHAUSTED, "NEVER_FITS", details))
            self.assertEqual((calls, error.may_retry, error.reason), (4, True, reason))

    def test_the_field_at_fault_is_of_the_details(self):
        for details, field in ((violation_of("sampling.top_p"), "sampling.top_p"),
                               (details_of("QUEUE_FULL"), ""), (b"\xff", "")):
            error, _ = self.fails(
                nacre.InvalidArgument,
                refuse(grpc.StatusCode.INVALID_ARGUMENT, "top_p is 2", details))
            self.assertEqual(error.field, field)
            self.assertEqual(str(error), "INVALID_ARGUMENT: top_p is 2")

    def test_each_status_has_its_class(self):
        code = grpc.StatusCode
        for status, kind in (
                (code.INVALID_ARGUMENT, nacre.InvalidArgument),
                (code.NOT_FOUND, nacre.NotFound),
                (code.ALREADY_EXISTS, nacre.AlreadyExists),
                (code.FAILED_PRECONDITION, nacre.FailedPrecondition),
                (code.INTERNAL, nacre.Internal),
                (code.UNAUTHENTICATED, nacre.Unauthenticated),
                (code.PERMISSION_DENIED, nacre.PermissionDenied),
                (code.UNIMPLEMENTED, nacre.Unimplemented),
                (code.CANCELLED, nacre.Cancelled),
                (code.DEADLINE_EXCEEDED, nacre.DeadlineExceeded),
                (code.DATA_LOSS, nacre.StatusError)):
            error, calls = self.fails(nacre.StatusError, refuse(status, "why"))
            self.assertIs(type(error), kind)
            self.assertEqual((error.code, error.message, calls), (status, "why", 1))

    def test_context_length(self):
        error, _ = self.fails(nacre.ContextLengthExceeded, refuse(
            grpc.StatusCode.INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED: 9 over 8"))
        self.assertEqual(error.message, "9 over 8")

    def test_interrupted_answer_carries_its_tokens(self):
        def cut(request, context):
            yield chunk(0, [7], "a", 0)
            yield chunk(0, [5, 6], "xy", 1)
            yield complete(2, index=1)
            context.abort(UNAVAILABLE, "target lost")

        error, calls = self.fails(nacre.Unavailable, cut, answer, seed=3, n=2)
        self.assertEqual(calls, 1)  # tokens would come twice
        first, second = error.partial.choices
        self.assertEqual((first.token_ids, first.text, first.seed, first.numerics_id),
                         ((7,), "a", 3, "kind-1"))
        self.assertEqual((first.finished, second.finished), (False, True))
        self.assertEqual((second.seed, error.partial.request_id), (4, "r1"))
        self.assertIn("after 3 tokens", str(error))

    def test_deadline_in_the_middle(self):
        def hang(request, context):
            yield chunk(0, [7], "a")
            server.ended.wait()

        # On a busy machine the first chunk may take longer.
        for timeout in (0.5, 5, 50):
            with FakeServer(hang) as server:
                with self.assertRaises(nacre.DeadlineExceeded) as caught:
                    self.generate(server, timeout=timeout)
            if caught.exception.partial.choices:
                break
        self.assertEqual(caught.exception.partial.choices[0].token_ids, (7,))

    def test_malformed_answers(self):
        acts = {
            "token 3 of choice 0 after 1": [chunk(0, [7], "a"), chunk(3, [8], "b")],
            "choice 1 of 1": [chunk(0, [7], "a", index=1)],
            "before choice 0 did": [chunk(0, [7], "a")],
            "1 tokens came of 2": [chunk(0, [7], "a"), complete(2)],
            "after its end": [chunk(0, [7], "a"), complete(1), complete(1)],
            "without a chunk": [type(chunk(0, [], ""))()],
        }
        for message, responses in acts.items():
            error, _ = self.fails(nacre.ProtocolError,
                                  lambda request, context: iter(responses))
            self.assertIn(message, str(error))

    def test_token_is_asked_for_each_attempt(self):
        tokens = iter(["one", "two"])
        with FakeServer(refuse(UNAVAILABLE), answer) as server:
            self.generate(server, token=lambda: next(tokens))
        self.assertEqual([seen["authorization"] for seen in server.metadata],
                         ["Bearer one", "Bearer two"])

    def test_bad_token(self):
        for token in ("", "a\nb", "\u00e9"):
            with FakeServer(answer) as server, self.assertRaises(ValueError):
                self.generate(server, token=token)


class BlockingTest(Cases, unittest.TestCase):
    def generate(self, server, *args, **options):
        return blocking(server, *args, **options)


class AwaitedCallsTest(unittest.IsolatedAsyncioTestCase):
    """Nothing of a call runs before it is awaited, nor does its time."""

    async def test_bad_arguments_are_told_when_awaited(self):
        async with nacre.AsyncClient("127.0.0.1:1", retry=QUICK) as client:
            for call in (client.generate("hi", timeout=-1), client.model(timeout=-1),
                         client.tokenize("hi", timeout=-1)):
                self.assertTrue(asyncio.iscoroutine(call))
                with self.assertRaisesRegex(ValueError, "timeout is -1"):
                    await call


class AsynchronousTest(Cases, unittest.TestCase):
    def generate(self, server, *args, **options):
        return asynchronous(server, *args, **options)


if __name__ == "__main__":
    unittest.main()
