"""Clients of OpenAI's API, and what lm-eval has made of a service, against gRPC.

  http_clients.py openai HTTP_URL GRPC_ADDRESS       OpenAI's own client
  http_clients.py frameworks HTTP_URL GRPC_ADDRESS   langchain-openai, litellm
  http_clients.py lm-eval HTTP_URL GRPC_ADDRESS SAMPLES_FOLDER

Run with an environment that has these, grpcio and protobuf. Prints a line for
each check; exits with 1 at the first that fails.
"""

from __future__ import annotations

import asyncio
import glob
import json
import math
import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python"))

import nacre  # noqa: E402

PROMPT = "Question: A baker makes 12 loaves and sells 7 of them. How many are left?\nAnswer:"
MESSAGES = [{"role": "user", "content": "def main():"}]


def check(what: str, found, expected) -> None:
    if found != expected:
        sys.exit(f"{what}: found {found!r}, expected {expected!r}")
    print(f"{what}: ok")


def post(url: str, path: str, body: dict) -> dict:
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def check_completions(openai, url: str, service: nacre.Client) -> None:
    client = openai.OpenAI(base_url=url + "/v1", api_key="EMPTY")
    model = client.models.list().data[0].id
    said = dict(max_tokens=40, temperature=0.9, seed=11)
    expected = service.generate(PROMPT, n=2, logprobs=2, **said)
    texts = [choice.text for choice in expected.choices]
    whole = client.completions.create(model=model, prompt=PROMPT, n=2, logprobs=2, **said)
    check("completions, n = 2", [c.text for c in whole.choices], texts)
    check("completions, logprobs", whole.choices[0].logprobs.token_logprobs,
          [t.logprob for t in expected.choices[0].logprobs])
    check("usage", whole.usage.completion_tokens,
          sum(len(c.token_ids) for c in expected.choices))
    streamed = ["", ""]
    for event in client.completions.create(
            model=model, prompt=PROMPT, n=2, stream=True,
            stream_options={"include_usage": True}, **said):
        for choice in event.choices:
            streamed[choice.index] += choice.text
    check("completions, stream", streamed, texts)
    check("usage of a stream", event.usage.completion_tokens, whole.usage.completion_tokens)
    for method in ("ar", "sd", "pearl", "async"):
        one = client.completions.create(model=model, prompt=PROMPT, **said,
                                        extra_body={"nacre": {"method": method}})
        check(f"completions, {method}", one.choices[0].text, texts[0])
    echoed = client.completions.create(
        model=model, prompt=PROMPT, echo=True, logprobs=1, max_tokens=1, temperature=0)
    scores = service.generate(PROMPT, prompt_logprobs=1, logprobs=1, max_tokens=1,
                              temperature=0).choices[0]
    check("echo with logprobs", echoed.choices[0].logprobs.token_logprobs,
          [None] + [t.logprob for t in scores.prompt_logprobs + scores.logprobs])
    check("echo", echoed.choices[0].text, PROMPT + scores.text)


def chat_texts(url: str, service: nacre.Client, n: int, **said) -> list:
    """What gRPC says to what the template makes of MESSAGES."""
    prompt = post(url, "/tokenize", {"messages": MESSAGES})["tokens"]
    return [choice.text for choice in service.generate(prompt, n=n, **said).choices]


def check_chats(openai, url: str, service: nacre.Client) -> None:
    client = openai.OpenAI(base_url=url + "/v1", api_key="EMPTY")
    said = dict(model=client.models.list().data[0].id, messages=MESSAGES,
                max_completion_tokens=24, temperature=0.7, seed=3)
    texts = chat_texts(url, service, n=2, max_tokens=24, temperature=0.7, seed=3)
    whole = client.chat.completions.create(n=2, logprobs=True, top_logprobs=3, **said)
    check("chat, n = 2", [c.message.content for c in whole.choices], texts)
    logprobs = whole.choices[0].logprobs.content
    check("chat, logprobs", b"".join(bytes(t.bytes) for t in logprobs).decode(), texts[0])
    check("chat, top_logprobs", {len(t.top_logprobs) for t in logprobs}, {3})
    with client.chat.completions.stream(n=2, **said) as stream:
        for _ in stream:
            pass
        # Asked for the final one it raises, as max_tokens ended the answers.
        final = stream.current_completion_snapshot
    check("chat, stream helper", [c.message.content for c in final.choices], texts)

    async def ask():
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="EMPTY") as many:
            answers = await asyncio.gather(
                *(many.chat.completions.create(**said) for _ in range(8)))
            pieces = []
            async for event in await many.chat.completions.create(stream=True, **said):
                pieces += [c.delta.content or "" for c in event.choices]
            return [a.choices[0].message.content for a in answers], "".join(pieces)

    answers, streamed = asyncio.run(ask())
    check("chat, eight at once", answers, [texts[0]] * 8)
    check("chat, asynchronous stream", streamed, texts[0])


