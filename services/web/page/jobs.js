// The jobs: searched, sorted and cut on the server, sixty at a time.

import { link } from "./app.js";
import { bar, count, dot, duration, h, hue, percent, show as put, tenantOf } from "./dom.js";

const ROWS = 60;
const PHASES = ["", "live", "running", "waiting", "queued", "placed,starting,checkpointing,stopping", "completed", "failed", "cancelled"];
const NAMES = { "": "every phase", live: "not over", "placed,starting,checkpointing,stopping": "in transit" };
const COLUMNS = [
  ["job", "Job"], ["phase", "Phase"], ["containers", "Containers"], ["share", "Share and fair share"], ["lacks", "Lacks"],
  ["waiting", "Waited", "wide"], ["age", "Age", "wide"], ["resizes", "Resized", "wide"], [null, "Reason", "reason"],
];
const parts = {};
let page = null;

export function build(app) {
  let typing = null;
  parts.search = h("input", {
    type: "search", id: "search", placeholder: "Search jobs  ( / )", "aria-label": "Search jobs",
    oninput: () => { clearTimeout(typing); typing = setTimeout(() => app.go({ q: parts.search.value || null, page: null }, true), 120); },
  });
  parts.phase = h("select", { "aria-label": "Phase", id: "phase", onchange: () => app.go({ phase: parts.phase.value || null, page: null }) },
    PHASES.map((it) => h("option", { value: it }, NAMES[it] ?? it)));
  parts.tenant = h("span", {});
  parts.table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of jobs" });
  parts.pager = h("p", { class: "pager" });
  document.getElementById("jobs").append(
    h("div", { class: "head" }, h("h2", { id: "jobs-title" }, "Jobs"), parts.search, parts.phase, parts.tenant),
    parts.table, parts.pager);
}

export async function load(app) {
  const { q, tenant, phase, sort, page: number } = app.view;
  const [by, descending] = (sort ?? "admitted,d").split(",");
  page = await app.ask("jobs", {
    search: q, tenant, phase: phase ?? "", sort: by, descending: descending === "d", offset: (number ?? 0) * ROWS, limit: ROWS,
  });
}

export function show(app) {
  if (!page) return;
  if (document.activeElement !== parts.search) parts.search.value = app.view.q ?? "";
  parts.phase.value = app.view.phase ?? "";
  put(parts.tenant, app.view.tenant ? h("a", { class: "button", href: link({ tenant: null, page: null }), "data-key": "no-tenant" }, dot(app.view.tenant), `${app.view.tenant} ×`) : null);
  const [by, way] = (app.view.sort ?? "admitted,d").split(",");
  const heads = COLUMNS.map(([key, text, kind]) => {
    const sorted = key && key === by;
    const next = sorted && way === "d" ? `${key},a` : `${key},d`;
    return h("th", { scope: "col", class: kind ?? "", "aria-sort": sorted ? (way === "d" ? "descending" : "ascending") : undefined },
      key ? h("a", { href: link({ sort: next, page: null }), "data-key": `sort-${key}` }, text, sorted ? (way === "d" ? " ↓" : " ↑") : "") : text);
  });
  const scale = Math.max(0.001, ...page.jobs.map((it) => Math.max(it.share, it.fair_share)));
  put(parts.table, h("table", { "aria-rowcount": page.total + 1, class: "jobs" },
    h("thead", {}, h("tr", {}, heads)),
    h("tbody", {}, page.jobs.map((it, index) => row(app, it, page.offset + index, scale)))));
  const last = page.offset + page.jobs.length;
  const step = (by_, text, off) => h("a", { class: "button", href: off ? undefined : link({ page: (app.view.page ?? 0) + by_ || null }), "aria-disabled": off ? "true" : undefined, "data-key": `page${by_}`, role: off ? "link" : undefined }, text);
  put(parts.pager,
    step(-1, "Before", page.offset === 0), h("span", {}, page.total ? ` ${count(page.offset + 1)}–${count(last)} of ${count(page.total)} jobs ` : " no job matches "),
    step(1, "Next", last >= page.total),
    page.forgotten ? h("span", { class: "muted" }, ` ${count(page.forgotten)} that ended long ago are on the log only`) : null);
}

function row(app, it, index, scale) {
  const { now, target, min, max } = it.containers;
  const over = it.ended_at !== null;
  const change = now === target || over ? "" : ` → ${target}`;
  const lacks = it.fair_share - it.share;
  const chosen = app.view.job === it.job;
  return h("tr", { "aria-rowindex": index + 2, "aria-selected": chosen ? "true" : undefined, class: over ? "over" : "" },
    h("th", { scope: "row" }, dot(tenantOf(it.job)), h("a", { href: link({ job: chosen ? null : it.job, node: null, about: null, epoch: null, from: null }), "data-key": `job-${it.job}` }, it.job)),
    h("td", {}, h("span", { class: `phase ${it.phase}` }, it.phase)),
    h("td", { class: "number" }, `${now}${change}`, h("span", { class: "muted small" }, ` of ${min}–${max}`)),
    h("td", {}, over ? "" : bar(it.share / scale, it.fair_share / scale, `share ${percent(it.share, 1)}, fair share ${percent(it.fair_share, 1)}`, `c${hue(tenantOf(it.job))}`)),
    h("td", { class: "number" }, over || Math.abs(lacks) < 5e-5 ? "" : percent(lacks, 1)),
    h("td", { class: "number wide" }, duration(it.waiting_s)),
    h("td", { class: "number wide" }, duration(it.age_s)),
    h("td", { class: "number wide" }, it.resizes ? count(it.resizes) : ""),
    h("td", { class: "reason" }, it.reason));
}
