// Jedis against the server whose port is the argument.

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.resps.ScanResult;

class JedisCheck {
    static void expect(Object found, Object wanted) {
        if (!java.util.Objects.equals(found, wanted)) {
            throw new AssertionError(found + " instead of " + wanted);
        }
    }

    public static void main(String[] arguments) {
        try (JedisPool pool = new JedisPool("127.0.0.1", Integer.parseInt(arguments[0]));
                Jedis jedis = pool.getResource();
                Jedis other = pool.getResource()) {
            jedis.flushAll();
            expect(jedis.set("k", "v"), "OK");
            expect(jedis.get("k"), "v");
            expect(jedis.hset("h", Map.of("a", "1", "b", "2")), 2L);
            expect(jedis.hgetAll("h"), Map.of("a", "1", "b", "2"));
            Pipeline pipeline = jedis.pipelined();
            for (int i = 0; i < 1000; i++) pipeline.set("p:" + i, "x");
            expect(pipeline.syncAndReturnAll().size(), 1000);
            Transaction transaction = jedis.multi();
            transaction.set("t", "1");
            transaction.incr("t");
            expect(transaction.exec(), List.of("OK", 2L));
            jedis.watch("k");
            other.set("k", "changed");
            transaction = jedis.multi();
            transaction.set("k", "mine");
            expect(transaction.exec(), null);
            Set<String> seen = new HashSet<>();
            String cursor = ScanParams.SCAN_POINTER_START;
            do {
                ScanResult<String> page =
                        jedis.scan(cursor, new ScanParams().match("p:*").count(100));
                seen.addAll(page.getResult());
                cursor = page.getCursor();
            } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
            expect(seen.size(), 1000);
        }
        System.out.println("Jedis");
    }
}
