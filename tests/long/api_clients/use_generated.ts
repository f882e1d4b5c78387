// A program on the types that openapi-typescript has made of /openapi.json: `topics.d.ts` beside this file.

import createClient from "openapi-fetch";
import type { components, paths } from "./topics.js";

const client = createClient<paths>({ baseUrl: process.argv[2] });
const path = { topic: "typed" };

function check(holds: boolean, what: unknown): void {
  if (!holds) throw new Error(JSON.stringify(what));
}

const made = await client.PUT("/v0/topics/{topic}", { params: { path }, body: { type: "queue" } });
check(made.data?.created === true, made);
const records: components["schemas"]["NewRecord"][] = [{ data: { sku: 1 }, tag: "eu" }];
const written = await client.POST("/v0/topics/{topic}", { params: { path }, body: { records } });
check(written.data !== undefined && "seqs" in written.data, written);
const page = await client.POST("/v0/topics/{topic}/diff", { params: { path }, body: { include_tags: true } });
const found: components["schemas"]["Record"][] = page.data?.records ?? [];
check(found[0]?.$seq === 1 && found[0]?.$tag === "eu", found);
const absent = await client.GET("/v0/topics/{topic}", { params: { path: { topic: "absent" } } });
check(absent.error?.error.code === "topic_not_found", absent.error);
// @ts-expect-error: a field of another type is found before the program runs
await client.PUT("/v0/topics/{topic}", { params: { path }, body: { ttl_ms: "a day" } });
console.log("done");
