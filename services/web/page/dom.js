// Elements. Text from the log becomes text nodes only, whatever it contains.

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, it] of Object.entries(value)) element.style.setProperty(key, it);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((it) => it !== undefined && it !== null && it !== false));
  return element;
}

// Replaces what is in an element; the link or button that had the focus has it again.
export function show(element, ...children) {
  const active = document.activeElement;
  const key = element.contains(active) ? active.dataset.key : undefined;
  element.replaceChildren(...children.flat(Infinity).filter((it) => it !== undefined && it !== null && it !== false));
  if (key) [...element.querySelectorAll("[data-key]")].find((it) => it.dataset.key === key)?.focus({ preventScroll: true });
}

const whole = new Intl.NumberFormat("en");
export const count = (number) => whole.format(number ?? 0);

export function percent(part, digits = 0) {
  return `${(100 * (part ?? 0)).toFixed(digits)} %`;
}

export function figure(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(3).replace(/\.?0+$/, "");
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${(s / 86400).toFixed(1)} d`;
}

// 2026-11-21 03:00:12.345, as the log has it: in UTC.
export function clock(time, withDay = true) {
  if (!time) return "–";
  const [day, rest] = time.split("T");
  const text = rest.replace("Z", "").slice(0, 12);
  return withDay ? `${day} ${text}` : text;
}

export const ms = (time) => Date.parse(time);

// A resource's amount in the unit in which people write it.
export function amount(name, value) {
  if (name === "memory" || name.endsWith("bytes")) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    let size = value;
    while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
    return `${figure(Number(size.toFixed(1)))} ${units[unit]}`;
  }
  return figure(value / 1000);
}

// The resource of a field such as cpu_milli or memory_bytes.
export const resource = (field) => field.replace(/_(milli|bytes)$/, "");

// Tenants have colours, the same all over the page; names stand beside them wherever there is room.
const seen = new Map();
export function hue(tenant) {
  if (!seen.has(tenant)) seen.set(tenant, seen.size % 8);
  return seen.get(tenant);
}
export function colour(tenant) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--c${hue(tenant)}`).trim();
}
export const tenantOf = (job) => job.split("/")[0];

export function dot(tenant) {
  return h("span", { class: `dot c${hue(tenant)}`, "aria-hidden": "true" });
}

// A bar with a mark, for a share and what it is compared to.
export function bar(part, mark, label, kind = "") {
  const width = (it) => `${Math.max(0, Math.min(1, it || 0)) * 100}%`;
  return h("span", { class: `bar ${kind}`, role: "img", "aria-label": label },
    h("span", { class: "fill", style: { width: width(part) } }),
    mark === undefined ? null : h("span", { class: "mark", style: { left: width(mark) } }));
}
