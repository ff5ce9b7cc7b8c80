// The page: what is looked at is in the address, everything on the page follows from it.

import { ask, exchangeToken, follow, head as askHead } from "./api.js";
import { clock, count } from "./dom.js";
import * as charts from "./charts.js";
import * as details from "./details.js";
import * as jobs from "./jobs.js";
import * as nodes from "./nodes.js";
import * as overview from "./overview.js";
import * as time from "./time.js";

const TEXTS = ["q", "tenant", "phase", "sort", "job", "node", "about", "epoch", "range", "theme", "what"];
const NUMBERS = ["at", "page", "from", "fork"];

export const app = { view: {}, head: null, state: null, go, ask: askAt };

function read() {
  const query = new URLSearchParams(location.hash.slice(1));
  const view = {};
  for (const name of TEXTS) if (query.get(name)) view[name] = query.get(name);
  for (const name of NUMBERS) if (/^\d+$/.test(query.get(name) ?? "")) view[name] = Number(query.get(name));
  return view;
}

export function link(changes) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...app.view, ...changes })) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString().replaceAll("%2F", "/").replaceAll("%2C", ",");
  // Whole: what begins with # is taken for a place on this page.
  return `${location.href.split("#")[0]}#${text}`;
}

// Goes to another view. Moving along the time line leaves no trail of addresses behind it.
function go(changes, replace = false) {
  const to = link(changes);
  if (to === (location.hash ? location.href : `${location.href.split("#")[0]}#`)) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  look();
}

// A question about the moment that is looked at.
function askAt(path, params = {}, kind = path, told = null) {
  return ask(path, { at: moment(), ...params }, kind, told);
}

const moment = () => app.view.at ?? app.head?.head;

let wanted = 0;
let busy = false;

// One answer at a time: while it is under way, only the last place that was dragged over counts.
async function look() {
  const before = app.view;
  app.view = read();
  wanted += 1;
  theme();
  if (!app.head?.events) return;
  time.place(app);
  if (before.range !== app.view.range) time.axis(app);
  if (busy) return;
  busy = true;
  try {
    for (let done = 0; done !== wanted;) {
      done = wanted;
      await draw();
    }
  } finally {
    busy = false;
  }
}

async function draw() {
  try {
    const [state] = await Promise.all([askAt("state"), jobs.load(app)]);
    app.state = state;
    time.show(app);
    overview.show(app);
    nodes.show(app);
    jobs.show(app);
    charts.show(app);
    await details.show(app);
    say("");
    document.body.dataset.at = String(state.sequence);
  } catch (error) {
    if (error.name !== "AbortError") fail(error);
  }
}

function say(text, bad = false) {
  const note = document.getElementById("note");
  if (note.textContent !== text) note.textContent = text;
  note.classList.toggle("bad", bad);
}

function fail(error) {
  if (error.code === "other_log") return location.reload();
  if (error.status === 401) return say("This page needs its token: open the address that ends in #token=…", true);
  say(error.message || String(error), true);
}

async function told(head) {
  const had = app.head?.events ?? 0;
  if (app.head?.log && head.log && head.log !== app.head.log) return location.reload();
  app.head = { ...app.head, ...head };
  const log = document.getElementById("log");
  const name = head.log ? `log ${head.log.slice(0, 8)} · ` : "";
  log.textContent = `${name}${count(head.events)} events · to ${clock(head.now)} UTC`;
  document.body.dataset.read = String(head.read);
  if (!head.events) return say(head.read ? "The log is empty: submit a job." : "Reading the log …");
  if (!head.read) say(`Reading the log: ${count(head.events)} events …`);
  if (head.read && !head.live && !app.opened) {
    app.opened = true;
    if (app.view.at === undefined) time.toBusy(app).catch(() => {});
  }
  if (!had || !app.shown) {
    app.shown = true;
    time.axis(app);
    charts.load(app);
    return look();
  }
  time.grown(app);
  charts.grown(app);
  if (app.view.at === undefined && head.events !== had) look();
}

function theme() {
  const chosen = app.view.theme ?? localStorage.getItem("theme") ?? "";
  if (document.documentElement.dataset.theme === chosen) return;
  document.documentElement.dataset.theme = chosen;
  if (app.state) { charts.repaint(app); nodes.show(app); }
}

document.getElementById("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  localStorage.setItem("theme", now === "dark" ? "light" : "dark");
  theme();
});
addEventListener("hashchange", look);
addEventListener("popstate", look);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { charts.repaint(app); look(); });
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.defaultPrevented) go({ job: null, node: null, about: null, epoch: null, from: null, what: null, fork: null });
  const typing = event.target.matches?.("input:not([type=range]), select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    document.getElementById("search")?.focus();
  }
});

async function begin() {
  app.view = read();
  theme();
  try {
    await exchangeToken();
    time.build(app);
    jobs.build(app);
    charts.build(app);
    await told(await askHead());
    follow(told, () => say("The server does not answer; trying again …", true));
  } catch (error) {
    fail(error);
  }
}

begin();

