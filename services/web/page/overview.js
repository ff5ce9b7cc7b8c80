// The cluster in figures, the decision in force, and the tenants.

import { link } from "./app.js";
import { amount, bar, clock, count, dot, duration, figure, h, hue, percent, show as put } from "./dom.js";

export function show(app) {
  const { cluster, tenants } = app.state;
  put(document.getElementById("figures"),
    resources(cluster), loss(cluster), adjusted(cluster), jobs(cluster), decision(cluster));
  put(document.getElementById("tenants"),
    h("h2", { id: "tenants-title" }, "Tenants ", h("span", { class: "muted" }, `queue ${tenants.queue}`)),
    table(app, tenants.tenants));
}

const card = (title, ...content) => h("div", { class: "card" }, h("h2", {}, title), content);

function resources(cluster) {
  const rows = Object.entries(cluster.resources).map(([name, use]) => {
    const part = use.allocated / (use.capacity || 1);
    const running = use.running / (use.capacity || 1);
    return h("div", { class: "meter" }, h("span", {}, name),
      bar(running, part, `${name}: ${percent(running)} running, ${percent(part)} allocated`),
      h("span", { class: "number" }, percent(running)),
      h("span", { class: "muted small" }, `${amount(name, use.running)} of ${amount(name, use.capacity)}`));
  });
  return card("Utilization", rows.length ? rows : h("p", { class: "muted" }, "no nodes"));
}

function loss(cluster) {
  const last = cluster.allocation;
  if (!last) return card("Fairness loss", h("p", { class: "muted" }, "nothing is decided yet"));
  const bound = last.fairness_loss_bound;
  const scale = Math.max(bound, last.fairness_loss, 1e-9) * 1.15;
  return card("Fairness loss",
    h("p", { class: "big" }, figure(last.fairness_loss), h("span", { class: "muted small" }, ` bound ${figure(bound)}`)),
    bar(last.fairness_loss / scale, bound / scale, `fairness loss ${figure(last.fairness_loss)} of at most ${figure(bound)}`,
      last.fairness_loss > bound + 1e-9 ? "over" : ""),
    h("p", { class: "muted small" }, `with waiting jobs ${figure(last.fairness_loss_all)}`));
}

function adjusted(cluster) {
  const last = cluster.allocation;
  const made = last && !last.kept ? last.adjusted_jobs : 0;
  const bound = last?.adjustment_bound ?? 0;
  const scale = Math.max(bound, made, 1) * 1.15;
  return card("Adjusted",
    h("p", { class: "big" }, count(made), h("span", { class: "muted small" }, ` bound ${count(bound)}`)),
    bar(made / scale, bound / scale, `${made} jobs adjusted of at most ${bound}`),
    h("p", { class: "muted small" }, `${count(cluster.adjusted)} since the beginning, ${count(cluster.forced)} forced`));
}

function jobs(cluster) {
  const of = (...phases) => phases.reduce((sum, it) => sum + (cluster.jobs[it] ?? 0), 0);
  const parts = [["running", of("running"), "running"], ["in transit", of("placed", "starting", "checkpointing", "stopping"), "placed,starting,checkpointing,stopping"],
    ["waiting", of("waiting"), "waiting"], ["queued", of("queued"), "queued"], ["completed", of("completed"), "completed"],
    ["failed", of("failed"), "failed"], ["cancelled", of("cancelled"), "cancelled"]];
  return card("Jobs", h("ul", { class: "plain counts" }, parts.filter(([, n], i) => n > 0 || i < 4).map(([name, number, phase]) =>
    h("li", {}, h("a", { href: link({ phase, page: null }), "data-key": `phase-${phase}` }, h("b", {}, count(number)), ` ${name}`)))));
}

function decision(cluster) {
  const last = cluster.allocation;
  if (!last) return card("Decision", h("p", { class: "muted" }, "none yet"));
  const { solver } = last;
  return card("Decision in force",
    h("p", { class: "big" }, h("a", { href: link({ epoch: cluster.epoch, job: null, node: null, about: null, from: null }), "data-key": "epoch" }, `epoch ${cluster.epoch}`),
      h("span", { class: "muted small" }, last.kept ? " kept" : "")),
    h("p", { class: "muted small" }, `event ${last.sequence}, ${clock(last.at, false)}`),
    h("p", { class: "muted small" }, `${cluster.policy.allocation}, θ1 ${cluster.policy.theta1}, θ2 ${cluster.policy.theta2}`),
    h("p", { class: "muted small" }, `${solver.name} ${solver.status}${solver.gap ? `, gap ${percent(solver.gap, 2)}` : ""}`),
    last.kept ? h("p", { class: "muted small" }, last.kept) : null);
}

function table(app, rows) {
  if (!rows.length) return h("p", { class: "muted" }, "no tenants yet");
  const scale = Math.max(0.01, ...rows.map((it) => Math.max(it.share, it.entitled)));
  const body = rows.slice(0, 60).map((it) => h("tr", { "aria-selected": app.view.tenant === it.tenant ? "true" : undefined },
    h("th", { scope: "row" }, dot(it.tenant), h("a", { href: link({ about: it.tenant, job: null, node: null, epoch: null, from: null }), "data-key": `tenant-${it.tenant}` }, it.tenant)),
    h("td", {}, bar(it.share / scale, it.entitled / scale, `share ${percent(it.share, 1)}, entitled ${percent(it.entitled, 1)}`, `c${hue(it.tenant)}`)),
    h("td", { class: "number" }, percent(it.share, 1)),
    h("td", { class: "number wide" }, percent(it.entitled, 1)),
    h("td", { class: "number" }, count(it.released_jobs)),
    h("td", { class: "number" }, count(it.queued_jobs)),
    h("td", { class: "number wide" }, duration(it.mean_start_wait_s)),
    h("td", { class: "number wide" }, figure(it.fairness_loss)),
    h("td", {}, h("a", { href: link({ tenant: app.view.tenant === it.tenant ? null : it.tenant, page: null }), "data-key": `filter-${it.tenant}`, class: "small", "aria-label": `${app.view.tenant === it.tenant ? "All jobs" : `Jobs of ${it.tenant}`}` }, app.view.tenant === it.tenant ? "all" : "jobs"))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of tenants" }, h("table", {},
    h("thead", {}, h("tr", {}, [["Tenant"], ["Share and what it is entitled to"], ["Share"], ["Entitled", "wide"], ["Released"], ["Queued"], ["Mean wait", "wide"], ["Loss", "wide"], ["Filter"]]
      .map(([text, kind]) => h("th", { scope: "col", class: kind ?? "" }, text)))),
    h("tbody", {}, body)), rows.length > 60 ? h("p", { class: "muted small" }, `${rows.length - 60} more tenants are not shown`) : null);
}
