// Timelines, with the moment that is looked at across all of them.

import { ask } from "./api.js";
import { link } from "./app.js";
import { clock, colour, figure, h, ms, percent, show as put } from "./dom.js";
import * as time from "./time.js";

const METRICS = [
  ["utilization", "Utilization, running", (it) => it.endsWith(" running") && it !== "total running", (it) => it.replace(" running", "")],
  ["fairness-loss", "Fairness loss and its bound"],
  ["dominant-share", "Dominant share by tenant"],
  ["waiting", "Mean time in the queue by tenant"],
  ["jobs", "Jobs by phase"],
  ["adjustments", "Adjusted jobs", (it) => it === "by decision"],
  ["gpu-use", "Parts of GPUs, used by job"],
  ["latency", "Latency at the objective's percentile, ms"],
  ["attainment", "Requests within the objective"],
  ["request-rate", "Requests a second to services"],
  ["replicas", "Replicas of services"],
];
// Of the selected service, else of the busiest ones.
const OF_SERVICES = new Set(["latency", "attainment", "request-rate", "replicas"]);
// What others are compared with.
const DASHED = new Set(["bound", "objective", "target"]);
const MOST = 8;
export const UNCHANGED = "the model, unchanged";
const drawn = new Map();
let asked = 0;
// The window, and the details beside the page, change how wide the lines are.
const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    for (const it of drawn.values()) if (it.box === target && it.plot.width !== size(target).width) it.plot.setSize(size(target));
  }
});
let moment = null;

export function build() {
  put(document.getElementById("charts"),
    h("h2", { id: "charts-title" }, "Timelines ", h("span", { class: "muted" }, "click: that moment"), h("a", { class: "button quiet", id: "whatif", href: "#what=?" }, "What if …")),
    h("div", { class: "grid" }, METRICS.map(([metric, title]) => h("figure", { id: `chart-${metric}` }, h("figcaption", {}, title), h("div", { class: "plot" }), h("details", {}, h("summary", {}, "Figures"), h("div", { class: "values" }))))));
}

const size = (box) => ({ width: Math.max(120, box.clientWidth - (box.id === "strip" ? 16 : 0)), height: box.id === "strip" ? 44 : 150 });

