// The time line: a range input over the axis, buttons, and the place in words.
//
// Each point of the axis stands for an event. Arrows step by events, PageUp and PageDown by
// decisions, and everything that can be dragged can be typed, too.

import { ask } from "./api.js";
import { link } from "./app.js";
import { h, clock, count, ms } from "./dom.js";

const POINTS = 1200;
const RANGES = [["", "whole log"], ["86400", "last day"], ["3600", "last hour"], ["600", "last 10 min"]];
const parts = {};
let line = null;
let playing = null;
let asked = 0;

const button = (key, text, title, onclick) => h("button", { type: "button", "data-key": key, title, "aria-label": title, onclick }, text);

export function build(app) {
  parts.slider = h("input", {
    type: "range", id: "slider", min: 0, max: POINTS - 1, step: 1, value: POINTS - 1, "aria-label": "Moment",
    oninput: () => { stop(); dragged(app); }, onkeydown: (event) => key(app, event),
  });
  parts.number = h("input", {
    type: "text", inputmode: "numeric", id: "at", size: 9, autocomplete: "off",
    onchange: () => typed(app, parts.number.value),
  });
  parts.time = h("output", { class: "when", for: "slider" });
  parts.of = h("span", { class: "muted" });
  parts.event = h("p", { class: "event" });
  parts.live = button("live", "Live", "Live: follow the log", () => { stop(); app.go({ at: null }); });
  parts.play = button("play", "Play", "Play forward", () => (playing ? stop() : play(app)));
  parts.range = h("select", { id: "range", "aria-label": "Part of the log", onchange: () => app.go({ range: parts.range.value || null }) },
    RANGES.map(([value, text]) => h("option", { value }, text)));
  parts.compare = h("a", { class: "button", href: "#", "data-key": "compare", title: "What differs from here on" }, "Compare from here");
  const box = document.getElementById("time");
  box.append(
    h("div", { class: "controls" },
      h("div", { class: "group" }, parts.live,
        button("decision-1", "|◀", "Decision before", () => step(app, "decision", -1)),
        button("event-1", "◀", "Event before", () => step(app, "event", -1)),
        parts.play,
        button("event+1", "▶", "Next event", () => step(app, "event", 1)),
        button("decision+1", "▶|", "Next decision", () => step(app, "decision", 1))),
      parts.time,
      h("label", { class: "number" }, "event ", parts.number, " ", parts.of),
      parts.range, parts.compare),
    h("div", { class: "track" }, h("div", { id: "strip", "aria-hidden": "true" }), parts.slider),
    parts.event);
}

