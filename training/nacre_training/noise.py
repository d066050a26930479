"""The noise by which a target and its draft draw the same token.

The numbers are those of the services (common/philox.h,
common/deterministic_math.h): a pure function of a request's seed, the absolute
position of a token and its id.
"""

from __future__ import annotations

import numpy

_SAMPLE = 0  # NoisePurpose::kSample
_TOKENS_PER_BLOCK = 4
_LN2_HIGH, _LN2_LOW = numpy.float32(0.693359375), numpy.float32(-2.12194440e-4)
_SQRT_HALF = numpy.float32(0.707106781)
_LOG1P = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
          1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
          3.3333331174e-1)


def philox(words, key):
    """Philox 4x32-10. `words`: four counters that broadcast, `key`: two numbers.
    Returns four arrays of uint32."""
    mask = numpy.uint64(0xFFFFFFFF)
    word = [numpy.asarray(w, numpy.uint64) for w in words]
    key = [int(k) for k in key]
    for _ in range(10):
        first = word[0] * numpy.uint64(0xD2511F53)
        second = word[2] * numpy.uint64(0xCD9E8D57)
        word = [(second >> numpy.uint64(32)) ^ word[1] ^ numpy.uint64(key[0]),
                second & mask,
                (first >> numpy.uint64(32)) ^ word[3] ^ numpy.uint64(key[1]),
                first & mask]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return [w.astype(numpy.uint32) for w in word]


def _fma(a, b, c):
    """a * b + c of float32, rounded once but for the rarest ties."""
    return (a.astype(numpy.float64) * b + c).astype(numpy.float32)


def _log1p(f):
    z = f * f
    p = numpy.full_like(f, _LOG1P[0])
    for coefficient in _LOG1P[1:]:
        p = _fma(p, f, numpy.float32(coefficient))
    return f + _fma(p * f, z, numpy.float32(-0.5) * z)


def _log(x):
    mantissa, exponent = numpy.frexp(x)  # mantissa in [1/2, 1)
    mantissa, exponent = mantissa * numpy.float32(2), exponent - 1
    large = mantissa > 2 * _SQRT_HALF
    mantissa = numpy.where(large, mantissa * numpy.float32(0.5), mantissa)
    e = (exponent + large).astype(numpy.float32)
    log_mantissa = _log1p(mantissa - numpy.float32(1))
    return _fma(e, _LN2_HIGH, _fma(e, _LN2_LOW, log_mantissa))


def gumbel_of_bits(bits):
    """Standard Gumbel variates of uint32 numbers, in float32."""
    x = numpy.asarray(bits, numpy.uint64)
    odd = numpy.uint64(2) * x + numpy.uint64(1)
    below = odd.astype(numpy.float32) * numpy.float32(2.0 ** -33)
    rest = ((numpy.uint64(1) << numpy.uint64(33)) - odd).astype(numpy.float32)
    rest = rest * numpy.float32(2.0 ** -33)
    # u >= 1/2: by 1 - u, which is exact.
    near_one = -_log1p(-numpy.minimum(rest, numpy.float32(0.5)))
    middle = (_LN2_HIGH + _LN2_LOW) - _log1p(
        _fma(numpy.full_like(rest, -2), numpy.minimum(rest, numpy.float32(0.5)),
             numpy.float32(1)))
    negative_log = numpy.where(
        x < 0x80000000, -_log(below),
        numpy.where(rest <= 1 - _SQRT_HALF, near_one, middle))
    return -_log(negative_log)


def gumbel_noise(seed: int, positions, vocab_size: int):
    """float32 [positions, vocab_size]: what the services add to logit / T."""
    blocks = -(-vocab_size // _TOKENS_PER_BLOCK)
    position = numpy.asarray(positions, numpy.uint64)[:, None]
    words = philox((position, numpy.arange(blocks, dtype=numpy.uint64)[None],
                    numpy.uint64(_SAMPLE), numpy.uint64(0)),
                   (seed & 0xFFFFFFFF, seed >> 32))
    bits = numpy.stack(numpy.broadcast_arrays(*words), -1).reshape(len(positions), -1)
    return gumbel_of_bits(bits[:, :vocab_size])
