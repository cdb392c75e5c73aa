// Lettuce against the server whose port is the argument, in both protocols.

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

class LettuceCheck {
    static void expect(Object found, Object wanted) {
        if (!java.util.Objects.equals(found, wanted)) {
            throw new AssertionError(found + " instead of " + wanted);
        }
    }

    public static void main(String[] arguments) {
        ProtocolVersion[] versions = {ProtocolVersion.RESP2, ProtocolVersion.RESP3};
        for (ProtocolVersion version : versions) {
            RedisClient client = RedisClient.create("redis://127.0.0.1:" + arguments[0]);
            client.setOptions(ClientOptions.builder().protocolVersion(version).build());
            try (StatefulRedisConnection<String, String> connection = client.connect();
                    StatefulRedisConnection<String, String> second = client.connect()) {
                RedisCommands<String, String> redis = connection.sync();
                redis.flushall();
                expect(redis.set("k", "v"), "OK");
                expect(redis.get("k"), "v");
                expect(redis.hset("h", Map.of("a", "1", "b", "2")), 2L);
                expect(redis.hgetall("h"), Map.of("a", "1", "b", "2"));
                for (int i = 0; i < 1000; i++) redis.set("p:" + i, "x");
                redis.multi();
                redis.set("t", "1");
                redis.incr("t");
                TransactionResult results = redis.exec();
                expect(results.get(1), 2L);
                redis.watch("k");
                second.sync().set("k", "changed");
                redis.multi();
                redis.set("k", "mine");
                expect(redis.exec().wasDiscarded(), true);
                Set<String> seen = new HashSet<>();
                ScanIterator<String> keys =
                        ScanIterator.scan(redis, ScanArgs.Builder.matches("p:*").limit(100));
                while (keys.hasNext()) seen.add(keys.next());
                expect(seen.size(), 1000);
            }
            client.shutdown();
        }
        System.out.println("Lettuce: RESP2 and RESP3");
    }
}
