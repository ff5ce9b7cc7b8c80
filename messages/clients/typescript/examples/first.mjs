import { connect } from "dormouse-client";

const client = await connect({ servers: process.argv[2], tenant: "ads" });
const job = { name: "from-javascript", command: { start: ["sh", "-c", "echo rank $DORMOUSE_RANK"] },
  demand: { cpu: 1, memory: "64Mi" }, containers: { min: 1, max: 2 } };
console.log((await client.submit(job)).state);
await client.close();
