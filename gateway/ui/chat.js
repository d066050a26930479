// A chat with the model, and how its answer came about.

import { bearer, byId, element, problemOf } from "/ui/common.js";
import { Lanes } from "/ui/lanes.js";

// How soon the model is asked for once more, where it was not told.
const RETRY_MS = 2000;

const ORIGINS = {
  draft: "proposed by the draft, accepted",
  branch: "proposed by the draft on a branch of its tree, accepted",
  suffix: "proposed by the target from a suffix, accepted",
  target: "the target's own",
};

// The events of a stream of server-sent events, as JSON.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ")) continue; // a comment
      const data = part.slice("data: ".length);
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

// The numbers of one answer while it runs. They are counted from what the
// service says of each step; the speed is measured here.
class Account {
  constructor() {
    this.asked = performance.now();
    this.tokens = this.steps = this.verified = this.accepted = this.degraded = 0;
    this.origins = { draft: 0, branch: 0, suffix: 0, target: 0 };
  }

  add(trace) {
    if (trace.tokens.length > 0 && this.tokens === 0) this.first = performance.now();
    this.last = performance.now();
    this.tokens += trace.tokens.length;
    this.steps += 1;
    this.verified += trace.verified;
    this.accepted += trace.accepted;
    this.degraded += trace.degraded ? 1 : 0;
    for (const { origin } of trace.tokens) {
      if (origin in this.origins) this.origins[origin] += 1;
    }
  }

  show() {
    for (const [origin, count] of Object.entries(this.origins)) {
      byId(`n-${origin}`).textContent = count;
    }
    byId("tokens").textContent = this.tokens;
    const seconds = (this.last - this.asked) / 1000;
    byId("speed").textContent = seconds > 0 ? (this.tokens / seconds).toFixed(1) : "\u2013";
    byId("acceptance").textContent = this.acceptance();
    byId("per-step").textContent =
      this.steps > 0 ? (this.tokens / this.steps).toFixed(2) : "\u2013";
    byId("first").textContent =
      this.first ? `${Math.round(this.first - this.asked)} ms` : "\u2013";
    byId("source").textContent = "Times are measured by this page while the answer comes.";
  }

  acceptance() {
    if (this.verified === 0) return "\u2013";
    return `${((100 * this.accepted) / this.verified).toFixed(1)} %`;
  }

  // What the service itself says at the end.
  showFinal(metrics) {
    byId("speed").textContent = metrics.tokens_per_second.toFixed(1);
    byId("first").textContent = `${metrics.time_to_first_token_ms.toFixed(0)} ms`;
    byId("target-wait").textContent = `${metrics.nacre.target_wait_ms.toFixed(0)} ms`;
    byId("draft-wait").textContent = `${metrics.nacre.draft_wait_ms.toFixed(0)} ms`;
    byId("source").textContent = "Times are the service's own.";
  }
}

