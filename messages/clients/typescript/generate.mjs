// Writes the type of a job document from its schema; with --check it only compares.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { compile } from "json-schema-to-typescript";

const schema = JSON.parse(readFileSync(new URL("../../schema/job-document.json", import.meta.url), "utf8"));
const target = fileURLToPath(new URL("./src/types.ts", import.meta.url));
const text = await compile(schema, "JobDocument", {
  bannerComment: "// Written by `npm run types` from messages/schema/job-document.json; not by hand.",
  additionalProperties: false,
});
if (!process.argv.includes("--check")) {
  writeFileSync(target, text);
} else if (readFileSync(target, "utf8") !== text) {
  console.error("src/types.ts is not what the schema says: npm run types");
  process.exit(1);
}
