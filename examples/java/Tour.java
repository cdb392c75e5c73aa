// Every kind of table in one program: java -cp 'libraries/*' Tour.java ADDRESS_OF_A_CHUNK
//
// The server and its tables are those of ../README.md. An unexpected answer ends the program with 1.

import java.math.BigInteger;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.params.SetParams;

class Tour {
    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 1) {
            System.err.println("usage: Tour ADDRESS_OF_A_CHUNK");
            System.exit(2);
        }
        String address = System.getenv().getOrDefault("BUSLOAD_RESP", "127.0.0.1:6380");
        try (JedisPooled client = new JedisPooled(HostAndPort.from(address))) {
            memory(client);
            postgres(client);
            chunks(client, arguments[0]);
        }
        System.out.println("Jedis: every kind of table");
    }

    /** Tables in memory: strings, expiry, hashes, transactions. */
    static void memory(JedisPooled client) {
        client.set("sessions:42", "alice", SetParams.setParams().ex(60));
        expect(client.get("sessions:42"), "alice");
        long left = client.ttl("sessions:42");
        expect(0 < left && left <= 60, true);

        client.del("basket");
        expect(client.hset("basket", Map.of("apples", "3", "pears", "1")), 2L);
        expect(client.hincrBy("basket", "pears", 4), 5L);
        expect(client.hgetAll("basket"), Map.of("apples", "3", "pears", "5"));

        client.mset("account-a", "100", "account-b", "0");
        try (var transaction = client.multi()) {
            transaction.decrBy("account-a", 30);
            transaction.incrBy("account-b", 30);
            expect(transaction.exec(), List.of(70L, 30L));
        }
    }

    /** A table in Postgres: a row is a key. Requests that wait together share a statement. */
    static void postgres(JedisPooled client) {
        client.set("users:1", "Ada");
        expect(client.get("users:1"), "Ada");
        expect(client.get("users:0"), null);

        // A pipeline sends no MULTI, other than multi(): only tables in memory have transactions.
        List<String> keys = IntStream.rangeClosed(1, 100).mapToObj(n -> "users:" + n).toList();
        try (var pipeline = client.pipelined()) {
            keys.forEach(key -> pipeline.set(key, "name of " + key));
            keys.forEach(pipeline::get);
            List<Object> names = pipeline.syncAndReturnAll().subList(keys.size(), 2 * keys.size());
            expect(names, keys.stream().map(key -> "name of " + key).toList());
        }
        expect(client.del(keys.toArray(String[]::new)), 100L);
    }

    /** A chunk of a Dolt store. Its address is a hash of its contents. */
    static void chunks(JedisPooled client, String address) throws Exception {
        String nowhere = "0".repeat(32);
        expect(client.exists("db:" + address, "db:" + nowhere), 1L);
        byte[] contents = client.get(("db:" + address).getBytes());
        byte[] digest = MessageDigest.getInstance("SHA-512").digest(contents);
        // 20 bytes as 32 digits of 5 bits: 0-9 and a-v.
        String digits = new BigInteger(1, Arrays.copyOf(digest, 20)).toString(32);
        expect("0".repeat(32 - digits.length()) + digits, address);
    }

    static void expect(Object found, Object wanted) {
        if (!java.util.Objects.equals(found, wanted)) {
            throw new AssertionError("expected " + wanted + ", got " + found);
        }
    }
}
