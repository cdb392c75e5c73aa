// node-redis against the server whose port is the argument, in both protocols.

import assert from "node:assert/strict";
import { createClient, WatchError } from "redis";

for (const RESP of [2, 3]) {
  const client = createClient({ url: `redis://127.0.0.1:${process.argv[2]}`, RESP });
  client.on("error", (error) => {
    console.error(error);
    process.exit(1);
  });
  await client.connect();
  assert.equal(await client.flushAll(), "OK");
  assert.equal(await client.set("k", "v", { EX: 100 }), "OK");
  assert.equal(await client.get("k"), "v");
  assert.equal(await client.hSet("h", { a: "1", b: "2" }), 2);
  assert.deepEqual({ ...(await client.hGetAll("h")) }, { a: "1", b: "2" });

  const replies = await Promise.all(
    Array.from({ length: 1000 }, (_, i) => client.set(`p:${i}`, String(i))),
  );
  assert.ok(replies.every((reply) => reply === "OK"));
  assert.deepEqual(await client.multi().set("t", "1").incr("t").get("t").exec(), ["OK", 2, "2"]);

  const other = client.duplicate();
  await other.connect();
  await client.watch("k");
  await other.set("k", "changed");
  await assert.rejects(client.multi().set("k", "mine").exec(), WatchError);

  const seen = new Set();
  for await (const keys of client.scanIterator({ MATCH: "p:*", COUNT: 100 })) {
    [keys].flat().forEach((key) => seen.add(key));
  }
  assert.equal(seen.size, 1000);
  await other.close();
  await client.close();
}
console.log("node-redis: RESP2 and RESP3");
