// Writes the types of the documents from their schemas; with --check it only compares.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { compile } from "json-schema-to-typescript";

const documents = [
  ["job", "JobDocument", "types"],
  ["revise", "ReviseDocument", "revise"],
  ["measured", "MeasuredDocument", "measured"],
];
for (const [name, type, file] of documents) {
  const schema = JSON.parse(readFileSync(new URL(`../../schema/${name}-document.json`, import.meta.url), "utf8"));
  const target = fileURLToPath(new URL(`./src/${file}.ts`, import.meta.url));
  const text = await compile(schema, type, {
    bannerComment: `// Written by \`npm run types\` from messages/schema/${name}-document.json; not by hand.`,
    additionalProperties: false,
  });
  if (!process.argv.includes("--check")) {
    writeFileSync(target, text);
  } else if (readFileSync(target, "utf8") !== text) {
    console.error(`src/${file}.ts is not what the schema says: npm run types`);
    process.exit(1);
  }
}
