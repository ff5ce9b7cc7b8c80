// What was clicked: a job's incarnations, a node, a tenant, a decision, or what differs between two
// moments; and why, on request.

import { link } from "./app.js";
import * as whatif from "./whatif.js";
import { amount, bar, clock, count, dot, duration, figure, h, hue, ms, percent, resource, show as put, svg, tenantOf } from "./dom.js";

const NOTHING = { job: null, node: null, about: null, epoch: null, from: null, what: null, fork: null };
const panel = () => document.getElementById("details");
let why = null;
let refill = () => {};

export async function show(app) {
  const { job, node, about, epoch, what, from } = app.view;
  const at = app.state.sequence;
  const shown = job ?? node ?? about ?? epoch ?? what ?? from;
  panel().hidden = shown === undefined;
  document.body.classList.toggle("with-details", shown !== undefined);
  if (shown === undefined) { why = null; return; }
  const key = `${job ?? ""}|${node ?? ""}|${about ?? ""}|${epoch ?? ""}|${at}`;
  if (why?.key !== key) why = null;
  try {
    if (job) put(panel(), ...jobDetails(app, await app.ask("job", { id: job }), key));
    else if (node) put(panel(), ...nodeDetails(app, await app.ask("node", { id: node }), key));
    else if (about) put(panel(), ...tenantDetails(app, await app.ask("tenant", { id: about }), key));
    else if (epoch) put(panel(), ...epochDetails(app, epoch, key));
    else if (what) whatif.show(app, panel(), title("What if"));
    else put(panel(), ...difference(app, await app.ask("difference", { from })));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    put(panel(), title(job ?? node ?? about ?? "Details"), h("p", {}, error.message));
  }
}

function title(...text) {
  return h("div", { class: "head" }, h("h2", {}, ...text), h("a", { class: "button close", href: link(NOTHING), "data-key": "close", "aria-label": "Close the details" }, "×"));
}

