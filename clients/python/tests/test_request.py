"""What becomes of the arguments."""

import unittest

import nacre
from nacre._request import _FIELDS, build_request


class RequestTest(unittest.TestCase):
    def test_every_option_reaches_its_field(self):
        request = build_request("hi", dict(
            max_tokens=1, min_tokens=2, temperature=0.5, top_k=3, top_p=0.25,
            min_p=0.125, repetition_penalty=2, frequency_penalty=-1,
            presence_penalty=1, logit_bias={4: -1.5}, seed=5, stop="x",
            stop_token_ids=[6], ignore_eos=True, include_stop_str_in_output=True,
            skip_special_tokens=False, logprobs=0, prompt_logprobs=0, n=7, model="m", request_id="r",
            numerics_id="k", method="sd", window=8, policy="svip", tree="chain",
            verification="ratio", suffixes=False, spec_stats=True))
        set_fields = {field.name for part in (
            request, request.sampling, request.stop, request.output,
            request.speculation) for field, _ in part.ListFields()}
        self.assertEqual(set(_FIELDS) - set_fields, set())
        self.assertEqual(request.sampling.logit_bias[4], -1.5)
        self.assertEqual(list(request.stop.stop), ["x"])
        self.assertTrue(request.output.HasField("logprobs"))
        self.assertEqual((request.speculation.method, request.output.spec_stats), (2, 2))
        self.assertEqual(request.sampling.seed, 5)
        self.assertTrue(request.output.stream and request.output.omit_streamed)

    def test_none_is_left_out(self):
        options = {name: None for name in _FIELDS}
        request = build_request("hi", options)
        self.assertTrue(request.sampling.HasField("seed"))
        request.sampling.ClearField("seed")
        self.assertEqual(request.sampling.ByteSize(), 0)
        self.assertFalse(request.HasField("n"))

    def test_prompts(self):
        self.assertEqual(list(build_request([1, 2], {}).token_ids.ids), [1, 2])
        self.assertEqual(build_request([], {}).WhichOneof("prompt"), "token_ids")
        self.assertEqual(build_request("", {}).WhichOneof("prompt"), "text")
        with self.assertRaisesRegex(TypeError, "bytes"):
            build_request(b"hi", {})

    def test_bad_options(self):
        with self.assertRaisesRegex(TypeError, "unknown option max_token$"):
            build_request("hi", {"max_token": 1})
        with self.assertRaisesRegex(ValueError, "not one of ar, sd, pearl, async"):
            build_request("hi", {"method": "magic"})
        with self.assertRaises(ValueError):
            build_request("hi", {"seed": -1})

    def test_bad_clients(self):
        for make in (lambda: nacre.Client([]), lambda: nacre.Client(""),
                     lambda: nacre.Tls(cert="a"), lambda: nacre.Retry(attempts=0),
                     lambda: nacre.Retry(initial=-1)):
            with self.assertRaises(ValueError):
                make()
        with nacre.Client() as client, self.assertRaises(ValueError):
            client.stream("hi", timeout=0)

    def test_delays_double_up_to_the_maximum(self):
        retry = nacre.Retry(attempts=9, initial=1, maximum=5)
        for attempt, longest in ((1, 1), (2, 2), (3, 4), (4, 5), (10**6, 5)):
            for _ in range(20):
                delay = retry.delay(attempt)
                self.assertTrue(longest / 2 <= delay <= longest, (attempt, delay))


if __name__ == "__main__":
    unittest.main()
