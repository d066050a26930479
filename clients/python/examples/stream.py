"""Prints a continuation as it comes, then how it was made.

    python examples/stream.py HOST:50050 "Question: ..."
"""

import sys

import nacre


def main() -> None:
    address, prompt = sys.argv[1:]
    with nacre.Client(address) as client:
        with client.stream(prompt, max_tokens=64, temperature=0.8) as stream:
            for chunk in stream:
                print(chunk.text, end="", flush=True)
            print()
            choice = stream.completion.choices[0]
    print(f"{choice.finish_reason}, {choice.usage.completion_tokens} tokens, "
          f"seed {choice.seed}, {choice.timing.total:.3f} s")
    rate = choice.speculation.acceptance_rate
    if rate is not None:
        print(f"{choice.speculation.method}: {rate:.0%} of the draft's tokens accepted")


if __name__ == "__main__":
    main()
