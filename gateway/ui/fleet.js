// What operators see: coordinators, their workers and sessions, each second.

import { bearer, byId, element, problemOf } from "/ui/common.js";

const PERIOD_MS = 1000;
const PATIENCE_MS = 4000;
const MOST_EVENTS = 50;
const MOST_SESSIONS = 50;

function table(title, columns, rows) {
  const made = element("table");
  made.append(element("caption", "", title));
  const head = element("tr");
  for (const { name, number } of columns) {
    const cell = element("th", number ? "number" : "", name);
    cell.scope = "col";
    head.append(cell);
  }
  made.append(element("thead"), element("tbody"));
  made.tHead.append(head);
  for (const row of rows) {
    const line = element("tr");
    columns.forEach(({ number }, i) => {
      const { text, className } = typeof row[i] === "object" ? row[i] : { text: row[i] };
      line.append(element("td", [number ? "number" : "", className ?? ""].join(" ").trim(), text));
    });
    made.tBodies[0].append(line);
  }
  const scroll = element("div", "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title);
  scroll.append(made);
  return scroll;
}

function stateOf(worker) {
  if (worker.hung) return "hung";
  if (worker.draining) return "draining";
  return worker.ready ? "ready" : "loading";
}

const nameOf = (worker) => `${worker.role} ${worker.address}`;

// Shares of a worker's time since its heartbeat before; null where there has been
// no other one.
function shares(time, before) {
  const spent = (key) => time[key] - (before ? before[key] : 0);
  const whole = spent("elapsed_ms");
  if (whole <= 0) return null;
  const percent = (part) => `${Math.round((100 * part) / whole)} %`;
  return {
    busy: percent(spent("prefill_ms") + spent("draft_ms") + spent("verify_ms")),
    wait: percent(spent("wait_draft_tokens_ms") + spent("wait_verdict_ms") +
                  spent("wait_acknowledge_ms")),
  };
}

class Fleet {
  constructor() {
    this.known = new Map(); // by coordinator and worker: the latest of it
    this.silent = new Set(); // coordinators that do not answer
    this.shown = false;
    this.asked = 0;
    byId("operator").addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
  }

  watch(wanted) {
    this.shown = wanted;
    clearTimeout(this.timer);
    if (wanted) this.ask();
  }

  async ask() {
    clearTimeout(this.timer);
    const asked = ++this.asked;
    let again = true;
    try {
      const response = await fetch("/nacre/fleet", {
        headers: bearer(byId("admin-token").value.trim()),
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
      if (asked !== this.asked) return;
      if (!response.ok) {
        // Asking once more would not change that.
        again = response.status >= 500;
        throw new Error(await problemOf(response));
      }
      this.show((await response.json()).coordinators);
      byId("fleet-state").textContent = `As of ${new Date().toLocaleTimeString()}.`;
    } catch (error) {
      if (asked !== this.asked) return;
      const text = error.name === "TimeoutError" ? "the gateway does not answer" : error.message;
      byId("fleet-state").textContent = `No view of the fleet: ${text}`;
      if (!again) byId("coordinators").replaceChildren();
    }
    if (this.shown && again) this.timer = setTimeout(() => this.ask(), PERIOD_MS);
  }

  note(text) {
    const line = element("li");
    line.append(element("time", "", new Date().toLocaleTimeString()), ` ${text}`);
    const events = byId("events");
    events.prepend(line);
    while (events.children.length > MOST_EVENTS) events.lastChild.remove();
  }

  // Tells what has changed since the view before.
  compare(coordinator, workers) {
    const first = !this.known.has(coordinator);
    const before = this.known.get(coordinator) ?? new Map();
    const now = new Map(workers.map((worker) => [nameOf(worker), worker]));
    for (const [name, worker] of now) {
      const old = before.get(name);
      if (first) continue;
      if (!old) this.note(`${name} came: ${stateOf(worker)}`);
      else if (old.incarnation !== worker.incarnation) this.note(`${name} started anew`);
      else if (stateOf(old) !== stateOf(worker)) this.note(`${name} is ${stateOf(worker)}`);
    }
    for (const name of before.keys()) {
      if (!now.has(name)) this.note(`${name} is gone`);
    }
    this.known.set(coordinator, now);
    return before;
  }

  show(coordinators) {
    const place = byId("coordinators");
    const tables = () => [...place.querySelectorAll(".scroll")];
    const scrolled = tables().map((one) => one.scrollLeft);
    const focused = tables().indexOf(document.activeElement);
    place.replaceChildren(...coordinators.map((one) => this.card(one)));
    // The new tables stand where the old ones did.
    tables().forEach((one, i) => { one.scrollLeft = scrolled[i] ?? 0; });
    if (focused >= 0 && tables()[focused]) tables()[focused].focus({ preventScroll: true });
  }

  noteSilence(coordinator, silent) {
    if (this.silent.has(coordinator) === silent) return;
    this.note(`coordinator ${coordinator} ${silent ? "does not answer" : "answers again"}`);
    if (silent) this.silent.add(coordinator);
    else this.silent.delete(coordinator);
  }

  card(coordinator) {
    const card = element("section", "coordinator");
    card.append(element("h3", "", `Coordinator ${coordinator.address}`));
    this.noteSilence(coordinator.address, coordinator.error !== null);
    if (coordinator.error !== null) {
      card.append(element("p", "problem", `does not answer: ${coordinator.error}`));
      return card;
    }
    const before = this.compare(coordinator.address, coordinator.workers);
    card.append(element("p", "",
      `version ${coordinator.version}, ${coordinator.running_requests} running, ` +
      `${coordinator.queued_requests} in the queue` +
      (coordinator.draining ? ", draining" : "")));
    card.append(this.workerTable(coordinator.workers, before), this.sessionTable(coordinator));
    return card;
  }

  workerTable(workers, before) {
    const columns = [
      { name: "role" }, { name: "address" }, { name: "state" }, { name: "model" },
      { name: "sessions", number: true }, { name: "KV in use", number: true },
      { name: "computing", number: true }, { name: "waiting", number: true },
      { name: "heard of", number: true },
    ];
    const count = (role) => workers.filter((w) => w.role === role && w.ready).length;
    const title = `Workers; ready of role target: ${count("target")}, draft: ${count("draft")}`;
    return table(title, columns, workers.map((worker) => {
      const old = before.get(nameOf(worker));
      const same = old && old.incarnation === worker.incarnation ? old : null;
      worker.shares = shares(worker.time, same ? same.time : null) ??
                      (same ? same.shares : null);
      const { busy, wait } = worker.shares ?? { busy: "\u2013", wait: "\u2013" };
      const used = worker.kv_capacity_tokens - worker.kv_free_tokens;
      const state = stateOf(worker);
      const sessions = worker.max_sessions ? `${worker.sessions} of ${worker.max_sessions}`
                                           : worker.sessions;
      return [
        worker.role, worker.address, { text: state, className: `state-${state}` },
        worker.model, sessions, `${used} of ${worker.kv_capacity_tokens}`, busy, wait,
        `${(worker.heartbeat_age_ms / 1000).toFixed(1)} s ago`,
      ];
    }));
  }

  sessionTable(coordinator) {
    const columns = [
      { name: "request" }, { name: "method" }, { name: "prompt", number: true },
      { name: "generated", number: true }, { name: "target" }, { name: "draft" },
      { name: "queue", number: true },
    ];
    const shown = coordinator.sessions.slice(0, MOST_SESSIONS);
    const left = coordinator.sessions.length - shown.length + coordinator.sessions_left_out;
    const title = `Sessions${left > 0 ? ` (${left} more are not shown)` : ""}`;
    return table(title, columns, shown.map((session) => [
      session.request_id, session.method, session.prompt_tokens, session.generated_tokens,
      session.target || "\u2013", session.draft || "\u2013", session.queue_position ?? "",
    ]));
  }
}

export function startFleet() {
  return new Fleet();
}