const facts = (pairs) => h("dl", {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
  .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

const moment = (sequence, text) => h("a", { href: link({ at: sequence }), "data-key": `at-${sequence}` }, text ?? `event ${sequence}`);

function explained(app, kind, id, key) {
  const box = h("div", { class: "why" });
  const fill = () => {
    if (!why) {
      put(box, h("button", { type: "button", "data-key": "why", onclick: load }, "Explain"),
        h("span", { class: "muted small" }, " decided again on a fork of the log; takes a moment"));
    } else if (why.answer) put(box, ...explanation(why.answer), why.whole ? null : h("p", { class: "muted" }, "Changes are tried …"));
    else put(box, h("p", { class: why.error ? "bad" : "muted" }, why.error ?? "The services decide again …"));
  };
  const load = async () => {
    why = { key };
    fill();
    try {
      const told = (answer) => {
        if (why?.key === key) why.answer = answer;
        refill();
      };
      const answer = await app.ask("explaining", { kind, id }, "explain", told);
      if (why?.key === key) why = { key, answer, whole: true };
    } catch (error) {
      if (error.name === "AbortError") return;
      if (why?.key === key) why.error = error.message;
    }
    refill();
  };
  // The panel may be drawn again while the answer comes.
  refill = fill;
  fill();
  return box;
}

function explanation(it) {
  // The changes have a table of their own.
  const words = it.words.filter((text) => !it.corrections?.length || !text.startsWith("with --"));
  const parts = [h("h3", {}, "Why ", it.dominant ? h("span", { class: "code" }, it.dominant.code) : null), words.map((text) => h("p", {}, text))];
  if (it.conflict?.length) parts.push(h("p", { class: "muted" }, `cannot all hold if it has more: ${it.conflict.join(", ")}`));
  if (it.corrections?.length) {
    parts.push(h("h3", {}, "What would have changed it"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Changes" }, h("table", {},
      h("thead", {}, h("tr", {}, ["Change", "Instead of", "Becomes", "Proof"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, it.corrections.map((row) => h("tr", {}, h("td", { class: "change" }, row.change), h("td", {}, row.from), h("td", { class: "number" }, row.becomes), h("td", {}, row.verified_by.proof.replace("_", " "))))))));
  }
  if (it.decision) {
    parts.push(h("p", { class: "muted small" }, "by the decision at ", moment(it.decision.sequence), `; made again by this build: ${it.decision.remade}`));
  }
  if (it.not_searched?.length) parts.push(h("p", { class: "muted small" }, `not searched to the end: ${it.not_searched.join(", ")}`));
  return parts;
}

function jobDetails(app, { job, events, more, decisions }, key) {
  const { min, max, now, target } = job.containers;
  return [
    title(dot(tenantOf(job.job)), job.job),
    h("p", {}, h("span", { class: `phase ${job.phase}` }, job.phase), ` ${job.reason}`),
    bar(job.share / Math.max(job.share, job.fair_share, 1e-9) * 0.9, job.fair_share / Math.max(job.share, job.fair_share, 1e-9) * 0.9, `share ${percent(job.share, 1)}, fair share ${percent(job.fair_share, 1)}`, `c${hue(tenantOf(job.job))}`),
    facts([
      ["share", `${percent(job.share, 2)}, fair ${percent(job.fair_share, 2)}`], ["containers", `${now} of ${min}–${max}, target ${target}`],
      ["progress", job.step !== null && job.step !== undefined ? `step ${count(job.step)}${job.steps_total ? ` of ${count(job.steps_total)}` : ""}` : null],
      ["tasks", job.tasks ? `${count(job.tasks.completed)} of ${count(job.tasks.count)}` : null],
      ["GPU", job.gpu ? `${percent(job.gpu.last_milli / 1000)} of a device last, ${amount("memory_bytes", job.gpu.last_bytes)}; ${duration(job.gpu.busy_us / 1e6)} used, ${duration(job.gpu.waited_us / 1e6)} waited${job.gpu.refused ? `; ${count(job.gpu.refused)} allocations refused` : ""}` : null],
      ["service", job.service?.words], ["within the objective", attained(job.service)],
      ["waited", duration(job.waiting_s)], ["age", duration(job.age_s)],
      ["resizes", job.resizes ? `${job.resizes}, ${duration(job.resize_lost_s)} lost` : null],
      ["restarts", job.restarts ? `${job.restarts}, ${duration(job.recovery_lost_s)} lost` : null],
      ["checkpoint", job.checkpoint ? `step ${count(job.checkpoint.step)}, ${clock(job.checkpoint.at, false)}` : null],
      ["epoch", h("a", { href: link({ ...NOTHING, epoch: job.epoch }), "data-key": "job-epoch" }, job.epoch)],
    ]),
    explained(app, "job", job.job, key),
    job.speed ? curve(job.speed, now, job.job) : null,
    h("h3", {}, "Incarnations"), track(app, job, events),
    incarnations(job, new Map(decisions)),
    eventList(events, more),
  ];
}

// The parts of a service's requests that were answered within its objective.
function attained(service) {
  const times = [["last minute", service?.last_minute], ["5 minutes", service?.last_five_minutes], ["in all", service?.total]];
  return times.filter(([, it]) => typeof it?.attainment === "number").map(([name, it]) => `${name} ${percent(Math.floor(it.attainment * 1e4) / 1e4, 2)} of ${count(it.requests)}`).join("; ");
}

// The speed by containers: the fitted curve, a dot at each measured number, a line at the present one.
function curve(speed, now, job) {
  const width = 420;
  const height = 120;
  const last = speed.curve.at(-1).containers;
  const top = Math.max(1, ...speed.curve.flatMap((it) => [it.fitted, it.measured ?? 0]));
  const x = (containers) => 24 + (containers / last) * (width - 32);
  const y = (value) => 6 + (1 - value / top) * (height - 24);
  const points = speed.curve.map((it) => `${x(it.containers).toFixed(1)},${y(it.fitted).toFixed(1)}`).join(" ");
  const measured = speed.curve.filter((it) => typeof it.measured === "number");
  const further = typeof speed.further === "number" ? `; one more container changes it by ${percent(speed.further, 1)}` : "";
  return h("div", {}, h("h3", {}, "Speed"), svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "curve", role: "img", "aria-label": `Speed of ${job} by containers: fastest with ${speed.fastest}` },
    svg("line", { x1: 24, x2: width - 8, y1: y(0), y2: y(0), class: "ground" }),
    now ? svg("line", { x1: x(now), x2: x(now), y1: 6, y2: y(0), class: "ground" }) : null,
    svg("polyline", { points, class: `line c${hue(tenantOf(job))}` }),
    measured.map((it) => svg("circle", { cx: x(it.containers), cy: y(it.measured), r: 3 }, svg("title", {}, `${it.containers} containers: ${figure(it.measured)} times the speed of one, measured`))),
    svg("text", { x: 0, y: 14 }, figure(top)), svg("text", { x: 0, y: y(0) }, "0"),
    svg("text", { x: x(1), y: height - 4 }, "1"), svg("text", { x: width - 8, y: height - 4, "text-anchor": "end" }, `${last} containers`)),
    h("p", { class: "muted small" }, `${speed.source}, error ${percent(speed.error, 0)}; fastest with ${speed.fastest}${further}`));
}

// A job's incarnations as a track: boxes as high as their containers, checkpoints and ends on them.
function track(app, job, events) {
  const width = 420;
  const height = 74;
  const from = ms(job.submitted_at);
  const to = Math.max(ms(job.ended_at ?? app.state.at), from + 1);
  const x = (time) => Math.max(0, Math.min(width, ((ms(time) - from) / (to - from)) * width));
  const most = Math.max(1, job.containers.max, ...job.incarnations.map((it) => it.containers));
  const boxes = job.incarnations.map((it) => {
    const begin = x(it.started_at ?? it.requested_at);
    const end = x(it.stopped_at ?? job.ended_at ?? app.state.at);
    const high = Math.max(3, (it.containers / most) * 46);
    return svg("g", {}, svg("title", {}, `incarnation ${it.incarnation}: ${it.containers} containers, ${duration(it.ran_s)}${it.stop_reason ? `, ended: ${it.stop_reason}` : ""}`),
      svg("rect", { x: x(it.requested_at), y: 54 - high, width: Math.max(0, begin - x(it.requested_at)), height: high, class: "starting" }),
      svg("rect", { x: begin, y: 54 - high, width: Math.max(1, end - begin), height: high, class: `incarnation c${hue(tenantOf(job.job))}` }),
      it.stop_reason ? svg("text", { x: Math.min(width - 6, end), y: 52 - high, class: "cause", "text-anchor": "middle" }, cause(it.stop_reason)) : null);
  });
  const saved = events.filter((it) => it.event === "checkpoint.saved" || it.event === "checkpoint.failed").slice(-120).map((it) => {
    const at = x(it.at);
    return svg("a", { href: link({ at: it.sequence }), "aria-label": `${it.event} at event ${it.sequence}` }, svg("title", {}, `${it.event}, ${clock(it.at, false)}: ${it.words}`),
      svg("path", { d: `M${at} 57l4 4l-4 4l-4 -4z`, class: it.event === "checkpoint.saved" ? "saved" : "unsaved" }));
  });
  return h("div", {}, svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "incarnations", role: "group", "aria-label": `Incarnations of ${job.job}; the table below has the same` },
    svg("line", { x1: 0, x2: width, y1: 54, y2: 54, class: "ground" }), boxes, saved,
    svg("text", { x: 0, y: height - 1 }, clock(job.submitted_at, false).slice(0, 8)), svg("text", { x: width, y: height - 1, "text-anchor": "end" }, clock(job.ended_at ?? app.state.at, false).slice(0, 8))));
}

