// Questions to the server. A moment never changes: its answers are kept here, and by the browser.

const kept = new Map();
const running = new Map();
let version = "";

export class Failed extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function get(url, signal, told) {
  const response = await fetch(url, { signal, headers: { accept: "application/json" } });
  if (response.ok) return told ? lines(response, told) : response.json();
  let error = { code: String(response.status), message: response.statusText };
  try { error = (await response.json()).error ?? error; } catch { /* not in JSON */ }
  throw new Failed(response.status, error.code, error.message);
}

// An answer that grows: a line of JSON each time, the last one is whole.
async function lines(response, told) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", answer = null;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const whole = (text + value).split("\n");
    text = whole.pop();
    for (const line of whole) told(answer = JSON.parse(line));
  }
  if (!answer) throw new Failed(500, "internal", "There was no answer.");
  return answer;
}

export async function head() {
  const answer = await get("/api/head");
  if (version && version !== answer.version) kept.clear();
  version = answer.version;
  return answer;
}

// The newest question of a kind wins: the one before it is given up. Of an answer that grows `told`
// hears what is known so far.
export async function ask(path, params = {}, kind = path, told = null) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) query.set(name, value);
  }
  if (version) query.set("v", version);
  const url = `/api/${path}?${query}`;
  running.get(kind)?.abort();
  running.delete(kind);
  if (kept.has(url)) return kept.get(url);
  const stop = new AbortController();
  running.set(kind, stop);
  try {
    const answer = await get(url, stop.signal, told);
    if (params.at !== undefined) {
      kept.set(url, answer);
      if (kept.size > 200) kept.delete(kept.keys().next().value);
    }
    return answer;
  } finally {
    if (running.get(kind) === stop) running.delete(kind);
  }
}

// The token of the address is exchanged for a cookie, and goes from the address at once.
export async function exchangeToken() {
  const match = /(?:^#|&)token=([^&]+)/.exec(location.hash);
  if (!match) return;
  history.replaceState(null, "", location.pathname);
  const response = await fetch("/session", {
    method: "POST",
    headers: { "x-dormouse": "1", "content-type": "text/plain" },
    body: decodeURIComponent(match[1]),
  });
  if (!response.ok) throw new Failed(response.status, "token", "This is not the token of this page.");
}

// New events, over one connection for all tabs of this browser: the one that holds the lock listens.
export function follow(told, lost) {
  const channel = "BroadcastChannel" in window ? new BroadcastChannel("dormouse-live") : null;
  if (channel) channel.onmessage = (message) => told(message.data);
  const listen = () => new Promise(() => {
    const source = new EventSource("/api/live");
    source.onmessage = (message) => {
      const data = JSON.parse(message.data);
      told(data);
      channel?.postMessage(data);
    };
    source.onerror = lost;
  });
  if (navigator.locks) navigator.locks.request("dormouse-live", listen);
  else listen();
}
