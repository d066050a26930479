#!/usr/bin/env python3
"""Visits the gateway's page in a headless Chromium: a chat, a stop, what a model
may write, the fleet and the death of a draft. The service must have a chat
template, and steps that are slow enough for an answer to be stopped:

    visit_page.py --address HOST:PORT --draft-pid PID [--pictures DIR]

Exit status: 0, or 1 with what is wrong, or 77 where there is no Chromium.
"""

import argparse
import base64
import json
import os
import re
import signal
import sys
import time
import urllib.request

from devtools import Page, find_chromium

PROMPT = "def main():"
HOSTILE = ('<script>window.hacked = 1</script><img src="/nowhere" '
           'onerror="window.hacked = 1"><b>&amp;</b>')
# Numbers how often the page asks for the fleet, and notes which of these looks brought a
# view in which every coordinator answers, until it first says of a draft that it has gone.
# (A supervisor may have started another one by then.)
COUNT_LOOKS = """(() => {
  window.looks = 0;
  window.views = [];
  window.viewsUntilSeen = null;
  const ask = window.fetch;
  window.fetch = async (...given) => {
    if (given[0] !== "/nacre/fleet") return ask(...given);
    const look = ++window.looks;
    const response = await ask(...given);
    const read = response.json.bind(response);
    response.json = async () => {
      const view = await read();
      if (response.ok && view.coordinators.every(({ error }) => error === null)) {
        window.views.push(look);
      }
      return view;
    };
    return response;
  };
  const events = document.querySelector("#events");
  new MutationObserver(() => {
    if (window.viewsUntilSeen === null &&
        /draft .* (is gone|started anew)/.test(events.textContent)) {
      window.viewsUntilSeen = [...window.views];
    }
  }).observe(events, { childList: true });
})()"""
MOST_PERIOD_MS = 1000  # between looks
ANSWERS = "document.querySelectorAll('.speed').length"


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def ask(page, text):
    """Sends a message as a user of a keyboard does."""
    page.type("#message", text)
    page.press("Enter")


def set_value(page, selector, value):
    page.evaluate(f"document.querySelector('{selector}').value = {json.dumps(value)}")


