"""redis-py against the server whose port is the argument, in both protocols."""

import sys

import redis


def strings(r):
    assert r.set("s", "v") is True
    assert r.get("s") == "v"
    assert r.set("s", "w", nx=True) is None
    assert r.set("s", "w", xx=True, get=True) == "v"
    assert r.mset({"a": 1, "b": 2}) is True
    assert r.mget("a", "b", "none") == ["1", "2", None]
    assert r.incrby("a", 41) == 42
    assert r.incrbyfloat("f", 0.1) == 0.1
    assert r.append("s", "!") == 2 and r.getrange("s", 0, -1) == "w!"
    assert r.expire("s", 100) and 0 < r.ttl("s") <= 100
    assert r.delete("s", "none") == 1
    binary = redis.Redis(port=r.connection_pool.connection_kwargs["port"])
    assert binary.set(b"\x00\xff", bytes(range(256))) is True
    assert binary.get(b"\x00\xff") == bytes(range(256))


def hashes(r):
    assert r.hset("h", mapping={"x": "1", "y": "2"}) == 2
    assert r.hgetall("h") == {"x": "1", "y": "2"}
    assert r.hmget("h", "x", "none") == ["1", None]
    assert r.hincrby("h", "x", 2) == 3
    assert r.hdel("h", "y") == 1 and r.hlen("h") == 1
    assert dict(r.hscan_iter("h")) == {"x": "3"}
    try:
        r.get("h")
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE"), error
    else:
        raise AssertionError("GET of a hash succeeded")


def transactions(r):
    with r.pipeline(transaction=True) as p:
        p.set("t", 1).incr("t").incrby("t", 10).hset("th", "f", "v").get("t")
        assert p.execute() == [True, 2, 12, 1, "12"]
    with r.pipeline(transaction=False) as p:
        for i in range(1000):
            p.set(f"p:{i}", i)
        assert all(p.execute())
    with r.pipeline() as p:
        p.set("t", "text").incr("t").set("u", 1)
        results = p.execute(raise_on_error=False)
        assert isinstance(results[1], redis.ResponseError) and results[2] is True


def watch_retry(r):
    """The classic loop, with another client in between the first time."""
    r.set("balance", 100)
    attempts = 0
    with r.pipeline() as p:
        while True:
            try:
                p.watch("balance")
                balance = int(p.get("balance"))
                attempts += 1
                if attempts == 1:
                    r.incrby("balance", 1000)
                p.multi()
                p.set("balance", balance - 30)
                p.execute()
                break
            except redis.WatchError:
                continue
    assert (attempts, r.get("balance")) == (2, "1070")


def scan(r):
    r.flushall()
    keys = {f"key:{i}" for i in range(5000)}
    with r.pipeline(transaction=False) as p:
        for key in keys:
            p.set(key, "x")
        p.execute()
    assert set(r.scan_iter(count=100)) == keys
    expected = {k for k in keys if k.startswith("key:1")}
    assert set(r.scan_iter(match="key:1*", count=1000)) == expected
    assert r.dbsize() == len(keys)
    assert r.flushdb() is True and r.dbsize() == 0


def server(r, protocol):
    assert r.ping() is True
    assert r.client_id() > 0
    r.client_setname("check")
    assert r.client_getname() == "check"
    info = r.info()
    assert int(info["connected_clients"]) >= 1 and info["redis_version"]
    assert r.config_get("maxclients")
    assert r.command_count() > 50
    assert "get" in r.command()


def main():
    port = int(sys.argv[1])
    for protocol in (2, 3):
        r = redis.Redis(port=port, protocol=protocol, decode_responses=True)
        r.flushall()
        for part in (strings, hashes, transactions, watch_retry, scan):
            part(r)
        server(r, protocol)
        pooled = redis.Redis.from_url(
            f"redis://localhost:{port}/5?protocol={protocol}", decode_responses=True
        )
        assert pooled.set("in", "five") and r.get("in") is None and pooled.get("in") == "five"
        r.close()
    print(f"redis-py {redis.__version__}: RESP2 and RESP3")


main()
