// What would have become of the cluster under changes, beside what did: the services go on on a fork
// of the log.

import { ask } from "./api.js";
import { link } from "./app.js";
import { UNCHANGED, draw } from "./charts.js";
import { clock, count, dot, duration, figure, h, percent, show as put, tenantOf } from "./dom.js";

const EXAMPLES = ["policy.theta2=0.5", "tenant.NAME.weight=2", "job.TENANT/NAME.containers.max=8", "add-node=n9:cpu=16,memory=64Gi", "drop-node=NAME", "drain=NAME", "drop-job=TENANT/NAME"];
const JOBS = 12;

// The panel keeps what is typed while the time line moves: it is made once for each question.
let made = null;

export function show(app, panel, head) {
  const { what, fork } = app.view;
  const key = `${what}|${fork ?? ""}`;
  if (made?.key === key && panel.contains(made.answer)) return;
  const answer = h("div", { class: "why", role: "status" });
  made = { key, answer };
  put(panel, head, form(app), answer);
  if (what !== "?" && fork !== undefined) work(app, answer, what, fork);
}

function form(app) {
  const { what, fork } = app.view;
  const field = h("input", { type: "text", id: "changes", name: "changes", value: what === "?" ? "" : what, placeholder: EXAMPLES[0], autocomplete: "off", spellcheck: "false", list: "change-examples" });
  const submit = (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text) return field.focus();
    made = null;
    app.go({ what: text, fork: app.state.sequence });
  };
  return h("form", { class: "whatif", onsubmit: submit },
    h("p", {}, fork === undefined ? "From the moment of the time line on, the services go on under these changes." : ["Forked after ", h("a", { href: link({ at: fork }), "data-key": "fork" }, `event ${fork}`), "."]),
    h("label", { for: "changes" }, "Changes, with spaces between"), field,
    h("datalist", { id: "change-examples" }, EXAMPLES.map((text) => h("option", { value: text }))),
    h("button", { type: "submit", "data-key": "whatif" }, fork === undefined ? "Fork here" : "Fork at the moment of the time line"),
    h("p", { class: "muted small" }, "For example ", EXAMPLES.slice(0, 5).map((text) => [h("span", { class: "code" }, text), " "]), "as ", h("span", { class: "code" }, "dormouse whatif"), " has them."));
}

async function work(app, box, changes, fork) {
  put(box, h("p", { class: "muted" }, "The services go on on a fork of the log; a long log takes a while …"));
  try {
    const answer = await ask("whatif", { at: fork, to: app.head.head, changes }, "whatif");
    if (made?.answer !== box) return;
    put(box, ...parts(answer));
    for (const line of answer.lines) draw(app, `whatif-${line.metric}`, "whatif", line, line.series.map((it) => ({ ...it, label: it.name })), box.querySelector(`[data-line="${line.metric}"]`));
  } catch (error) {
    if (error.name === "AbortError" || made?.answer !== box) return;
    put(box, h("p", { class: "bad" }, error.message));
  }
}

function parts(it) {
  const error = it.identity;
  return [
    h("p", { class: "muted small" }, `Without changes ${count(error.decisions_equal)} of ${count(error.decisions)} allocations come out again, and completion times are off by ${percent(error.jct_p50, 1)} at the median: the line “${UNCHANGED}”.`),
    it.lines.map((line) => h("figure", {}, h("figcaption", {}, line.title), h("div", { class: "plot", "data-line": line.metric }))),
    it.variants.map(variant),
  ];
}

function variant(it) {
  const first = it.first_difference;
  const jobs = it.by_job.map((row) => ({ job: row.job, jct: row.metrics.find((metric) => metric.metric === "jct_s") }))
    .filter((row) => row.jct && Math.abs(row.jct.difference) >= 0.05).sort((a, b) => Math.abs(b.jct.difference) - Math.abs(a.jct.difference));
  return [
    h("h3", {}, h("span", { class: "code" }, it.changes.join(" "))),
    h("p", {}, first ? ["The first other allocation is at ", h("a", { href: link({ at: first.sequence }) }, `event ${first.sequence}`), `, ${clock(first.at)}.`] : "Every allocation is the same."),
    table("Figures of the cluster", ["Figure", "unchanged", "changed", "difference", "80 %"], it.cluster.map((row) => cells(row.metric.replace(/_(s|h)$/, "").replaceAll("_", " "), row))),
    jobs.length ? table("Completion times", ["Job", "unchanged", "changed", "difference", "80 %"], jobs.slice(0, JOBS).map((row) => cells([dot(tenantOf(row.job)), h("a", { href: link({ job: row.job }) }, row.job)], row.jct))) : null,
    jobs.length > JOBS ? h("p", { class: "muted small" }, `${count(jobs.length - JOBS)} more jobs change`) : null,
    it.excluded_jobs.length ? h("p", { class: "muted small" }, `${count(it.excluded_jobs.length)} jobs are not compared: ${[...new Set(it.excluded_jobs.map((row) => row.why.replaceAll("_", " ")))].join(", ")}`) : null,
  ];
}

function cells(name, row) {
  const value = (it) => (row.metric.endsWith("_s") ? `${it < 0 ? "−" : ""}${duration(Math.abs(it))}` : figure(it));
  const signed = `${row.difference > 0 ? "+" : ""}${value(row.difference)}`;
  const range = row.interval ?? row.interval_jobs;
  return h("tr", {}, h("th", { scope: "row" }, name), [value(row.identity), value(row.changed), signed, range ? `${value(range[0])} … ${value(range[1])}` : "–"].map((text) => h("td", { class: "number" }, text)));
}

function table(name, heads, rows) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows)));
}