def check_errors(openai, url: str) -> None:
    client = openai.OpenAI(base_url=url + "/v1", api_key="EMPTY", max_retries=0)
    try:
        client.completions.create(model="nothing", prompt="a")
    except openai.NotFoundError as error:
        check("another model", error.code, "model_not_found")
    else:
        sys.exit("another model: it is served")
    try:
        client.chat.completions.create(model=client.models.list().data[0].id,
                                       messages=MESSAGES, response_format={"type": "json_object"})
    except openai.BadRequestError as error:
        check("response_format", error.code, "unsupported_parameter")
    else:
        sys.exit("response_format: it is served")


def check_langchain(url: str, service: nacre.Client) -> None:
    from langchain_openai import ChatOpenAI, OpenAI

    where = dict(base_url=url + "/v1", api_key="EMPTY", model="target")
    said = dict(max_tokens=24, temperature=0.7, seed=3)
    (text,) = chat_texts(url, service, n=1, **said)
    chat = ChatOpenAI(**where, **said, stream_usage=True)
    asked = [(m["role"], m["content"]) for m in MESSAGES]
    answer = chat.invoke(asked)
    check("langchain, chat", answer.content, text)
    check("langchain, usage", answer.usage_metadata["output_tokens"], 24)
    pieces = list(chat.stream(asked))
    check("langchain, stream", "".join(piece.content for piece in pieces), text)
    check("langchain, usage of a stream",
          [p.usage_metadata["output_tokens"] for p in pieces if p.usage_metadata], [24])
    check("langchain, asynchronous", asyncio.run(chat.ainvoke(asked)).content, text)
    check("langchain, completion", OpenAI(**where, **said).invoke(PROMPT),
          service.generate(PROMPT, **said).text)


def check_litellm(url: str, service: nacre.Client) -> None:
    import litellm

    where = dict(api_base=url + "/v1", api_key="EMPTY")
    said = dict(max_tokens=24, temperature=0.7, seed=3)
    texts = chat_texts(url, service, n=2, **said)
    asked = dict(model="openai/target", messages=MESSAGES, **where, **said)
    whole = litellm.completion(n=2, **asked)
    check("litellm, chat", [c.message.content for c in whole.choices], texts)
    pieces = [event.choices[0].delta.content or ""
              for event in litellm.completion(stream=True, **asked)]
    check("litellm, stream", "".join(pieces), texts[0])
    answer = asyncio.run(litellm.acompletion(**asked))
    check("litellm, asynchronous", answer.choices[0].message.content, texts[0])
    one = litellm.text_completion(
        model="text-completion-openai/target", prompt=PROMPT, **where, **said)
    check("litellm, completion", one.choices[0].text, service.generate(PROMPT, **said).text)
    try:
        litellm.completion(**{**asked, "max_tokens": 10**6})
    except litellm.ContextWindowExceededError:
        print("litellm, a context that is too short: ok")
    else:
        sys.exit("litellm, a context that is too short: it is served")


def samples_of(folder: str, task: str) -> list:
    (path,) = glob.glob(f"{folder}/**/samples_{task}_*.jsonl", recursive=True)
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def check_lm_eval(url: str, service: nacre.Client, folder: str) -> None:
    samples = samples_of(folder, "nacre_generate")
    for sample in samples:
        prompt = sample["arguments"]["gen_args_0"]["arg_0"]
        # lm-eval tokenizes without BOS, and asks for temperature 0.
        ids = post(url, "/tokenize", {"prompt": prompt, "add_special_tokens": False})["tokens"]
        text = service.generate(ids, max_tokens=48, temperature=0, stop=["Question:", "</s>"]).text
        if sample["resps"][0][0] != text:
            sys.exit(f"generate_until: {sample['resps'][0][0]!r} is not {text!r}")
    print(f"lm-eval generate_until, {len(samples)} texts: ok")
    samples = samples_of(folder, "nacre_loglikelihood")
    for sample in samples:
        arguments = sample["arguments"]["gen_args_0"]
        context, rest = arguments["arg_0"], arguments["arg_1"]
        context, rest = context.rstrip(), context[len(context.rstrip()):] + rest

        def ids_of(text):
            return post(url, "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

        # As lm-eval joins them.
        begun = ids_of(context)
        whole = begun + ids_of(context + rest)[len(begun):]
        scored = service.generate(whole, max_tokens=1, prompt_logprobs=1).choices[0]
        behind = scored.prompt_logprobs[len(begun) - 1:]
        found, is_greedy = sample["resps"][0][0]
        expected = math.fsum(token.logprob for token in behind)
        if not math.isclose(float(found), expected, rel_tol=1e-6, abs_tol=1e-4):
            sys.exit(f"loglikelihood: {found}, gRPC says {expected}")
        if (str(is_greedy) == "True") != all(t.token_id == t.top[0][0] for t in behind):
            sys.exit(f"loglikelihood: greedy is {is_greedy}")
    print(f"lm-eval loglikelihood, {len(samples)} texts: ok")


def main() -> None:
    command, url, address = sys.argv[1:4]
    with nacre.Client(address) as service:
        if command == "openai":
            import openai

            check_completions(openai, url, service)
            check_chats(openai, url, service)
            check_errors(openai, url)
        elif command == "frameworks":
            check_langchain(url, service)
            check_litellm(url, service)
        else:
            check_lm_eval(url, service, sys.argv[4])


if __name__ == "__main__":
    main()