def answer_of_api(address, max_tokens):
    body = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0,
            "max_tokens": max_tokens}
    request = urllib.request.Request(
        f"http://{address}/v1/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def visit_chat(page, address):
    page.wait_for("document.querySelector('#model').textContent.includes('context')")
    expect(page.evaluate("document.querySelector('#mode').hidden"),
           "the page has not seen the chat template")
    set_value(page, "#max-tokens", 60)
    set_value(page, "#temperature", 0)
    ask(page, PROMPT)
    page.wait_for(f"{ANSWERS} === 1")
    shown = page.text("article.assistant .text")
    expect(shown == answer_of_api(address, 60), f"another answer than the API's: {shown}")
    counts = {name: int(page.text(f"#n-{name}"))
              for name in ("draft", "branch", "suffix", "target")}
    tokens = int(page.text("#tokens"))
    expect(sum(counts.values()) == tokens > 0, f"{tokens} tokens, but {counts}")
    marked = page.evaluate("document.querySelectorAll('article.assistant .t').length")
    expect(0 < marked <= tokens, f"{marked} tokens are marked of {tokens}")
    expect("target (127.0.0.1:" in page.text("#lanes-text"), page.text("#lanes-text"))
    expect("draft (127.0.0.1:" in page.text("#lanes-text"), page.text("#lanes-text"))
    expect(page.text("#acceptance").endswith("%"), page.text("#acceptance"))
    expect("service" in page.text("#source"), page.text("#source"))
    print(f"chat: {page.text('.speed')}; {counts}")



def visit_stop(page):
    # A token a step: long enough for any machine to stop it.
    set_value(page, "#max-tokens", 1900)
    set_value(page, "#method", "ar")
    for how in ("button", "key"):
        # The same prompt again, whose answer is long.
        page.click("#reset")
        page.wait_for("document.querySelector('article') === null")
        ask(page, PROMPT)
        page.wait_for("document.querySelector('article:last-child .t') !== null")
        expect(page.evaluate(ANSWERS) == 0, "the answer ended before it was stopped")
        if how == "button":
            page.click("#stop")
        else:
            page.press("Escape")
        page.wait_for(f"{ANSWERS} === 1")
        line = page.text("article:last-child .speed")
        expect("stopped" in line, line)
        page.wait_for("document.querySelector('#stop').disabled")
        # The service heard of it, too.
        page.wait_for("fetch('/nacre/fleet').then((r) => r.json()).then((f) => "
                      "f.coordinators.every((c) => c.running_requests === 0))")
    expect(page.text("#problem") == "", page.text("#problem"))
    set_value(page, "#method", "async")
    print(f"stop: {line}")


def visit_hostile_answer(page):
    """The browser answers in place of the gateway, with what a model may say."""
    def fulfil(params):
        choice = {"index": 0, "delta": {"content": HOSTILE}, "finish_reason": None}
        traced = dict(choice, nacre={
            "tokens": [{"text": HOSTILE, "origin": "draft"}], "window": 1, "verified": 1,
            "accepted": 1, "degraded": False, "lanes": []})
        events = [{"choices": [choice]}, {"choices": [traced]},
                  {"error": {"message": HOSTILE}}]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        waiting.append({
            "requestId": params["requestId"], "responseCode": 200,
            "responseHeaders": [{"name": "Content-Type", "value": "text/event-stream"}],
            "body": base64.b64encode(body.encode()).decode()})

    waiting = []
    page.on_event["Fetch.requestPaused"] = fulfil
    page.call("Fetch.enable", patterns=[{"urlPattern": "*/v1/chat/completions"}])
    before = page.evaluate(ANSWERS)
    ask(page, HOSTILE)
    while not waiting:
        page.evaluate("1")
    page.call("Fetch.fulfillRequest", **waiting[0])
    page.wait_for(f"{ANSWERS} === {before + 1}")
    page.call("Fetch.disable")
    expect(page.text("article.assistant:last-child .text") == HOSTILE * 2,
           "the answer is not shown as it is")
    expect(page.text("article.user:nth-last-child(2) .text") == HOSTILE,
           "the message is not shown as it is")
    expect(page.text("#problem") == HOSTILE, "the error is not shown as it is")
    expect(page.evaluate("document.querySelector('main script, main img, main b') === null"),
           "a text became markup")
    expect(page.evaluate("window.hacked === undefined"), "a text became a script")
    print("hostile texts: shown as they are")


def drafts_of(address):
    """The drafts that the service has, by what each process calls itself."""
    with urllib.request.urlopen(f"http://{address}/nacre/fleet", timeout=120) as response:
        return {worker["incarnation"] for coordinator in json.load(response)["coordinators"]
                for worker in coordinator["workers"] if worker["role"] == "draft"}


def check_period(address):
    """How often the page looks, by its script: a busy machine may make it later."""
    with urllib.request.urlopen(f"http://{address}/ui/fleet.js", timeout=120) as response:
        script = response.read().decode()
    periods = [int(ms) for ms in re.findall(r"^const PERIOD_MS = ([0-9]+);$", script, re.M)]
    expect(len(periods) == 1 and periods[0] <= MOST_PERIOD_MS, f"periods of looks: {periods}")
    expect("setTimeout(() => this.ask(), PERIOD_MS)" in script, "the period is not used")


def visit_fleet(page, address, draft_pid, pictures):
    page.evaluate("location.hash = 'chat'")
    page.click("#reset")
    set_value(page, "#max-tokens", 1900)
    # The slowest, or for a picture the slowest with a draft.
    set_value(page, "#method", "sd" if pictures else "ar")
    ask(page, PROMPT)
    page.wait_for("document.querySelector('article:last-child .t') !== null")
    page.click("#tab-fleet")
    page.wait_for("document.querySelector('#coordinators').textContent"
                  ".includes('ready of role target: 1, draft: 1')")
    # The answer that runs is among the sessions.
    page.wait_for("document.querySelector('#coordinators').textContent"
                  ".includes('1 running, 0 in the queue')")
    if pictures:
        page.wait_for("document.querySelectorAll('#coordinators tbody')[1]"
                      ".rows[0].cells[3].textContent > 20")
        page.color_scheme("dark")
        page.picture(os.path.join(pictures, "page_fleet.png"))
        page.color_scheme("light")
    page.evaluate(COUNT_LOOKS)
    killed = drafts_of(address)
    os.kill(draft_pid, signal.SIGKILL)
    begin = time.monotonic()
    while killed & drafts_of(address):
        expect(time.monotonic() < begin + page.patience_s, "the service keeps a dead draft")
    known = page.evaluate("window.looks")
    page.wait_for("window.viewsUntilSeen !== null")
    seconds = time.monotonic() - begin
    # The first view that was asked for since then. One that fails shows nothing.
    late = sum(look > known for look in page.evaluate("window.viewsUntilSeen"))
    expect(late <= 1, f"a killed draft was seen {late} views after the service knew of it")
    print(f"fleet: a killed draft was seen after {seconds:.2f} s (2 s on a quiet machine)")


def check_names(page):
    """What can be used has a name that a screen reader says."""
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    usable = {"button", "textbox", "combobox", "link", "spinbutton", "image", "img"}
    for node in nodes:
        role = node.get("role", {}).get("value")
        if node.get("ignored") or role not in usable:
            continue
        expect(node.get("name", {}).get("value"), f"a {role} without a name")


def check_width(page):
    page.resize(360, 740, phone=True)
    for view in ("chat", "fleet"):
        page.evaluate(f"location.hash = '{view}'")
        page.wait_for(f"!document.querySelector('#{view}').hidden")
        check_names(page)
        width = page.evaluate("document.documentElement.scrollWidth")
        expect(width <= 360, f"{view} is {width} pixels wide on a phone")
    page.resize(1100, 760)


def check_colors(page):
    def background():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.color_scheme("light")
    light = background()
    page.color_scheme("dark")
    expect(background() != light, "dark looks like light")
    page.color_scheme("light")


def check_requests(page, origin):
    """All came from the gateway, and nothing failed on the way."""
    for event in page.events:
        params = event["params"]
        if event["method"] == "Network.requestWillBeSent":
            url = params["request"]["url"]
            expect(url.startswith(origin), f"the page asks for {url}")
        elif event["method"] == "Runtime.exceptionThrown":
            raise AssertionError(f"an exception: {params['exceptionDetails']}")
        elif event["method"] == "Log.entryAdded":
            expect(params["entry"]["level"] != "error", f"an error: {params['entry']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--draft-pid", type=int, required=True)
    parser.add_argument("--pictures", help="folder for pictures of the page")
    arguments = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print("there is no Chromium: apt-get install chromium")
        return 77
    origin = f"http://{arguments.address}/"
    with Page(chromium) as page:
        page.resize(1100, 760)
        page.color_scheme("light")
        page.open(origin)
        visit_chat(page, arguments.address)
        if arguments.pictures:
            page.picture(os.path.join(arguments.pictures, "page_chat.png"))
        visit_stop(page)
        visit_hostile_answer(page)
        check_width(page)
        check_colors(page)
        check_period(arguments.address)
        visit_fleet(page, arguments.address, arguments.draft_pid, arguments.pictures)
        check_requests(page, origin)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (AssertionError, RuntimeError, TimeoutError) as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(1)
