// The nodes with what stands on them: a canvas of small boxes, and the same as a table.

import { link } from "./app.js";
import { amount, colour, count, h, percent, resource, show as put, tenantOf } from "./dom.js";

const HINT = "A box is a node, its height what is taken of the scarcest resource; each piece a job, each colour a tenant.";
let table = null;
let boxes = [];
let over = null;
let canvas = null;

export function show(app) {
  const { map, cluster } = app.state;
  const box = document.getElementById("nodes");
  const { up, drained, quarantined, lost } = cluster.nodes;
  const states = [[up, "up"], [drained, "drained"], [quarantined, "quarantined"], [lost, "lost"]].filter(([n], i) => n || !i);
  canvas ??= h("canvas", {
    role: "img", id: "map", onmousemove: (event) => hover(app, event), onmouseleave: () => tell(""),
    onclick: (event) => pick(app, event),
  });
  canvas.setAttribute("aria-label", `${map.nodes.length} nodes: ${states.map(([n, text]) => `${n} ${text}`).join(", ")}; ${count(cluster.containers)} containers. The table has the same.`);
  const hint = h("p", { id: "hint", class: "muted small" }, HINT);
  put(box,
    h("h2", { id: "nodes-title" }, "Nodes ", h("span", { class: "muted" }, states.map(([n, text]) => `${count(n)} ${text}`).join(", "), ` · ${count(cluster.containers)} containers`),
      h("button", { type: "button", class: "quiet", "data-key": "nodes-table", "aria-pressed": String(Boolean(table)), onclick: () => toggle(app) }, table ? "Map" : "Table")),
    table ? listing(app) : [canvas, hint]);
  if (!table) paint(app, map);
}

async function toggle(app) {
  table = table ? null : { offset: 0, page: null, at: null };
  if (table) await load(app);
  show(app);
}

async function load(app) {
  table.page = await app.ask("nodes", { offset: table.offset });
  table.at = app.state.sequence;
}

function listing(app) {
  if (table.at !== app.state.sequence) load(app).then(() => show(app), () => {});
  const page = table.page;
  if (!page) return h("p", { class: "muted" }, "…");
  const rows = page.nodes.map((it) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: link({ node: it.node, job: null, about: null, epoch: null, from: null }), "data-key": `node-${it.node}` }, it.node)),
    h("td", {}, it.state),
    h("td", { class: "number" }, count(it.running)),
    Object.entries(it.capacity).slice(0, 2).map(([name, of]) => h("td", { class: "number" }, `${amount(name, it.used[name] ?? 0)} of ${amount(name, of)}`)),
    h("td", { class: "wide reason" }, it.reason)));
  const step = (by, text) => h("button", { type: "button", "data-key": `nodes${by}`, disabled: by < 0 ? page.offset === 0 : page.offset + page.nodes.length >= page.total,
    onclick: async () => { table.offset = Math.max(0, table.offset + by); await load(app); show(app); } }, text);
  return [h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Nodes as a table" }, h("table", { "aria-rowcount": page.total + 1 },
    h("thead", {}, h("tr", {}, ["Node", "State", "Running", ...Object.keys(page.nodes[0]?.capacity ?? {}).slice(0, 2).map(resource)].map((it) => h("th", { scope: "col" }, it)), h("th", { scope: "col", class: "wide" }, "Reason"))),
    h("tbody", {}, rows))),
    h("p", { class: "pager" }, step(-60, "Before"), ` ${count(page.offset + 1)}–${count(page.offset + page.nodes.length)} of ${count(page.total)} `, step(60, "Next"))];
}

function paint(app, map) {
  const width = canvas.clientWidth;
  const n = Math.max(1, map.nodes.length);
  const size = n <= 24 ? 84 : n <= 120 ? 56 : n <= 400 ? 34 : 24;
  const gap = size > 40 ? 8 : 4;
  const label = size >= 56 ? 16 : 0;
  const columns = Math.max(1, Math.floor((width + gap) / (size + gap)));
  const height = Math.ceil(n / columns) * (size + gap + label);
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = `${height}px`;
  const draw = canvas.getContext("2d");
  draw.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const tone = (name) => style.getPropertyValue(name).trim();
  draw.font = "11px ui-monospace, monospace";
  const tones = new Map();
  const of = (job) => {
    const tenant = tenantOf(job);
    if (!tones.has(tenant)) tones.set(tenant, colour(tenant));
    return tones.get(tenant);
  };
  boxes = map.nodes.map(([name, state, used, here], index) => {
    const x = (index % columns) * (size + gap);
    const y = Math.floor(index / columns) * (size + gap + label);
    const box = { name, state, used, x, y, size, label, jobs: [] };
    draw.fillStyle = tone("--well");
    draw.fillRect(x, y, size, size);
    let base = y + size;
    // Jobs may be scarce of different resources: together they are as high as what is taken.
    const sum = here.reduce((all, [, , part]) => all + part, 0);
    const fit = sum > 0 ? used / sum : 0;
    for (const [job, number, part] of here) {
      const id = map.jobs[job];
      const high = part * fit * size;
      draw.fillStyle = of(id);
      const chosen = app.view.job === id;
      draw.globalAlpha = app.view.job && !chosen ? 0.25 : [1, 0.8, 0.62][job % 3];
      draw.fillRect(x, base - high, size, Math.max(0.5, high - 1));
      draw.globalAlpha = 1;
      if (chosen) { draw.strokeStyle = tone("--text"); draw.lineWidth = 2; draw.strokeRect(x + 1, base - high + 1, size - 2, Math.max(2, high - 3)); }
      box.jobs.push({ id, number, top: base - high, bottom: base });
      base -= high;
    }
    if (state !== "up") {
      draw.strokeStyle = tone(state === "lost" ? "--bad" : "--warn");
      draw.lineWidth = 2;
      draw.strokeRect(x + 1, y + 1, size - 2, size - 2);
      draw.beginPath();
      draw.moveTo(x + 3, y + 3);
      draw.lineTo(x + size - 3, y + size - 3);
      if (state === "lost") { draw.moveTo(x + size - 3, y + 3); draw.lineTo(x + 3, y + size - 3); }
      draw.stroke();
    }
    if (app.view.node === name) { draw.strokeStyle = tone("--accent"); draw.lineWidth = 2; draw.strokeRect(x - 1, y - 1, size + 2, size + 2); }
    if (label) { draw.fillStyle = tone("--muted"); draw.fillText(name.slice(0, Math.floor(size / 6.6)), x, y + size + 12); }
    return box;
  });
}

function under(event) {
  const rect = event.target.getBoundingClientRect();
  const x = event.clientX - rect.left;
  const y = event.clientY - rect.top;
  const box = boxes.find((it) => x >= it.x && x < it.x + it.size && y >= it.y && y < it.y + it.size + it.label);
  const job = box?.jobs.find((it) => y >= it.top && y < it.bottom);
  return { box, job };
}

function tell(text) {
  const hint = document.getElementById("hint");
  if (hint && over !== text) hint.textContent = text || HINT;
  over = text;
}

function hover(app, event) {
  const { box, job } = under(event);
  event.target.style.cursor = box ? "pointer" : "";
  const here = job ? `, ${job.number} of ${job.id}` : "";
  tell(box ? `${box.name}: ${box.state}, ${percent(box.used)} taken${here}` : "");
}

function pick(app, event) {
  const { box, job } = under(event);
  if (job) app.go({ job: job.id, node: null, about: null, epoch: null, from: null });
  else if (box) app.go({ node: box.name, job: null, about: null, epoch: null, from: null });
}


