// Submissions a second, and the time of a decision: bench.mjs URL TENANT [COUNT].
import { connect, Refused } from "./dist/index.js";

const [servers, tenant, count = 10_000] = process.argv.slice(2);
const client = await connect({ servers, tenant, answerTimeout: 60_000 });
const job = (name) => ({ name, command: { start: ["true"] }, demand: { cpu: 1000, memory: "1Gi" } });
const decided = [];
// One after the other: a twentieth.
for (let index = 0; index < count / 20; index += 1) {
  const began = performance.now();
  try {
    await client.submit(job(`one-${index}`));
  } catch (error) {
    // Larger than any node: refused, which is a decision too.
    if (!(error instanceof Refused)) throw error;
  }
  decided.push(performance.now() - began);
}
decided.sort((a, b) => a - b);
const began = performance.now();
await Promise.all(Array.from({ length: Number(count) }, (_, index) => client.submit(job(`many-${index}`), { wait: "accepted" })));
const rate = (Number(count) * 1000) / (performance.now() - began);
console.log(`typescript: ${rate.toFixed(0)} submissions/s acknowledged; decision in ${decided[decided.length >> 1].toFixed(2)} ms (median of ${decided.length})`);
await client.close();