// One letter for an end: resized, failed, lost node, cancelled.
const cause = (reason) => ({ adjusted: "↕", failed: "!", gave_up: "!", node_lost: "✕", cancelled: "–", completed: "✓" })[reason] ?? "·";

function incarnations(job, decisions) {
  if (!job.incarnations.length) return h("p", { class: "muted" }, "none yet");
  const rows = job.incarnations.slice(-20).reverse().map((it) => h("tr", {}, h("th", { scope: "row" }, it.incarnation), h("td", { class: "number" }, it.containers),
    h("td", {}, clock(it.started_at ?? it.requested_at, false).slice(0, 8)), h("td", { class: "number" }, duration(it.ran_s)),
    h("td", {}, it.stop_reason ? `${cause(it.stop_reason)} ${it.stop_reason.replace("_", " ")}` : it.stopped_at ? "ended" : "runs"),
    h("td", {}, decisions.has(it.epoch) ? h("a", { href: link({ ...NOTHING, epoch: it.epoch }), "data-key": `incarnation-${it.incarnation}` }, `epoch ${it.epoch}`) : `epoch ${it.epoch}`)));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Incarnations as a table" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Incarnation", "Containers", "From", "Ran", "End", "Decided"].map((it) => h("th", { scope: "col" }, it)))), h("tbody", {}, rows)),
    job.incarnations.length > 20 || job.incarnations_dropped ? h("p", { class: "muted small" }, `${count(Math.max(0, job.incarnations.length - 20) + job.incarnations_dropped)} older incarnations are not listed`) : null);
}

function eventList(events, more) {
  const rows = events.slice(-60).reverse().map((it) => h("li", {}, moment(it.sequence, clock(it.at, false)), " ", h("b", {}, it.event), " ", h("span", { class: "muted" }, it.words)));
  const left = more + Math.max(0, events.length - 60);
  return h("details", { open: true }, h("summary", {}, `Events (${count(events.length + more)})`), h("ol", { class: "plain events" }, rows),
    left ? h("p", { class: "muted small" }, `${count(left)} earlier events: dormouse job events`) : null);
}

