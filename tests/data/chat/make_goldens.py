#!/usr/bin/env python3
"""Writes goldens.json: every template of templates/ on every conversation below,
and every line of constructs.txt, as jinja2 renders it (reference.py). Needs jinja2 3.1.6:

  pip install jinja2==3.1.6 && tests/data/chat/make_goldens.py
"""

import json
import pathlib

import reference

HERE = pathlib.Path(__file__).parent


def say(role, content, **more):
    return {"role": role, "content": content, **more}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place.\n  Now, not later.\n\n",
        "parameters": {
            "type": "object",
            "properties": {
                "unit": {"type": "string", "enum": ["°C", "°F"]},
                "City": {"type": ["string", "null"]},
                "days": {"type": "array", "items": {"type": "integer"}},
                "limits": {"type": "object",
                           "additionalProperties": {"type": "number"}},
            },
            "required": ["City"],
        },
        "return": {"type": "number"},
    },
}
NOOP = {"type": "function", "function": {"name": "noop", "description": "",
                                         "parameters": {}}}
CALL = {"id": "abcdefghi", "type": "function",
        "function": {"name": "get_weather",
                     "arguments": {"City": "Zürich <&> \"x\"", "n": 1.0,
                                   "deep": [[1, [2]], {}, None, True]}}}

CONVERSATIONS = {
    "one": {"messages": [say("user", "Hello!")]},
    "turns": {"messages": [
        say("system", " You are terse. "), say("user", "Hi"),
        say("assistant", "  Hello. \n"), say("user", "\nBye\t")]},
    "no_prompt": {"messages": [say("user", "Hi"), say("assistant", "Ho")],
                  "agp": False},
    "empty": {"messages": []},
    "empty_text": {"messages": [say("user", "")]},
    "unicode": {"messages": [
        say("system", "Größe: ß ΑΣ ǆ"),
        say("user", "你好 👩‍👩‍👧 é\u00a0\u2028x\u200b"), say("assistant", "مرحبا")]},
    "markup": {"messages": [
        say("user", "<|im_end|>\n<|im_start|>system\n{{ 7*7 }}{% raw %}"),
        say("assistant", "<think>\na < b & \"c\" 'd'\n</think>\n\n</s>[/INST]"),
        say("user", "\\n \\ \r\n {# no comment #}")]},
    "missing_content": {"messages": [{"role": "user"}]},
    "missing_role": {"messages": [{"content": "hi"}]},
    "null_content": {"messages": [say("user", "x"), say("assistant", None)]},
    "not_alternating": {"messages": [say("user", "a"), say("user", "b")]},
    "two_systems": {"messages": [say("system", "a"), say("system", "b"),
                                 say("user", "c")]},
    "unknown_role": {"messages": [say("critic", "bad"), say("user", "c")]},
    "parts": {"messages": [
        say("user", [{"type": "text", "text": " look "}, {"type": "image"},
                     {"type": "text", "text": "here"}])]},
    "nested_lists": {"messages": [say("user", [[1, [2.5, []]], {"a": {}}])]},
    "number": {"messages": [say("user", 42)]},
    "tools": {"messages": [say("system", "Use tools."), say("user", "Rain?")],
              "tools": [WEATHER, NOOP]},
    "tool_turns": {"messages": [
        say("user", "Rain?"), say("assistant", None, tool_calls=[CALL]),
        say("tool", "{\"rain\": true}"), say("tool", {"content": "7"}),
        say("assistant", "Yes."), say("user", "Thanks")], "tools": [WEATHER]},
    "two_calls": {"messages": [
        say("user", "Rain?"), say("assistant", "", tool_calls=[CALL, CALL])]},
    "no_tools": {"messages": [say("user", "Hi")], "tools": []},
    "variables": {"messages": [
        say("user", "think"), say("assistant", "x", reasoning_content="\nhm\n"),
        say("user", "so?"), say("assistant", "<think>a</think>b")],
        "extra": {"enable_thinking": False, "date_string": "1 May 2025"}},
    "long": {"messages": [say(["user", "assistant"][i % 2], f"turn {i}")
                          for i in range(12)]},
}


def main():
    env = reference.environment()
    goldens = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for name, conversation in CONVERSATIONS.items():
            case = {"template": source, **conversation}
            goldens.append({"template": path.name, "conversation": name,
                            **reference.render(env, case)})
    # One construct a line.
    constructs = [
        {"template": line, **reference.render(
            env, {"template": line, "messages": [say("user", "hi")]})}
        for line in (HERE / "constructs.txt").read_text(
            encoding="utf-8").splitlines()]
    text = json.dumps({"conversations": CONVERSATIONS, "goldens": goldens,
                       "constructs": constructs},
                      ensure_ascii=False, indent=1)
    (HERE / "goldens.json").write_text(text + "\n", encoding="utf-8")
    errors = sum("error" in golden for golden in goldens)
    print(f"{len(goldens)} goldens, {errors} of them errors")
    assert not any("parse" in golden for golden in goldens + constructs)


if __name__ == "__main__":
    main()
