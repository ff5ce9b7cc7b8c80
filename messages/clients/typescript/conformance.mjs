// The driver of ../conformance.json for this client: one line of JSON a case.
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { connect, DormouseError, Refused, TimedOut } from "./dist/index.js";

const names = ["main", "restricted", "cutting", "tenant", "cases"];
const { values: arguments_ } = parseArgs({ options: Object.fromEntries(names.map((name) => [name, { type: "string" }])) });
const clients = new Map();

/** A document of the suite, with its special values. */
function value(written, tenant) {
  if (Array.isArray(written)) return written.map((item) => value(item, tenant));
  if (typeof written !== "object" || written === null) return written;
  if ("$u64" in written) return BigInt(written.$u64);
  if ("$float" in written) return Number(written.$float);
  if ("$repeat" in written) return written.$repeat[0].repeat(written.$repeat[1]);
  if ("$tenant" in written) return written.$tenant ? `${tenant}/${written.$tenant}` : tenant;
  return Object.fromEntries(Object.entries(written).map(([key, item]) => [key, value(item, tenant)]));
}

async function clientOf(broker, tenant, encoding, number) {
  const key = JSON.stringify([broker, tenant, encoding, number]);
  if (!clients.has(key)) clients.set(key, await connect({ servers: arguments_[broker], tenant, encoding }));
  return clients.get(key);
}

const changed = ({ type, data }) => ({ type, data });

async function step(test, step) {
  const tenant = test.tenant ?? arguments_.tenant;
  const client = await clientOf(test.broker ?? "main", tenant, step.encoding ?? "json", step.client ?? 1);
  const how = { timeout: step.timeout_ms, wait: step.wait };
  if (step.submit) {
    const { state, existing, sha256 } = await client.submit(value(step.submit, tenant), how);
    return { state, existing, sha256 };
  }
  if (step.cancel !== undefined) return changed(await client.cancel(step.cancel, how));
  if (step.revise) {
    const { job, ...changes } = step.revise;
    return changed(await client.revise(job, changes, how));
  }
  if (step.measure) return changed(await client.measure(value(step.measure, tenant), how));
  if (step.query) return client.query(step.query, step.request, how);
  const document = value(step.watched, tenant);
  const events = await client.watch(document.name);
  await client.submit(document, { traceparent: step.traceparent });
  const seen = [];
  for await (const event of events) seen.push(event);
  return { types: seen.map((event) => event.type), trace: seen[0].traceparent.split("-")[1] };
}

for (const test of JSON.parse(readFileSync(arguments_.cases, "utf8")).cases) {
  let said;
  try {
    let ok;
    for (const each of test.steps) ok = await step(test, each);
    said = { ok };
  } catch (error) {
    if (!(error instanceof DormouseError)) throw error;
    said = { error: { class: error.name } };
    if (error instanceof Refused) said.error.code = error.code;
    if (error instanceof TimedOut) said.error.stored = error.stored;
  }
  const line = JSON.stringify({ case: test.name, ...said }, (_, item) => (typeof item === "bigint" ? Number(item) : item));
  process.stdout.write(`${line}\n`);
}
for (const client of clients.values()) await client.close();