function nodeDetails(app, { node, events, more }, key) {
  const groups = new Map();
  for (const it of node.placed) {
    const entry = groups.get(it.job) ?? { running: 0, starting: 0, reserved: 0 };
    entry[it.state] += 1;
    groups.set(it.job, entry);
  }
  const amounts = Object.entries(node.capacity).map(([name, of]) => [resource(name), `${amount(name, node.used[name] ?? 0)} of ${amount(name, of)}`]);
  return [
    title(node.node), h("p", {}, h("span", { class: `phase ${node.state}` }, node.state), ` ${node.reason}`),
    facts([["containers", `${node.running} running of ${node.containers}`], ...amounts, ["runtime", node.runtime], ["address", node.address],
      ["labels", Object.entries(node.labels ?? {}).map(([name, value]) => `${name}=${value}`).join(", ")]]),
    explained(app, "node", node.node, key),
    h("h3", {}, "Containers"),
    groups.size ? h("ul", { class: "plain" }, [...groups].map(([job, it]) => h("li", {}, dot(tenantOf(job)), h("a", { href: link({ ...NOTHING, job }), "data-key": `on-${job}` }, job),
      ` ${Object.entries(it).filter(([, n]) => n).map(([state, n]) => `${n} ${state}`).join(", ")}`))) : h("p", { class: "muted" }, "none"),
    eventList(events, more),
  ];
}

function tenantDetails(app, tenant, key) {
  return [
    title(dot(tenant.tenant), tenant.tenant), h("p", {}, tenant.reason),
    facts([["share", `${percent(tenant.share, 2)}, entitled ${percent(tenant.entitled, 2)}`], ["weight", tenant.weight], ["queued", `${count(tenant.queued_jobs)} jobs, share ${percent(tenant.demand_share, 1)}`],
      ["released", `${count(tenant.released_jobs)} jobs`], ["mean wait", duration(tenant.mean_start_wait_s)], ["longest wait", duration(tenant.longest_start_wait_s)], ["fairness loss", figure(tenant.fairness_loss)]]),
    explained(app, "tenant", tenant.tenant, key),
    h("h3", {}, "Queue"),
    tenant.queue.length ? h("ol", { class: "plain" }, tenant.queue.map((it) => h("li", {}, `${it.position}. `, h("a", { href: link({ ...NOTHING, job: it.job }), "data-key": `queued-${it.job}` }, it.job), h("span", { class: "muted" }, ` since ${duration(it.waited_s)}`))))
      : h("p", { class: "muted" }, "nothing is queued"),
    h("p", {}, h("a", { href: link({ ...NOTHING, tenant: tenant.tenant, page: null }), "data-key": "tenant-jobs" }, `All jobs of ${tenant.tenant}`)),
  ];
}

function epochDetails(app, epoch, key) {
  const go = async () => {
    const answer = await app.ask("step", { by: "epoch", count: epoch });
    app.go({ at: answer.sequence });
  };
  return [title(`Epoch ${epoch}`), h("p", {}, h("button", { type: "button", "data-key": "epoch-go", onclick: go }, "Go to its moment")), explained(app, "epoch", String(epoch), key)];
}

function difference(app, it) {
  const words = (side) => (side ? `${side.phase} ${side.containers || ""}` : "not there");
  const state = (side) => (side ? `${side.state}, ${side.containers}` : "not there");
  const figures = [["utilization", (m) => figure(m.utilization)], ["fairness loss", (m) => figure(m.fairness_loss)], ["running", (m) => count(m.running)], ["waiting", (m) => count(m.waiting)], ["completed", (m) => count(m.completed)],
    ["θ1", (m) => m.policy.theta1], ["θ2", (m) => m.policy.theta2]];
  const table = (name, heads, rows, more) => (rows.length ? [h("h3", {}, name), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Changed: ${name}` }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows))), more ? h("p", { class: "muted small" }, `${count(more)} more differ`) : null] : [h("h3", {}, name), h("p", { class: "muted" }, "no difference")]);
  return [
    title("Differences"),
    h("p", {}, "from ", moment(it.from.sequence), ` ${clock(it.from.at)} to `, moment(it.to.sequence), ` ${clock(it.to.at)}`),
    h("p", { class: "muted small" }, "Drag the time line: the second moment follows."),
    table("Figures", ["Figure", "before", "after"], figures.map(([name, of]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, of(it.from)), h("td", { class: "number" }, of(it.to))))),
    table("Jobs", ["Job", "before", "after"], it.jobs.map((row) => h("tr", {}, h("th", { scope: "row" }, dot(tenantOf(row.id)), h("a", { href: link({ ...NOTHING, job: row.id }), "data-key": `diff-${row.id}` }, row.id)), h("td", {}, words(row.from)), h("td", {}, words(row.to)))), it.more_jobs),
    table("Nodes", ["Node", "before", "after"], it.nodes.map((row) => h("tr", {}, h("th", { scope: "row" }, row.id), h("td", {}, state(row.from)), h("td", {}, state(row.to)))), it.more_nodes),
  ];
}
