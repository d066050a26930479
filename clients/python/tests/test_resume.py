"""Answers that are cut off and go on, of both clients, against a fake coordinator."""

import asyncio
import unittest

import grpc

import nacre
from nacre import _messages as m
from fake_server import (FakeServer, answer, begin, chunk, complete, details_of, refuse,
                         violation_of)

QUICK = nacre.Retry(attempts=2, initial=0.001, maximum=0.002)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


def cut(*responses, code=UNAVAILABLE, message="gone"):
    """An act: these, then the status."""
    def act(request, context):
        yield from responses
        context.abort(code, message)
    return act


def say(*responses):
    return lambda request, context: iter(responses)


def first(*ids, text="a", index=0):
    return begin(chunk(0, ids, text, index), seed=5)


class Cases:
    """Run by both clients below."""

    def generate(self, server, **options):
        """The chunks as (index, first_index, token_ids, text), the completion or
        the error."""
        raise NotImplementedError

    def run_script(self, *script, retry=QUICK, model=None, **options):
        with FakeServer(*script, model=model) as server:
            chunks, end = self.generate(server, retry=retry, seed=5, **options)
            return chunks, end, server.seen

    def test_goes_on_behind_what_came(self):
        chunks, end, seen = self.run_script(
            cut(first(7, 8, text="ab")),
            say(begin(chunk(2, [9], "c"), 5), complete(3, seed=5)),
            prompt="hi", request_id="mine", max_tokens=3)
        self.assertEqual(chunks, [(0, 0, (7, 8), "ab"), (0, 2, (9,), "c")])
        self.assertEqual((end.text, end.token_ids, end.seed), ("abc", (7, 8, 9), 5))
        self.assertEqual((end.request_id, self.attempts), ("r1", 2))
        self.assertEqual((seen[0].text, seen[0].request_id), ("hi", "mine"))
        self.assertFalse(seen[0].HasField("resume"))
        second = seen[1]
        self.assertEqual((list(second.token_ids.ids), second.request_id), ([3, 4], ""))
        self.assertEqual((second.sampling.seed, second.stop.max_tokens), (5, 3))
        self.assertEqual((second.resume.model_fingerprint, second.resume.numerics_id),
                         ("print-1", "kind-1"))
        (choice,) = second.resume.choices
        self.assertEqual((list(choice.token_ids), choice.done), ([7, 8], False))

    def test_choices_that_ended_are_done(self):
        chunks, end, seen = self.run_script(
            cut(first(7, index=1), complete(1, 6, index=1), chunk(0, [8], "b")),
            say(begin(chunk(1, [9], "c"), 5), complete(2, 5), first(4, index=2),
                complete(1, 7, index=2)), n=3)
        self.assertEqual([c.token_ids for c in end.choices], [(8, 9), (7,), (4,)])
        told = [(list(c.token_ids), c.done) for c in seen[1].resume.choices]
        self.assertEqual(told, [([8], False), ([], True), ([], False)])
        self.assertEqual(len(chunks), 4)

    def test_prompt_logprobs_are_asked_for_until_all_choices_have_them(self):
        _, end, seen = self.run_script(
            cut(first(7, index=1), complete(1, 6, index=1)),
            cut(begin(chunk(0, [8], "b"), 5)),
            say(begin(chunk(1, [9], "c"), 5), complete(2, 5)),
            n=2, prompt_logprobs=1)
        self.assertEqual([c.token_ids for c in end.choices], [(8, 9), (7,)])
        asked = [r.output.HasField("prompt_logprobs") for r in seen]
        self.assertEqual(asked, [True, True, False])

    def test_cut_behind_the_last_end(self):
        _, end, seen = self.run_script(cut(first(7), complete(1, 5)))
        self.assertEqual((end.token_ids, len(seen)), ((7,), 1))

    def test_each_token_gives_new_tries(self):
        cuts = [cut(begin(chunk(i, [i], "x"), 5)) for i in range(5)]
        tries = []
        for act in cuts:
            tries += [act] + [refuse(EXHAUSTED, "full")] * 2
        _, end, seen = self.run_script(
            *tries, say(begin(complete(5, 5), 5)),
            retry=nacre.Retry(initial=0, resumes=3))
        self.assertEqual((end.token_ids, len(seen)), ((0, 1, 2, 3, 4), 16))

    def test_no_room_is_no_failure(self):
        full = [refuse(EXHAUSTED, "full", details_of(reason))
                for reason in ("QUEUE_FULL", "QUEUE_TIMEOUT", "NEVER_FITS")] * 3
        _, end, seen = self.run_script(
            cut(first(7)), *full, say(begin(complete(1, 5), 5)))
        self.assertEqual((end.token_ids, len(seen)), ((7,), 11))

    def test_a_target_of_its_kind_may_come(self):
        other = refuse(grpc.StatusCode.FAILED_PRECONDITION, "another kind",
                       violation_of("resume.numerics_id"))
        _, end, seen = self.run_script(
            cut(first(7)), *[other] * 9, say(begin(complete(1, 5), 5)))
        self.assertEqual((end.token_ids, len(seen)), ((7,), 11))

    def test_waits_for_its_kind_no_longer_than_its_patience(self):
        other = refuse(grpc.StatusCode.FAILED_PRECONDITION, "another kind",
                       violation_of("resume.numerics_id"))
        _, error, _ = self.run_script(
            cut(first(7)), other, retry=nacre.Retry(initial=0.001, patience=0.01))
        self.assertEqual((type(error), error.message),
                         (nacre.FailedPrecondition, "another kind"))

    def test_another_checkpoint_is_not_waited_for(self):
        _, error, seen = self.run_script(
            cut(first(7)), refuse(grpc.StatusCode.FAILED_PRECONDITION, "another model",
                                  violation_of("resume.model_fingerprint")))
        self.assertEqual((type(error), len(seen)), (nacre.FailedPrecondition, 2))

    def test_waits_for_room_no_longer_than_its_patience(self):
        _, error, _ = self.run_script(
            cut(first(7)), refuse(EXHAUSTED, "full"),
            retry=nacre.Retry(initial=0.001, patience=0.01))
        self.assertEqual((type(error), error.message), (nacre.ResourceExhausted, "full"))
        self.assertEqual(error.partial.tokens, 1)

    def test_too_large_a_message_has_no_room_later(self):
        _, error, seen = self.run_script(
            cut(first(7)), refuse(EXHAUSTED, "Received message larger than max (9 vs. 8)"))
        self.assertEqual((type(error), len(seen)), (nacre.ResourceExhausted, 2))

    def test_gives_up_without_new_tokens(self):
        _, error, seen = self.run_script(cut(first(7)), refuse(UNAVAILABLE, "still"))
        self.assertIsInstance(error, nacre.Unavailable)
        self.assertEqual((error.message, len(seen), error.partial.tokens), ("still", 4, 1))

    def test_waits_for_a_coordinator_that_is_there(self):
        asked = []

        def model(request, context):
            asked.append(request)
            if len(asked) <= 8:
                context.abort(UNAVAILABLE, "no target")
            return m.Model()

        _, end, seen = self.run_script(
            cut(first(7)), say(begin(complete(1, 5), 5)), model=model)
        # None of these counts as a try.
        self.assertEqual((end.token_ids, len(seen), len(asked)), ((7,), 2, 9))

    def test_waits_no_longer_than_its_patience(self):
        _, error, seen = self.run_script(
            cut(first(7)), model=refuse(UNAVAILABLE, "no target"),
            retry=nacre.Retry(initial=0.001, patience=0.01))
        # What cut it off, not what those say that are not there.
        self.assertEqual((error.message, len(seen), error.partial.tokens), ("gone", 1, 1))

    def test_whatever_a_coordinator_says_it_is_there(self):
        _, end, seen = self.run_script(
            cut(first(7)), say(begin(complete(1, 5), 5)),
            model=refuse(grpc.StatusCode.PERMISSION_DENIED))
        self.assertEqual((end.token_ids, len(seen)), ((7,), 2))

    def test_resumes_can_be_off(self):
        _, error, seen = self.run_script(
            cut(first(7)), answer, retry=nacre.Retry(resumes=0))
        self.assertEqual((type(error), len(seen)), (nacre.Unavailable, 1))

    def test_refused_resume_ends_it(self):
        _, error, seen = self.run_script(
            cut(first(7)), refuse(grpc.StatusCode.FAILED_PRECONDITION, "another model"))
        self.assertEqual((type(error), error.message), (nacre.FailedPrecondition, "another model"))
        self.assertEqual((len(seen), error.partial.tokens), (2, 1))

    def test_what_cannot_be_resumed(self):
        for options in (dict(verification="ratio", temperature=1), dict(policy="oracle:a=1")):
            _, error, seen = self.run_script(cut(first(7)), answer, **options)
            self.assertEqual((type(error), len(seen)), (nacre.Unavailable, 1), options)

    def test_cut_by_a_proxy(self):
        words = "Received RST_STREAM with error code 2"
        for message in (words, f"Stream removed (RST_STREAM ({words}))"):  # 1.51, 1.85
            _, end, seen = self.run_script(
                cut(first(7), code=grpc.StatusCode.INTERNAL, message=message),
                say(begin(complete(1, 5), 5)))
            self.assertEqual((end.token_ids, len(seen)), ((7,), 2), message)

    def test_other_statuses_are_not_resumed(self):
        for code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED):
            _, error, seen = self.run_script(cut(first(7), code=code), answer)
            self.assertEqual((error.code, len(seen)), (code, 1))


class BlockingTest(Cases, unittest.TestCase):
    def generate(self, server, *, retry, prompt="hi", **options):
        chunks = []
        with nacre.Client(server.address, retry=retry) as client:
            stream = client.stream(prompt, **options)
            try:
                for c in stream:
                    chunks.append((c.index, c.first_index, c.token_ids, c.text))
            except nacre.StatusError as error:
                return chunks, error
            self.attempts = stream.attempts
            return chunks, stream.completion


class AsynchronousTest(Cases, unittest.TestCase):
    def generate(self, server, *, retry, prompt="hi", **options):
        async def run():
            chunks = []
            async with nacre.AsyncClient(server.address, retry=retry) as client:
                stream = client.stream(prompt, **options)
                try:
                    async for c in stream:
                        chunks.append((c.index, c.first_index, c.token_ids, c.text))
                except nacre.StatusError as error:
                    return chunks, error
                self.attempts = stream.attempts
                return chunks, stream.completion

        return asyncio.run(run())


if __name__ == "__main__":
    unittest.main()
