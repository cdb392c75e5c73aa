// ioredis against the server whose port is the argument.

import assert from "node:assert/strict";
import Redis from "ioredis";

const redis = new Redis(Number(process.argv[2]), "127.0.0.1");
redis.on("error", (error) => {
  console.error(error);
  process.exit(1);
});

assert.equal(await redis.flushall(), "OK");
assert.equal(await redis.set("k", "v", "EX", 100), "OK");
assert.equal(await redis.get("k"), "v");
assert.equal(await redis.incr("n"), 1);
assert.equal(await redis.hset("h", { a: "1", b: "2" }), 2);
assert.deepEqual(await redis.hgetall("h"), { a: "1", b: "2" });

const piped = redis.pipeline();
for (let i = 0; i < 1000; i++) piped.set(`p:${i}`, String(i));
assert.ok((await piped.exec()).every(([error, reply]) => error === null && reply === "OK"));

const results = await redis.multi().set("t", 1).incr("t").get("t").exec();
assert.deepEqual(results, [[null, "OK"], [null, 2], [null, "2"]]);

// WATCH: the key changes in between, so EXEC gives null.
const other = redis.duplicate();
await redis.watch("k");
await other.set("k", "changed");
assert.equal(await redis.multi().set("k", "mine").exec(), null);

const seen = new Set();
for await (const keys of redis.scanStream({ match: "p:*", count: 100 })) {
  keys.forEach((key) => seen.add(key));
}
assert.equal(seen.size, 1000);
await assert.rejects(redis.get("h"), /WRONGTYPE/);

await other.quit();
await redis.quit();
console.log("ioredis");