class Chat {
  constructor() {
    this.lanes = new Lanes();
    this.messages = [];
    this.hasTemplate = true;
    this.running = null;
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    byId("message").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      byId("ask").requestSubmit();
    });
    addEventListener("keydown", (event) => {
      // Within a composition it takes back what is being composed.
      if (event.key === "Escape" && !event.isComposing) this.stop();
    });
    byId("stop").addEventListener("click", () => this.stop());
    byId("reset").addEventListener("click", () => this.reset());
    byId("client-token").addEventListener("change", () => this.askForModel());
    this.askForModel();
  }

  headers() {
    return bearer(byId("client-token").value.trim());
  }

  async askForModel() {
    clearTimeout(this.retry);
    let mayRetry = true; // not where the token is at fault
    try {
      const models = await fetch("/v1/models", { headers: this.headers() });
      mayRetry = models.status !== 401 && models.status !== 403;
      if (!models.ok) throw new Error(await problemOf(models));
      const model = (await models.json()).data[0];
      byId("model").textContent = `${model.id}, context ${model.max_model_len} tokens`;
      const info = await fetch("/tokenizer_info", { headers: this.headers() });
      if (!info.ok) throw new Error(await problemOf(info));
      this.hasTemplate = (await info.json()).chat_template !== null;
      byId("mode").hidden = this.hasTemplate;
      byId("mode").textContent =
        "This model has no chat template: it goes on with your text.";
    } catch (error) {
      byId("model").textContent = error.message;
      // The service may still be starting.
      if (mayRetry) this.retry = setTimeout(() => this.askForModel(), RETRY_MS);
    }
  }

  stop() {
    if (this.running) this.running.abort();
  }

  reset() {
    this.stop();
    this.messages = [];
    byId("log").replaceChildren();
    byId("problem").textContent = "";
    this.lanes.clear();
    byId("message").focus();
  }

  body(text) {
    const body = {
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: Number(byId("max-tokens").value) || 256,
      nacre: { trace: true, method: byId("method").value },
    };
    const temperature = byId("temperature").value;
    if (temperature !== "") body.temperature = Number(temperature);
    if (this.hasTemplate) {
      body.messages = [...this.messages, { role: "user", content: text }];
    } else {
      body.prompt = this.messages.map((m) => m.content).join("") + text;
    }
    // A number of 64 bits is more than JavaScript can hold: it goes as it is.
    const seed = byId("seed").value.trim();
    const json = JSON.stringify(body);
    return /^[0-9]+$/.test(seed) ? `${json.slice(0, -1)},"seed":${seed}}` : json;
  }

  addMessage(role, text) {
    const article = element("article", role);
    article.append(element("h4", "", role === "user" ? "You" : "Model"));
    const place = element("p", "text", text);
    article.append(place);
    byId("log").append(article);
    return place;
  }

  // The answer so far, token by token, each marked with how it came.
  append(place, choice) {
    const text = choice.delta ? choice.delta.content ?? "" : choice.text;
    const traced = choice.nacre && choice.nacre.tokens ? choice.nacre.tokens : [];
    if (traced.length === 0) place.append(text);
    for (const token of traced) {
      if (token.text === "") continue;
      const part = element("span", "t", token.text);
      if (token.origin in ORIGINS) {
        part.classList.add(token.origin);
        part.title = ORIGINS[token.origin];
      }
      place.append(part);
    }
    return text;
  }

  setRunning(running) {
    this.running = running;
    byId("send").disabled = running !== null;
    byId("stop").disabled = running === null;
    byId("log").setAttribute("aria-busy", String(running !== null));
  }

  async send() {
    const text = byId("message").value;
    if (this.running || text.trim() === "") return;
    const body = this.body(text);
    byId("message").value = "";
    byId("problem").textContent = "";
    for (const id of ["target-wait", "draft-wait"]) byId(id).textContent = "\u2013";
    this.addMessage("user", text);
    const place = this.addMessage("assistant", "");
    this.setRunning(new AbortController());
    this.lanes.clear();
    const answer = { text: "", account: new Account(), metrics: null, finish: "" };
    // Of this conversation, also if a new one is begun meanwhile.
    const said = this.messages;
    let end = "";
    try {
      await this.receive(body, place, answer);
    } catch (error) {
      end = error.name === "AbortError" ? "stopped" : "failed";
      if (end === "failed") byId("problem").textContent = error.message;
    }
    this.setRunning(null);
    // A message that was refused would have each later one refused, too.
    if (end !== "failed") {
      said.push({ role: "user", content: text },
                { role: "assistant", content: answer.text });
    }
    const line = element("p", "speed", this.summary(answer, end));
    place.parentElement.append(line);
    line.scrollIntoView({ block: "nearest" });
    byId("message").focus({ preventScroll: true });
  }

  async receive(body, place, answer) {
    const path = this.hasTemplate ? "/v1/chat/completions" : "/v1/completions";
    const log = byId("log");
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...this.headers() },
      body,
      signal: this.running.signal,
    });
    if (!response.ok) throw new Error(await problemOf(response));
    for await (const event of eventsOf(response)) {
      if (event.error) throw new Error(event.error.message);
      if (event.metrics) answer.metrics = event.metrics;
      for (const choice of event.choices) {
        const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
        answer.text += this.append(place, choice);
        if (follows) log.scrollTop = log.scrollHeight;
        if (choice.finish_reason) answer.finish = choice.finish_reason;
        if (!choice.nacre) continue;
        this.lanes.add(choice.nacre.lanes);
        if (!choice.nacre.tokens) continue;
        answer.account.add(choice.nacre);
        answer.account.show();
      }
    }
    if (answer.metrics) answer.account.showFinal(answer.metrics);
  }

  summary(answer, end) {
    const { account, metrics } = answer;
    const parts = [`${account.tokens} tokens`];
    if (metrics) parts.push(`${metrics.tokens_per_second.toFixed(1)} tokens/s`);
    if (account.verified > 0) parts.push(`acceptance ${account.acceptance()}`);
    if (account.degraded > 0) parts.push(`${account.degraded} steps without a draft`);
    if (end !== "") parts.push(end);
    else if (answer.finish === "length") parts.push("ended by its limit of tokens");
    return parts.join(", ");
  }
}

export function startChat() {
  return new Chat();
}