export async function load(app, metrics = METRICS.map(([metric]) => metric)) {
  asked = Date.now();
  for (const metric of metrics) {
    try {
      await one(app, metric);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }
}

async function one(app, metric) {
  const about = (job) => ask("timeline", { metric, points: 800, job, ...time.window_(app) }, `timeline-${metric}`);
  const { job } = app.view;
  if (job && OF_SERVICES.has(metric)) {
    const own = await about(job).catch((error) => {
      if (error.name === "AbortError") throw error;
      return { series: [] };
    });
    if (own.series.length) return paint(app, metric, own, job);
  }
  return paint(app, metric, await about());
}

export function grown(app) {
  if (Date.now() - asked > 5000) load(app).catch(() => {});
}

let range = null;
let selected = "";
export function show(app) {
  moment = ms(app.state.at) / 1000;
  if (range !== null && range !== (app.view.range ?? "")) load(app).catch(() => {});
  else if (range !== null && selected !== (app.view.job ?? "")) load(app, [...OF_SERVICES]).catch(() => {});
  range = app.view.range ?? "";
  selected = app.view.job ?? "";
  for (const it of drawn.values()) it.plot.redraw(false);
  document.getElementById("whatif").href = link({ job: null, node: null, about: null, epoch: null, from: null, what: "?", fork: null });
}

export function repaint(app) {
  for (const it of [...drawn.values()]) it.again();
}

// One axis for all series: a value holds until the next one.
function joined(series, to) {
  const xs = [...new Set(series.flatMap((it) => it.points.map((point) => ms(point[0]) / 1000)).concat(to))].sort((a, b) => a - b);
  const columns = series.map((it) => {
    let next = 0;
    let held = null;
    return xs.map((x) => {
      while (next < it.points.length && ms(it.points[next][0]) / 1000 <= x) { held = it.points[next][1]; next += 1; }
      return held;
    });
  });
  return [xs, ...columns];
}

function paint(app, metric, line, job) {
  const [, title, wanted, rename] = METRICS.find(([it]) => it === metric);
  const series = line.series.filter((it) => !wanted || wanted(it.name)).slice(0, MOST)
    .map((it) => ({ ...it, label: rename ? rename(it.name) : it.name }));
  const figureBox = document.getElementById(`chart-${metric}`);
  // Where nobody has parts of GPUs, or there is no service, there is nothing to show of them.
  figureBox.hidden = (metric === "gpu-use" || OF_SERVICES.has(metric)) && !series.length;
  figureBox.querySelector("figcaption").textContent = job ? `${title}: ${job}` : title;
  draw(app, metric, metric, line, series, figureBox.querySelector(".plot"));
  put(figureBox.querySelector(".values"), h("table", {},
    h("thead", {}, h("tr", {}, ["", "mean", "least", "greatest", "last"].map((it) => h("th", { scope: "col" }, it || h("span", { class: "hidden" }, "series"))))),
    h("tbody", {}, series.map((it) => h("tr", {}, h("th", { scope: "row" }, it.label), ["mean", "min", "max", "last"].map((key) => h("td", { class: "number" }, value(line.unit, it.summary[key]))))))));
  if (metric === "utilization") draw(app, "strip", metric, line, series.slice(0, 3), document.getElementById("strip"));
}

const value = (unit, it) => (unit === "fraction" ? percent(it, 1) : unit === "milliseconds" ? `${figure(it)} ms` : figure(it));

// A value on an axis whose values are so far apart: as many digits as tell two of them apart.
function label(unit, it, apart) {
  const times = unit === "fraction" ? 100 : 1;
  let digits = 0;
  while (digits < 6 && Math.abs(times * apart * 10 ** digits - Math.round(times * apart * 10 ** digits)) > 1e-6) digits += 1;
  return `${(times * it).toFixed(digits)}${unit === "fraction" ? " %" : ""}`;
}

// A time on an axis: hours and minutes in UTC, the day at midnight.
function tick(at, apart) {
  const text = new Date(at * 1000).toISOString();
  if (apart >= 86400 || text.slice(11, 16) === "00:00") return text.slice(5, 10);
  return apart < 60 ? text.slice(11, 19) : text.slice(11, 16);
}

function tone(metric, label, index) {
  if (metric === "dominant-share" || metric === "waiting") return colour(label);
  return getComputedStyle(document.documentElement).getPropertyValue(`--s${index % 6}`).trim();
}

export function draw(app, key, metric, line, series, box) {
  drawn.get(key)?.plot.destroy();
  drawn.delete(key);
  if (!series.length || !window.uPlot) { put(box, h("p", { class: "muted small" }, "nothing yet")); return; }
  box.replaceChildren();
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const strip = key === "strip";
  const axis = { stroke: of("--muted"), grid: { stroke: of("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui", size: 42 };
  const options = {
    ...size(box), padding: strip ? [2, 0, 0, 0] : [8, 8, 0, 0],
    cursor: { show: !strip, y: false, points: { show: false }, drag: { x: false, y: false } },
    legend: { show: !strip, live: true }, ms: 1e-3,
    tzDate: (it) => window.uPlot.tzDate(new Date(it * 1e3), "Etc/UTC"),
    scales: { x: { range: () => [ms(line.from) / 1000, Math.max(ms(line.to) / 1000, ms(line.from) / 1000 + 1)] }, y: { range: (_, least, most) => [Math.min(0, least), strip ? 1 : (most || 1) * 1.08] } },
    axes: strip ? [{ show: false }, { show: false }] : [{ ...axis, size: 22, space: 64, values: (_, splits, __, ___, apart) => splits.map((it) => tick(it, apart)) }, { ...axis, values: (_, all, __, ___, apart) => all.map((it) => label(line.unit, it, apart)) }],
    series: [{ label: "time (UTC)", value: (_, it) => (it ? clock(new Date(it * 1000).toISOString()).slice(0, 19) : "–") }, ...series.map((it, index) => ({
      label: it.label, stroke: tone(metric, it.label, index), width: 1.5, points: { show: false }, paths: window.uPlot.paths.stepped({ align: 1 }),
      dash: DASHED.has(it.name) || it.name === UNCHANGED ? [4, 3] : undefined, fill: strip && index === 0 ? `${tone(metric, it.label, index)}33` : undefined,
      value: (_, y) => (y === null || y === undefined ? "–" : value(line.unit, y)),
    }))],
    hooks: { draw: [(plot) => mark(plot, of("--accent"))] },
  };
  const plot = new window.uPlot(options, joined(series, ms(line.to) / 1000), box);
  if (!strip) plot.over.addEventListener("click", (event) => { time.toTime(app, 1000 * plot.posToVal(event.offsetX, "x")); });
  drawn.set(key, { plot, box, again: () => draw(app, key, metric, line, series, box) });
  resized.observe(box);
}

function mark(plot, stroke) {
  if (moment === null) return;
  const x = Math.round(plot.valToPos(moment, "x", true));
  const { ctx, bbox } = plot;
  if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) return;
  ctx.save();
  ctx.strokeStyle = stroke;
  ctx.setLineDash([]);
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}
