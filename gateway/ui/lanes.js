// The two devices of an answer as lanes in time. It draws what the workers said
// they did, and nothing between.

import { byId } from "/ui/common.js";

const WAITS = new Set(["wait_draft_tokens", "wait_verdict", "wait_acknowledge"]);
const BUSY = new Set(["draft", "verify", "prefill"]);
const MOST_SPANS = 4000; // of one lane
const STEPS_SHOWN = 24;

const percent = (part, whole) => `${Math.round((100 * part) / whole)} %`;

export class Lanes {
  constructor() {
    this.canvas = byId("lanes");
    this.text = byId("lanes-text");
    this.clear();
    addEventListener("resize", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  clear() {
    this.spans = { draft: [], target: [] };
    this.sums = { draft: { busy: 0, wait: 0 }, target: { busy: 0, wait: 0 } };
    this.addresses = { draft: new Set(), target: new Set() };
    this.text.textContent = "Nothing has run yet.";
    this.draw();
  }

  add(lanes) {
    for (const lane of lanes) {
      const spans = this.spans[lane.role];
      if (lane.address) this.addresses[lane.role].add(lane.address);
      for (const span of lane.spans) {
        spans.push(span);
        const sums = this.sums[lane.role];
        if (BUSY.has(span.kind)) sums.busy += span.ms;
        if (WAITS.has(span.kind)) sums.wait += span.ms;
      }
      if (spans.length > MOST_SPANS) spans.splice(0, spans.length - MOST_SPANS);
    }
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = 0;
      this.draw();
      this.describe();
    });
  }

  describe() {
    const parts = [];
    for (const role of ["draft", "target"]) {
      const { busy, wait } = this.sums[role];
      if (busy + wait === 0) continue;
      const at = [...this.addresses[role]].join(", then ");
      parts.push(`${role} (${at}): computing ${percent(busy, busy + wait)}, ` +
                 `waiting ${percent(wait, busy + wait)} of its time for this answer`);
    }
    if (parts.length > 0) this.text.textContent = `${parts.join("; ")}.`;
  }

  // The span of time shown: as many steps of the target as can be told apart.
  range() {
    const all = [...this.spans.draft, ...this.spans.target];
    if (all.length === 0) return null;
    const end = Math.max(...all.slice(-200).map((s) => s.start_ms + s.ms));
    const steps = this.spans.target.filter((s) => s.kind === "verify").slice(-STEPS_SHOWN);
    const start = steps.length > 0 ? steps[0].start_ms : end - 100;
    return { start: Math.min(start, end - 5), end };
  }

  draw() {
    const ratio = devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    if (width === 0) return;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`);
    context.font = "12px system-ui, sans-serif";
    const range = this.range();
    const left = 52;
    const scale = range ? (width - left - 8) / (range.end - range.start) : 0;
    ["draft", "target"].forEach((role, row) => {
      const top = 12 + row * 58;
      context.fillStyle = colour("text");
      context.fillText(role, 6, top + 27);
      context.strokeStyle = colour("line");
      context.strokeRect(left + 0.5, top + 0.5, width - left - 8, 44);
      if (!range) return;
      for (const span of this.spans[role]) {
        if (span.start_ms + span.ms < range.start) continue;
        const from = Math.max(0, span.start_ms - range.start) * scale;
        const to = (span.start_ms + span.ms - range.start) * scale;
        if (WAITS.has(span.kind)) {
          context.fillStyle = colour("wait");
          context.fillRect(left + from, top + 16, Math.max(to - from, 0.5), 12);
        } else if (BUSY.has(span.kind)) {
          context.fillStyle = colour(span.kind);
          context.fillRect(left + from, top + 4, Math.max(to - from - 0.5, 1), 36);
        }
      }
    });
    if (!range) return;
    context.fillStyle = colour("soft");
    context.fillText(`${(range.end - range.start).toFixed(0)} ms`, left, height - 8);
  }
}