// The axis: which event each point of the slider stands for.
export async function axis(app) {
  asked = Date.now();
  try {
    line = await ask("axis", { points: POINTS, ...window_(app) });
    place(app);
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

// What is drawn of the log: all of it, or its end.
export function window_(app) {
  const seconds = Number(app.view.range);
  if (!seconds) return {};
  const to = ms(app.head.now);
  const from = Math.max(ms(app.head.begun), to - 1000 * seconds);
  return { from: new Date(from).toISOString(), to: app.head.now };
}

export const shown = () => line;

// The log has grown: the axis follows now and then.
export function grown(app) {
  if (Date.now() - asked > 2000) axis(app);
  else place(app);
}

// Where the slider stands, without an answer.
export function place(app) {
  if (!line) return;
  const at = app.view.at ?? app.head.head;
  parts.live.setAttribute("aria-pressed", String(app.view.at === undefined));
  parts.of.textContent = `of ${count(app.head.head)}`;
  if (document.activeElement !== parts.number) parts.number.value = String(at);
  if (line.sequences[Number(parts.slider.value)] !== at) {
    let low = 0;
    let high = line.sequences.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (line.sequences[middle] < at) low = middle + 1;
      else high = middle;
    }
    parts.slider.value = String(app.view.at === undefined ? line.sequences.length - 1 : low);
  }
  if (parts.range.value !== (app.view.range ?? "")) parts.range.value = app.view.range ?? "";
}

// The place in words.
export function show(app) {
  const { sequence, at, event, cluster } = app.state;
  parts.time.textContent = `${clock(at)} UTC`;
  parts.slider.setAttribute("aria-valuetext", `event ${sequence}, ${clock(at)}, epoch ${cluster.epoch}`);
  parts.event.replaceChildren(...(event
    ? [h("b", {}, event.event), ` ${event.about} `, h("span", { class: "muted" }, event.words)] : []));
  parts.compare.href = link({ from: sequence, job: null, node: null, about: null, epoch: null });
}

function dragged(app) {
  const index = Number(parts.slider.value);
  const at = line?.sequences[index];
  if (at === undefined) return;
  const end = index === line.sequences.length - 1 && at === app.head.head;
  app.go({ at: end ? null : at }, true);
}

function key(app, event) {
  const moves = {
    ArrowLeft: ["event", -1], ArrowDown: ["event", -1], ArrowRight: ["event", 1], ArrowUp: ["event", 1],
    PageDown: ["decision", -1], PageUp: ["decision", 1],
  };
  const move = moves[event.key];
  if (move) {
    event.preventDefault();
    stop();
    step(app, ...move);
  } else if (event.key === "Home") {
    event.preventDefault();
    app.go({ at: app.view.range ? line?.sequences[0] : app.head.first });
  } else if (event.key === "End") {
    event.preventDefault();
    app.go({ at: null });
  }
}

async function step(app, by, steps) {
  try {
    const answer = await app.ask("step", { by, count: steps });
    app.go({ at: answer.sequence === app.head.head ? null : answer.sequence }, true);
  } catch (error) {
    // The next key has come, or there is no such place.
    if (error.name !== "AbortError" && error.status !== 404) throw error;
  }
}

async function typed(app, text) {
  const value = text.trim();
  if (/^\d+$/.test(value)) return app.go({ at: Math.max(app.head.first, Math.min(Number(value), app.head.head)) });
  const day = (app.state?.at ?? app.head.now).slice(0, 10);
  const time = /^\d{1,2}:\d{2}/.test(value) ? `${day}T${value.length < 6 ? `${value}:00` : value}Z` : value.replace(" ", "T");
  const parsed = Date.parse(/Z$/.test(time) ? time : `${time}Z`);
  if (Number.isNaN(parsed)) { parts.number.value = String(app.view.at ?? app.head.head); return; }
  const answer = await ask("step", { by: "time", time: new Date(parsed).toISOString() });
  app.go({ at: answer.sequence });
}

// Goes to the last event up to a time, as a click on a chart asks for.
export async function toTime(app, millis) {
  const answer = await ask("step", { by: "time", time: new Date(millis).toISOString() });
  app.go({ at: answer.sequence });
}

// A log at whose end nothing runs is shown where at least half as much ran as ever did, the last time.
export async function toBusy(app) {
  const { series } = await ask("timeline", { metric: "utilization" }, "busy");
  const { points = [] } = series.find((it) => it.name === "total running") ?? {};
  const most = Math.max(0, ...points.map(([, value]) => value));
  if (!most || points.at(-1)[1] > 0) return;
  const last = points.findLastIndex(([, value]) => value >= most / 2);
  const answer = await ask("step", { by: "time", time: points[last][0] });
  app.go({ at: answer.sequence }, true);
}

function play(app) {
  const pace = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 120;
  parts.play.textContent = "Pause";
  parts.play.setAttribute("aria-label", "Pause");
  let at = Number(parts.slider.value);
  if (at >= line.sequences.length - 1) at = 0;
  playing = setInterval(() => {
    at += 2;
    if (at >= line.sequences.length - 1) { stop(); return app.go({ at: null }, true); }
    app.go({ at: line.sequences[at] }, true);
  }, pace);
}

function stop() {
  clearInterval(playing);
  playing = null;
  parts.play.textContent = "Play";
  parts.play.setAttribute("aria-label", "Play forward");
}
