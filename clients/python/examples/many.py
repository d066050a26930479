"""Answers all lines of the standard input at once, in their order.

    python examples/many.py HOST:50050 < prompts.txt
"""

import asyncio
import sys

import nacre


async def answer(client: nacre.AsyncClient, prompt: str) -> str:
    try:
        return (await client.generate(prompt, max_tokens=32, timeout=60)).text
    except nacre.StatusError as error:
        # What came before the error is good.
        came = "".join(choice.text for choice in error.partial.choices)
        return f"{came}\n({error})"


async def main() -> None:
    prompts = [line.rstrip("\n") for line in sys.stdin]
    async with nacre.AsyncClient(sys.argv[1]) as client:
        for text in await asyncio.gather(*(answer(client, p) for p in prompts)):
            print(text)


if __name__ == "__main__":
    asyncio.run(main())
