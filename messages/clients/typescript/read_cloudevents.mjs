// Reads a line of JSON each, as CloudEvents' own library for JavaScript reads a post; prints `type id` of each.
import { readFileSync } from "node:fs";
import { HTTP } from "cloudevents";

for (const body of readFileSync(process.argv[2], "utf8").trimEnd().split("\n")) {
  const headers = { "content-type": "application/cloudevents+json; charset=utf-8" };
  const event = HTTP.toEvent({ headers, body });
  if (event.specversion !== "1.0" || !event.data) throw new Error(body);
  event.validate();
  console.log(event.type, event.id, event.sequence);
}
