"""The noise against the services' own: known answers, and a text of theirs."""

import json
import pathlib
import unittest

import numpy

from nacre_training.acceptance import HeldOut
from nacre_training.checkpoint import read_model
from nacre_training.corpus import read_corpus
from nacre_training.noise import gumbel_noise, gumbel_of_bits, philox

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parents[1] / "models"


class NoiseTest(unittest.TestCase):
    def test_philox_gives_the_known_answers(self):
        # tests/common/philox_test.cc
        for words, key, expected in [
            ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
            ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2,
             (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
            ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
             (0xA4093822, 0x299F31D0),
             (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1))]:
            self.assertEqual(tuple(int(w) for w in philox(words, key)), expected)

    def test_variates_are_the_logarithms(self):
        bits = numpy.array([0, 1, 12345, 0x7FFFFFFF, 0x80000000, 0xB504F333,
                            0xFFFF0000, 0xFFFFFFFE, 0xFFFFFFFF], numpy.uint32)
        u = (bits.astype(numpy.longdouble) + 0.5) / 2.0 ** 32
        expected = -numpy.log(-numpy.log(u))
        numpy.testing.assert_allclose(gumbel_of_bits(bits), expected, rtol=3e-6, atol=3e-7)

    def test_a_token_has_its_number_wherever_the_vocabulary_ends(self):
        whole = gumbel_noise(7, [5, 6], 64)
        self.assertEqual(whole.shape, (2, 64))
        numpy.testing.assert_array_equal(gumbel_noise(7, [6], 13)[0], whole[1, :13])
        self.assertFalse((whole[0] == whole[1]).any())
        self.assertFalse((gumbel_noise(7 + (1 << 32), [5], 64)[0] == whole[0]).any())

    def test_the_bundled_target_draws_what_the_service_said(self):
        """service_text.jsonl came from a service. A wrong position, seed, word of
        the key or temperature would leave half of its tokens."""
        origin, texts = read_corpus(HERE / "service_text.jsonl")
        counts = HeldOut(texts, origin.vocab_size, 384).acceptance(
            read_model(MODELS / "target"))
        self.assertEqual(sorted(counts), [0.0, 0.8, 1.0])
        for count in counts.values():
            self.assertGreater(count.compared[0], 50)
            # PyTorch's sums are not the service's: a tie may fall otherwise.
            self.assertGreater(count.rate, 0.98)


if __name__ == "__main__":
    unittest.main()
