// Every kind of table in one program: node build/tour.js ADDRESS_OF_A_CHUNK
//
// The server and its tables are those of ../README.md. An unexpected answer ends the program with 1.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createClient, RESP_TYPES } from "redis";

const client = createClient({ url: `redis://${process.env.BUSLOAD_RESP ?? "127.0.0.1:6380"}` });
client.on("error", (error) => {
  console.error(error);
  process.exit(1);
});

/** Tables in memory: strings, expiry, hashes, transactions. */
async function memory() {
  await client.set("sessions:42", "alice", { expiration: { type: "EX", value: 60 } });
  assert.equal(await client.get("sessions:42"), "alice");
  const left = await client.ttl("sessions:42");
  assert.ok(0 < left && left <= 60);

  await client.del("basket");
  assert.equal(await client.hSet("basket", { apples: "3", pears: "1" }), 2);
  assert.equal(await client.hIncrBy("basket", "pears", 4), 5);
  assert.deepEqual({ ...(await client.hGetAll("basket")) }, { apples: "3", pears: "5" });

  await client.mSet({ "account-a": "100", "account-b": "0" });
  const transaction = client.multi().decrBy("account-a", 30).incrBy("account-b", 30);
  assert.deepEqual(await transaction.exec(), [70, 30]);
}

/** A table in Postgres: a row is a key. Requests that wait together share a statement. */
async function postgres() {
  await client.set("users:1", "Ada");
  assert.equal(await client.get("users:1"), "Ada");
  assert.equal(await client.get("users:0"), null);

  // What is asked in one turn of the event loop is pipelined, without MULTI: only tables in memory
  // have transactions.
  const keys = Array.from({ length: 100 }, (_, index) => `users:${index + 1}`);
  await Promise.all(keys.map((key) => client.set(key, `name of ${key}`)));
  const names = await Promise.all(keys.map((key) => client.get(key)));
  assert.deepEqual(names, keys.map((key) => `name of ${key}`));
  assert.equal(await client.del(keys), 100);
}

/** A chunk of a Dolt store. Its address is a hash of its contents. */
async function chunks(address: string) {
  const nowhere = "0".repeat(32);
  assert.equal(await client.exists([`db:${address}`, `db:${nowhere}`]), 1);
  const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const contents = await binary.get(`db:${address}`);
  assert.ok(contents);
  const hash = createHash("sha512").update(contents).digest().subarray(0, 20);
  // 20 bytes as 32 digits of 5 bits: 0-9 and a-v.
  const digits = BigInt(`0x${hash.toString("hex")}`).toString(32).padStart(32, "0");
  assert.equal(digits, address);
}

const [address] = process.argv.slice(2);
if (!address) {
  console.error("usage: tour.js ADDRESS_OF_A_CHUNK");
  process.exit(2);
}
await client.connect();
await memory();
await postgres();
await chunks(address);
await client.close();
console.log("node-redis: every kind of table");
